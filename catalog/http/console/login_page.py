"""Makes the page with which users log in; it also answers requests without a valid session."""

from __future__ import annotations

from fastapi import Request, Response

from catalog.http.console.rendering import page
from policy.errors import NotAuthenticated

_CHALLENGE = 'Bearer realm="lakewarden"'


def login_page(request: Request, refusal: NotAuthenticated | None = None) -> Response:
    """Make the page.

    Args:
        request: the request that it answers.
        refusal: why the user has to log in; None if nothing was refused.
    """
    issuers = request.app.state.services.settings.identity.console_issuers
    status = 200 if refusal is None else 401
    response = page(request, "login", status, issuers=issuers, refusal=refusal)
    if refusal is not None:
        response.headers["WWW-Authenticate"] = _CHALLENGE
    return response
