"""Counts durations in buckets: histograms by labels, for many threads."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, TypeVar

#: Upper bounds of the buckets, in seconds; the last bucket has none.
BOUNDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

#: The values of labels, in the order of their names.
Key = tuple[str, ...]
_Name = TypeVar("_Name")


class Histogram(NamedTuple):
    """Durations that were counted.

    Attributes:
        counts: by bucket, not cumulated; one more than there are `BOUNDS`.
        total: their sum, in seconds.
    """

    counts: tuple[int, ...]
    total: float


class Durations:
    """Histograms by key; thread-safe. The caller bounds the number of keys."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[Key, list[int]] = {}
        self._totals: dict[Key, float] = {}

    def add(self, key: Key, seconds: float) -> None:
        """Count a duration."""
        bucket = bisect_left(BOUNDS, seconds)
        with self._lock:
            counts = self._counts.get(key)
            if counts is None:
                counts = self._counts[key] = [0] * (len(BOUNDS) + 1)
                self._totals[key] = 0.0
            counts[bucket] += 1
            self._totals[key] += seconds

    def histograms(self) -> dict[Key, Histogram]:
        """Return what was counted so far."""
        with self._lock:
            return {key: Histogram(tuple(each), self._totals[key]) for key, each in self._counts.items()}


def summed(histograms: Iterable[Mapping[_Name, Histogram]]) -> dict[_Name, Histogram]:
    """Return the sums of histograms, by name."""
    found: dict[_Name, Histogram] = {}
    for each in histograms:
        for name, more in each.items():
            known = found.get(name)
            found[name] = more if known is None else _sum(known, more)
    return found


def _sum(first: Histogram, second: Histogram) -> Histogram:
    pairs = zip(first.counts, second.counts, strict=True)
    return Histogram(tuple(one + other for one, other in pairs), first.total + second.total)
