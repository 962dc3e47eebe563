"""Lets commits to one table take turns, first come, first served (within one process).

Engine commits to one table conflict with each other: of those that run at once, one is published, and all
others build their manifests again. In turns, each builds them once. The queue is only for speed and fairness.
The pointer still decides between commits, also those of other processes.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

#: The maximum wait for one commit that has the turn, in seconds. After it, those that wait for it go ahead,
#: and are retried after conflicts.
LONGEST_WAIT: Final = 5.0


class Turns:
    """One queue for each key; thread-safe.

    Args:
        longest_wait_s: maximum wait for one that has the turn, in seconds.
    """

    def __init__(self, longest_wait_s: float = LONGEST_WAIT) -> None:
        self._longest_wait_s = longest_wait_s
        self._lock = threading.Lock()
        self._queues: dict[str, deque[threading.Event]] = {}
        self._thread = threading.local()

    @contextmanager
    def taken(self, key: str) -> Iterator[None]:
        """Wait for the turn, and keep it until the block ends. A thread with a turn waits for no other."""
        if getattr(self._thread, "has_turn", False):
            yield
            return
        turn = threading.Event()
        self._join(key, turn)
        self._thread.has_turn = True
        try:
            self._wait(key, turn)
            yield
        finally:
            self._thread.has_turn = False
            self._leave(key, turn)

    def waiting(self, key: str) -> int:
        """Return how many have or wait for the turn."""
        with self._lock:
            return len(self._queues.get(key, ()))

    def _wait(self, key: str, turn: threading.Event) -> None:
        """Wait for the turn while the queue moves on."""
        first = None
        while first is not (first := self._first(key)) and not turn.wait(self._longest_wait_s):
            pass

    def _first(self, key: str) -> threading.Event:
        with self._lock:
            return self._queues[key][0]

    def _join(self, key: str, turn: threading.Event) -> None:
        with self._lock:
            queue = self._queues.setdefault(key, deque())
            queue.append(turn)
            queue[0].set()

    def _leave(self, key: str, turn: threading.Event) -> None:
        with self._lock:
            queue = self._queues[key]
            queue.remove(turn)
            if queue:
                queue[0].set()
            else:
                del self._queues[key]
