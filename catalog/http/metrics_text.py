"""Shows a snapshot in Prometheus' text format.

Source: Prometheus, "Exposition formats", text-based format 0.0.4.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import accumulate
from typing import Final

from catalog.base.durations import BOUNDS, Histogram
from catalog.http.metric_families import FAMILIES
from catalog.http.metrics import Snapshot
from catalog.http.series import Labels, Series

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

_BOUNDS: Final = (*(f"{each:g}" for each in BOUNDS), "+Inf")


def rendered(snapshot: Snapshot) -> str:
    """Return all metrics as text, sorted by name within their family."""
    by_family: dict[str, list[str]] = {name: [] for name in FAMILIES}
    values: Mapping[Series, float] = {**snapshot.counts, **snapshot.gauges}
    for (name, labels), value in sorted(values.items()):
        by_family[name].append(_line(name, labels, value))
    for (name, labels), histogram in sorted(snapshot.durations.items()):
        by_family[name] += _lines(name, labels, histogram)
    return "".join(
        f"# HELP {name} {family.help}\n# TYPE {name} {family.kind}\n{''.join(by_family[name])}"
        for name, family in FAMILIES.items()
    )


def _lines(name: str, labels: Labels, histogram: Histogram) -> Iterator[str]:
    for bound, count in zip(_BOUNDS, accumulate(histogram.counts), strict=True):
        yield _line(f"{name}_bucket", (*labels, ("le", bound)), count)
    yield _line(f"{name}_sum", labels, histogram.total)
    yield _line(f"{name}_count", labels, sum(histogram.counts))


def _line(name: str, labels: Labels, value: float) -> str:
    shown = ",".join(f'{label}="{_escaped(each)}"' for label, each in labels)
    # Counters can be greater than what `g` shows exactly.
    number = str(int(value)) if value == int(value) else f"{value:.9g}"
    return f"{name}{{{shown}}} {number}\n" if labels else f"{name} {number}\n"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
