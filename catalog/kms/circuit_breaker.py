"""A circuit breaker: rejects calls to a service that does not respond.

Rules:
- Closed: everybody may call. After so many failures in a row it opens.
- Open: nobody may call for a while. The while is drawn at random, so that many processes do not come back
  together, and doubles from failure to failure up to a bound.
- After that, one caller may try; the others are refused until its call ends. If it succeeds, the circuit
  closes. One whose failure would say nothing new may try only when half of the while has passed once more.
- What ends while the circuit is open, but began before, changes nothing.

It is not thread-safe: its owner lets in one thread at a time (`circuit_breakers`).

Why not pybreaker: it holds one lock during the call itself, so that a slow call stops all others, and it
measures time by the clock on the wall.

Source: M. Nygard, "Release It!", 2nd edition, "Circuit Breaker".
"""

from __future__ import annotations

import random
from collections.abc import Callable


class Circuit:
    """Decides whether a call can begin.

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
        self._failed = 0
        self._now_open_s = open_s
        self._next_open_s = open_s
        self._opened_until: float | None = None
        self._probing = False

    @property
    def is_open(self) -> bool:
        """Return whether the service failed to respond when it was last called."""
        return self._opened_until is not None

    def refuses(self, last: bool = False) -> bool:
        """Return whether a call must not begin now.

        Args:
            last: whether others are to try before this caller.
        """
        if self._opened_until is None:
            return False
        wait = self._now_open_s / 2 if last else 0.0
        return self._probing or self._clock() < self._opened_until + wait

    def enter(self) -> bool:
        """Begin a call that `refuses` permitted; `leave` must follow.

        Returns:
            whether this caller is the one that tries whether the service answers again.
        """
        self._probing = self.is_open
        return self._probing

    def leave(self, probe: bool, answered: bool | None, *, new: bool = True) -> None:
        """End a call.

        Args:
            probe: what `enter` returned.
            answered: whether the service answered, be it with a refusal; None if nothing can be said.
            new: whether a failure says more than the last one did; if not, nothing is counted, and a probe
                leaves the circuit open for as long as before.
        """
        if probe:
            self._probing = False
        elif self.is_open:
            return
        if answered:
            self._failed, self._opened_until, self._next_open_s = 0, None, self._open_s
        elif answered is not None and new:
            self._failed += 1
            if self._failed >= self._failures:
                self._now_open_s = self._next_open_s
                self._next_open_s = min(2 * self._next_open_s, self._longest_open_s)
                self._open()
        elif answered is not None and probe:
            self._open()

    def try_now(self) -> None:
        """If the circuit is open, let one caller try without further waiting."""
        if self.is_open:
            self._opened_until = self._clock()

    def _open(self) -> None:
        self._opened_until = self._clock() + self._now_open_s * random.uniform(1, 2)
