"""Logs users in to the console at their identity provider (`catalog.identity.code_logins`).

The provider sends the user back from its own site. A browser does not send a cookie with `SameSite=Strict`
there, nor after a redirect. So the answer is a page, from which the browser goes on by itself.
"""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse

from catalog.http.auth import request_id_of
from catalog.http.console.cookies import LOGIN
from catalog.http.console.login import begin_session
from catalog.http.console.rendering import page, protected
from catalog.http.console.routes import OpenRoute
from catalog.http.errors import NoSuchEndpoint
from catalog.http.routing import address_of
from catalog.http.threads import in_thread
from catalog.identity.code_logins import Answer, CodeLogins
from catalog.service.services import Services
from policy.errors import NotAuthenticated, RequestInvalid

_LOGIN: Final = "/console/login/{issuer}"

open_router = APIRouter(route_class=OpenRoute, include_in_schema=False)


@open_router.get(_LOGIN)
async def begin(request: Request) -> Response:
    """Send the browser to the provider."""
    return await in_thread(_begin, request)


@open_router.get(f"{_LOGIN}/callback")
async def finish(request: Request) -> Response:
    """Take the code that the provider sent the browser back with, and begin a session."""
    return await in_thread(_finish, request)


def _begin(request: Request) -> Response:
    logins, name = _logins(request)
    address, kept = logins.begin(name)
    response = protected(RedirectResponse(address, 303))
    LOGIN.set(request, response, kept)
    return response


def _finish(request: Request) -> Response:
    logins, name = _logins(request)
    services: Services = request.app.state.services
    try:
        token = logins.finish(name, LOGIN.value(request), _answer(request))
    except NotAuthenticated as refusal:
        services.authorizer.turned_away(address_of(request), request_id_of(request), refusal)
        raise
    response = begin_session(request, token, page(request, "logged_in"))
    LOGIN.clear(request, response)
    return response


def _logins(request: Request) -> tuple[CodeLogins, str]:
    """Return the logins, and the issuer's name in the address.

    Raises:
        NoSuchEndpoint: users do not log in to the console by this issuer.
    """
    services: Services = request.app.state.services
    name = request.path_params["issuer"]
    if services.console_logins is None or name not in services.settings.identity.console_issuers:
        raise NoSuchEndpoint(
            "Users do not log in to the console by this issuer.", rule="endpoint", hint="Open /console/login."
        )
    return services.console_logins, name


def _answer(request: Request) -> Answer:
    """Return what the provider sent.

    Raises:
        RequestInvalid: a parameter is given twice: two readers could use different values.
    """
    given = request.query_params
    if len(given.multi_items()) != len(given):
        raise RequestInvalid("A parameter is given twice.", rule="request", hint="Log in again.")
    return Answer(given.get("state"), given.get("code"), given.get("iss"), given.get("error"))
