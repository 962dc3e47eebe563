"""Places for calls that run at a time.

Rules:
- A call that was given up keeps its place while it runs: what hangs does not use up threads.
- But not for ever: half a minute after it was given up its place is another's. A server that never ends an
  answer would otherwise keep all others from the KMS, when it has long been well.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

_KEPT_S: Final = 30.0


class Places:
    """So many places; safe for many threads.

    Args:
        count: how many there are.
        clock: monotonic seconds.
    """

    def __init__(self, count: int, clock: Callable[[], float]) -> None:
        self._count = count
        self._clock = clock
        self._changed = threading.Condition()
        #: Until when each taken one is kept.
        self._taken: dict[Place, float] = {}

    def take(self, seconds: float) -> Place | None:
        """A place, if there is one within so many seconds."""
        until = self._clock() + seconds
        with self._changed:
            while not self._has_room():
                left = until - self._clock()
                pause = min(left, min(self._taken.values()) - self._clock())
                if left <= 0 or not (self._changed.wait(pause) or pause < left):
                    return None
            place = Place(self)
            self._taken[place] = float("inf")
            return place

    def _has_room(self) -> bool:
        now = self._clock()
        self._taken = {place: until for place, until in self._taken.items() if until > now}
        return len(self._taken) < self._count

    def _leave(self, place: Place) -> None:
        with self._changed:
            self._taken.pop(place, None)
            self._changed.notify()

    def _give_up(self, place: Place) -> None:
        with self._changed:
            if place in self._taken:
                self._taken[place] = self._clock() + _KEPT_S
                self._changed.notify_all()


class Place:
    """One that is taken."""

    def __init__(self, places: Places) -> None:
        self._places = places

    def leave(self) -> None:
        """The call has ended."""
        self._places._leave(self)

    def give_up(self) -> None:
        """Nobody waits for the call any more."""
        self._places._give_up(self)
