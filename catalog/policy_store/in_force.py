"""The policies in force: documents in files and in the catalog's database, as one set.

- A set with a mistake anywhere is refused as a whole. At the start that is an error; later the set before
  stays in force, and `problem` says why.
- That has an end: after `outdated_s` seconds with documents that are refused or cannot be read, nothing is
  decided any more. The documents that are not in force could take a permission away.
- Files that are refused do not keep a change of the catalog's own documents from taking force: it then counts
  together with the files that are in force. So a typing mistake in a file delays no revocation.
- Whether something changed is looked at when policies are asked for, at most once each `poll_s`: by the
  number of the last change in the database, and by which files there are.
- A set answers for `MAX_AGE_S` seconds after it was last known to be the one in the database. If the database
  cannot be asked for longer than that, nothing is decided any more.
- New documents are read once a change, by one thread. Requests do not wait for more than a moment: those that
  come meanwhile are decided by the set before, within the same bound.
- Without any document nothing is granted.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, TypeAlias

from catalog.policy_store.documents import EMPTY, Kind, PolicyDocuments, StoredSet, Version
from catalog.policy_store.files import FileDocuments, Fingerprints, PolicyFiles
from policy.encryption_rules import EncryptionRules
from policy.errors import PolicyInvalid, StateUnavailable
from policy.ranger import PolicySet

#: How long in seconds a set answers after it was last known to be the one in the database. Plans of engines
#: are valid for at most 20 seconds more (`plan_valid_s`), so that nothing is read by policies that are much
#: older than a minute.
MAX_AGE_S: Final = 40.0

#: How long in seconds a request waits for new documents: usually, and if no set can answer it.
_RELOAD_WAIT_S: Final = 0.5
_STALE_RELOAD_WAIT_S: Final = 10.0

#: Identities of files and documents; None for files that cannot be read.
_Seen: TypeAlias = tuple[Fingerprints | None, Version]

_log: Final = logging.getLogger("lakewarden.policies")


@dataclass(frozen=True, slots=True)
class InForce:
    """The set that decides, with its documents.

    Attributes:
        policies: policies and roles.
        encryption: rules for encryption.
        files: the documents in files.
        stored: the documents in the database.
    """

    policies: PolicySet
    encryption: EncryptionRules
    files: FileDocuments
    stored: StoredSet

    @classmethod
    def of(cls, files: FileDocuments, stored: StoredSet) -> InForce:
        """Return the set of some documents.

        Raises:
            PolicyInvalid: there is a mistake in them.
        """
        policies = PolicySet.parse({**files.policies, **stored.contents(Kind.RANGER)})
        encryption = EncryptionRules.parse({**files.encryption, **stored.contents(Kind.ENCRYPTION)})
        return cls(policies, encryption, files, stored)

    def policy_documents(self) -> dict[str, bytes]:
        """Return the documents of policies and roles, by their titles in messages."""
        return {**self.files.policies, **self.stored.contents(Kind.RANGER)}


#: No documents, and therefore no grants.
NOTHING: Final = InForce.of(FileDocuments({}, {}, {}), EMPTY)


class PolicyStore:
    """Provides the policies in force. Safe for use by many threads.

    Args:
        files: the documents in files.
        documents: the documents in the database; None where there is no database.
        poll_s: seconds between two looks.
        outdated_s: seconds for which a set answers although newer documents are refused or cannot be read.
        clock: seconds that only go forward.

    Raises:
        PolicyInvalid: a document cannot be read, or the set has a mistake.
        StateUnavailable: the database does not answer.
    """

    def __init__(
        self,
        files: PolicyFiles,
        documents: PolicyDocuments | None = None,
        *,
        poll_s: float = 5.0,
        outdated_s: float = 900.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._files = files
        self._documents = documents
        self._poll_s = poll_s
        self._outdated_s = outdated_s
        self._clock = clock
        self._lock = threading.Lock()
        self._reader: threading.Thread | None = None
        self._refused: _Seen | None = None
        self._problem: str | None = None
        self._problem_since = 0.0
        self._confirmed_at = self._looked_at = clock()
        self._in_force = InForce.of(self._files.read(), self._stored_now())

    @property
    def problem(self) -> str | None:
        """Return why newer documents are not in force, or None if there are none."""
        return self._problem

    @property
    def last(self) -> InForce:
        """Return the last set in force, for display only; it must not decide."""
        return self._in_force

    @property
    def age_s(self) -> float:
        """Return the seconds since the set was last known to be the one in the database."""
        return self._clock() - self._confirmed_at

    @property
    def outdated_for_s(self) -> float:
        """Return the seconds for which newer documents have not been in force; 0 if there are none."""
        return 0.0 if self._problem is None else self._clock() - self._problem_since

    @property
    def is_closed(self) -> bool:
        """Return whether nothing is decided any more, because the policies in force are too old."""
        return self._is_stale() or self.outdated_for_s >= self._outdated_s

    def current(self) -> PolicySet:
        """Return the policies in force.

        Raises:
            StateUnavailable: for `MAX_AGE_S` it could not be found out whether they still are, or newer ones
                have been refused or unreadable for too long.
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
            if self._is_stale():
                raise self._stale()
            if self.is_closed:
                raise self._outdated()
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
            try:
                self._accept(InForce.of(self._files.read(), self._stored_now()), started, None)
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

    def _is_stale(self) -> bool:
        return self.age_s >= MAX_AGE_S

    def _look_if_due(self) -> None:
        """Check for a change, unless another thread does; wait for that thread if no set can answer."""
        if not self._lock.acquire(blocking=self._is_stale()):
            return
        try:
            if self._clock() - self._looked_at >= self._poll_s:
                self._looked_at = self._clock()
                self._look(self._looked_at)
        finally:
            self._lock.release()

    def _look(self, started: float) -> None:
        if self._reader is None or not self._reader.is_alive():
            found = self._changes(started)
            if found is None:
                return
            self._reader = threading.Thread(
                target=self._read, args=(found, started), name="lakewarden-policies", daemon=True
            )
            self._reader.start()
        self._reader.join(_STALE_RELOAD_WAIT_S if self._is_stale() else _RELOAD_WAIT_S)

    def _changes(self, started: float) -> _Seen | None:
        """Return the current documents if they must be read; None if they are in force, or were refused
        before.
        """
        try:
            version = self._documents.version() if self._documents else EMPTY.version
        except StateUnavailable as error:
            self._report(str(error))
            return None
        files, problem = self._seen_files()
        before = self._in_force
        if version == before.stored.version and files in (None, before.files.fingerprints):
            self._accept(before, started, problem)
        elif (files, version) == self._refused:
            self._confirmed_at = started
        else:
            return files, version
        return None

    def _seen_files(self) -> tuple[Fingerprints | None, str | None]:
        """Return the current files; None with the reason if they cannot be read."""
        try:
            return self._files.fingerprints(), None
        except PolicyInvalid as error:
            return None, str(error)

    def _read(self, seen: _Seen, started: float) -> None:
        """Put the current documents in force, as far as possible."""
        try:
            stored = self._read_stored(seen[1])
        except StateUnavailable as error:
            self._report(str(error))
            return
        except PolicyInvalid as error:
            self._refuse(seen, error, started)
            return
        files, problem = self._read_files(seen[0])
        try:
            self._accept(self._together(files, stored), started, problem)
        except PolicyInvalid as error:
            self._refuse(seen, error, started)
            with suppress(PolicyInvalid):
                self._in_force = self._together(self._in_force.files, stored)

    def _read_stored(self, version: Version) -> StoredSet:
        """Return the documents in the database; those in force if they have this version."""
        before = self._in_force.stored
        return before if version == before.version else self._stored_now()

    def _read_files(self, fingerprints: Fingerprints | None) -> tuple[FileDocuments, str | None]:
        """Return the current files; if they cannot be read, those in force, with the reason."""
        before = self._in_force.files
        if fingerprints == before.fingerprints:
            return before, None
        try:
            return self._files.read(), None
        except PolicyInvalid as error:
            return before, str(error)

    def _together(self, files: FileDocuments, stored: StoredSet) -> InForce:
        """Return the set of some documents; the one in force if it consists of them."""
        before = self._in_force
        return before if (files, stored) == (before.files, before.stored) else InForce.of(files, stored)

    def _stored_now(self) -> StoredSet:
        return self._documents.current() if self._documents else EMPTY

    def _accept(self, found: InForce, started: float, problem: str | None) -> None:
        self._in_force = found
        self._confirmed_at = started
        self._refused = None
        self._report(problem)

    def _refuse(self, seen: _Seen, error: PolicyInvalid, started: float) -> None:
        """Keep the set in force; what was refused is not read again."""
        self._refused = seen
        self._confirmed_at = started
        self._report(str(error))

    def _report(self, problem: str | None) -> None:
        if problem is not None and problem != self._problem:
            _log.warning("policies are outdated: newer ones are not in force: %s", problem)
        if problem is None and self._problem is not None:
            _log.warning("policies are up to date again")
        if problem is None or self._problem is None:
            self._problem_since = self._clock()
        self._problem = problem

    def _stale(self) -> StateUnavailable:
        return StateUnavailable(
            f"For {MAX_AGE_S:.0f} seconds, the catalog could not check whether its policies are current.",
            rule="policy-age",
            hint="Make the catalog's database available again, then try again.",
        )

    def _outdated(self) -> StateUnavailable:
        return StateUnavailable(
            f"For {self._outdated_s:g} seconds, newer policies could not be read or were not valid.",
            rule="policy-outdated",
            hint="Correct the policy documents. The catalog's log states the problem.",
        )
