"""A clock that goes when a test says so."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Clock:
    """Monotonic seconds, moved by hand."""

    now: float = 1_000.0

    def __call__(self) -> float:
        return self.now
