"""Rewraps the data keys of a table's files under the latest versions of its keys; no data file changes.

- Each branch whose head has files under earlier versions gets one `replace` snapshot. It has the manifests of
  the head, the outdated ones rewritten (`manifests`).
- Everything is checked before the pointer moves. Writers continue: if another commit comes first, the
  snapshot is built again on top of it, from the manifests that are written already.
- An interrupted rewrap is run again. It keeps what is published and uses the manifests that are written.
- A manifest that lists a file under a destroyed key is left as it is, and reported: that key is lost.
- One manifest at a time is in memory. Earlier snapshots and tags do not change, and need their versions of
  the keys until they expire.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot, Summary

from catalog.authorization.authorizer import Caller
from catalog.base import crash_points
from catalog.base.errors import CommitConflict
from catalog.base.identifiers import TableName
from catalog.commits.conflicts import made_anew
from catalog.commits.publish import Publication, Publisher
from catalog.commits.snapshot_producer import MadeSnapshot, SnapshotProducer
from catalog.context import ServiceContext
from catalog.iceberg.manifests import ManifestListEntry
from catalog.iceberg.metadata import require_written_version
from catalog.key_management.manifests import ManifestRewriter, Rewritten, Targets, used_versions
from catalog.reading.loading import LoadedTable
from catalog.rules import table_changes as change_rules
from catalog.snapshot_checks.inspection import Origin
from catalog.state.seals import Digest
from catalog.writes.written_files import PEK_ID
from policy.decision import Decision, Reason
from policy.encryption.epochs import PekRef
from policy.errors import CommitStateUnknown, LakewardenError
from policy.privileges.operations import required

_TOTALS: Final = "total-"


@dataclass(frozen=True, slots=True)
class RewrappedBranch:
    """The result for a branch.

    Attributes:
        branch: its name.
        snapshot_id: the new head; None if no manifest had to be rewritten.
        manifests: number of manifests that were rewritten.
        files: number of files that they list.
        lost: number of manifests that were left as they are, because they list files under a destroyed key.
    """

    branch: str
    snapshot_id: int | None = None
    manifests: int = 0
    files: int = 0
    lost: int = 0


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress on a branch: manifests done, and the total."""

    branch: str
    done: int
    total: int


def _silent(_: Progress) -> None:
    pass


@dataclass(frozen=True, slots=True)
class _Built:
    """A snapshot whose manifest list is stored.

    `written` has the digests of the manifest list and of the rewritten manifests, by path.
    """

    made: MadeSnapshot
    written: Mapping[str, Digest]
    relies: frozenset[PekRef]
    done: RewrappedBranch


class _Written:
    """The rewritten manifests of a branch, by the original's path; None for a manifest that stays as it is.

    They are valid for one set of target versions. A rotation makes them outdated.
    """

    def __init__(self) -> None:
        self._targets: Targets = {}
        self._manifests: dict[str, Rewritten | None] = {}
        #: Paths of manifests that list files under a destroyed key.
        self.lost: set[str] = set()

    def under(self, targets: Targets) -> dict[str, Rewritten | None]:
        """Return the manifests that are written for these versions."""
        if targets != self._targets:
            self._targets, self._manifests, self.lost = targets, {}, set()
        return self._manifests


class KeyRewrap:
    """Rewraps the data keys of tables.

    Args:
        context: the parts that services share.
    """

    def __init__(self, context: ServiceContext) -> None:
        self._context = context
        self._publisher = Publisher(context)
        self._rewriter = ManifestRewriter(context.reader, context.storage, context.keyring)

    def rewrap(
        self, caller: Caller, name: TableName, progress: Callable[[Progress], None] = _silent
    ) -> list[RewrappedBranch]:
        """Rewrap the data keys at the head of every branch under the latest versions of the table's keys.

        Args:
            caller: who asks.
            name: the table.
            progress: called after every manifest.

        Returns:
            the result for each branch.

        Raises:
            NotAuthorized: ALTER on the table and `rotate` on the master keys of its PEKs are needed.
            KeyNotUsable, KmsUnavailable: a key is not available; branches that are done stay done.
            CommitConflict: other commits came first in every attempt.
            MetadataUnsealed, MetadataTampered, DecryptionRefused: the table failed verification.
        """
        on = self._context.on(caller, name)
        self._context.authorizer.screen(caller, "key.rewrap", str(name), *required("key.rewrap", on))
        with self._context.authorizer.recorded(caller, "key.rewrap", str(name)):
            table = self._context.loader.load_sealed(name)
            require_written_version(table.metadata, table.name)
            masters = {pek.master_key_id for pek in self._context.keyring.records(table.record)}
            requests = required("key.rewrap", on, masters)
            self._context.authorizer.require(caller, "key.rewrap", table.name, requests)
            return [self._branch(caller, table, branch, progress) for branch in _branches(table.metadata)]

    def _branch(
        self, caller: Caller, first: LoadedTable, branch: str, progress: Callable[[Progress], None]
    ) -> RewrappedBranch:
        written = _Written()

        def look() -> tuple[LoadedTable, _Built | None]:
            table = self._context.loader.load_sealed(first.record.name)
            if table.record.id != first.record.id:
                raise CommitConflict("The table was replaced by another one.", table=table.name)
            return table, self._build(table, branch, written, progress)

        def act(seen: tuple[LoadedTable, _Built | None]) -> RewrappedBranch:
            table, built = seen
            if built is None:
                return RewrappedBranch(branch, lost=len(written.lost))
            self._record(caller, table, built.done)
            self._publish(caller, table, built)
            return built.done

        return made_anew(look, act)

    def _build(
        self,
        table: LoadedTable,
        branch: str,
        written: _Written,
        progress: Callable[[Progress], None],
    ) -> _Built | None:
        """Build the branch's new snapshot; return None if no key is outdated, or the branch is gone."""
        head = table.metadata.snapshot_by_name(branch)
        if head is None or branch not in _branches(table.metadata):
            return None
        listed = self._context.reader.manifests(table, head)
        targets = self._context.keyring.latest(table.record, table.governed)
        known, gone = written.under(targets), self._context.keyring.destroyed(table.record)
        for done, entry in enumerate(listed, 1):
            if entry.manifest_path not in known:
                (manifest,) = self._context.reader.open(table, [entry])
                used = used_versions(manifest)
                if gone & used:
                    written.lost.add(entry.manifest_path)
                    known[entry.manifest_path] = None
                else:
                    known[entry.manifest_path] = self._rewriter.rewrite(
                        table, branch, manifest, used, targets
                    )
                crash_points.point("rewrap:manifest")
            progress(Progress(branch, done, len(listed)))
        if not any(known[entry.manifest_path] for entry in listed):
            return None
        return self._snapshot(table, branch, head, listed, known, targets, len(written.lost))

    def _snapshot(
        self,
        table: LoadedTable,
        branch: str,
        head: Snapshot,
        listed: tuple[ManifestListEntry, ...],
        written: dict[str, Rewritten | None],
        targets: Targets,
        lost: int,
    ) -> _Built:
        producer = SnapshotProducer(self._context, table, branch, head)
        new = {path: each for path, each in written.items() if each is not None}
        replaced = [new[entry.manifest_path] for entry in listed if entry.manifest_path in new]
        brought = {
            path: each.brought_by(producer.snapshot_id, producer.sequence_number)
            for path, each in new.items()
        }
        done = RewrappedBranch(
            branch,
            producer.snapshot_id,
            len(replaced),
            sum(each.listed.existing_files_count or 0 for each in replaced),
            lost,
        )
        made = producer.of_manifests(
            [brought.get(entry.manifest_path, entry) for entry in listed],
            _summary(head, done, len(listed) - len(replaced), targets),
            {},
        )
        crash_points.point("rewrap:listed")
        written_files = {each.listed.manifest_path: each.digest for each in replaced} | dict(made.written)
        relies = frozenset[PekRef]().union(*(each.later for each in replaced))
        return _Built(made, written_files, relies, done)

    def _publish(self, caller: Caller, table: LoadedTable, built: _Built) -> None:
        metadata = change_rules.apply(table.metadata, built.made.updates, table.metadata_location, table.name)
        try:
            files = self._context.inspector.commit(table, metadata, Origin.REWRAP, built.written)
            self._publisher.publish(
                Publication(
                    record=table.record,
                    base=table,
                    metadata=metadata,
                    governed=table.governed,
                    governs=False,
                    files=files,
                    peks=(),
                    author=caller.principal.name,
                    relies=built.relies,
                )
            )
        except CommitStateUnknown:
            raise
        except LakewardenError:
            # The rewritten manifests are kept for the next attempt.
            built.made.discard(self._context.storage)
            raise

    def _record(self, caller: Caller, table: LoadedTable, done: RewrappedBranch) -> None:
        reason = Reason(
            "rewrapped",
            f"Branch {done.branch}: the keys of {done.files} files in {done.manifests} manifests go under "
            f"the latest key versions with snapshot {done.snapshot_id}.",
        )
        self._context.authorizer.record(caller, "key.rewrapped", table.name, Decision.allow(reason))


def _branches(metadata: TableMetadata) -> list[str]:
    return sorted(
        name for name, ref in metadata.refs.items() if ref.snapshot_ref_type is SnapshotRefType.BRANCH
    )


def _summary(head: Snapshot, done: RewrappedBranch, kept: int, targets: Targets) -> Summary:
    """Return the summary of the new snapshot. The totals stay: no row and no file has changed."""
    before = {} if head.summary is None else head.summary.additional_properties
    totals = {name: value for name, value in before.items() if name.startswith(_TOTALS)}
    return Summary(
        Operation.REPLACE,
        **totals,
        **{
            "manifests-created": str(done.manifests),
            "manifests-replaced": str(done.manifests),
            "manifests-kept": str(kept),
            "entries-processed": str(done.files),
            PEK_ID: ",".join(sorted(str(pek_id) for pek_id in targets)),
        },
    )
