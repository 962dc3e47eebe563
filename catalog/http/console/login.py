"""Logs users in to the console with a token, and out.

- A token is sent once, in the body of a form, and is neither in an address nor in a page nor in the log.
- A login begins a new session, and ends the one that the browser sent. With a request that comes back from a
  provider, it sends none.
- After a login, the browser is sent to the first page, wherever it was before: no parameter says where to, so
  that none can send a user to another site.
"""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter, Request, Response

from catalog.authorization.authorizer import Caller
from catalog.http.auth import ServicesOf, request_id_of
from catalog.http.console.cookies import SESSION
from catalog.http.console.login_page import login_page
from catalog.http.console.navigation import HOME
from catalog.http.console.rendering import see_other
from catalog.http.console.routes import ConsoleRoute, OpenRoute
from catalog.http.forms import single_fields
from catalog.http.routing import address_of, bounded_body
from catalog.http.threads import in_thread
from catalog.service.services import Services
from policy.decision import Decision, Reason
from policy.errors import NotAuthenticated, RequestInvalid

LOGIN: Final = "/console/login"
_LONGEST: Final = 20 * 1024
_FIELD: Final = "token"

open_router = APIRouter(route_class=OpenRoute, include_in_schema=False)
router = APIRouter(route_class=ConsoleRoute, include_in_schema=False)


@open_router.get(LOGIN)
async def show_login(request: Request) -> Response:
    """Show the form."""
    return login_page(request)


@open_router.post(LOGIN)
async def log_in(request: Request) -> Response:
    """Begin a session with the token in the form."""
    with request.app.state.bodies.begun(address_of(request)) as room:
        body = await bounded_body(request, _LONGEST, room)
        fields = single_fields(request.headers, body)
    if set(fields) != {_FIELD}:
        raise RequestInvalid(
            f"The form must have the field {_FIELD} alone.", rule="form", hint="Use the form of the console."
        )
    return await in_thread(begin_session, request, fields[_FIELD].strip(), see_other(HOME))


@router.post("/console/logout")
def log_out(request: Request, services: ServicesOf) -> Response:
    """End the session; the token stays valid."""
    cookie = SESSION.value(request)
    assert cookie is not None, "the route has found the session by it"
    services.console_sessions.end(cookie)
    response = see_other(LOGIN)
    SESSION.clear(request, response)
    return response


def begin_session(request: Request, token: str, response: Response) -> Response:
    """Check a token as the API does, begin a session with it, and set its cookie.

    Args:
        request: the request that logs in.
        token: the token.
        response: the answer to it.

    Raises:
        NotAuthenticated: it is not valid, for whatever reason.
        StateUnavailable, ProviderUnavailable: as `BearerTokens.user`.
    """
    services: Services = request.app.state.services
    request_id = request_id_of(request)
    try:
        user = services.bearer_tokens.user(token)
    except NotAuthenticated as refusal:
        services.authorizer.turned_away(address_of(request), request_id, refusal)
        raise
    began = Reason("console-session", f"A session of the console began from {address_of(request)}.")
    caller = Caller(user, None, request_id)
    services.authorizer.record(caller, "console.login", services.catalog, Decision.allow(began))
    former = SESSION.value(request)
    if former is not None:
        services.console_sessions.end(former)
    SESSION.set(request, response, services.console_sessions.begin(user.name, token))
    return response
