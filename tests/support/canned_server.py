"""An HTTP server that says what a test tells it to, and keeps what it was asked."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Asked:
    """One request: method, path, headers in lower case, body."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Canned:
    """What it says to every request.

    Attributes:
        status: the status.
        body: the body; a text, or what is written as JSON.
        headers: more headers.
        hold: until it is set, nothing is answered.
        asked: the requests so far.
    """

    status: int = 200
    body: object = ""
    headers: dict[str, str] = field(default_factory=dict)
    hold: threading.Event = field(default_factory=threading.Event)
    asked: list[Asked] = field(default_factory=list)
    url: str = ""

    def says(self, status: int, body: object = "", **headers: str) -> None:
        """From now on."""
        self.status, self.body, self.headers = status, body, headers


@contextmanager
def canned_server() -> Iterator[Canned]:
    """A running server, which answers at once."""
    canned = Canned()
    canned.hold.set()

    class Handler(BaseHTTPRequestHandler):
        def do_any(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            headers = {name.lower(): value for name, value in self.headers.items()}
            canned.asked.append(Asked(self.command, self.path, headers, body))
            canned.hold.wait(30)
            text = canned.body if isinstance(canned.body, str) else json.dumps(canned.body)
            self.send_response(canned.status)
            self.send_header("Content-Type", "application/json")
            for name, value in canned.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(text.encode())))
            self.end_headers()
            self.wfile.write(text.encode())

        do_GET = do_POST = do_PUT = do_any

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    canned.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield canned
    finally:
        canned.hold.set()
        server.shutdown()
        server.server_close()
