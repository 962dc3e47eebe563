"""Limits concurrent KMS calls (bulkhead).

Rules:
- A call that was given up keeps its slot while it runs, so that calls that hang do not use up threads.
- It keeps the slot for 30 seconds at most. Otherwise a server that never ends its answers would block all
  calls, even after it recovers.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

_KEPT_S: Final = 30.0


class Bulkhead:
    """A fixed number of slots; safe for many threads.

    Args:
        count: the number of slots.
        clock: monotonic seconds.
    """

    def __init__(self, count: int, clock: Callable[[], float]) -> None:
        self._count = count
        self._clock = clock
        self._changed = threading.Condition()
        #: When each taken slot expires, in monotonic seconds; infinity until its call is given up.
        self._taken: dict[Slot, float] = {}

    def take(self, seconds: float) -> Slot | None:
        """Take a slot, waiting for at most `seconds`; `None` if none becomes free."""
        until = self._clock() + seconds
        with self._changed:
            while not self._has_room():
                left = until - self._clock()
                pause = min(left, min(self._taken.values()) - self._clock())
                if left <= 0 or not (self._changed.wait(pause) or pause < left):
                    return None
            slot = Slot(self)
            self._taken[slot] = float("inf")
            return slot

    def _has_room(self) -> bool:
        now = self._clock()
        self._taken = {slot: until for slot, until in self._taken.items() if until > now}
        return len(self._taken) < self._count

    def _leave(self, slot: Slot) -> None:
        with self._changed:
            self._taken.pop(slot, None)
            self._changed.notify()

    def _give_up(self, slot: Slot) -> None:
        with self._changed:
            if slot in self._taken:
                self._taken[slot] = self._clock() + _KEPT_S
                self._changed.notify_all()


class Slot:
    """A taken slot."""

    def __init__(self, bulkhead: Bulkhead) -> None:
        self._bulkhead = bulkhead

    def leave(self) -> None:
        """Release the slot: its call has ended."""
        self._bulkhead._leave(self)

    def give_up(self) -> None:
        """Give up the call: the slot is released when the call ends, or after 30 seconds."""
        self._bulkhead._give_up(self)
