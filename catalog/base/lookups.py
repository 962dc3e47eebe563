"""Counts the lookups of a cache; thread-safe."""

from __future__ import annotations

import threading


class Lookups:
    """Hits and misses of one cache."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._hits = 0
        self._misses = 0

    def found(self, is_hit: bool) -> None:
        """Count a lookup.

        Args:
            is_hit: whether the cache had the value.
        """
        with self._lock:
            self._hits += is_hit
            self._misses += not is_hit

    @property
    def counts(self) -> tuple[int, int]:
        """Return the number of hits and of misses."""
        with self._lock:
            return self._hits, self._misses
