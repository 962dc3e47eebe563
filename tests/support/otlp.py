"""A collector of OpenTelemetry: an HTTP server that decodes what it gets."""

from __future__ import annotations

import gzip
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

_PATIENCE_S = 20.0
_ENDLESS = 1 << 40


@dataclass
class Span:
    """A span, with plain values."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    kind: int
    attributes: dict[str, Any]
    is_error: bool
    nanoseconds: int


@dataclass
class Collector:
    """What arrived.

    Attributes:
        url: its address.
        bodies: the bodies of all requests, by path.
        headers: of all requests.
        resources: what senders said of themselves.
        answer: the status of answers.
        hold: answers wait until this is set.
        is_endless: whether answers have a body that does not end.
        endings: how many of these bodies were not read on.
    """

    url: str
    bodies: list[tuple[str, bytes]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    answer: int = 200
    hold: threading.Event = field(default_factory=threading.Event)
    is_endless: bool = False
    endings: int = 0

    def spans(self) -> list[Span]:
        """All spans so far."""
        found = []
        for body in self._bodies("/v1/traces"):
            request = ExportTraceServiceRequest.FromString(body)
            for resource in request.resource_spans:
                for scope in resource.scope_spans:
                    found += [_span(each) for each in scope.spans]
        return found

    def metrics(self) -> list[dict[str, Any]]:
        """The metrics of each request so far, by name."""
        requests = [ExportMetricsServiceRequest.FromString(each) for each in self._bodies("/v1/metrics")]
        return [
            {
                metric.name: metric
                for resource in request.resource_metrics
                for scope in resource.scope_metrics
                for metric in scope.metrics
            }
            for request in requests
        ]

    def resource(self) -> dict[str, Any]:
        """What the sender of the first traces said of itself."""
        request = ExportTraceServiceRequest.FromString(self._bodies("/v1/traces")[0])
        return _values(request.resource_spans[0].resource.attributes)

    def until(self, look: Callable[[], Any]) -> Any:
        """What is found once it is there."""
        deadline = time.monotonic() + _PATIENCE_S
        while not (found := look()):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        return found

    def _bodies(self, path: str) -> list[bytes]:
        return [body for of, body in list(self.bodies) if of == path]


@contextmanager
def collector() -> Iterator[Collector]:
    """Run a collector on a free port of this machine."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            found.hold.wait(_PATIENCE_S)
            found.headers.append(dict(self.headers))
            found.bodies.append((self.path, body))
            self.send_response(found.answer)
            if found.answer // 100 == 3:
                self.send_header("Location", "/elsewhere")
            self.send_header("Content-Length", str(_ENDLESS if found.is_endless else 0))
            self.end_headers()
            if found.is_endless:
                self._send_on()

        def _send_on(self) -> None:
            try:
                while found.is_endless:
                    self.wfile.write(bytes(1 << 16))
            except OSError:
                found.endings += 1
                self.close_connection = True

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    found = Collector(f"http://127.0.0.1:{server.server_port}")
    found.hold.set()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        found.hold.set()
        found.is_endless = False
        server.shutdown()
        server.server_close()
        thread.join()


def _span(span: Any) -> Span:
    return Span(
        span.name,
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        span.kind,
        _values(span.attributes),
        span.status.code == 2,
        span.end_time_unix_nano - span.start_time_unix_nano,
    )


def _values(attributes: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in attributes}
