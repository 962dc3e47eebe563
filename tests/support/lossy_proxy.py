"""A way to a service on which requests are held and answers get lost, and which may be cut."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.support.forwarding import body_of, forwarded, send


@dataclass(frozen=True)
class _Held:
    operation: str
    carried_out: bool
    here: threading.Event = field(default_factory=threading.Event)


class LossyProxy:
    """Passes requests on to a service.

    Attributes:
        url: the address of the proxy; it stays the same when the way is cut and mended.
    """

    def __init__(self, service: str) -> None:
        self._service = service
        self._lost: dict[str, int] = {}
        self._each: set[tuple[str, str]] | None = None
        self._held: _Held | None = None
        self._released = threading.Event()
        self._lock = threading.Lock()
        self._server = self._listen(0)
        self._port = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self._port}"

    def lose_answers(self, operation: str, times: int) -> None:
        """Lose the next answers to requests whose path ends so: the service has carried them out by then."""
        self._lost[operation] = times

    def hold(self, operation: str, carried_out: bool) -> threading.Event:
        """Hold the next request whose path ends so until `release`; it is never answered.

        Args:
            operation: how the path ends.
            carried_out: whether the service carries the request out before; else it never gets it.

        Returns:
            What is set as soon as the request is held.
        """
        self._held = _Held(operation, carried_out)
        return self._held.here

    def release(self) -> None:
        """Let the held requests go, whose clients are dead."""
        self._released.set()

    @contextmanager
    def losing_every_first_answer(self) -> Iterator[None]:
        """Lose the answer to the first request of each method and address, until the end of the block."""
        self._each = set()
        try:
            yield
        finally:
            self._each = None

    def lost_all(self, operation: str) -> bool:
        """Whether as many answers were lost as should be."""
        return self._lost.get(operation, 0) == 0

    @contextmanager
    def cut(self) -> Iterator[None]:
        """Nothing answers at the address, as when the service is restarted."""
        self.close()
        try:
            yield
        finally:
            self._server = self._listen(self._port)

    def close(self) -> None:
        """Stop answering."""
        self._server.shutdown()
        self._server.server_close()

    def _listen(self, port: int) -> ThreadingHTTPServer:
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            def do_any(self) -> None:
                proxy._pass_on(self)

            do_GET = do_POST = do_PATCH = do_DELETE = do_HEAD = do_any

            def log_message(self, format: str, *args: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return server

    def _pass_on(self, asked: BaseHTTPRequestHandler) -> None:
        body, held = body_of(asked), self._hold_of(asked.path)
        if held is not None and not held.carried_out:
            return self._keep(held)
        answer = forwarded(asked, body, self._service, timeout_s=120)
        if held is not None:
            assert answer.status < 300, answer.content
            return self._keep(held)
        if not self._is_lost(asked.command, asked.path):
            send(asked, answer)

    def _hold_of(self, path: str) -> _Held | None:
        with self._lock:
            held = self._held
            if held is None or not path.endswith(held.operation):
                return None
            self._held = None
            return held

    def _keep(self, held: _Held) -> None:
        held.here.set()
        self._released.wait()

    def _is_lost(self, method: str, path: str) -> bool:
        with self._lock:
            if self._each is not None and (method, path) not in self._each:
                self._each.add((method, path))
                return True
            for operation, times in self._lost.items():
                if times and path.endswith(operation):
                    self._lost[operation] = times - 1
                    return True
        return False


@contextmanager
def lossy_proxy(service: str) -> Iterator[LossyProxy]:
    """A proxy before a service, until the end of the block."""
    proxy = LossyProxy(service)
    try:
        yield proxy
    finally:
        proxy.close()
