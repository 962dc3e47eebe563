"""Lets commits to one table take turns, first come, first served (within one process).

Engine commits to one table conflict with each other: of those that run at once, one is published, and all
others build their manifests again. In turns, each builds them once. The queue is only for speed and fairness.
The pointer still decides between commits, also those of other processes.

A commit waits for a limited time, since it holds a thread meanwhile. After it, the next in the queue goes
ahead beside the commit that has the turn, and is retried after conflicts; the others are refused. So a commit
that hangs stops no table, and those that wait for it do not all begin at once.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Final

from policy.errors import StateUnavailable

#: The maximum wait for the turn, in seconds.
LONGEST_WAIT: Final = 5.0


class Turns:
    """One queue for each key; thread-safe.

    Args:
        longest_wait_s: maximum wait for the turn, in seconds.
    """

    def __init__(self, longest_wait_s: float = LONGEST_WAIT) -> None:
        self._longest_wait_s = longest_wait_s
        self._lock = threading.Lock()
        self._queues: dict[str, deque[threading.Event]] = {}
        self._thread = threading.local()

    @contextmanager
    def taken(self, key: str) -> Iterator[None]:
        """Wait for the turn, and keep it until the block ends. A thread with a turn waits for no other.

        Raises:
            StateUnavailable: several others were still before it after the longest wait.
        """
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
        if not turn.wait(self._longest_wait_s) and not self._is_next(key, turn):
            raise StateUnavailable(
                f"Other commits to the table were before this one for {self._longest_wait_s:.0f} seconds.",
                rule="commit-turn",
                hint="Nothing was committed. Repeat the commit, or commit more rows at a time.",
            )

    def _is_next(self, key: str, turn: threading.Event) -> bool:
        """Return whether it has the turn, or is the next that gets it."""
        with self._lock:
            return turn in islice(self._queues[key], 2)

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
