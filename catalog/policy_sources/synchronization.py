"""Brings one source's documents up to date with Ranger: one attempt at a time.

- Every part is asked with the version that is in force. If one changed, the others are downloaded, too: they
  are put in force together. Then each is asked again, until none has changed meanwhile: policies of one time
  with roles of another can grant what Ranger never did.
- After an attempt that failed, everything is downloaded: a version that went back can have come to the number
  that is in force by other changes.
- A change goes through the same checks, record and history as every change of policies. Ranger decides who
  administers the catalog: a change that takes that away from everybody is made, recorded and logged, since to
  keep the policies before would keep what Ranger revoked. Commands on the host need no policy.
- An attempt that fails changes nothing. The documents stay in force until they are too old (`source_ages`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection

from catalog.authorization.authorizer import Caller
from catalog.base.errors import CommitConflict
from catalog.policy_sources.downloads import (
    Known,
    documents_of,
    known_of,
    made_from_of,
    origin_of,
    parts_of,
    version_of,
)
from catalog.policy_sources.ranger_admin import NO_VERSION, Part, RangerAdmin, SourceFailed
from catalog.policy_store.changes import PolicyChanges, Prepared
from catalog.policy_store.documents import DocumentId, Edit, PolicyDocuments, digest_of, name_in
from catalog.policy_store.kinds import OF_POLICIES, Kind
from catalog.policy_store.source_states import Claim, Download, SourceState, SourceStates
from catalog.settings.ranger import RangerSettings
from policy.decision import Reason
from policy.errors import InvalidInput
from policy.ranger.importing import Line

#: Beyond the time-outs of its downloads, seconds for which an attempt keeps its turn.
_SPARE_S: Final = 120.0

_log: Final = logging.getLogger("lakewarden.policies")

#: How often the parts are asked whether they changed during their download.
_ROUNDS: Final = 3
#: Puts a change of documents on record, with reasons about the download.
Record = Callable[[Prepared, Sequence[Edit], Sequence[Reason]], None]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of an attempt.

    Attributes:
        prepared: the change; None if nothing changed.
        download: what is in force now.
        report: what became of each part of the download; empty if nothing was downloaded.
    """

    prepared: Prepared | None
    download: Download
    report: tuple[Line, ...] = ()


@dataclass(frozen=True, slots=True)
class _Found:
    """Everything that was downloaded: the versions and texts of all parts."""

    versions: Mapping[Part, int]
    bodies: Mapping[Part, bytes]


class Synchronization:
    """Synchronizes one source.

    Args:
        name: its name in the settings.
        settings: where it is, and how it is asked.
        documents: the documents in the database.
        changes: makes the changes.
        states: the states of sources.
        release: the release of Lakewarden: another one can read more.
    """

    def __init__(
        self,
        name: str,
        settings: RangerSettings,
        documents: PolicyDocuments,
        changes: PolicyChanges,
        states: SourceStates,
        release: str,
    ) -> None:
        self._name = name
        self._settings = settings
        self._documents = documents
        self._changes = changes
        self._states = states
        self._release = release
        self._ranger = RangerAdmin(settings)

    def close(self) -> None:
        """Close the connections to Ranger."""
        self._ranger.close()

    def state(self) -> SourceState:
        """Return what is known of the source.

        Raises:
            StateUnavailable: the database does not answer.
        """
        return self._states.of([self._name])[0]

    def claim(self, *, force: bool = False) -> Claim | None:
        """Take the turn for an attempt; see `SourceStates.claim`."""
        longest_s = (2 + _ROUNDS) * len(Part) * self._settings.timeout_s + _SPARE_S
        return self._states.claim(self._name, longest_s=longest_s, force=force)

    def attempt(
        self,
        claim: Claim,
        caller: Caller,
        record: Record,
        *,
        accept_older: bool = False,
        everything: bool = False,
    ) -> Outcome:
        """Ask Ranger, and put in force what it says.

        Args:
            claim: the turn.
            caller: the author of the change.
            record: puts it on record before it is made.
            accept_older: whether a version before the last one is put in force.
            everything: whether to download also what has not changed.

        Raises:
            SourceFailed: Ranger does not answer, or what it says cannot be put in force; this is recorded as
                the source's problem, and nothing was changed.
            StateUnavailable: the database does not answer, or another attempt has the turn.
            CommitStateUnknown: the change may or may not have been made.
        """
        try:
            return self._attempt(claim, caller, record, accept_older, everything)
        except SourceFailed as error:
            self._states.failed(claim, error.message, self._settings.poll_s)
            raise

    def _attempt(
        self, claim: Claim, caller: Caller, record: Record, accept_older: bool, everything: bool
    ) -> Outcome:
        state, origin = self.state(), origin_of(self._settings)
        last, everything = state.download, everything or state.problem is not None
        stored = self._stored()
        made_from = self._made_from({kind: sha256 for kind, (_, sha256) in stored.items()})
        known = known_of(last, origin, made_from, accept_older=accept_older, everything=everything)
        found = self._find(known)
        if found is None:
            assert last is not None  # or no version would be known
            self._states.confirmed(claim, self._settings.poll_s)
            return Outcome(None, last)
        imported, policies = documents_of(self._name, found.bodies, partial=self._settings.partial)
        contents = {Kind(kind): content for kind, content in imported.documents.items()}
        download = Download(
            origin=origin,
            made_from=self._made_from({kind: digest_of(each) for kind, each in contents.items()}),
            versions={part.value: version for part, version in found.versions.items()},
            policies=policies,
            left_out=len(imported.refused),
            taken_ms=claim.begun_ms,
        )
        if last is not None and last.origin == origin and 2 * policies < last.policies:
            _log.warning(
                "the policies of source %s became few: %d, from %d", self._name, policies, last.policies
            )
        prepared = self._change(
            claim, caller, record, download, self._edits(contents, stored), _reasons(self._name, download)
        )
        return Outcome(prepared, download, imported.report)

    def _find(self, known: Known) -> _Found | None:
        """Download every part; None if none has changed."""
        parts = parts_of(self._settings)
        bodies = {part: self._ranger.download(part, known.version(part), known.taken_ms) for part in parts}
        if all(body is None for body in bodies.values()):
            return None
        whole = {
            part: body if body is not None else self._download_anyway(part, known)
            for part, body in bodies.items()
        }
        for _ in range(_ROUNDS):
            versions = {
                part: version_of(body, part, self._settings.service, known.least.get(part.value, 0))
                for part, body in whole.items()
            }
            changed = self._changed_since(versions, known) if len(versions) > 1 else {}
            if not changed:
                return _Found(versions, whole)
            whole |= changed
        raise SourceFailed("Ranger's policies, roles, tags or users changed during every download.")

    def _changed_since(self, versions: Mapping[Part, int], known: Known) -> dict[Part, bytes]:
        """Download the parts that have other versions now."""
        asked = {part: self._ranger.download(part, each, known.taken_ms) for part, each in versions.items()}
        return {part: body for part, body in asked.items() if body is not None}

    def _download_anyway(self, part: Part, known: Known) -> bytes:
        body = self._ranger.download(part, NO_VERSION, known.taken_ms)
        assert body is not None  # or the download had failed
        return body

    def _stored(self) -> dict[Kind, tuple[int, str]]:
        """Return revision and SHA-256 of the source's documents, by kind."""
        found = {}
        for kind in OF_POLICIES:
            for change in self._documents.history(DocumentId(kind, name_in(self._name)), limit=1):
                if change.sha256 is not None:
                    found[kind] = (change.revision, change.sha256)
        return found

    def _edits(
        self, contents: Mapping[Kind, bytes], stored: Mapping[Kind, tuple[int, str]]
    ) -> tuple[Edit, ...]:
        name = name_in(self._name)
        return tuple(
            Edit(DocumentId(kind, name), contents.get(kind), stored[kind][0] if kind in stored else None)
            for kind in OF_POLICIES
            if kind in contents or kind in stored
        )

    def _change(
        self,
        claim: Claim,
        caller: Caller,
        record: Record,
        download: Download,
        edits: tuple[Edit, ...],
        reasons: Sequence[Reason],
    ) -> Prepared | None:
        """Put documents in force, with the state of the source; None if they are in force already."""

        def beside(connection: Connection) -> None:
            self._states.taken(connection, claim, download, self._settings.poll_s)

        def recorded(prepared: Prepared) -> None:
            record(prepared, edits, reasons)

        try:
            prepared = self._changes.make(
                edits, caller, recorded, by_policy=False, force=True, source=self._name, beside=beside
            )
        except (InvalidInput, CommitConflict) as error:
            raise SourceFailed(f"The policies cannot be put in force: {error.message}") from error
        if not prepared.changed:
            self._states.unchanged(claim, download, self._settings.poll_s)
            return None
        if prepared.lockout is not None:
            _log.warning("after a change by source %s, %s", self._name, prepared.lockout)
        return prepared

    def _made_from(self, documents: Mapping[Kind, str]) -> str:
        return made_from_of(self._settings, self._release, documents)


def _reasons(name: str, download: Download) -> tuple[Reason, ...]:
    versions = ", ".join(f"{part} {version}" for part, version in download.versions.items())
    counts = f"{download.policies} policies, {download.left_out} left out"
    return (Reason("policy-source", f"Source {name}, versions: {versions}; {counts}."),)
