"""Counts what the service does, and takes snapshots of it (`metrics_text` shows them).

- Labels are methods, route templates, statuses and names in the code, never a name of a table or principal, a
  path or a token. So every user with a valid token can read them.
- The number of series is bounded for any input.
- With several workers, `catalog.http.worker_states` adds up the snapshots of all.
"""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from catalog.base.durations import Durations, Histogram, Key
from catalog.base.outside_calls import CALLS
from catalog.http import metric_families as families
from catalog.http.gauges import cache_lookups, gauges_of, kms_calls
from catalog.http.series import Labels, Series
from catalog.service.services import Services

_MAX_SERIES: Final = 2_000
_RULE: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
_OTHER: Final = "other"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What `/metrics` shows of one process, or of all workers.

    Attributes:
        counts: events by series.
        durations: histograms by series.
        gauges: states by series.
    """

    counts: Mapping[Series, float]
    durations: Mapping[Series, Histogram]
    gauges: Mapping[Series, float]


class Metrics:
    """Counts events of the service; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[Series] = Counter()
        self._requests = Durations()
        self._connections = 0

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request that was answered.

        Args:
            method: the HTTP method.
            route: the template of the path.
            status: of the answer.
            seconds: from the request's head to the answer's last byte.
        """
        where = (("method", method), ("route", route))
        self._add(families.REQUESTS, (*where, ("status", str(status))), 1)
        self._add(families.REQUEST_SECONDS, where, seconds)
        self._requests.add((method, route), seconds)

    def refused(self, rule: str) -> None:
        """Count a request that a rule refused."""
        self._add(families.REFUSALS, (("rule", rule if _RULE.fullmatch(rule) else _OTHER),), 1)

    def connections(self, count: int) -> None:
        """Set the number of open connections."""
        self._connections = count

    def connection_refused(self, rule: str) -> None:
        """Count a connection or request that a limit ended before the application received it."""
        self._add(families.CONNECTIONS_REFUSED, (("rule", rule),), 1)

    def committed(self, kind: str) -> None:
        """Count a commit that took effect: ``create``, ``commit``, ``transaction`` or ``engine``."""
        self._add(families.COMMITS, (("kind", kind),), 1)

    def reported(self, kind: str) -> None:
        """Count a metrics report of a client: ``scan`` or ``commit``."""
        self._add(families.REPORTS, (("kind", kind),), 1)

    def events(self) -> Snapshot:
        """Return what was counted, without the states of the catalog."""
        with self._lock:
            counts = dict(self._counts)
        requests = _series(families.REQUEST_DURATION, self._requests.histograms())
        calls = _series(families.CALL_DURATION, CALLS.histograms())
        return Snapshot(counts, requests | calls, {(families.CONNECTIONS, ()): self._connections})

    def snapshot(self, services: Services) -> Snapshot:
        """Return what was counted, and the states of a catalog."""
        events = self.events()
        return Snapshot(
            {**events.counts, **kms_calls(services.kms_keys.clients), **cache_lookups(services)},
            events.durations,
            {**events.gauges, **gauges_of(services)},
        )

    def _add(self, name: str, labels: Labels, amount: float) -> None:
        with self._lock:
            key = (name, labels)
            if key not in self._counts and len(self._counts) >= _MAX_SERIES:
                key = (name, tuple((label, _OTHER) for label, _ in labels))
            self._counts[key] += amount  # type: ignore[assignment]


def _series(name: str, histograms: Mapping[Key, Histogram]) -> dict[Series, Histogram]:
    labels = families.FAMILIES[name].labels
    return {(name, tuple(zip(labels, key, strict=True))): each for key, each in histograms.items()}
