"""A way to a KMS on which things go wrong on purpose: real HTTP, real sockets, chosen faults."""

from __future__ import annotations

import base64
import json
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum, auto
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.support.forwarding import Answer, body_of, forwarded, send


class Fault(Enum):
    """What may go wrong."""

    RESET = auto()  #: the connection is reset
    HANG = auto()  #: no answer
    HANG_AFTER_HEADERS = auto()  #: the answer's head, and no body
    DRIP = auto()  #: a byte of the answer now and then, for ever
    CUT_SHORT = auto()  #: half of the answer's body
    THROTTLED = auto()  #: the KMS wants less traffic
    BROKEN = auto()  #: the KMS fails by itself
    EXPIRED = auto()  #: the catalog's own credential is not valid any more
    GARBAGE = auto()  #: bytes that mean nothing
    EMPTY = auto()  #: success, and nothing more
    WRONG_KEY = auto()  #: a good answer with another key in it
    SHORT_KEY = auto()  #: a good answer with a key of another length in it


#: Status, content type, body.
Canned = tuple[int, str, bytes]


@dataclass(frozen=True)
class Dialect:
    """How a kind of KMS says things.

    Attributes:
        canned: the answers to faults that are said by the KMS.
        with_key: an answer with another key in the place of its own.
    """

    canned: dict[Fault, Canned]
    with_key: Callable[[bytes, bytes], bytes]


_JSON = "application/x-amz-json-1.1"


def _with_plaintext(content: bytes, key: bytes) -> bytes:
    return json.dumps({**json.loads(content), "Plaintext": base64.b64encode(key).decode()}).encode()


#: How AWS KMS says things (AWS KMS API Reference, "Common errors").
AWS_DIALECT = Dialect(
    {
        Fault.THROTTLED: (400, _JSON, b'{"__type": "ThrottlingException", "message": "Rate exceeded"}'),
        Fault.BROKEN: (500, _JSON, b'{"__type": "KMSInternalException"}'),
        Fault.EXPIRED: (400, _JSON, b'{"__type": "ExpiredTokenException"}'),
        Fault.GARBAGE: (200, _JSON, b"\x00\xff{{{"),
        Fault.EMPTY: (200, _JSON, b""),
    },
    _with_plaintext,
)


@dataclass
class FaultProxy:
    """Passes requests on to a KMS, or lets them go wrong.

    Attributes:
        upstream: address of the KMS.
        dialect: how it says things.
        fault: what goes wrong now.
        asked: how many requests came.
        most: how many were under way at a time.
    """

    upstream: str
    dialect: Dialect
    fault: Fault | None = None
    asked: int = 0
    most: int = 0
    _now: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _mended: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def going_wrong(self, fault: Fault) -> Iterator[None]:
        """Every request goes wrong in this way; what hangs at the end is reset."""
        self._mended.clear()
        self.fault = fault
        try:
            yield
        finally:
            self.fault = None
            self._mended.set()

    def answer(self, asked: BaseHTTPRequestHandler) -> None:
        """Answer one request, or not."""
        with self._lock:
            self.asked += 1
            self._now += 1
            self.most = max(self.most, self._now)
        try:
            self._answer(asked, self.fault)
        finally:
            with self._lock:
                self._now -= 1

    def _answer(self, asked: BaseHTTPRequestHandler, fault: Fault | None) -> None:
        body = body_of(asked)
        if fault is Fault.RESET:
            _reset(asked)
        elif fault is Fault.HANG:
            self._mended.wait(60)
            _reset(asked)
        elif fault is not None and fault in self.dialect.canned:
            status, kind, content = self.dialect.canned[fault]
            send(asked, Answer(status, [("Content-Type", kind)], content))
        else:
            self._pass_on(asked, body, fault)

    def _pass_on(self, asked: BaseHTTPRequestHandler, body: bytes, fault: Fault | None) -> None:
        status, headers, content = forwarded(asked, body, self.upstream, timeout_s=30)
        if fault is Fault.WRONG_KEY:
            content = self.dialect.with_key(content, bytes(range(32)))
        elif fault is Fault.SHORT_KEY:
            content = self.dialect.with_key(content, bytes(range(16)))
        send(asked, Answer(status, headers, content), only=_part(fault, content))
        if fault is Fault.DRIP:
            while not self._mended.wait(0.2):
                asked.wfile.write(content[:1])
        if fault is Fault.HANG_AFTER_HEADERS:
            self._mended.wait(60)
        if fault in (Fault.DRIP, Fault.HANG_AFTER_HEADERS, Fault.CUT_SHORT):
            _reset(asked)


def _part(fault: Fault | None, content: bytes) -> bytes:
    """What is sent at once of an answer."""
    if fault in (Fault.DRIP, Fault.HANG_AFTER_HEADERS):
        return b""
    return content[: len(content) // 2] if fault is Fault.CUT_SHORT else content


def _reset(asked: BaseHTTPRequestHandler) -> None:
    asked.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    asked.close_connection = True


class _Quiet(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away is what is tested here."""


@contextmanager
def listening(answer: Callable[[BaseHTTPRequestHandler], None]) -> Iterator[str]:
    """An HTTP server on a free port that answers every request so; its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_any(self) -> None:
            answer(self)

        do_GET = do_POST = do_PUT = do_DELETE = do_OPTIONS = do_any

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = _Quiet(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def fault_proxy(upstream: str, dialect: Dialect) -> Iterator[tuple[str, FaultProxy]]:
    """A proxy before a KMS until the end of the block, and its address."""
    proxy = FaultProxy(upstream, dialect)
    try:
        with listening(proxy.answer) as url:
            yield url, proxy
    finally:
        proxy._mended.set()
