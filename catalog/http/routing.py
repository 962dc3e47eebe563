"""Routes that authenticate the caller before they read the body, and parse JSON strictly.

The order is fixed: caller, then the first authorization (`catalog.http.screening`), then the size of the
body, the digest that its sender signed, its coding, its type, and its text (`policy.strict_json`). Then the
parsed document is validated by the operation's model (`catalog.http.endpoint_calls`).

- Without a first authorization, a body is small: `SMALL_BODY` bytes and `SMALL_ELEMENTS` elements. So the
  work for a token without permissions is bounded.
- Large texts are parsed in the thread pool, so that they do not block other requests.
- All bodies that are read or processed at a time share `http.max_bodies_bytes`; one user can have half of it.
"""

from __future__ import annotations

import hashlib
import re
import threading
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, Final, Self

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from catalog.audit.outcomes import Outcome, following
from catalog.authorization.authorizer import Caller
from catalog.crypto.request_signatures import refused
from catalog.http.auth import authenticated, bootstrapping
from catalog.http.closing import OUTCOME_STATE, closed, unless_failed
from catalog.http.content_codings import compressed, decompressed
from catalog.http.endpoint_calls import NO_DOCUMENT, EndpointCall
from catalog.http.errors import AnswerToError, BodyTooLarge, ContentTypeRefused, TooManyBodies, ours, refusal
from catalog.http.idempotency import HEADER, answers_repetitions, commit_of_write, key_of, keyed, once
from catalog.http.screening import Bounds, bounds_of
from catalog.http.tallies import Tally
from catalog.http.threads import in_one_thread, in_thread, threaded
from catalog.state.idempotency import KeyedRequest
from policy.errors import LakewardenError, RequestInvalid
from policy.strict_json import parse

_JSON: Final = re.compile(r"application/json(?:\s*;\s*charset=\"?utf-8\"?)?", re.IGNORECASE)
_MAX_DIGITS: Final = 18
#: Bytes of a text that is parsed faster than a thread is started.
_SHORT_BODY: Final = 1024
#: Methods that change nothing; `_READING` lists endpoints of other methods that change nothing.
_READING_METHODS: Final = frozenset({"GET", "HEAD"})
_READING: Final = frozenset(
    {
        "load",
        "plan",
        "access",
        "load_through_view",
        "plan_through_view",
        "plan_table_scan",
        "sign_request",
        "fetch_scan_tasks",
        "report_metrics",
        "rewrites",
        "position_delete_rewrites",
        "code",
        "use_encrypted_key",
        "reencrypt_keys",
        "unwrap_kek",
    }
)
_COMMIT_OF_WRITE: Final = "/writes/{write_id}/commit"
#: Escapes of characters that no database stores as text: NUL and lone surrogates.
_SUSPECT_ESCAPE: Final = re.compile(rb"\\u(?:0000|[dD][89a-fA-F])")

Handler = Callable[[Request], Coroutine[Any, Any, Response]]


def app_of(handler: Handler, answer_to: AnswerToError = refusal) -> ASGIApp:
    """Return a handler as an ASGI application, which answers our errors."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive, send)
        try:
            response = await handler(request)
        except LakewardenError as error:
            response = answer_to(request, error)
        await response(scope, receive, send)

    return app


class GuardedRoute(APIRoute):
    """A route for callers with a user token."""

    takes_engines: bool = False
    #: Query parameters that can be given more than once.
    lists: frozenset[str] = frozenset()
    for_standard_clients: bool = False
    answer_to: AnswerToError = staticmethod(refusal)

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        super().__init__(path, threaded(endpoint), **options)
        self.app = app_of(self._handler, self.answer_to)

    def get_route_handler(self) -> Handler:
        """Return the handler of requests, for the framework too: nothing goes past our checks."""
        return self._handler

    @cached_property
    def _handler(self) -> Handler:
        call = EndpointCall(self)

        async def called(request: Request, document: object) -> Response:
            try:
                return await call(request, document)
            except RequestValidationError as error:
                raise ours(error) from error

        async def handle(request: Request, sent: bytes, bounds: Bounds, room: Room) -> Response:
            _check_digest(request, sent)
            body = await decompressed(
                request.headers, sent, bounds.size, room.take, partial(_too_large, bounds.size)
            )
            document = await self._document(request, body, bounds.elements)
            wanted = self._once(request, body)
            # Only the wait for an equal request is in the event loop. A body of many files takes seconds.
            run = partial(in_one_thread, partial(called, request, document))
            answer = await (run() if wanted is None else once(request, wanted, run))
            return await compressed(request, answer, self.endpoint)

        async def handle_and_close(request: Request, outcome: Outcome) -> Response:
            bounds = await in_thread(self._admitted, request)
            with request.app.state.bodies.begun(request.state.caller.principal.name) as room:
                sent = await unless_failed(request, outcome, lambda: self._sent(request, bounds, room))
                rest = partial(closed, request, outcome, lambda: handle(request, sent, bounds, room))
                return await (rest() if self._waits(request) else in_one_thread(rest))

        async def handle_and_follow(request: Request) -> Response:
            outcome = self.outcome(request.method)
            setattr(request.state, OUTCOME_STATE, outcome)
            whole = partial(handle_and_close, request, outcome)
            with following(outcome):
                keeps = _has_no_body(request.headers) and not self._waits(request)
                return await (in_one_thread(whole) if keeps else whole())

        return handle_and_follow

    async def _sent(self, request: Request, bounds: Bounds, room: Room) -> bytes:
        """Return the body as it was sent."""
        _refuse_repeated(request, self.lists)
        return b"" if _has_no_body(request.headers) else await bounded_body(request, bounds.size, room)

    def _waits(self, request: Request) -> bool:
        """Return whether a request can wait in the event loop for an equal one; see `idempotency`."""
        return self._answers_repetitions and HEADER in request.headers

    def outcome(self, method: str) -> Outcome:
        """Create the outcome of a request with this method; nothing is granted yet."""
        changes = method not in _READING_METHODS and self.endpoint.__name__ not in _READING
        return Outcome(f"{method} {self.path_format}", changes)

    @cached_property
    def _answers_repetitions(self) -> bool:
        return answers_repetitions(self.endpoint)

    def _once(self, request: Request, body: bytes) -> KeyedRequest | None:
        """Return the record of a request to run only once; None if it can run repeatedly."""
        key = key_of(request)
        if key is None or not self._answers_repetitions:
            return None
        return keyed(request, body, key, self.status_code or 200)

    def _admitted(self, request: Request) -> Bounds:
        """Authenticate the caller, and make the first authorization; runs in a thread.

        Returns:
            how much of the body is read.
        """
        services = request.app.state.services
        caller = self._caller(request)
        request.state.caller = replace(caller, standard=self.for_standard_clients)
        return bounds_of(self.endpoint, services, caller, request.path_params)

    def _caller(self, request: Request) -> Caller:
        """Authenticate the caller by the headers; runs in a thread."""
        services, address = request.app.state.services, address_of(request)
        known = authenticated(request, services, address, engines=self.takes_engines)
        request.state.body_sha256 = known.body_sha256
        return known.caller

    async def _document(self, request: Request, body: bytes, max_elements: int) -> object:
        """Parse the body strictly."""
        # The original bytes, for operations that store them.
        request.state.body = body
        if not body:
            return NO_DOCUMENT
        if self.body_field is None:
            raise RequestInvalid(
                "This operation takes no body.", rule="body", hint="Send the request without a body."
            )
        _check_content_type(request.headers)
        parsed = partial(document_of, body, max_elements)
        return parsed() if len(body) <= _SHORT_BODY else await in_thread(parsed)


class EngineRoute(GuardedRoute):
    """A route where engines can act for users."""

    takes_engines = True

    def _waits(self, request: Request) -> bool:
        return self._commits_write or super()._waits(request)

    @cached_property
    def _commits_write(self) -> bool:
        return self.path.endswith(_COMMIT_OF_WRITE)

    def _once(self, request: Request, body: bytes) -> KeyedRequest | None:
        return commit_of_write(request) if self._commits_write else super()._once(request, body)


class BootstrapRoute(GuardedRoute):
    """A route for engines without a registered key, which send their own token."""

    def _caller(self, request: Request) -> Caller:
        """Authenticate the engine; runs in a thread."""
        services, address = request.app.state.services, address_of(request)
        caller, request.state.bootstrap = bootstrapping(request, services, address)
        return caller


class IcebergRoute(EngineRoute):
    """A route for standard clients, where engines can act for users too."""

    for_standard_clients = True


def address_of(request: Request) -> str:
    """Return the network address that a request came from."""
    return request.client.host if request.client else "unknown"


def document_of(body: bytes, max_elements: int | None = None) -> object:
    """Parse a body as JSON.

    Raises:
        RequestInvalid: not JSON, ambiguous JSON, or more elements than allowed.
    """
    document = parse(body, what="The request body", max_elements=max_elements)
    if _SUSPECT_ESCAPE.search(body):
        _check_texts(document)
    return document


def _check_texts(document: object) -> None:
    """Refuse texts that are not Unicode, or contain NUL; the parser bounds the nesting."""
    if isinstance(document, str):
        if "\0" in document or any("\ud800" <= character <= "\udfff" for character in document):
            raise RequestInvalid(
                "The request body has a string with NUL or an unpaired surrogate.",
                rule="json",
                hint="Remove these characters.",
            )
    elif isinstance(document, dict):
        for name, value in document.items():
            _check_texts(name)
            _check_texts(value)
    elif isinstance(document, list):
        for value in document:
            _check_texts(value)


class Bodies:
    """Limits the bytes of all request bodies that are read or processed at a time.

    Args:
        limit: in bytes.
        share: maximum bytes of one user, so that one user cannot use up the limit.
        held: counts the bytes by user, over all workers.
    """

    def __init__(self, limit: int, share: int, held: Tally | None = None) -> None:
        self._limit = limit
        self._share = share
        self._held = Tally() if held is None else held
        self._lock = threading.Lock()

    def begun(self, user: str) -> Room:
        """Return a room for one body of a user."""
        return Room(self, user)

    def take(self, user: str, size: int) -> None:
        """Reserve bytes for a user.

        Raises:
            TooManyBodies: the limit would be exceeded.
        """
        with self._lock:
            self._held.add(user, size)
            held = ("The service", self._held.total, self._limit), (user, self._held.of(user), self._share)
            for who, taken, limit in held:
                if taken > limit:
                    self._held.add(user, -size)
                    raise TooManyBodies(
                        f"{who} holds {taken - size} bytes of request bodies; the limit is {limit}.",
                        rule="bodies-size",
                        hint="Try again later, or raise `http.max_bodies_bytes`.",
                    )

    def give_back(self, user: str, size: int) -> None:
        """Release reserved bytes."""
        with self._lock:
            self._held.add(user, -size)


class Room:
    """The reserved bytes of one body; released when the block ends."""

    def __init__(self, bodies: Bodies, user: str) -> None:
        self._bodies = bodies
        self._user = user
        self._size = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._bodies.give_back(self._user, self._size)

    def take(self, size: int) -> None:
        """Reserve bytes; see `Bodies.take`."""
        self._bodies.take(self._user, size)
        self._size += size


def _has_no_body(headers: Headers) -> bool:
    return "transfer-encoding" not in headers and headers.get("content-length", "0") == "0"


async def bounded_body(request: Request, limit: int, room: Room) -> bytes:
    """Read the whole body; stop reading if it declares or turns out to be too large."""
    declared = request.headers.get("content-length", "0")
    if len(declared) > _MAX_DIGITS or (declared.isascii() and declared.isdigit() and int(declared) > limit):
        raise _too_large(limit)
    body = bytearray()
    async for chunk in request.stream():
        if len(body) + len(chunk) > limit:
            raise _too_large(limit)
        room.take(len(chunk))
        body += chunk
    return bytes(body)


def _refuse_repeated(request: Request, lists: frozenset[str]) -> None:
    """Refuse a query parameter that is given twice: two readers could use different values."""
    counts = Counter(name for name, _ in request.query_params.multi_items() if name not in lists)
    twice = next((name for name, count in counts.items() if count > 1), None)
    if twice is not None:
        raise RequestInvalid(
            f"The query parameter {twice[:80]!r} is given twice.", rule="request", hint="Send it once."
        )


def _check_digest(request: Request, body: bytes) -> None:
    """Refuse a body that differs from the signed one."""
    expected = getattr(request.state, "body_sha256", None)
    if expected is not None and hashlib.sha256(body).digest() != expected:
        raise refused("The body is not the one that was signed.")


def _too_large(limit: int) -> BodyTooLarge:
    return BodyTooLarge(
        f"The request body has more than {limit} bytes.",
        rule="body-size",
        hint="Send smaller requests, or raise `http.max_body_bytes`.",
    )


def _check_content_type(headers: Headers) -> None:
    types = headers.getlist("content-type")
    if len(types) != 1 or not _JSON.fullmatch(types[0].strip()):
        raise ContentTypeRefused(
            "The request has no `Content-Type: application/json`.",
            rule="content-type",
            hint="Send the body as JSON, with `Content-Type: application/json`.",
        )
