"""Clocks that go when a test says so."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any


@dataclass
class Clock:
    """Monotonic seconds, moved by hand."""

    now: float = 1_000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class WallClock:
    """The time of day, moved by hand."""

    now: datetime = datetime(2026, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


@contextmanager
def at_time(service: Any, now_ms: int) -> Iterator[None]:
    """One service takes this for the time, in milliseconds since 1970; the others do not."""
    context = service._context
    service._context = replace(context, now_ms=lambda: now_ms)
    try:
        yield
    finally:
        service._context = context
