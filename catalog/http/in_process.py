"""Answers requests to `/admin/v1` in this process, for commands on the catalog's host.

The operations are those of the HTTP routes. The caller is known, so no token or network is needed, and a body
is a document of this process.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any, Final

from fastapi import Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, TypeAdapter, ValidationError
from starlette.routing import Match

from catalog.authorization.authorizer import Caller
from catalog.base.progress import Tell
from catalog.closing import closed
from catalog.http import admin_keys, admin_kms_endpoint, admin_master_keys, admin_tables
from catalog.http.errors import NoSuchEndpoint, ours
from catalog.http.idempotency import Once
from catalog.http.metrics import Metrics
from catalog.http.routing import GuardedRoute
from catalog.service.services import Services

_PREFIX: Final = "/admin/v1"
_ROUTERS: Final = (
    admin_tables.router,
    admin_keys.router,
    admin_master_keys.router,
    admin_kms_endpoint.router,
)


class InProcess:
    """The administration API of an open catalog, for one caller.

    Args:
        services: the open catalog.
        caller: the user; every operation is authorized and recorded as for a request of this user.
        progress: called with the progress of long operations.
    """

    def __init__(self, services: Services, caller: Caller, progress: Tell) -> None:
        self._services = services
        self._caller = caller
        metrics = Metrics()
        self._provided = {
            "caller": caller,
            "services": services,
            "metrics": metrics,
            "once": Once(None, metrics),
            "progress": progress,
            "response": Response(),
        }

    def ask(
        self,
        method: str,
        path: Sequence[str],
        body: Mapping[str, Any] | None = None,
        query: Mapping[str, object] | None = None,
    ) -> Any:
        """Call an operation, and return its JSON document.

        Args:
            method: the HTTP method.
            path: the names below `/admin/v1`.
            body: the JSON document to send.
            query: the query.

        Raises:
            LakewardenError: the refusal, as the operation raises it.
        """
        route, found = _found(method, path)
        given = {**found, **{name.replace("-", "_"): value for name, value in (query or {}).items()}}
        outcome = route.outcome(method)
        with closed(self._services.authorizer, self._caller, outcome.route, changes=outcome.changes):
            # The endpoint itself, which runs in this thread.
            answer = inspect.unwrap(route.endpoint)(**self._arguments(route, given, body))
        assert isinstance(answer, BaseModel)
        return answer.model_dump(mode="json")

    def _arguments(
        self, route: GuardedRoute, path: Mapping[str, Any], body: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        """Build the arguments of an operation from path, body and this process."""
        given = path if body is None else {**path, "body": body}
        wanted = inspect.signature(route.endpoint, eval_str=True).parameters
        try:
            parsed = {
                name: TypeAdapter(wanted[name].annotation).validate_python(value)
                for name, value in given.items()
            }
        except ValidationError as error:
            raise ours(RequestValidationError(error.errors())) from None
        return parsed | {name: value for name, value in self._provided.items() if name in wanted}


def _found(method: str, path: Sequence[str]) -> tuple[GuardedRoute, Mapping[str, Any]]:
    """Return the route of an operation, and the names in its path."""
    scope = {"type": "http", "method": method, "path": "/".join((_PREFIX, *path)), "headers": []}
    for router in _ROUTERS:
        for route in router.routes:
            match, found = route.matches(scope)
            if match is Match.FULL:
                assert isinstance(route, GuardedRoute)
                return route, found["path_params"]
    raise NoSuchEndpoint(f"No operation has the path {scope['path']}.", rule="endpoint")
