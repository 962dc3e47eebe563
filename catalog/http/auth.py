"""Who calls.

- Everything but `/healthz` wants `Authorization: Bearer <user token>`.
- `/engine/v1` also takes `Lakewarden-Engine-Token: <engine token>`: an engine that acts for the user. The
  engine needs `engine:act` on its own name. Without it, the caller is the user's own process.
- A header given twice is refused: two readers could take a different one.
- Who calls is settled before a byte of the body is read. Tokens are never logged and never taken from the
  address.
- Whom nobody knows is refused on record, with the address that he calls from.
"""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import Depends, Request
from fastapi.security import APIKeyHeader, HTTPBearer
from starlette.datastructures import Headers

from catalog.authorize import Caller
from catalog.http.boundary import REQUEST_ID_STATE
from catalog.http.metrics import Metrics
from catalog.warden import Warden
from policy.errors import NotAuthenticated
from policy.principal import Principal
from policy.requests import AccessRequest, Resource

ENGINE_HEADER: Final = "Lakewarden-Engine-Token"
_BEARER: Final = "bearer"
_HINT: Final = "Send `Authorization: Bearer <token>`; an administrator issues tokens."

#: For the description of the interface; `authenticated` is what checks.
USER_SCHEME: Final = HTTPBearer(scheme_name="user token", auto_error=False)
ENGINE_SCHEME: Final = APIKeyHeader(name=ENGINE_HEADER, scheme_name="engine token", auto_error=False)


def authenticated(
    warden: Warden, headers: Headers, request_id: str, address: str, *, engines: bool
) -> Caller:
    """Whose request this is.

    Args:
        warden: the open catalog.
        headers: of the request.
        request_id: of the request.
        address: the network address of whoever sent it.
        engines: whether an engine may act for the user here.

    Raises:
        NotAuthenticated: no valid token, or more than one.
        NotAuthorized: the engine may not act for users.
        StateUnavailable: the database does not answer.
    """
    try:
        user = warden.tokens.verify(_bearer(headers), "user")
        engine = _engine(warden, headers) if engines else None
    except NotAuthenticated as refusal:
        warden.authorizer.turned_away(address, request_id, refusal)
        raise
    if engine is not None:
        # What is granted to it is on record with what it asks for: each record names the engine.
        acting = Caller(engine, engine, request_id)
        request = AccessRequest(engine, Resource.engine(engine.name), "act")
        warden.authorizer.screen(acting, "engine.act", engine.name, request)
    return Caller(user, engine, request_id)


def _bearer(headers: Headers) -> str:
    scheme, _, token = _single(headers, "Authorization").partition(" ")
    if scheme.lower() != _BEARER or not token:
        raise NotAuthenticated("The request carries no bearer token.", rule="token", hint=_HINT)
    return token


def _engine(warden: Warden, headers: Headers) -> Principal | None:
    if ENGINE_HEADER not in headers:
        return None
    return warden.tokens.verify(_single(headers, ENGINE_HEADER), "engine")


def _single(headers: Headers, name: str) -> str:
    values = headers.getlist(name)
    if len(values) != 1:
        how_often = "more than once" if values else "not"
        raise NotAuthenticated(f"The header {name} is {how_often} given.", rule="token", hint=_HINT)
    return values[0]


async def _warden(request: Request) -> Warden:
    warden: Warden = request.app.state.warden
    return warden


async def _metrics(request: Request) -> Metrics:
    metrics: Metrics = request.app.state.metrics
    return metrics


async def _caller(request: Request) -> Caller:
    caller: Caller = request.state.caller
    return caller


def request_id_of(request: Request) -> str:
    """The id under which this request is logged and audited."""
    request_id: str = getattr(request.state, REQUEST_ID_STATE)
    return request_id


WardenOf = Annotated[Warden, Depends(_warden)]
MetricsOf = Annotated[Metrics, Depends(_metrics)]
CallerOf = Annotated[Caller, Depends(_caller)]
