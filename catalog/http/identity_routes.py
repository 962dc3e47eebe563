"""Takes messages of identity providers: a user has logged out (OpenID Connect Back-Channel Logout 1.0).

A provider sends no token of a user: its logout token is signed. What is wrong with one, the caller does not
learn. Only a logout that ends something is recorded and kept, so that one that is sent again costs a check of
its signature.
"""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter, Request, Response

from catalog.http.auth import ServicesOf, request_id_of
from catalog.http.forms import FORM, fields_of
from catalog.http.operations import ERRORS
from catalog.http.routing import address_of, bounded_body
from catalog.http.threads import in_thread
from catalog.service.services import Services
from policy.errors import NotAuthenticated, RequestInvalid

_FIELD: Final = "logout_token"
_LONGEST: Final = 32 * 1024

router = APIRouter(prefix="/identity/v1", tags=["identity"])


@router.post(
    "/logout",
    response_class=Response,
    responses={status: ERRORS[status] for status in (400, 413, 415, 503)},
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {
                FORM: {
                    "schema": {
                        "type": "object",
                        "required": [_FIELD],
                        "properties": {_FIELD: {"type": "string"}},
                    }
                }
            },
        }
    },
)
async def log_out(request: Request, services: ServicesOf) -> Response:
    """Refuse the tokens of a login that ended at its identity provider, from the next request on.

    Identity providers call it, with a logout token in a form.
    """
    address = address_of(request)
    with request.app.state.bodies.begun(address) as room:
        token = _token_in(request, await bounded_body(request, _LONGEST, room))
    await in_thread(_log_out, services, token, address, request_id_of(request))
    return Response()


def _log_out(services: Services, token: str, address: str, request_id: str) -> None:
    try:
        logout, issuer = services.bearer_tokens.logout(token)
    except NotAuthenticated as refusal:
        services.authorizer.turned_away(address, request_id, refusal)
        raise RequestInvalid(
            "The logout token is not valid here.",
            rule="logout-token",
            hint="An administrator finds the reason in the log.",
            why=refusal.why,
        ) from None
    if services.logouts.is_news(logout):
        services.authorizer.logged_out(address, request_id, issuer, logout)
        services.logouts.add(logout)


def _token_in(request: Request, body: bytes) -> str:
    """Return the only logout token in a form.

    Raises:
        ContentTypeRefused: the body is no form.
        RequestInvalid: the form has none, or more than one.
    """
    tokens = [value for name, value in fields_of(request.headers, body) if name == _FIELD]
    if len(tokens) != 1:
        raise RequestInvalid(
            f"The form must have the field {_FIELD} once.",
            rule="logout-token",
            hint="Send the logout token of the identity provider.",
        )
    return tokens[0]
