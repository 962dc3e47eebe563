"""Makes spans of requests, and of the calls that they make, for OpenTelemetry.

- A span has names in the code, the ids of the request and what its log line has: never a header, a query, a
  body, a statement, a location or a message of an error. Texts are masked and bounded as in the audit log.
- A caller's `traceparent` is continued (W3C Trace Context). Its `tracestate` is not: a client could put
  anything there, and it would be sent on.
- A request has at most `_MOST_CALLS` spans of calls, so that one plan does not displace all others. They are
  made when the request ends: what is dropped then (a flood without tokens) has cost nothing more.
- Ending a span puts it into a bounded queue, and neither waits nor raises. If the queue is full, spans are
  dropped.

Source: OpenTelemetry, "Semantic conventions for HTTP spans"; W3C, "Trace Context".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar, Token
from typing import Final, NamedTuple, ParamSpec, TypeVar

from opentelemetry.context import Context
from opentelemetry.trace import (
    Span,
    SpanKind,
    Status,
    StatusCode,
    Tracer,
    format_trace_id,
    set_span_in_context,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from catalog.base.clean_text import clean
from catalog.base.outside_calls import UNAVAILABLE, Part

_MOST_CALLS: Final = 100
_LENGTH: Final = 255
_PROPAGATOR: Final = TraceContextTextMapPropagator()
#: Fields of a request's log line that have names of their own in OpenTelemetry. Others get a prefix.
_NAMES: Final[Mapping[str, str | None]] = {
    "method": "http.request.method",
    "route": "http.route",
    "status": "http.response.status_code",
    # A span has its own times. Why a token is refused is for the log of the service alone.
    "duration_ms": None,
    "why": None,
}

_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")
#: What a log line can have.
_Value = str | int | float | None


class Tracing:
    """Makes spans; thread-safe.

    Args:
        tracer: of the SDK, which exports in a thread of its own.
    """

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    def begin(self, parents: Sequence[str]) -> RequestSpan:
        """Begin the span of a request, which the calls of this context belong to until it ends.

        Args:
            parents: the values of the header `traceparent`; more than one is none.
        """
        carrier = {"traceparent": parents[0]} if len(parents) == 1 else {}
        span = self._tracer.start_span(
            "request", _PROPAGATOR.extract(carrier), SpanKind.SERVER, record_exception=False
        )
        return RequestSpan(self._tracer, span)

    def ended(self, part: Part, operation: str, outcome: str, started_ns: int, ended_ns: int) -> None:
        """See `catalog.base.outside_calls.CallTracer`; a call outside of a request has no span."""
        request = _current.get()
        if request is not None:
            request.called(_Call(part, operation, outcome, started_ns, ended_ns))

    def carried(self, function: Callable[_Given, _Result]) -> Callable[_Given, _Result]:
        """See `catalog.base.outside_calls.CallTracer`."""
        request = _current.get()

        def run(*args: _Given.args, **named: _Given.kwargs) -> _Result:
            token = _current.set(request)
            try:
                return function(*args, **named)
            finally:
                _current.reset(token)

        return run


class RequestSpan:
    """The span of one request, with its calls; ended or dropped in the context that began it.

    Args:
        tracer: of the SDK.
        span: the span.
    """

    def __init__(self, tracer: Tracer, span: Span) -> None:
        self._tracer = tracer
        self._span = span
        self._calls: list[_Call] = []
        self._left_out = 0
        self._token: Token[RequestSpan | None] = _current.set(self)

    @property
    def trace_id(self) -> str:
        """Return the id of the trace, in hexadecimal digits."""
        return format_trace_id(self._span.get_span_context().trace_id)

    def called(self, call: _Call) -> None:
        """Take note of a call. Threads of one request can note a few more than the bound."""
        if len(self._calls) < _MOST_CALLS:
            self._calls.append(call)
        else:
            self._left_out += 1

    def drop(self) -> None:
        """Send nothing of the request."""
        _current.reset(self._token)

    def end(self, method: str, route: str, about: Mapping[str, _Value]) -> None:
        """End the span, and those of the calls.

        Args:
            method: the HTTP method.
            route: the template of the path.
            about: the fields of the request's log line.
        """
        _current.reset(self._token)
        if not self._span.is_recording():
            return
        parent = set_span_in_context(self._span)
        for call in self._calls:
            call.send(self._tracer, parent)
        self._span.update_name(f"{method} {route}")
        for name, value in about.items():
            known = _NAMES.get(name, f"lakewarden.{name}")
            if known is not None and value is not None:
                self._span.set_attribute(known, clean(value, _LENGTH) if isinstance(value, str) else value)
        if self._left_out:
            self._span.set_attribute("lakewarden.calls_left_out", self._left_out)
        if about.get("outcome") in ("failed", "unknown"):
            self._span.set_status(Status(StatusCode.ERROR))
        self._span.end()


class _Call(NamedTuple):
    """A call of a request; see `catalog.base.outside_calls.CallTracer.ended`."""

    part: Part
    operation: str
    outcome: str
    started_ns: int
    ended_ns: int

    def send(self, tracer: Tracer, parent: Context) -> None:
        """Make a span of it."""
        about = {
            "lakewarden.part": self.part,
            "lakewarden.operation": self.operation,
            "lakewarden.outcome": self.outcome,
        }
        name = f"{self.part} {self.operation}"
        span = tracer.start_span(
            name, parent, SpanKind.CLIENT, about, start_time=self.started_ns, record_exception=False
        )
        if self.outcome == UNAVAILABLE:
            span.set_status(Status(StatusCode.ERROR))
        span.end(self.ended_ns)


_current: Final[ContextVar[RequestSpan | None]] = ContextVar("lakewarden_request_span", default=None)
