"""Authenticates requests by their headers alone.

- Every operation but `/livez`, `/readyz` and `/healthz` needs `Authorization: Bearer <user token>`.
- `/engine/v1` and `/v1` also accept the signature of an engine that acts for the user
  (`catalog.crypto.request_signatures`). The engine needs `engine:act` on its own name. Without a signature,
  the caller is the user's own process.
- To register its signing key, an engine sends its own token as the bearer token, once.
- A header that is given twice is refused: two readers could use different values.
- The caller is known before the body is read. A signature covers the digest of the body, which is compared
  after the body was read and before it is parsed (`catalog.http.routing`).
- Users who run code in an engine can read its reusable token. So keys that were registered with such a token
  are refused while a policy grants `engine:code` on that engine to any user.
- Tokens are never logged and never read from the URL. Refused requests are recorded with their network
  address.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final

from fastapi import Depends, Request
from fastapi.security import APIKeyHeader, HTTPBearer
from starlette.datastructures import Headers

from catalog.authorization.authorizer import Caller
from catalog.authorization.engine_keys import SigningEngine
from catalog.authorization.tokens import TokenInfo
from catalog.base.progress import Tell, silent
from catalog.crypto.request_signatures import (
    CONTENT_DIGEST,
    IDEMPOTENCY_KEY,
    SIGNATURE,
    SIGNATURE_INPUT,
    RequestSignature,
    SignedRequest,
    digest_in,
    refused,
)
from catalog.http.boundary import REQUEST_ID_STATE
from catalog.http.metrics import Metrics
from catalog.service.services import Services
from policy.decision import Decision
from policy.errors import NotAuthenticated, NotAuthorized
from policy.privileges.operations import On, required

_BEARER: Final = "bearer"
_HINT: Final = "Send `Authorization: Bearer <token>`; an administrator issues tokens."
_SIGNATURE_HEADERS: Final = (SIGNATURE_INPUT, SIGNATURE, CONTENT_DIGEST)
#: Former header with an engine's token.
_FORMER_HEADER: Final = "Lakewarden-Engine-Token"

#: Only for the OpenAPI description; `authenticated` does the checks.
USER_SCHEME: Final = HTTPBearer(scheme_name="user token", auto_error=False)
ENGINE_SCHEME: Final = APIKeyHeader(name=SIGNATURE, scheme_name="engine signature", auto_error=False)
BOOTSTRAP_SCHEME: Final = HTTPBearer(scheme_name="engine token", auto_error=False)


@dataclass(frozen=True, slots=True)
class Authenticated:
    """The caller, and the body digest of its signature.

    Attributes:
        caller: the authenticated caller.
        body_sha256: the SHA-256 that the body must have; None for a request that is not signed.
    """

    caller: Caller
    body_sha256: bytes | None


def authenticated(request: Request, services: Services, address: str, *, engines: bool) -> Authenticated:
    """Authenticate the caller of a request; see the module.

    Args:
        request: its body is not read.
        services: the open catalog.
        address: the network address of its sender.
        engines: whether an engine can act for the user here.

    Raises:
        NotAuthenticated: no valid token, or more than one; or a signature that is not valid.
        NotAuthorized: the engine is not allowed to act for users.
        StateUnavailable: the database does not answer.
    """
    headers, request_id = request.headers, request_id_of(request)
    try:
        user = services.bearer_tokens.user(_bearer(headers))
        signed = _signed(request) if engines else None
        engine = None if signed is None else services.engine_keys.authenticate(*signed)
    except NotAuthenticated as refusal:
        services.authorizer.turned_away(address, request_id, refusal)
        raise
    if signed is None or engine is None:
        return Authenticated(Caller(user, None, request_id), None)
    _require_acting(services, engine, request_id)
    return Authenticated(Caller(user, engine.principal, request_id), signed[1].body_sha256)


def bootstrapping(request: Request, services: Services, address: str) -> tuple[Caller, TokenInfo]:
    """Authenticate an engine that registers its key; return it and its token. Errors: `authenticated`."""
    request_id = request_id_of(request)
    try:
        token = services.engine_keys.bootstrap(_bearer(request.headers))
    except NotAuthenticated as refusal:
        services.authorizer.turned_away(address, request_id, refusal)
        raise
    engine = SigningEngine(token.principal, token.kind == "engine-reusable")
    _require_acting(services, engine, request_id)
    return Caller(engine.principal, engine.principal, request_id), token


def _require_acting(services: Services, engine: SigningEngine, request_id: str) -> None:
    """Refuse an engine that is not allowed to act for users.

    Granted checks are recorded with the operation: each record names the engine.
    """
    principal = engine.principal
    acting, on = Caller(principal, principal, request_id), On.engine(principal, principal.name)
    services.authorizer.screen(acting, "engine.act", principal.name, *required("engine.act", on))
    code = services.authorizer.policies().grant_to_anyone(on.resource, "code") if engine.reusable else None
    if code is not None:
        services.authorizer.record(acting, "engine.act", principal.name, Decision.deny(code))
        raise NotAuthorized(
            f"The key of engine {principal.name} comes from a reusable token, and users can run code in it: "
            f"{code.detail}",
            rule="engine-token-reusable",
            hint="Revoke the grant of `code`, or start the engine with a one-time token "
            "(`lakewarden token issue --engine`).",
        )


def _bearer(headers: Headers) -> str:
    scheme, _, token = _single(headers, "Authorization").partition(" ")
    if scheme.lower() != _BEARER or not token:
        raise NotAuthenticated("The request carries no bearer token.", rule="token", hint=_HINT)
    return token


def _signed(request: Request) -> tuple[RequestSignature, SignedRequest] | None:
    """Return the signature of a request and the data that it covers; None for an unsigned request."""
    headers, scope = request.headers, request.scope
    if _FORMER_HEADER in headers:
        raise refused(f"{_FORMER_HEADER} is no longer accepted: engines sign their requests.")
    if not any(name in headers for name in _SIGNATURE_HEADERS):
        return None
    parameters, signature, digest = (_single(headers, name) for name in _SIGNATURE_HEADERS)
    covered = SignedRequest(
        request.method,
        scope["raw_path"].decode("latin-1"),
        scope["query_string"].decode("latin-1"),
        _single(headers, "Authorization"),
        _single(headers, IDEMPOTENCY_KEY) if IDEMPOTENCY_KEY in headers else None,
        digest_in(digest),
    )
    return RequestSignature.parse(parameters, signature), covered


def _single(headers: Headers, name: str) -> str:
    values = headers.getlist(name)
    if len(values) != 1:
        how_often = "more than once" if values else "not"
        raise NotAuthenticated(f"The header {name} is {how_often} given.", rule="token", hint=_HINT)
    return values[0]


async def _services(request: Request) -> Services:
    services: Services = request.app.state.services
    return services


async def _metrics(request: Request) -> Metrics:
    metrics: Metrics = request.app.state.metrics
    return metrics


async def _caller(request: Request) -> Caller:
    caller: Caller = request.state.caller
    return caller


async def _progress() -> Tell:
    """Return that nothing is told: only commands in this process show progress."""
    return silent


async def _bootstrap(request: Request) -> TokenInfo:
    token: TokenInfo = request.state.bootstrap
    return token


def request_id_of(request: Request) -> str:
    """Return the id under which the request is logged and audited."""
    request_id: str = getattr(request.state, REQUEST_ID_STATE)
    return request_id


ServicesOf = Annotated[Services, Depends(_services)]
MetricsOf = Annotated[Metrics, Depends(_metrics)]
CallerOf = Annotated[Caller, Depends(_caller)]
ProgressOf = Annotated[Tell, Depends(_progress)]
BootstrapOf = Annotated[TokenInfo, Depends(_bootstrap)]
