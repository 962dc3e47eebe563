"""Compares this host's clock with the database's.

Tokens and policies expire by the clock of the host that judges them. A host whose clock is behind would
accept what has expired. All hosts of a catalog share the database, so its clock is what they are held to.

SQLite has no clock of its own: its database is on this host.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import datetime
from typing import Final

from sqlalchemy import Connection, Engine, text

from catalog.db.engine import read
from policy.errors import StateUnavailable

#: The maximum difference of the clocks, in seconds.
MAX_SKEW_S: Final = 60.0
#: Seconds between comparisons.
CHECK_S: Final = 30.0

_HAS_OWN_CLOCK: Final = frozenset({"postgresql"})
_NOW: Final = text("SELECT extract(epoch FROM clock_timestamp())")


def database_ms(connection: Connection, now: Callable[[], datetime]) -> int:
    """Return the time of the clock that all processes of a catalog share, in milliseconds since 1970 UTC.

    Args:
        connection: to the catalog's database.
        now: the time of this host, with a zone, for a database without a clock of its own.
    """
    if connection.dialect.name in _HAS_OWN_CLOCK:
        return int(connection.execute(_NOW).scalar_one() * 1000)
    return int(now().timestamp() * 1000)


class DatabaseClock:
    """Refuses to evaluate times while the clocks differ too much. Safe for use by many threads.

    Args:
        engine: the catalog's database.
        now: the time of this host, with a zone.
        seconds: a clock that only goes forward.
    """

    def __init__(self, engine: Engine, now: Callable[[], datetime], seconds: Callable[[], float]) -> None:
        self._engine = engine
        self._now = now
        self._seconds = seconds
        self._lock = threading.Lock()
        self._checked_at: float | None = None
        self._skew_s = 0.0

    @property
    def is_off(self) -> bool:
        """Return whether the clocks differed too much at the last comparison."""
        return self._skew_s > MAX_SKEW_S

    def require(self) -> None:
        """Compare the clocks if it is time to do so.

        Raises:
            StateUnavailable: they are too far apart, or the database does not answer.
        """
        if self._engine.dialect.name not in _HAS_OWN_CLOCK:
            return
        with self._lock:
            started = self._seconds()
            # A wrong clock is compared each time, so that a corrected clock takes effect at once.
            if self._checked_at is None or self.is_off or started - self._checked_at >= CHECK_S:
                self._skew_s = self._measured()
                self._checked_at = started
        if self.is_off:
            raise StateUnavailable(
                f"The clock of this host differs from the database's clock by {self._skew_s:.0f} "
                f"seconds. With more than {MAX_SKEW_S:.0f} seconds, tokens cannot be checked.",
                rule="clock",
                hint="Synchronize the clocks of this host and of the database's host (NTP), then try again.",
            )

    def _measured(self) -> float:
        """Return the smallest difference that fits the readings, however slow the database was."""
        before = self._now().timestamp()
        with read(self._engine) as connection:
            theirs = float(connection.execute(_NOW).scalar_one())
        after = self._now().timestamp()
        return max(before - theirs, theirs - after, 0.0)
