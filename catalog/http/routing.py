"""Routes that read nothing before they know who calls, and no JSON that means two things.

The order is fixed: caller, then size of the body, then its type, then its text (`policy.strict_json`); what
is left for the framework is to hold the parsed document against the operation's model.

Whoever has a token may send a body. So texts other than short ones are parsed in the pool of threads, where
they keep nobody else waiting, and only what brings schemas, snapshots, files or policies may be large.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine
from typing import Any, Final

from fastapi import Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.routing import APIRoute
from starlette.datastructures import Headers

from catalog.authorize import Caller
from catalog.http.auth import authenticated, request_id_of
from catalog.http.errors import BodyTooLarge, ContentTypeRefused
from catalog.http.idempotency import answers_repetitions, commit_of_write, key_of, keyed, once
from catalog.idempotency import KeyedRequest
from policy.errors import RequestInvalid
from policy.strict_json import parse

_JSON: Final = re.compile(r"application/json(?:\s*;\s*charset=\"?utf-8\"?)?", re.IGNORECASE)
_MAX_DIGITS: Final = 18
#: Bytes of a body that brings no schema, snapshot, files or policies.
SMALL_BODY: Final = 1024 * 1024
#: Bytes of a text that is parsed sooner than a thread is told to.
_SHORT_BODY: Final = 1024
_COMMIT_OF_WRITE: Final = "/writes/{write_id}/commit"
#: How the paths of the operations end that bring some.
_LARGE_BODIES: Final = (
    "/namespaces/{namespace}/tables",
    "/namespaces/{namespace}/tables/{table}",
    "/namespaces/{namespace}/staged-writes",
    _COMMIT_OF_WRITE,
    "/policies/documents/{kind}/{name}",
    "/policies/changes",
)
#: Escapes of what no store takes as text: NUL and lone surrogates.
_SUSPECT_ESCAPE: Final = re.compile(rb"\\u(?:0000|[dD][89a-fA-F])")

_Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class GuardedRoute(APIRoute):
    """A route for callers with a user token."""

    takes_engines: bool = False

    def get_route_handler(self) -> _Handler:
        """The framework's handler behind our checks."""
        inner = super().get_route_handler()

        async def handle(request: Request) -> Response:
            request.state.caller = await run_in_threadpool(self._caller, request)
            body = await _bounded_body(request, self._limit(request))
            strict = await self._strict(request, body)
            wanted = self._once(strict, body)
            return await (inner(strict) if wanted is None else once(strict, wanted, lambda: inner(strict)))

        return handle

    def _once(self, request: Request, body: bytes) -> KeyedRequest | None:
        """What is to be carried out once, however often it comes; None if that does not matter."""
        key = key_of(request)
        if key is None or not answers_repetitions(self.endpoint):
            return None
        return keyed(request, body, key, self.status_code or 200)

    def _caller(self, request: Request) -> Caller:
        """Who asks; runs in a thread."""
        return authenticated(
            request.app.state.warden,
            request.headers,
            request_id_of(request),
            address_of(request),
            engines=self.takes_engines,
        )

    def _limit(self, request: Request) -> int:
        configured: int = request.app.state.warden.settings.http.max_body_bytes
        return configured if self.path.endswith(_LARGE_BODIES) else min(configured, SMALL_BODY)

    async def _strict(self, request: Request, body: bytes) -> Request:
        """The request with its body read and parsed; the framework asks for both by these names."""
        if body and self.body_field is None:
            raise RequestInvalid("This operation takes no body.", rule="body", hint="Send it without one.")
        strict = Request(request.scope, request.receive)
        strict._body = body
        # As it was sent, for operations that keep it so.
        strict.state.body = body
        if body:
            _check_content_type(request.headers)
            small = len(body) <= _SHORT_BODY
            strict._json = document_of(body) if small else await run_in_threadpool(document_of, body)
        return strict


class EngineRoute(GuardedRoute):
    """A route where engines may act for users."""

    takes_engines = True

    def _once(self, request: Request, body: bytes) -> KeyedRequest | None:
        is_commit = self.path.endswith(_COMMIT_OF_WRITE)
        return commit_of_write(request) if is_commit else super()._once(request, body)


def address_of(request: Request) -> str:
    """The network address that a request came from."""
    return request.client.host if request.client else "unknown"


def document_of(body: bytes) -> object:
    """A body as JSON.

    Raises:
        RequestInvalid: not JSON, or JSON that means two things.
    """
    document = parse(body, what="The request body")
    if _SUSPECT_ESCAPE.search(body):
        _check_texts(document)
    return document


def _check_texts(document: object) -> None:
    """Refuse texts that are not Unicode, or hold NUL; nesting is bounded already."""
    if isinstance(document, str):
        if "\0" in document or any("\ud800" <= character <= "\udfff" for character in document):
            raise RequestInvalid(
                "The request body holds a text with NUL or half of a surrogate pair.",
                rule="json",
                hint="Send whole Unicode characters.",
            )
    elif isinstance(document, dict):
        for name, value in document.items():
            _check_texts(name)
            _check_texts(value)
    elif isinstance(document, list):
        for value in document:
            _check_texts(value)


async def _bounded_body(request: Request, limit: int) -> bytes:
    """The whole body; a body that declares or turns out to be too large is not read to its end."""
    declared = request.headers.get("content-length", "0")
    if len(declared) > _MAX_DIGITS or (declared.isascii() and declared.isdigit() and int(declared) > limit):
        raise _too_large(limit)
    chunks: list[bytes] = []
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > limit:
            raise _too_large(limit)
        chunks.append(chunk)
    return b"".join(chunks)


def _too_large(limit: int) -> BodyTooLarge:
    return BodyTooLarge(
        f"The request body has more than {limit} bytes.",
        rule="body-size",
        hint="Send less at once; for commits, `http.max_body_bytes` can be raised.",
    )


def _check_content_type(headers: Headers) -> None:
    types = headers.getlist("content-type")
    if len(types) != 1 or not _JSON.fullmatch(types[0].strip()):
        raise ContentTypeRefused(
            "The request body is not declared to be JSON.",
            rule="content-type",
            hint="Send `Content-Type: application/json`.",
        )
    if headers.get("content-encoding", "identity").lower() != "identity":
        raise ContentTypeRefused(
            "The request body is compressed.", rule="content-encoding", hint="Send it as it is."
        )
