"""A circuit breaker: it keeps callers away from a service that does not answer.

Rules:
- Closed: everybody may call. After so many failures in a row it opens.
- Open: nobody may call for a while. The while is drawn at random, so that many processes do not come back
  together, and doubles from failure to failure up to a bound.
- After that, one caller may try; the others are refused until its call ends. If it succeeds, the circuit
  closes.
- What ends while the circuit is open, but began before, changes nothing.

Why not pybreaker: it holds one lock during the call itself, so that a slow call stops all others, and it
measures time by the clock on the wall.

Source: M. Nygard, "Release It!", 2nd edition, "Circuit Breaker".
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable


class CircuitOpen(Exception):
    """Nobody may call now."""


class Circuit:
    """Decides who may call; safe for many threads.

    Args:
        failures: after how many failures in a row it opens.
        open_s: for how long it opens first, in seconds; a random part of up to the same comes on top.
        longest_open_s: the longest that it doubles to, without the random part.
        clock: monotonic seconds.
    """

    def __init__(
        self, failures: int, open_s: float, longest_open_s: float, clock: Callable[[], float]
    ) -> None:
        self._failures = failures
        self._open_s = open_s
        self._longest_open_s = longest_open_s
        self._clock = clock
        self._lock = threading.Lock()
        self._failed = 0
        self._next_open_s = open_s
        self._opened_until: float | None = None
        self._probing = False

    @property
    def is_open(self) -> bool:
        """Whether the service was not answering when it was last asked."""
        with self._lock:
            return self._opened_until is not None

    def check(self) -> None:
        """Refuse where `enter` would, without beginning a call.

        Raises:
            CircuitOpen: no call may be made.
        """
        with self._lock:
            self._check()

    def enter(self) -> bool:
        """Begin a call; `leave` has to follow.

        Returns:
            whether this caller is the one that tries whether the service answers again.

        Raises:
            CircuitOpen: no call may be made.
        """
        with self._lock:
            self._check()
            self._probing = self._opened_until is not None
            return self._probing

    def leave(self, probe: bool, answered: bool) -> None:
        """End a call.

        Args:
            probe: what `enter` returned.
            answered: whether the service answered, be it with a refusal.
        """
        with self._lock:
            if probe:
                self._probing = False
            elif self._opened_until is not None:
                return
            if answered:
                self._close()
            else:
                self._failed += 1
                if self._failed >= self._failures:
                    self._open()

    def _check(self) -> None:
        if self._opened_until is not None and (self._probing or self._clock() < self._opened_until):
            raise CircuitOpen

    def _close(self) -> None:
        self._failed, self._opened_until, self._next_open_s = 0, None, self._open_s

    def _open(self) -> None:
        self._opened_until = self._clock() + self._next_open_s * random.uniform(1, 2)
        self._next_open_s = min(2 * self._next_open_s, self._longest_open_s)
