"""Circuit breakers of a KMS: one for all calls, and one for each subject of failing calls.

A subject is what a call is about: a table, or the master key of a new key. Rules:
- A subject that fails has a circuit of its own: one broken key is left alone, and no other with it.
- The common circuit counts a failure only when it is of another subject than the failure before it: the same
  one again says nothing about the KMS.
- When the common circuit has been open for its while, a subject that has not failed may try first.
- When a probe closes the common circuit, each subject that is left alone may be tried at once.
- So many subjects are known at a time; then the one that failed first is forgotten.

Source: `circuit_breaker`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final, NamedTuple

from catalog.kms.circuit_breaker import Circuit

SUBJECTS: Final = 1024


class CircuitOpen(Exception):
    """The circuit breaker is open: no call can begin."""


class Entry(NamedTuple):
    """A call in progress.

    Attributes:
        subject: what it is about.
        probe: whether it tries the KMS for all.
        own: the subject's circuit, if it has one.
        own_probe: whether it tries the KMS for the subject.
    """

    subject: str
    probe: bool
    own: Circuit | None
    own_probe: bool


class Circuits:
    """Decides which calls can begin; safe for many threads.

    Args:
        make: a new circuit, closed.
    """

    def __init__(self, make: Callable[[], Circuit]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._common = make()
        self._own: dict[str, Circuit] = {}
        self._failed_last: str | None = None

    @property
    def is_open(self) -> bool:
        """Return whether a circuit breaker is open: for all calls, or for some subject."""
        with self._lock:
            return self._common.is_open or any(own.is_open for own in self._own.values())

    def is_open_for(self, subject: str) -> bool:
        """Return whether the last calls about a subject, or all last calls, failed."""
        with self._lock:
            own = self._own.get(subject)
            return self._common.is_open or (own is not None and own.is_open)

    def check(self, subject: str) -> None:
        """Raise where `enter` would, without beginning a call.

        Raises:
            CircuitOpen: no call may be made.
        """
        with self._lock:
            self._check(subject)

    def enter(self, subject: str) -> Entry:
        """Begin a call; `leave` must follow.

        Raises:
            CircuitOpen: no call may be made.
        """
        with self._lock:
            self._check(subject)
            own = self._own.get(subject)
            return Entry(subject, self._common.enter(), own, own is not None and own.enter())

    def leave(self, entry: Entry, answered: bool | None) -> None:
        """End a call.

        Args:
            entry: what `enter` returned.
            answered: whether the KMS answered, be it with a refusal; None if nothing can be said.
        """
        with self._lock:
            self._leave_own(entry, answered)
            self._leave_common(entry, answered)

    def _check(self, subject: str) -> None:
        own = self._own.get(subject)
        if self._common.refuses(last=own is not None) or (own is not None and own.refuses()):
            raise CircuitOpen

    def _leave_own(self, entry: Entry, answered: bool | None) -> None:
        own = self._own.get(entry.subject)
        if own is None:
            if answered is not False:
                return
            own = self._new(entry.subject)
        own.leave(entry.own_probe and own is entry.own, answered)
        if answered and not own.is_open:
            del self._own[entry.subject]

    def _new(self, subject: str) -> Circuit:
        while len(self._own) >= SUBJECTS:
            del self._own[next(iter(self._own))]
        return self._own.setdefault(subject, self._make())

    def _leave_common(self, entry: Entry, answered: bool | None) -> None:
        self._common.leave(entry.probe, answered, new=entry.subject != self._failed_last)
        if answered is False:
            self._failed_last = entry.subject
        elif answered and not self._common.is_open:
            self._failed_last = None
        if entry.probe and answered:
            for own in self._own.values():
                own.try_now()
