"""Makes the first authorization of a request, by its route alone, before its body is read.

What an operation needs is often known only from its body. The first authorization refuses callers without any
permission that could allow the operation; the operation itself decides the rest. It never refuses what the
operation would allow.

Only screened operations read large bodies, so every new operation starts with small ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from catalog.authorization.authorizer import Caller
from catalog.http.admin_access import may_change_policies
from catalog.http.bodies import namespace_from_path, table_from_path
from catalog.service.services import Services
from catalog.settings.sections import HttpSettings
from policy.privileges.operations import On, required

#: Maximum bytes and elements of a body without a first authorization.
SMALL_BODY: Final = 1024 * 1024
SMALL_ELEMENTS: Final = 10_000

_ATTRIBUTE: Final = "__lakewarden_screen__"
_Endpoint = TypeVar("_Endpoint", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Bounds:
    """The limits of a body.

    Attributes:
        size: in bytes.
        elements: values, names and containers of its JSON.
    """

    size: int
    elements: int

    @classmethod
    def small(cls, http: HttpSettings) -> Bounds:
        """Return the limits of a body that is read for every caller."""
        return cls(min(http.max_body_bytes, SMALL_BODY), min(http.max_json_elements, SMALL_ELEMENTS))

    @classmethod
    def filtering(cls, http: HttpSettings) -> Bounds:
        """Return the limits of a body with names, properties or a filter."""
        return cls(min(http.max_body_bytes, SMALL_BODY), http.max_json_elements)

    @classmethod
    def metadata(cls, http: HttpSettings) -> Bounds:
        """Return the limits of a body with a schema or a snapshot."""
        return cls(http.max_body_bytes, http.max_json_elements)

    @classmethod
    def bulk(cls, http: HttpSettings) -> Bounds:
        """Return the limits of a body with data files or policies."""
        return cls(http.max_body_bytes, http.max_bulk_json_elements)


#: Refuses a caller, or returns the limits of the body.
Screen = Callable[[Services, Caller, Mapping[str, str]], Bounds]


def screened(screen: Screen) -> Callable[[_Endpoint], _Endpoint]:
    """Decorate an endpoint with its first authorization."""

    def marked(endpoint: _Endpoint) -> _Endpoint:
        setattr(endpoint, _ATTRIBUTE, screen)
        return endpoint

    return marked


def bounds_of(
    endpoint: Callable[..., Any], services: Services, caller: Caller, parts: Mapping[str, str]
) -> Bounds:
    """Make the first authorization of a request, and return the limits of its body.

    Args:
        endpoint: the endpoint of the request.
        services: the open catalog.
        caller: who asks.
        parts: the names in the path.

    Returns:
        how much of its body is read.

    Raises:
        NotAuthorized: no request of the caller to this endpoint would be allowed.
        RequestInvalid: a name in the path is not valid.
        StateUnavailable: the database does not answer.
    """
    screen: Screen | None = getattr(endpoint, _ATTRIBUTE, None)
    return Bounds.small(services.settings.http) if screen is None else screen(services, caller, parts)


def new_table(action: str) -> Screen:
    """Screen the creation of a table: any permission in the namespace. The body names the table."""

    def screen(services: Services, caller: Caller, parts: Mapping[str, str]) -> Bounds:
        namespace = namespace_from_path(parts["namespace"])
        requests = required("namespace.load", On.namespace(caller.principal, namespace))
        services.authorizer.screen(caller, action, ".".join(namespace), *requests)
        return Bounds.metadata(services.settings.http)

    return screen


def table(
    action: str, *operations: str, bounds: Callable[[HttpSettings], Bounds] = Bounds.metadata
) -> Screen:
    """Screen an operation on a table: any privilege that one of `operations` requires (default: `action`)."""

    def screen(services: Services, caller: Caller, parts: Mapping[str, str]) -> Bounds:
        name = table_from_path(parts["namespace"], parts["table"])
        on = caller.on(name, services.loader.owner(name))
        ways = [request for each in operations or (action,) for request in required(each, on)]
        services.authorizer.screen(caller, action, str(name), *ways)
        return bounds(services.settings.http)

    return screen


def view(action: str) -> Screen:
    """Screen a scan through a view: any permission on the view."""

    def screen(services: Services, caller: Caller, parts: Mapping[str, str]) -> Bounds:
        name = table_from_path(parts["namespace"], parts["view"])
        owner = services.views.owner(name)
        services.authorizer.screen(
            caller, action, str(name), *required("view.exists", caller.on(name, owner))
        )
        return Bounds.filtering(services.settings.http)

    return screen


def write(services: Services, caller: Caller, parts: Mapping[str, str]) -> Bounds:
    """Screen the commit of a write: it is the caller's own, and still allowed."""
    services.writes.screen(caller, parts["write_id"])
    return Bounds.bulk(services.settings.http)


def policies(services: Services, caller: Caller, parts: Mapping[str, str]) -> Bounds:
    """Screen a change of policies: only administrators of the catalog can send large documents."""
    bounds = Bounds.bulk if may_change_policies(services, caller) else Bounds.small
    return bounds(services.settings.http)
