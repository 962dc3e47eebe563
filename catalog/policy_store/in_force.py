"""The policies in force: the documents in the catalog's database, as one set.

- A set with a mistake anywhere is refused as a whole. At the start that is an error; later the set before
  stays in force, and `problem` says why.
- A set answers for `MAX_AGE_S` seconds after it was last known to be the newest. If the database cannot be
  asked for longer than that, or holds documents that are refused, nothing is decided any more: the documents
  that are not in force could take a permission away.
- Whether something changed is looked at when policies are asked for, at most once each `poll_s`: by the
  number of the last change.
- New documents are read by one thread, in slices, and only what is new in them. Requests do not wait for more
  than a moment: those that come meanwhile are decided by the set before, within the same bound.
- The policies of sources (Ranger Admins) have an age of their own, which is looked at with the number of the
  last change (`source_ages`). While one is too old, nothing is decided either.
- Without any document nothing is granted.
"""

from __future__ import annotations

import gc
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from catalog.policy_store.documents import EMPTY, Kind, PolicyDocuments, StoredSet
from catalog.policy_store.kinds import OF_POLICIES
from catalog.policy_store.source_ages import SourceAges
from policy.encryption_rules import EncryptionRules
from policy.errors import PolicyInvalid, StateUnavailable
from policy.ranger import PolicySet

#: How long in seconds a set answers after it was last known to be the newest. Plans of engines
#: are valid for at most 20 seconds more (`plan_valid_s`), so that nothing is read by policies that are much
#: older than a minute.
MAX_AGE_S: Final = 40.0

#: How long in seconds a request waits for new documents: usually, and if no set can answer it.
_RELOAD_WAIT_S: Final = 0.03
_STALE_RELOAD_WAIT_S: Final = 5.0

#: How long in seconds new documents are read without a pause, and how long a pause is.
_SLICE_S: Final = 0.002
_PAUSE_S: Final = 0.002

_log: Final = logging.getLogger("lakewarden.policies")


@dataclass(frozen=True, slots=True)
class InForce:
    """The set that decides, with its documents.

    Attributes:
        policies: policies and roles, with attributes of users and tags of resources.
        encryption: rules for encryption.
        stored: the documents.
    """

    policies: PolicySet
    encryption: EncryptionRules
    stored: StoredSet

    @classmethod
    def of(
        cls, stored: StoredSet, before: InForce | None = None, pause: Callable[[], None] = lambda: None
    ) -> InForce:
        """Return the set of some documents.

        Args:
            stored: the documents.
            before: a set that was read before; what it has, too, is not read again.
            pause: is called often, so that other threads can run meanwhile.

        Raises:
            PolicyInvalid: there is a mistake in them.
        """
        known = None if before is None else before.policies
        policies = PolicySet.parse(stored.contents(*OF_POLICIES), known, pause, stored.kinds())
        return cls(policies, EncryptionRules.parse(stored.contents(Kind.ENCRYPTION)), stored)


#: No documents, and therefore no grants.
NOTHING: Final = InForce.of(EMPTY)


class Slices:
    """Reads in slices: lets other threads run after each.

    A thread that computes keeps the interpreter for 5 ms at a time, and a request needs it several times.
    """

    def __init__(self) -> None:
        self._began = time.perf_counter()

    def __call__(self) -> None:
        """Sleep, if it is time to."""
        if time.perf_counter() - self._began > _SLICE_S:
            time.sleep(_PAUSE_S)
            self._began = time.perf_counter()


@contextmanager
def _no_cycles() -> Iterator[None]:
    """Keep the collector of cycles from running while documents are read.

    They become many objects without cycles, which it would look at several times while all threads wait.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class PolicyStore:
    """Provides the policies in force. Safe for use by many threads.

    Args:
        documents: the documents.
        poll_s: seconds between two looks.
        clock: seconds that only go forward.
        sources: the ages of the sources of policies; by default there are none.

    Raises:
        PolicyInvalid: a document cannot be read, or the set has a mistake.
        StateUnavailable: the database does not answer.
    """

    def __init__(
        self,
        documents: PolicyDocuments,
        *,
        poll_s: float = 5.0,
        clock: Callable[[], float] = time.monotonic,
        sources: SourceAges | None = None,
    ) -> None:
        self._sources = sources or SourceAges(lambda _: (), {}, clock)
        self._documents = documents
        self._poll_s = poll_s
        self._clock = clock
        self._lock = threading.Lock()
        self._reader: threading.Thread | None = None
        self._problem: str | None = None
        self._confirmed_at = self._looked_at = clock()
        with _no_cycles():
            self._in_force = InForce.of(documents.current())

    @property
    def problem(self) -> str | None:
        """Return why newer documents are not in force, or None if there are none."""
        return self._problem

    @property
    def last(self) -> InForce:
        """Return the last set in force, to show or to compare; it must not decide."""
        return self._in_force

    @property
    def age_s(self) -> float:
        """Return the seconds since the set was last known to be the newest."""
        return self._clock() - self._confirmed_at

    @property
    def is_closed(self) -> bool:
        """Return whether nothing is decided any more, because the policies in force are too old."""
        return self.age_s >= MAX_AGE_S or self._sources.is_closed

    @property
    def sources(self) -> SourceAges:
        """Return the ages of the sources of policies."""
        return self._sources

    def current(self) -> PolicySet:
        """Return the policies in force.

        Raises:
            StateUnavailable: for `MAX_AGE_S` it could not be found out whether they still are, or newer ones
                were refused; or a source did not confirm its policies for too long.
        """
        return self.in_force().policies

    def encryption(self) -> EncryptionRules:
        """Return the encryption rules in force.

        Raises:
            StateUnavailable: as `current`.
        """
        return self.in_force().encryption

    def in_force(self) -> InForce:
        """Return the set in force with its documents; checks for a change first if it is time to.

        Raises:
            StateUnavailable: as `current`.
        """
        if self._clock() - self._looked_at >= self._poll_s or self.is_closed:
            self._look_if_due()
            if self.is_closed:
                raise self._stale()
        return self._in_force

    def reload(self) -> PolicySet:
        """Read all documents now.

        Raises:
            PolicyInvalid: the new set has a mistake; the set before stays in force.
            StateUnavailable: the database does not answer.
        """
        with self._lock:
            if self._reader is not None:
                self._reader.join()
            started = self._looked_at = self._clock()
            self._sources.look()
            try:
                self._accept(InForce.of(self._documents.current(), self._in_force), started)
            except PolicyInvalid as error:
                self._report(str(error))
                raise
            return self._in_force.policies

    def changed(self, found: InForce) -> None:
        """Put in force what this process has just written to the database, unless there is a newer set."""
        with self._lock:
            if self._reader is not None:
                self._reader.join()
            if found.stored.version.revision > self._in_force.stored.version.revision:
                self._in_force = found

    def _look_if_due(self) -> None:
        """Check for a change, unless another thread does; wait for that thread if no set can answer."""
        if not self._lock.acquire(blocking=self.is_closed):
            return
        try:
            if self._clock() - self._looked_at >= self._poll_s:
                self._looked_at = self._clock()
                self._look(self._looked_at)
        finally:
            self._lock.release()

    def _look(self, started: float) -> None:
        if self._reader is None or not self._reader.is_alive():
            if self._is_newest(started):
                return
            self._reader = threading.Thread(
                target=self._read, args=(started,), name="lakewarden-policies", daemon=True
            )
            self._reader.start()
        self._reader.join(_STALE_RELOAD_WAIT_S if self.is_closed else _RELOAD_WAIT_S)

    def _is_newest(self, started: float) -> bool:
        """Return whether there is nothing newer to read: by the version, or because the database fails."""
        try:
            # First: a confirmation must not be newer than the documents that it is taken to be about.
            self._sources.look()
            version = self._documents.version()
        except StateUnavailable as error:
            self._report(str(error))
            return True
        if version == self._in_force.stored.version:
            self._accept(self._in_force, started)
            return True
        return False

    def _read(self, started: float) -> None:
        """Put the current documents in force; refused ones leave the set before until it is too old."""
        try:
            with _no_cycles():
                found = InForce.of(self._documents.current(), self._in_force, Slices())
            self._accept(found, started)
        except (PolicyInvalid, StateUnavailable) as error:
            self._report(str(error))

    def _accept(self, found: InForce, started: float) -> None:
        self._in_force = found
        self._confirmed_at = started
        self._report(None)

    def _report(self, problem: str | None) -> None:
        if problem is not None and problem != self._problem:
            _log.warning("policies are outdated: newer ones are not in force: %s", problem)
        if problem is None and self._problem is not None:
            _log.warning("policies are up to date again")
        self._problem = problem

    def _stale(self) -> StateUnavailable:
        if self._sources.is_closed:
            return self._sources.refusal()
        return StateUnavailable(
            f"For {MAX_AGE_S:.0f} seconds, the catalog could not read its policies, or refused newer ones.",
            rule="policy-age",
            hint="The catalog's log states the problem. Make the database available again, or correct the "
            "policy documents with `lakewarden policy put`.",
        )
