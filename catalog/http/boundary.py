"""The outermost middleware: path decoding, request ids and the request log.

- A path is decoded once, here, from its raw bytes. A path that could be decoded in two ways is refused: a
  broken escape, bytes that are not UTF-8, an encoded slash or backslash (no name has one), NUL.
- Every answer has the id of its request: the client's, if it is well-formed, or a new one.
- Each request is one line in the log, and a span if traces are sent. Those of requests without a valid token
  are limited, so that a flood of them does not fill the disk, or the collector.
- An unexpected error is logged by type and place. Its message is not logged, because it can contain a secret.
"""

from __future__ import annotations

import logging
import re
import time
import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote_to_bytes

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from catalog.audit.outcomes import Outcome
from catalog.authorization.authorizer import Caller
from catalog.base.log_fields import Value, fields
from catalog.http.closing import OUTCOME_STATE
from catalog.http.errors import ERROR_STATE, error_response, unforeseen_response
from catalog.http.metrics import Metrics
from catalog.service.service_log import Limit, Outages, places
from policy.errors import CommitStateUnknown, LakewardenError, RequestInvalid

if TYPE_CHECKING:
    from catalog.http.tracing import RequestSpan, Tracing

REQUEST_ID: Final = "X-Request-Id"
QUERY: Final = "Lakewarden-Query"
#: Key of the request id in the request's state.
REQUEST_ID_STATE: Final = "request_id"

_log: Final = logging.getLogger("lakewarden.http")
_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9._:-]{1,64}")
_QUERY_ID: Final = re.compile(r"[A-Za-z0-9._:/-]{1,128}")
_BROKEN_ESCAPE: Final = re.compile(rb"%(?![0-9A-Fa-f]{2})")
_REFUSED_ESCAPE: Final = re.compile(rb"%(?:2[fF]|5[cC]|00)")
#: Log lines per minute for requests without a valid token.
_STRANGERS_A_MINUTE: Final = 120
_NO_ROUTE: Final = "none"
#: The status, in logs and metrics, of a request whose client went away before its body was there.
_WENT_AWAY: Final = 499
_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


class Boundary:
    """ASGI middleware; see the module.

    Args:
        app: the application behind this middleware.
        metrics: counts requests.
        tracing: makes spans; None if no traces are sent.
    """

    def __init__(self, app: ASGIApp, metrics: Metrics, tracing: Tracing | None = None) -> None:
        self._app = app
        self._metrics = metrics
        self._tracing = tracing
        self._outages = Outages()
        self._strangers = Limit(_STRANGERS_A_MINUTE)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        request_id = _request_id(headers)
        scope.setdefault("state", {})[REQUEST_ID_STATE] = request_id
        answer, without_answer = _Answer(send, request_id), 500
        span = None if self._tracing is None else self._tracing.begin(headers.getlist("traceparent"))
        started = time.perf_counter()
        try:
            await self._pass_on(scope, receive, answer)
        except ClientDisconnect:
            without_answer = _WENT_AWAY
        except Exception as error:
            about = fields(request_id=request_id, error=type(error).__name__, places=places(error))
            _log.error("a request failed inside the service", extra=about)
            if answer.status is not None:
                raise
            await unforeseen_response(request_id, scope["path"])(scope, receive, answer.send)
        finally:
            ids: dict[str, Value] = {"request_id": request_id, "query": _query(headers)}
            status = answer.status or without_answer
            self._count(scope, status, time.perf_counter() - started, ids, span)

    async def _pass_on(self, scope: Scope, receive: Receive, answer: _Answer) -> None:
        try:
            scope["path"] = decoded_path(scope["raw_path"])
            _check_query(scope["query_string"])
        except RequestInvalid as error:
            self._metrics.refused(error.rule or "path")
            await error_response(error, scope["path"])(scope, receive, answer.send)
        else:
            await self._app(scope, receive, answer.send)

    def _count(
        self,
        scope: Scope,
        status: int,
        seconds: float,
        about: dict[str, Value],
        span: RequestSpan | None,
    ) -> None:
        method = scope["method"] if scope["method"] in _METHODS else "other"
        route = getattr(scope.get("route"), "path", _NO_ROUTE)
        self._metrics.answered(method, route, status, seconds)
        error: LakewardenError | None = scope["state"].get(ERROR_STATE)
        self._outages.ended(f"{method} {route}", error, succeeded=status < 400)
        left_out = 0 if "caller" in scope["state"] else self._strangers.admits()
        if left_out is None:
            if span is not None:
                span.drop()
            return
        level = logging.INFO if status < 500 else logging.WARNING
        about |= _about(scope["state"], error) | {"method": method, "route": route, "status": status}
        about |= {"outcome": _outcome(status, error), "duration_ms": round(seconds * 1000, 1)}
        if span is not None:
            span.end(method, route, about)
            about["trace_id"] = span.trace_id
        _log.log(level, "request", extra=fields(left_out=left_out or None, **about))


class _Answer:
    """Adds the request id to the answer, and records its status."""

    def __init__(self, send: Send, request_id: str) -> None:
        self._send = send
        self._request_id = request_id
        self.status: int | None = None

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = MutableHeaders(scope=message)
            headers[REQUEST_ID] = self._request_id
            headers["X-Content-Type-Options"] = "nosniff"
            headers.setdefault("Cache-Control", "no-store")
        await self._send(message)


def decoded_path(raw: bytes) -> str:
    """Decode a path once.

    Raises:
        RequestInvalid: it could be decoded in two ways.
    """
    if _BROKEN_ESCAPE.search(raw) or _REFUSED_ESCAPE.search(raw):
        raise _ambiguous("a broken escape, or an encoded slash, backslash or NUL")
    try:
        return unquote_to_bytes(raw).decode("utf-8")
    except UnicodeDecodeError as error:
        raise _ambiguous("bytes that are not UTF-8") from error


def _check_query(raw: bytes) -> None:
    try:
        decoded = unquote_to_bytes(raw).decode("utf-8")
    except UnicodeDecodeError as error:
        raise _ambiguous("bytes that are not UTF-8") from error
    if "\0" in decoded:
        raise _ambiguous("NUL")


def _ambiguous(what: str) -> RequestInvalid:
    return RequestInvalid(
        f"The address contains {what}.",
        rule="address",
        hint="Percent-encode each name once, as UTF-8 (RFC 3986).",
    )


def _request_id(headers: Headers) -> str:
    given = headers.get(REQUEST_ID, "")
    return given if _REQUEST_ID.fullmatch(given) else str(uuid.uuid4())


def _query(headers: Headers) -> str | None:
    """Return the query of an engine that a request belongs to, as the engine names it."""
    given = headers.get(QUERY)
    return given if given is not None and _QUERY_ID.fullmatch(given) else None


def _about(state: Mapping[str, Any], error: LakewardenError | None) -> dict[str, Value]:
    """Return principal, engine, action, resource and refusal of a request, for its log line."""
    caller: Caller | None = state.get("caller")
    outcome: Outcome | None = state.get(OUTCOME_STATE)
    action, resource = (outcome.about if outcome else None) or (None, None)
    return {
        "principal": caller.principal.name if caller else None,
        "engine": caller.engine.name if caller and caller.engine else None,
        "action": action,
        "resource": resource,
        "rule": None if error is None else error.rule or type(error).__name__,
        "why": None if error is None else error.why,
    }


def _outcome(status: int, error: LakewardenError | None) -> str:
    """Return the result of a request, for its log line."""
    if isinstance(error, CommitStateUnknown):
        return "unknown"
    return "granted" if status < 400 else "refused" if status < 500 else "failed"
