"""Sends traces and metrics to an OpenTelemetry collector, by OTLP over HTTP.

- Off unless the settings switch it on. Then OpenTelemetry's libraries are imported, and not before.
- Sending has threads of its own, and bounded queues. A collector that is slow or away delays no request and
  fails none: what cannot be sent is dropped, and the log says so once.
- OpenTelemetry's environment variables apply. One that asks for what is not supported is refused.
- Nothing is registered for the whole process but the tracer of calls: no library of others sends anything.

Source: OpenTelemetry, "Environment Variable Specification" and "OTLP Specification".
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final, Self
from uuid import uuid4

from catalog.base.log_fields import fields
from catalog.base.outside_calls import trace_calls
from catalog.settings.sections import TelemetrySettings
from policy.errors import RequestInvalid

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider

    from catalog.http.metrics import Snapshot
    from catalog.http.otlp_metrics import MetricsExport
    from catalog.http.tracing import Tracing

_log: Final = logging.getLogger("lakewarden.telemetry")

#: Seconds until the service stops without having sent everything.
_CLOSING_S: Final = 5.0
#: What is supported of variables that choose among several.
SUPPORTED: Final[Mapping[str, tuple[str, ...]]] = {
    "OTEL_EXPORTER_OTLP_PROTOCOL": ("http/protobuf",),
    "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": ("http/protobuf",),
    "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL": ("http/protobuf",),
    "OTEL_TRACES_EXPORTER": ("otlp",),
    "OTEL_METRICS_EXPORTER": ("otlp",),
    **{
        f"OTEL_EXPORTER_OTLP_{signal}COMPRESSION": ("none", "gzip", "deflate")
        for signal in ("", "TRACES_", "METRICS_")
    },
    "OTEL_PROPAGATORS": ("tracecontext",),
    "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE": ("cumulative",),
    "OTEL_TRACES_SAMPLER": (
        "always_on",
        "always_off",
        "traceidratio",
        "parentbased_always_on",
        "parentbased_always_off",
        "parentbased_traceidratio",
    ),
}
_INTERVAL: Final = "OTEL_METRIC_EXPORT_INTERVAL"
#: Numbers, with their minimum and maximum. The libraries would take their default for another text.
NUMBERS: Final[Mapping[str, tuple[float, float]]] = {
    "OTEL_TRACES_SAMPLER_ARG": (0, 1),
    "OTEL_EXPORTER_OTLP_TIMEOUT": (0.1, 600),
    "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT": (0.1, 600),
    "OTEL_EXPORTER_OTLP_METRICS_TIMEOUT": (0.1, 600),
    "OTEL_BSP_SCHEDULE_DELAY": (1, 600_000),
    "OTEL_BSP_MAX_QUEUE_SIZE": (1, 1_000_000),
    "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": (1, 100_000),
    _INTERVAL: (100, 3_600_000),
}


class Telemetry:
    """What is sent of one process; made after a fork.

    Args:
        settings: what is sent, and where to.
        environ: the environment, which OpenTelemetry's libraries read too.

    Attributes:
        tracing: makes spans; None if no traces are sent.

    Raises:
        RequestInvalid: a library is missing, or a variable asks for what is not supported.
    """

    def __init__(self, settings: TelemetrySettings, environ: Mapping[str, str]) -> None:
        is_disabled = environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
        self._sends_metrics = settings.metrics and not is_disabled
        self._endpoint = settings.endpoint
        self._environ = environ
        self.tracing: Tracing | None = None
        self._provider: TracerProvider | None = None
        self._metrics: MetricsExport | None = None
        if is_disabled or not (settings.traces or settings.metrics):
            return
        _require(environ)
        _require_library()
        # Failures are ours to report: its messages can have addresses with credentials.
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
        with _understood():
            self._resource = _resource()
            if settings.traces:
                self._trace()

    def _trace(self) -> None:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExportResult

        from catalog.http.otlp_session import OtlpSession
        from catalog.http.tracing import Tracing

        exporter = OTLPSpanExporter(self._address("traces"), session=OtlpSession())
        _watch(exporter, "traces", SpanExportResult.SUCCESS)
        self._provider = TracerProvider(resource=self._resource, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self.tracing = Tracing(self._provider.get_tracer("lakewarden", version("lakewarden")))
        trace_calls(self.tracing)

    def watch(self, snapshot: Callable[[], Snapshot]) -> None:
        """Send snapshots of the metrics from now on, if the settings say so."""
        if not self._sends_metrics:
            return
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        from opentelemetry.sdk.metrics.export import MetricExportResult

        from catalog.http.otlp_metrics import MetricsExport
        from catalog.http.otlp_session import OtlpSession

        interval_ms = _number(self._environ, _INTERVAL, 60_000)
        with _understood():
            exporter = OTLPMetricExporter(self._address("metrics"), session=OtlpSession())
        _watch(exporter, "metrics", MetricExportResult.SUCCESS)
        self._metrics = MetricsExport(exporter, self._resource, interval_ms / 1000, snapshot)

    def close(self) -> None:
        """Send what is left, for at most `_CLOSING_S` seconds, and stop."""
        until = time.monotonic() + _CLOSING_S
        if self._provider is not None:
            trace_calls(None)
            # The SDK would wait for half a minute.
            closing = threading.Thread(target=self._provider.shutdown, name="lakewarden-otlp", daemon=True)
            closing.start()
            closing.join(_CLOSING_S)
        if self._metrics is not None:
            self._metrics.close(max(0.0, until - time.monotonic()))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _address(self, signal: str) -> str | None:
        return None if self._endpoint is None else f"{self._endpoint.rstrip('/')}/v1/{signal}"


def _watch(exporter: Any, signal: str, success: object) -> None:
    """Let an exporter log when its collector begins to fail, and when it takes data again."""
    export, is_failing = exporter.export, False

    def watched(data: Any) -> object:
        nonlocal is_failing
        result = export(data)
        if is_failing is (result is success):
            is_failing = not is_failing
            what = "does not take data; it is dropped" if is_failing else "takes data again"
            _log.warning("the OpenTelemetry collector %s", what, extra=fields(signal=signal))
        return result

    exporter.export = watched


@contextmanager
def _understood() -> Iterator[None]:
    """Refuse variables whose values OpenTelemetry's libraries do not understand."""
    try:
        yield
    except ValueError:
        # Without its message: it can quote a header with a credential.
        raise _refused("A variable of OpenTelemetry (OTEL_…) has a value that is not valid.") from None


def _resource() -> Resource:
    """Describe this process; what OTEL_RESOURCE_ATTRIBUTES and OTEL_SERVICE_NAME say comes first."""
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource

    ours = {
        "service.name": "lakewarden",
        "service.version": version("lakewarden"),
        "service.instance.id": str(uuid4()),
    }
    return Resource(ours).merge(OTELResourceDetector().detect())


def _require(environ: Mapping[str, str]) -> None:
    for name, supported in SUPPORTED.items():
        value = environ.get(name, "").strip().lower()
        if value and value not in supported:
            raise _refused(f"{name} asks for what is not supported. Supported: {', '.join(supported)}.")
    for name, (least, most) in NUMBERS.items():
        if not least <= _number(environ, name, least) <= most:
            raise _refused(f"{name} is no number from {least:g} to {most:g}.")


def _number(environ: Mapping[str, str], name: str, default: float) -> float:
    """Return a number of the environment; NaN, which is in no range, if it is none."""
    try:
        return float(environ.get(name) or default)
    except ValueError:
        return math.nan


def _refused(what: str) -> RequestInvalid:
    return RequestInvalid(
        what, rule="telemetry", hint="Correct or remove the variable. docs/observability.md lists them."
    )


def _require_library() -> None:
    try:
        import opentelemetry.exporter.otlp.proto.http  # noqa: F401
    except ImportError as error:
        raise RequestInvalid(
            "OpenTelemetry is not installed.",
            rule="telemetry",
            hint="Run `pip install 'lakewarden[otel]'`, or remove `telemetry` from the settings.",
        ) from error
