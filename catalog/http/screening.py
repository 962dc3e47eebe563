"""Decides the first authorization of a request, from its route alone, before its body is read.

What an operation needs is often known only from its body. This first decision refuses callers who have no
permission that could let the operation through; the operation itself decides the rest. It never refuses what
the operation would allow.

A body can be large only where an operation is screened, so that every new operation starts with small ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from catalog.authorization.authorizer import Caller
from catalog.http.admin_access import may_change_policies
from catalog.http.bodies import namespace_from_path, table_from_path
from catalog.service.services import Services
from catalog.settings.catalog import HttpSettings
from policy.privileges.operations import On, required

#: Bytes and elements of a body that is read without a first authorization.
SMALL_BODY: Final = 1024 * 1024
SMALL_ELEMENTS: Final = 10_000

_ATTRIBUTE: Final = "__lakewarden_screen__"
_Endpoint = TypeVar("_Endpoint", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much of a body is read.

    Attributes:
        size: in bytes.
        elements: values, names and containers of its JSON.
    """

    size: int
    elements: int

    @classmethod
    def small(cls, http: HttpSettings) -> Bounds:
        """Of a body that is read for every caller."""
        return cls(min(http.max_body_bytes, SMALL_BODY), min(http.max_json_elements, SMALL_ELEMENTS))

    @classmethod
    def filtering(cls, http: HttpSettings) -> Bounds:
        """Of a body that brings names, properties or a filter."""
        return cls(min(http.max_body_bytes, SMALL_BODY), http.max_json_elements)

    @classmethod
    def metadata(cls, http: HttpSettings) -> Bounds:
        """Of a body that brings a schema or a snapshot."""
        return cls(http.max_body_bytes, http.max_json_elements)

    @classmethod
    def bulk(cls, http: HttpSettings) -> Bounds:
        """Of a body that brings data files or policies."""
        return cls(http.max_body_bytes, http.max_bulk_json_elements)


#: Refuses a caller, or says how much of the body is read.
Screen = Callable[[Services, Caller, Mapping[str, str]], Bounds]


def screened(screen: Screen) -> Callable[[_Endpoint], _Endpoint]:
    """Screen the requests of an endpoint."""

    def marked(endpoint: _Endpoint) -> _Endpoint:
        setattr(endpoint, _ATTRIBUTE, screen)
        return endpoint

    return marked


def bounds_of(
    endpoint: Callable[..., Any], services: Services, caller: Caller, parts: Mapping[str, str]
) -> Bounds:
    """Screen a request.

    Args:
        endpoint: what answers it.
        services: the open catalog.
        caller: who asks.
        parts: what the path names.

    Returns:
        how much of its body is read.

    Raises:
        NotAuthorized: nothing that the caller could ask here would be granted.
        RequestInvalid: the path holds what is no name.
        StateUnavailable: the database does not answer.
    """
    screen: Screen | None = getattr(endpoint, _ATTRIBUTE, None)
    return Bounds.small(services.settings.http) if screen is None else screen(services, caller, parts)


def new_table(action: str) -> Screen:
    """For creating a table in a namespace: any permission in it. The body names the table."""

    def screen(services: Services, caller: Caller, parts: Mapping[str, str]) -> Bounds:
        namespace = namespace_from_path(parts["namespace"])
        requests = required("namespace.load", On.namespace(caller.principal, namespace))
        services.authorizer.screen(caller, action, ".".join(namespace), *requests)
        return Bounds.metadata(services.settings.http)

    return screen


def table(
    action: str, *operations: str, bounds: Callable[[HttpSettings], Bounds] = Bounds.metadata
) -> Screen:
    """For a table: any privilege that one of these operations requires; by default, the action itself."""

    def screen(services: Services, caller: Caller, parts: Mapping[str, str]) -> Bounds:
        name = table_from_path(parts["namespace"], parts["table"])
        on = caller.on(name, services.loader.owner(name))
        ways = [request for each in operations or (action,) for request in required(each, on)]
        services.authorizer.screen(caller, action, str(name), *ways)
        return bounds(services.settings.http)

    return screen


def write(services: Services, caller: Caller, parts: Mapping[str, str]) -> Bounds:
    """For committing a write: it is the caller's, and permitted still."""
    services.writes.screen(caller, parts["write_id"])
    return Bounds.bulk(services.settings.http)


def policies(services: Services, caller: Caller, parts: Mapping[str, str]) -> Bounds:
    """For changing policies: only administrators of the catalog send large documents."""
    bounds = Bounds.bulk if may_change_policies(services, caller) else Bounds.small
    return bounds(services.settings.http)
