"""Sends the metrics of `/metrics` by OTLP, from time to time, in a thread of its own.

The names, labels and values are those of `/metrics`. Each worker sends its own, as
an instance of the service.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    HistogramDataPoint,
    Metric,
    MetricExporter,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.metrics.export import Histogram as HistogramData
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from catalog.base.durations import BOUNDS, Histogram
from catalog.http.metric_families import FAMILIES, Kind
from catalog.http.metrics import Snapshot
from catalog.http.series import Labels, Series

_CUMULATIVE: Final = AggregationTemporality.CUMULATIVE


class MetricsExport:
    """Sends snapshots until it is closed.

    Args:
        exporter: sends one; returns after bounded time.
        resource: describes this process.
        interval_s: seconds between two snapshots.
        snapshot: returns what is sent.
    """

    def __init__(
        self,
        exporter: MetricExporter,
        resource: Resource,
        interval_s: float,
        snapshot: Callable[[], Snapshot],
    ) -> None:
        self._exporter = exporter
        self._resource = resource
        self._interval_s = interval_s
        self._snapshot = snapshot
        self._begun_ns = time.time_ns()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lakewarden-otlp-metrics", daemon=True)
        self._thread.start()

    def close(self, wait_s: float) -> None:
        """Send the last snapshot, and stop; after `wait_s` seconds, what was not sent is lost."""
        self._ended.set()
        self._thread.join(wait_s)
        self._exporter.shutdown()

    def _run(self) -> None:
        while not self._ended.wait(self._interval_s):
            self._send()
        self._send()

    def _send(self) -> None:
        self._exporter.export(metrics_data(self._snapshot(), self._resource, self._begun_ns, time.time_ns()))


def metrics_data(snapshot: Snapshot, resource: Resource, begun_ns: int, now_ns: int) -> MetricsData:
    """Return a snapshot as OpenTelemetry's data, cumulative from `begun_ns` to `now_ns` since 1970."""
    metrics = (*_numbers(snapshot, begun_ns, now_ns), *_histograms(snapshot.durations, begun_ns, now_ns))
    scope = ScopeMetrics(InstrumentationScope("lakewarden"), metrics, "")
    return MetricsData([ResourceMetrics(resource, [scope], "")])


def _numbers(snapshot: Snapshot, begun_ns: int, now_ns: int) -> Iterator[Metric]:
    points: dict[str, list[NumberDataPoint]] = defaultdict(list)
    values: Mapping[Series, float] = {**snapshot.counts, **snapshot.gauges}
    for (name, labels), value in values.items():
        points[name].append(NumberDataPoint(dict(labels), begun_ns, now_ns, float(value)))
    for name, each in points.items():
        is_counter = FAMILIES[name].kind is Kind.COUNTER
        yield _metric(name, Sum(each, _CUMULATIVE, is_monotonic=True) if is_counter else Gauge(each))


def _histograms(durations: Mapping[Series, Histogram], begun_ns: int, now_ns: int) -> Iterator[Metric]:
    points: dict[str, list[HistogramDataPoint]] = defaultdict(list)
    for (name, labels), each in durations.items():
        points[name].append(_point(labels, each, begun_ns, now_ns))
    for name, found in points.items():
        yield _metric(name, HistogramData(found, _CUMULATIVE))


def _point(labels: Labels, histogram: Histogram, begun_ns: int, now_ns: int) -> HistogramDataPoint:
    counts = histogram.counts
    # Neither the least nor the greatest duration is known; the protocol leaves both out.
    unknown: float = None  # type: ignore[assignment]
    return HistogramDataPoint(
        dict(labels), begun_ns, now_ns, sum(counts), histogram.total, counts, BOUNDS, unknown, unknown
    )


def _metric(name: str, data: Sum | Gauge | HistogramData) -> Metric:
    unit = "s" if "_seconds" in name else "By" if name.endswith("_bytes") else "1"
    return Metric(name, FAMILIES[name].help, unit, data)
