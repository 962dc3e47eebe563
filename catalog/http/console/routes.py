"""Routes of the console: they authenticate by the session, take forms, and answer errors with pages.

- The caller is the user of the token that the session's cookie stands for, found by the function that the API
  uses. So expiry, revocation, disabled users, scopes and logouts at a provider hold with the next request.
- Each POST needs `Origin` with the console's own address, that of login too. A browser sends it with every
  form, and a page of another site cannot change it. So no other site can log a user out, log them in
  with another token, or send a form. A link can begin a login at a provider, as the user themselves.
- Everything else is as for the API: the first authorization, bounds of bodies, threads, the audit log.

Source: WHATWG Fetch Standard, section 3.2 (`Origin`); OWASP Cross-Site Request Forgery Prevention.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from fastapi import Request, Response
from fastapi.routing import APIRoute

from catalog.audit.outcomes import Outcome
from catalog.authorization.authorizer import Caller
from catalog.authorization.console_sessions import session_over
from catalog.http.auth import request_id_of
from catalog.http.console.cookies import SESSION, address_of_console
from catalog.http.console.login_page import login_page
from catalog.http.console.navigation import HOME
from catalog.http.console.rendering import page
from catalog.http.endpoint_calls import NO_DOCUMENT
from catalog.http.errors import (
    AnswerToError,
    MethodRefused,
    NoSuchEndpoint,
    note_refusal,
    refusal,
    shape_of,
)
from catalog.http.forms import single_fields
from catalog.http.routing import GuardedRoute, Handler, address_of, app_of
from catalog.service.services import Services
from policy.errors import LakewardenError, NotAuthenticated, NotAuthorized

_READING: Final = frozenset({"GET", "HEAD"})
_ORIGIN: Final = "Origin"


def error_page(request: Request, error: LakewardenError) -> Response:
    """Answer a request that ended with one of our errors: what happened, by which rule, and what to do."""
    note_refusal(request, error)
    if isinstance(error, NotAuthenticated):
        return login_page(request, error)
    status = status_of(error)
    return page(request, "error", status, error=error, code=status)


def status_of(error: LakewardenError) -> int:
    """Return the HTTP status of one of our errors, as the API answers it."""
    shape = shape_of(type(error))
    return 500 if shape is None else shape.status


def session_error_page(request: Request, error: LakewardenError) -> Response:
    """Answer as `error_page`, and have the browser forget a session that is over.

    A browser that sent no cookie keeps what it has: it sends none with requests that another site began, so
    that a link there would log its user out.
    """
    response = error_page(request, error)
    if isinstance(error, NotAuthenticated) and SESSION.value(request) is not None:
        SESSION.clear(request, response)
    return response


def answer_without_route(request: Request, error: LakewardenError) -> Response:
    """Answer a request that no route serves: with a page below the console's path, elsewhere as the API."""
    path = request.url.path
    if path != HOME and not path.startswith(f"{HOME}/"):
        return refusal(request, error)
    if isinstance(error, NoSuchEndpoint):
        error = NoSuchEndpoint(
            "The console has no page at this address.",
            rule=error.rule,
            hint="Check the address, or go to the first page.",
        )
    elif isinstance(error, MethodRefused):
        error = MethodRefused(
            f"The console does not take {request.method} at this address.",
            rule=error.rule,
            hint="Use the links and buttons of its pages.",
        )
    return error_page(request, error)


class ConsoleRoute(GuardedRoute):
    """A route for users with a session."""

    answer_to: AnswerToError = staticmethod(session_error_page)

    def outcome(self, method: str) -> Outcome:
        """Create the outcome of a request: none changes anything in the catalog."""
        return Outcome(f"{method} {self.path_format}", changes=False)

    def _caller(self, request: Request) -> Caller:
        """Authenticate the user of the session; runs in a thread."""
        require_own_origin(request)
        services: Services = request.app.state.services
        cookie, request_id = SESSION.value(request), request_id_of(request)
        if cookie is None:
            # A visit without a session claims nothing, so that there is nothing to record.
            raise session_over("missing: there is no cookie of a session, or more than one")
        try:
            user = services.bearer_tokens.user(services.console_sessions.token(cookie))
        except NotAuthenticated as refusal:
            services.authorizer.turned_away(address_of(request), request_id, refusal)
            raise
        return Caller(user, None, request_id)

    async def _document(self, request: Request, body: bytes, max_elements: int) -> object:
        """Read the body as a form."""
        return single_fields(request.headers, body) if body else NO_DOCUMENT


class OpenRoute(APIRoute):
    """A route for everybody: login, and the files of the pages. Its endpoint takes the request alone."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        super().__init__(path, endpoint, **options)
        self.app = app_of(self._checked, error_page)

    def get_route_handler(self) -> Handler:
        """Return the handler of requests, for the framework too."""
        return self._checked

    async def _checked(self, request: Request) -> Response:
        require_own_origin(request)
        answer: Response = await self.endpoint(request)
        return answer


def require_own_origin(request: Request) -> None:
    """Refuse a form that a page of another site sent, or that does not say which page sent it.

    Raises:
        NotAuthorized: it is such a form.
    """
    own = address_of_console(request)
    if request.method not in _READING and request.headers.getlist(_ORIGIN) != [own]:
        raise NotAuthorized(
            "The form was not sent by a page of this console.",
            rule="console-origin",
            hint=f"Open {own}/console and send the form from there.",
        )
