"""Equal refusals, counted: spam can neither fill the trail nor stop grants.

- The first refusal is on record before it is answered, like every decision. Those that follow it with the
  same user, engine, action, resource and reasons are counted in memory, and become one record, with the count
  among its reasons, when the window ends or the trail is closed.
- Grants are never counted: each is a record of its own.
- Of a process that is killed, the counts of its open windows are lost, never a first refusal. A count whose
  record may or may not have been written is written again.
- Memory is bounded: while `CAPACITY` windows are open, further refusals are written one by one.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, TypeAlias

from catalog.audit_records import Row, with_reason
from policy.decision import Reason

CAPACITY: Final = 1_000
_EQUAL: Final = ("principal", "engine", "action", "resource", "reasons")

_Key: TypeAlias = tuple[object, ...]


@dataclass(slots=True)
class Window:
    """What came after a refusal: how often it was repeated, and the last repetition."""

    first: Row
    last: Row
    end_s: float
    count: int = 0

    def row(self) -> Row:
        """The one record of all repetitions: the last one's time and request."""
        detail = f"Refused {self.count} more times since the record of request {self.first['request_id']}."
        return with_reason(self.last, Reason("repeated", detail))


class Repeats:
    """The open windows. Safe for use by many threads.

    Args:
        window_s: how long equal refusals are counted before they are written, in seconds.
    """

    def __init__(self, window_s: float) -> None:
        self._window_s = window_s
        self._lock = threading.Lock()
        self._open: dict[_Key, Window] = {}

    def counted(self, row: Row) -> bool:
        """Whether a record repeats a refusal that is on record; if so, it is counted."""
        with self._lock:
            window = None if row["allowed"] else self._open.get(_key(row))
            if window is None:
                return False
            window.count += 1
            window.last = row
            return True

    def begin(self, row: Row) -> None:
        """Count what repeats this record, which is durable, if it is a refusal and there is room."""
        with self._lock:
            if not row["allowed"] and len(self._open) < CAPACITY:
                self._open.setdefault(_key(row), Window(row, row, time.monotonic() + self._window_s))

    def take(self, *, everything: bool) -> list[Window]:
        """Close the windows whose time is over, or all, and return those that counted something."""
        now = time.monotonic()
        with self._lock:
            over = [key for key, window in self._open.items() if everything or window.end_s <= now]
            return [window for window in map(self._open.pop, over) if window.count]

    def put_back(self, windows: Iterable[Window]) -> None:
        """Keep the counts of windows whose records could not be written, for the next attempt."""
        with self._lock:
            for window in windows:
                newer = self._open.setdefault(_key(window.first), window)
                if newer is not window:
                    newer.count += window.count


def _key(row: Row) -> _Key:
    return tuple(row[field] for field in _EQUAL)
