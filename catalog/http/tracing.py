"""Makes spans of requests, and of the calls that they make, for OpenTelemetry.

- A span has names in the code, the ids of the request and what its log line has: never a header, a query, a
  body, a statement, a location or a message of an error. Texts are masked and bounded as in the audit log.
- A caller's `traceparent` is continued (W3C Trace Context). Its `tracestate` is not: a client could put
  anything there, and it would be sent on.
- A request has at most `_MOST_CALLS` spans of calls, so that one plan does not displace all others.
- Ending a span puts it into a bounded queue, and neither waits nor raises. If the queue is full, spans are
  dropped.

Source: OpenTelemetry, "Semantic conventions for HTTP spans"; W3C, "Trace Context".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar, Token
from typing import Final, ParamSpec, TypeVar

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

from catalog.audit.records import clean
from catalog.base.outside_calls import UNAVAILABLE, Part

_MOST_CALLS: Final = 200
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
        return RequestSpan(span)

    def ended(self, part: Part, operation: str, outcome: str, started_ns: int, ended_ns: int) -> None:
        """See `catalog.base.outside_calls.CallTracer`; a call outside of a request has no span."""
        request = _current.get()
        if request is None or not request.takes_a_call():
            return
        span = self._tracer.start_span(
            f"{part} {operation}",
            set_span_in_context(request.span),
            SpanKind.CLIENT,
            {"lakewarden.part": part, "lakewarden.operation": operation, "lakewarden.outcome": outcome},
            start_time=started_ns,
            record_exception=False,
        )
        if outcome == UNAVAILABLE:
            span.set_status(Status(StatusCode.ERROR))
        span.end(ended_ns)

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
    """The span of one request; ended in the context that began it.

    Args:
        span: the span.
    """

    def __init__(self, span: Span) -> None:
        self.span = span
        self._calls = 0
        self._token: Token[RequestSpan | None] = _current.set(self)

    @property
    def trace_id(self) -> str:
        """Return the id of the trace, in hexadecimal digits."""
        return format_trace_id(self.span.get_span_context().trace_id)

    def takes_a_call(self) -> bool:
        """Return whether another call gets a span. Threads of one request can count a little less."""
        self._calls += 1
        return self._calls <= _MOST_CALLS and self.span.is_recording()

    def end(self, method: str, route: str, about: Mapping[str, _Value]) -> None:
        """End the span.

        Args:
            method: the HTTP method.
            route: the template of the path.
            about: the fields of the request's log line.
        """
        _current.reset(self._token)
        self.span.update_name(f"{method} {route}")
        for name, value in about.items():
            known = _NAMES.get(name, f"lakewarden.{name}")
            if known is not None and value is not None:
                self.span.set_attribute(known, clean(value, _LENGTH) if isinstance(value, str) else value)
        if self._calls > _MOST_CALLS:
            self.span.set_attribute("lakewarden.calls_left_out", self._calls - _MOST_CALLS)
        if about.get("outcome") in ("failed", "unknown"):
            self.span.set_status(Status(StatusCode.ERROR))
        self.span.end()


_current: Final[ContextVar[RequestSpan | None]] = ContextVar("lakewarden_request_span", default=None)
