"""Circuit breakers: no calls to a KMS, or about a table or master key, that has stopped answering.

A circuit
- is closed: every call can begin. After a number of failures in a row it opens.
- is open: no call can begin for a time. The time is drawn at random, so that processes do not come back
  together, and doubles with each further failure up to a bound. Then one call can begin, the probe: if it is
  answered, the circuit closes.
- ignores calls that end while it is open but began before.

One circuit is for all calls, and each subject of a failing call has its own. A subject is a table, or the
master key of a new key.
- One broken key opens its own circuit alone. The common circuit counts a failure only if it is about another
  subject than the failure before.
- Once the common circuit can be probed, subjects that have not failed come first.
- When a probe closes the common circuit, the other subjects can be probed at once.
- A limited number of subjects is known. The one that failed longest ago is forgotten.

Why not pybreaker: it holds a lock during a call, so that a slow call stops all others, and it uses wall-clock
time.

Source: M. Nygard, "Release It!", 2nd edition, "Circuit Breaker".
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

SUBJECTS: Final = 1024
_MOST_DOUBLINGS: Final = 16


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """A call in progress, and its subject."""

    subject: str


class Circuit:
    """One circuit; `Circuits` permits one thread at a time.

    Args:
        failures: the number of failures in a row that opens it.
        open_s: the seconds that it is open at first; a random part of up to the same comes on top.
        longest_open_s: the bound of these seconds, without the random part.
        clock: monotonic seconds.
    """

    def __init__(
        self, failures: int, open_s: float, longest_open_s: float, clock: Callable[[], float]
    ) -> None:
        self._failures = failures
        self._first_open_s = open_s
        self._longest_open_s = longest_open_s
        self._clock = clock
        self._failed = 0
        self._opened_until: float | None = None
        self._probe: Call | None = None

    @property
    def is_open(self) -> bool:
        """Return whether calls have stopped being answered."""
        return self._opened_until is not None

    @property
    def has_failed(self) -> bool:
        """Return whether the last call failed."""
        return self._failed > 0

    def refuses(self, last: bool = False) -> bool:
        """Return whether a call cannot begin now; `last` if others are to come first."""
        if self._opened_until is None:
            return False
        wait = self._open_s() / 2 if last else 0.0
        return self._probe is not None or self._clock() < self._opened_until + wait

    def enter(self, call: Call) -> None:
        """Begin a call that `refuses` permitted; `leave` must follow."""
        if self.is_open:
            self._probe = call

    def leave(self, call: Call, answered: bool | None, *, new: bool = True) -> None:
        """End a call.

        Args:
            call: the call.
            answered: whether the KMS answered, even with a refusal; None if the call says nothing about it.
            new: whether a failure says more than the one before; otherwise it is not counted.
        """
        if self.is_open:
            if self._probe is not call:
                return
            self._probe = None
        if answered:
            self._failed, self._opened_until = 0, None
        elif answered is not None:
            self._failed += new
            if self._failed >= self._failures:
                self._opened_until = self._clock() + self._open_s() * random.uniform(1, 2)

    def probe_now(self) -> None:
        """Permit a probe at once, if the circuit is open."""
        if self.is_open:
            self._opened_until = self._clock()

    def _open_s(self) -> float:
        doublings = min(self._failed - self._failures, _MOST_DOUBLINGS)
        return min(self._first_open_s * 2.0**doublings, self._longest_open_s)


class Circuits:
    """The circuits of a KMS; safe for many threads.

    Args:
        make: makes a closed circuit.
    """

    def __init__(self, make: Callable[[], Circuit]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._common = make()
        self._own: dict[str, Circuit] = {}
        self._failed_last: str | None = None

    @property
    def is_open(self) -> bool:
        """Return whether a circuit is open: the common one, or that of a subject."""
        with self._lock:
            return self._common.is_open or any(own.is_open for own in self._own.values())

    def is_open_for(self, subject: str) -> bool:
        """Return whether a circuit is open that a call about a subject needs."""
        with self._lock:
            return any(circuit.is_open for circuit in self._of(subject))

    def enter(self, subject: str) -> Call | None:
        """Begin a call; `leave` must follow. None if it cannot begin now."""
        with self._lock:
            common, *own = circuits = self._of(subject)
            if common.refuses(last=bool(own)) or any(each.refuses() for each in own):
                return None
            call = Call(subject)
            for circuit in circuits:
                circuit.enter(call)
            return call

    def leave(self, call: Call, answered: bool | None) -> None:
        """End a call.

        Args:
            call: what `enter` returned.
            answered: whether the KMS answered, even with a refusal; None if the call says nothing about it.
        """
        with self._lock:
            self._leave_own(call, answered)
            was_open = self._common.is_open
            self._common.leave(call, answered, new=call.subject != self._failed_last)
            if answered is False:
                self._failed_last = call.subject
            if was_open and not self._common.is_open:
                for own in self._own.values():
                    own.probe_now()

    def _of(self, subject: str) -> list[Circuit]:
        own = self._own.get(subject)
        return [self._common] if own is None else [self._common, own]

    def _leave_own(self, call: Call, answered: bool | None) -> None:
        own = self._own.pop(call.subject, None) or self._make()
        own.leave(call, answered)
        if own.has_failed:
            self._own[call.subject] = own
        if len(self._own) > SUBJECTS:
            del self._own[next(iter(self._own))]
