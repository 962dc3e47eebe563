"""Carries out Iceberg's snapshot procedures: rollback, set current, fast-forward, cherry-pick.

Each is a commit like those of clients, and is checked and authorized as they are: UPDATE moves a branch to a
descendant of its head. Every other move takes ALTER, and `unprotect` across a change of encryption. After a
conflict with another commit, the change is decided again on top of it.

A cherry-pick adds the files that a snapshot added, and removes those that it removed, in a new snapshot. If
the snapshot's parent is the head, the branch moves to the snapshot itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.manifest import DataFile, ManifestEntry, ManifestEntryStatus
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot
from pyiceberg.table.update import AssertRefSnapshotId, SetSnapshotRefUpdate

from catalog.authorization.authorizer import Caller
from catalog.base.errors import ConcurrentModification
from catalog.base.identifiers import TableName
from catalog.commits.committer import Committer
from catalog.commits.conflicts import made_anew
from catalog.commits.snapshot_producer import MadeSnapshot, SnapshotProducer
from catalog.context import ServiceContext
from catalog.iceberg.manifests import manifest_entries
from catalog.maintenance.snapshot_moves import (
    PUBLISHED,
    SOURCE,
    STAGED,
    Move,
    Pick,
    SnapshotChange,
    move_of,
    replaces_partitions,
    summary_of,
)
from catalog.reading.loading import LoadedTable
from catalog.snapshot_checks.cherry_picks import require_current_keys
from catalog.writes.filters import authorize_filters
from catalog.writes.scopes import Files, RowsOfPartitions
from catalog.writes.since import HINT, since
from policy.errors import CommitStateUnknown, LakewardenError
from policy.privileges.operations import required


@dataclass(frozen=True, slots=True)
class Moved:
    """The outcome of a change.

    Attributes:
        branch: the branch that moved.
        source_id: the snapshot that was asked for.
        previous_id: the head before; None if the branch was empty or did not exist.
        current_id: the head.
    """

    branch: str
    source_id: int
    previous_id: int | None
    current_id: int


@dataclass(frozen=True, slots=True)
class _Planned:
    """A change that is decided, with the snapshot that a pick makes."""

    table: LoadedTable
    move: Move
    made: MadeSnapshot | None


class SnapshotProcedures:
    """Carries out snapshot procedures.

    Args:
        context: the parts that services share.
        committer: makes the commits.
    """

    def __init__(self, context: ServiceContext, committer: Committer) -> None:
        self._context = context
        self._committer = committer

    def change(self, caller: Caller, name: TableName, change: SnapshotChange) -> Moved:
        """Make a change in one commit.

        Raises:
            NotAuthorized: UPDATE on the table is needed, and ALTER and `unprotect` as for commits.
            RequestInvalid: the change cannot be made.
            ConcurrentModification: a partition that a picked snapshot replaces has changed since.
            as `Committer.commit` otherwise.
        """
        needed = required("table.write", self._context.on(caller, name))
        self._context.authorizer.screen(caller, "table.commit", str(name), *needed)

        def look() -> _Planned:
            with self._context.authorizer.recorded(caller, "table.commit", str(name)):
                return self._planned(caller, self._context.loader.load_sealed(name), change)

        return made_anew(look, lambda planned: self._make(caller, planned))

    def _planned(self, caller: Caller, table: LoadedTable, change: SnapshotChange) -> _Planned:
        """Decide a change, and make the snapshot that it needs. A conflict here is final."""
        try:
            move = move_of(table.metadata, change)
        except LakewardenError as refusal:
            refusal.table = table.name
            raise
        return _Planned(table, move, self._picked(caller, table, move) if move.applies else None)

    def _make(self, caller: Caller, planned: _Planned) -> Moved:
        table, move, made = planned.table, planned.move, planned.made
        if made is None:
            self._moved(caller, table, move)
        else:
            self._applied(caller, table, made)
        head = move.target if made is None else made.snapshot
        return Moved(move.branch, move.target.snapshot_id, move.previous_id, head.snapshot_id)

    def _moved(self, caller: Caller, table: LoadedTable, move: Move) -> None:
        ref = table.metadata.refs.get(move.branch)
        kept = {} if ref is None else ref.model_dump(exclude={"snapshot_id", "snapshot_ref_type"})
        update = SetSnapshotRefUpdate(
            ref_name=move.branch, type=SnapshotRefType.BRANCH, snapshot_id=move.target.snapshot_id, **kept
        )
        head = AssertRefSnapshotId(ref=move.branch, snapshot_id=ref and ref.snapshot_id)
        self._committer.commit(caller, table.record.name, (head,), (update,))

    def _applied(self, caller: Caller, table: LoadedTable, made: MadeSnapshot) -> None:
        try:
            self._committer.commit(
                caller,
                table.record.name,
                made.requirements,
                made.updates,
                written=made.written,
                under=table.governed.version,
            )
        except CommitStateUnknown:
            raise
        except LakewardenError:
            made.discard(self._context.storage)
            raise

    def _picked(self, caller: Caller, table: LoadedTable, move: Move) -> MadeSnapshot:
        """Make the snapshot that applies another one again."""
        source, head = move.target, table.metadata.current_snapshot()
        entries = list(self._entries(table, source))
        added = [each.data_file for each in entries if each.status is ManifestEntryStatus.ADDED]
        removed = [each.data_file.file_path for each in entries if each.status is ManifestEntryStatus.DELETED]
        replaces = replaces_partitions(source)
        if replaces:
            # The answer tells which partitions have changed.
            authorize_filters(
                self._context, table, (), caller, "table.commit", case_sensitive=True, partitions=True
            )
            self._require_unchanged(table, source, head, added)
        producer = SnapshotProducer(self._context, table, move.branch, head)
        if removed:
            producer.remove(removed)
        wap_id = summary_of(source).get(STAGED)
        summary = {SOURCE: str(source.snapshot_id)} | ({PUBLISHED: wap_id} if wap_id else {})
        return producer.make(Operation.OVERWRITE if replaces else Operation.APPEND, added, summary)

    def _entries(self, table: LoadedTable, source: Snapshot) -> Iterator[ManifestEntry]:
        """Yield the entries of the files that a snapshot added or removed.

        Raises:
            CommitConflict: keys of the files have earlier versions than the ones in force.
        """
        listed = [
            each
            for each in self._context.reader.manifests(table, source)
            if each.added_snapshot_id == source.snapshot_id
        ]
        for manifest in self._context.reader.open(table, listed):
            own = np.asarray(pc.equal(manifest.entries["snapshot_id"], source.snapshot_id))
            require_current_keys(table, manifest.entries.filter(pa.array(own)))
            rows: list[int] = np.flatnonzero(own).tolist()
            spec_id = manifest.listed.partition_spec_id
            yield from manifest_entries(manifest.decoded, manifest.entries, rows, spec_id)

    def _require_unchanged(
        self, table: LoadedTable, source: Snapshot, head: Snapshot | None, added: Sequence[DataFile]
    ) -> None:
        """Check that the partitions that a snapshot replaces got no file since its parent.

        Raises:
            ConcurrentModification: one did, or the parent is no ancestor of the head.
        """
        came = since(self._context.reader, table, source.parent_snapshot_id, head).new
        scope = RowsOfPartitions(table, added)
        for files in came:
            if files.is_data and Files(files.manifest, scope.touches(files)).chosen.any():
                raise ConcurrentModification(
                    f"A partition that the snapshot {source.snapshot_id} replaces got a file since.",
                    table=table.name,
                    snapshot=source.snapshot_id,
                    rule="new-data",
                    hint=HINT,
                )


def repeated(table: LoadedTable, change: SnapshotChange) -> Moved:
    """Return the outcome of a change that was made before, as far as the table still tells it."""
    metadata = table.metadata
    branch = getattr(change, "branch", "main")
    head = metadata.snapshot_by_name(branch)
    current_id = -1 if head is None else head.snapshot_id
    picked = change.snapshot_id if isinstance(change, Pick) else None
    if isinstance(change, Pick) and picked is None:
        staged = (each for each in metadata.snapshots if summary_of(each).get(STAGED) == change.wap_id)
        picked = next((each.snapshot_id for each in staged), None)
    return Moved(branch, current_id if picked is None else picked, None, current_id)
