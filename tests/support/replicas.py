"""Two replicas of a catalog on PostgreSQL, behind a proxy that takes turns."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from catalog.http.server import served
from catalog.service.services import Services
from tests.support.forwarding import body_of, forwarded, send
from tests.support.lake import Lake, open_lake
from tests.support.served_processes import serve
from tests.support.service import Service


@dataclass
class Replicas:
    """Two replicas, and the proxy before them.

    Attributes:
        each: the replicas by themselves.
        balanced: the proxy; a request goes to the replica that did not get the one before.
    """

    each: tuple[Service, Service]
    balanced: Service


@contextmanager
def threads(root: Path, url: str, **overrides: str) -> Iterator[Replicas]:
    """Replicas in this process, which share nothing but the database and the warehouse."""
    with ExitStack() as stack:
        lake = stack.enter_context(open_lake(root, DATABASE__URL=url, **overrides))
        other = stack.enter_context(Services.open(lake.settings, lake.kms))
        addresses = [stack.enter_context(served(each)) for each in (lake.services, other)]
        yield stack.enter_context(_balanced(lake, addresses))


@contextmanager
def processes(root: Path, url: str, **overrides: str) -> Iterator[Replicas]:
    """Replicas that `lakewarden serve` runs, each in a process of its own."""
    with ExitStack() as stack:
        lake = stack.enter_context(open_lake(root, DATABASE__URL=url, **overrides))
        addresses = []
        for number in ("1", "2"):
            (root / number).mkdir()
            serving = stack.enter_context(serve(root / number, lake, **overrides))
            addresses.append(serving.url)
        yield stack.enter_context(_balanced(lake, addresses))


@contextmanager
def _balanced(lake: Lake, addresses: Sequence[str]) -> Iterator[Replicas]:
    turns, lock = itertools.cycle(addresses), threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def do_any(self) -> None:
            with lock:
                address = next(turns)
            send(self, forwarded(self, body_of(self), address, timeout_s=120))

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = do_any

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    try:
        balanced = Service(f"http://127.0.0.1:{server.server_address[1]}", lake)
        first, second = (Service(address, lake, {}, balanced._tokens) for address in addresses)
        yield Replicas((first, second), balanced)
    finally:
        server.shutdown()
        server.server_close()
