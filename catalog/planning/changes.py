"""Plans a scan of changes: the data files whose rows snapshots added or removed.

The files of each snapshot are compared with those of its parent. What the snapshot's operation or the status
of an entry says is not used.

| file | rows of the plan |
|---|---|
| only the snapshot has it | INSERT: the rows that its delete files leave |
| only the parent has it | DELETE: the rows that the parent's delete files left |
| both have it, and other delete files apply to it | DELETE: the rows that only the newer ones delete; \
INSERT: the rows that only the older ones deleted |

If the parent is expired, or there is none, the snapshot added the files whose entries say so. It must be an
append or the first snapshot. Otherwise the scan is refused, since the rows that it removed are not known.

A file is the same if path and data sequence number are. A manifest that both snapshots list is not opened,
unless delete files changed. A file can be in a plan several times.

Rows that were only copied to another file are in the plan twice, as DELETE and as INSERT. The reader removes
them, since that takes the values of all columns.

Source: Iceberg table specification, "Snapshots" and "Scan Planning"; Apache Iceberg,
`IncrementalChangelogScan`, which has no delete files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.table.snapshots import Operation, Snapshot

from catalog.iceberg.manifests import ManifestContent, ManifestListEntry
from catalog.iceberg.partition_values import ShownPartitions
from catalog.planning.deletes import Deletes
from catalog.planning.gathering import Gathered, data_of, deletes_of, naming_manifest
from catalog.planning.increments import ChangedBy
from catalog.planning.prune import Pruner
from catalog.planning.rows import empty_rows, planned_rows
from catalog.planning.sealed import SealedPruner
from catalog.reading.loading import LoadedTable
from catalog.reading.snapshots import SnapshotReader
from catalog.snapshot_checks.entries import ADDED, DELETED
from policy.errors import RequestInvalid

#: Values of `change_type`.
INSERT: Final = 0
DELETE: Final = 1
_PATHS: Final = pa.list_(pa.string())
_NUMBERS: Final = pa.list_(pa.int32())
#: What each row of a plan of changes has beside the columns of every plan; null for delete files.
_ADDED: Final = (
    ("change_type", pa.int8()),
    ("change_ordinal", pa.int32()),
    ("commit_snapshot_id", pa.int64()),
    ("commit_timestamp_ms", pa.int64()),
    ("deleted_by", _PATHS),
)

#: A data file: its path and data sequence number.
_Key: TypeAlias = tuple[str, int]
#: By data file the paths of the delete files that apply to it.
_Applying: TypeAlias = list[list[str]]


@dataclass(frozen=True, slots=True)
class _State:
    """The manifests of a snapshot.

    Attributes:
        data: data manifests.
        delete_manifests: delete manifests.
        deletes: the delete files that these list; None if there is no such manifest.
    """

    data: tuple[ManifestListEntry, ...] = ()
    delete_manifests: frozenset[ManifestListEntry] = frozenset()
    deletes: Deletes | None = None

    def applying(self, rows: pa.Table, files: Gathered, numbers: list[int]) -> _Applying:
        """Return the delete files that apply to data files."""
        if self.deletes is None:
            return [[] for _ in numbers]
        spec_id = files.listed.partition_spec_id
        return self.deletes.paths_of(self.deletes.attach(rows, files.decoded, spec_id, numbers))


class ChangedFiles:
    """Plans the files of a scan of changes.

    Args:
        reader: reads snapshots.
        table: the table.
        schema: the schema of the scan.
        shown: what of partitions the plan shows.
        pruner: leaves out files by partitions and bounds.
        sealed: leaves out files by encrypted bounds.
    """

    def __init__(
        self,
        reader: SnapshotReader,
        table: LoadedTable,
        schema: Schema,
        shown: ShownPartitions,
        pruner: Pruner,
        sealed: SealedPruner,
    ) -> None:
        self._reader = reader
        self._table = table
        self._schema = schema
        self._shown = shown
        self._pruner = pruner
        self._sealed = sealed
        self._parts: list[pa.Table] = []
        self._delete_files: dict[str, pa.Table] = {}
        self._compared: frozenset[int] = frozenset()

    def plan(self, snapshots: Iterable[ChangedBy]) -> tuple[pa.Table, frozenset[int]]:
        """Return the planned rows, and the columns that equality deletes of the snapshots compare.

        Args:
            snapshots: from the earliest to the latest.
        """
        known: dict[int, _State] = {}
        for changed in snapshots:
            before = known.get(changed.parent.snapshot_id) if changed.parent else _State()
            before = before or self._state(changed.parent)
            after = self._state(changed.snapshot)
            known = {changed.snapshot.snapshot_id: after}
            if changed.parent is None:
                self._add_first(changed, after)
            else:
                self._add_changed(changed, before, after)
        return self._planned(), self._compared

    def _state(self, snapshot: Snapshot | None) -> _State:
        if snapshot is None:
            return _State()
        listed = self._reader.manifests(self._table, snapshot)
        data = tuple(each for each in listed if each.content is ManifestContent.DATA)
        of_deletes = [each for each in listed if each.content is ManifestContent.DELETES]
        if not of_deletes:
            return _State(data)
        opened = deletes_of(self._reader, self._table, of_deletes)
        deletes = Deletes(opened, self._table, self._schema, self._shown)
        self._compared |= deletes.compared
        return _State(data, frozenset(of_deletes), deletes)

    def _add_first(self, changed: ChangedBy, after: _State) -> None:
        """Add what a snapshot without a known parent says that it added."""
        own = changed.snapshot.snapshot_id
        summary = changed.snapshot.summary
        appends = summary is not None and summary.operation is Operation.APPEND
        if not appends and any(
            each.added_snapshot_id != own for each in (*after.data, *after.delete_manifests)
        ):
            raise self._unknown(changed.snapshot)
        for files in self._open(each for each in after.data if each.added_snapshot_id == own):
            entries = files.entries
            mask = pc.and_(pc.equal(entries["status"], ADDED), pc.equal(entries["snapshot_id"], own))
            mask = mask.combine_chunks()
            if not appends and pc.any(pc.invert(mask)).as_py():
                raise self._unknown(changed.snapshot)
            self._add_whole(changed, files, mask, INSERT, after)

    def _unknown(self, snapshot: Snapshot) -> RequestInvalid:
        return RequestInvalid(
            f"The parent of the snapshot {snapshot.snapshot_id} is expired, so the rows that the snapshot "
            "removed are not known.",
            table=self._table.name,
            snapshot=snapshot.snapshot_id,
            rule="expired-parent",
            hint=f"Begin after it, with start-snapshot-id {snapshot.snapshot_id}.",
        )

    def _add_changed(self, changed: ChangedBy, before: _State, after: _State) -> None:
        old, new = set(before.data), set(after.data)
        dropped = list(self._open(each for each in before.data if each not in new))
        fresh = list(self._open(each for each in after.data if each not in old))
        gone, come = _keys(dropped), _keys(fresh)
        for files in fresh:
            self._add_whole(changed, files, _chosen(files, come - gone), INSERT, after)
        for files in dropped:
            self._add_whole(changed, files, _chosen(files, gone - come), DELETE, before)
        if before.delete_manifests != after.delete_manifests:
            shared = [each for each in after.data if each in old and self._pruner.keeps_manifest(each)]
            for files in self._open(shared):
                self._add_parts(changed, files, _live(files), before, after)
            for files in fresh:
                self._add_parts(changed, files, _chosen(files, come & gone), before, after)

    def _open(self, listed: Iterable[ManifestListEntry]) -> Iterator[Gathered]:
        return data_of(self._reader, self._table, tuple(listed))

    def _add_whole(
        self, changed: ChangedBy, files: Gathered, mask: pa.BooleanArray, kind: int, state: _State
    ) -> None:
        """Add files that came or went, without the rows that were deleted."""
        rows, numbers = self._rows(files, mask)
        nothing: _Applying = [[] for _ in numbers]
        self._add(changed, rows, kind, state.applying(rows, files, numbers), nothing, (state,))

    def _add_parts(
        self, changed: ChangedBy, files: Gathered, mask: pa.BooleanArray, before: _State, after: _State
    ) -> None:
        """Add files whose rows were deleted, or come back, since other delete files apply to them."""
        rows, numbers = self._rows(files, mask)
        old, new = (each.applying(rows, files, numbers) for each in (before, after))
        for kind, left_out, by in ((DELETE, old, new), (INSERT, new, old)):
            only = [sorted(set(one) - set(other)) for one, other in zip(by, left_out, strict=True)]
            some = [number for number, each in enumerate(only) if each]
            taken = rows.take(pa.array(some, pa.int64()))
            kept, deleted_by = [left_out[each] for each in some], [only[each] for each in some]
            self._add(changed, taken, kind, kept, deleted_by, (before, after))

    def _rows(self, files: Gathered, mask: pa.BooleanArray) -> tuple[pa.Table, list[int]]:
        """Return the chosen files that can hold matching rows, and their numbers in the manifests."""
        mask = self._sealed.keeps(files, pc.and_(mask, naming_manifest(self._keeps, files)))
        rows = planned_rows(files.entries.filter(mask), files.listed, self._shown)
        return rows, pc.indices_nonzero(mask).to_pylist()

    def _keeps(self, files: Gathered) -> pa.BooleanArray:
        listed = files.listed
        return self._pruner.keeps(files.decoded, listed.partition_spec_id, path=listed.manifest_path)

    def _add(
        self,
        changed: ChangedBy,
        rows: pa.Table,
        kind: int,
        deletes: _Applying,
        deleted_by: _Applying,
        states: Sequence[_State],
    ) -> None:
        """Add rows of one kind. Until all are known, they name delete files by their paths."""
        values = (kind, changed.ordinal, changed.snapshot.snapshot_id, changed.snapshot.timestamp_ms)
        place = rows.schema.get_field_index("deletes")
        rows = rows.set_column(place, "deletes", pa.array(deletes, _PATHS))
        for (name, of), value in zip(_ADDED, values, strict=False):
            rows = rows.append_column(name, pa.array([value] * rows.num_rows, of))
        self._parts.append(rows.append_column("deleted_by", pa.array(deleted_by, _PATHS)))
        wanted = {path for each in (*deletes, *deleted_by) for path in each} - self._delete_files.keys()
        for state in states:
            if wanted and state.deletes is not None:
                self._keep(state.deletes.files, wanted)

    def _keep(self, files: pa.Table, wanted: set[str]) -> None:
        for number, path in enumerate(files["file_path"].to_pylist()):
            if path in wanted:
                self._delete_files[path] = files.slice(number, 1)

    def _planned(self) -> pa.Table:
        """Return data files, then delete files, whose row numbers the data files have."""
        empty = empty_rows()
        empty = empty.set_column(empty.schema.get_field_index("deletes"), "deletes", pa.array([], _PATHS))
        for name, of in _ADDED:
            empty = empty.append_column(name, pa.array([], of))
        data = pa.concat_tables([empty, *self._parts])
        numbers = {path: data.num_rows + number for number, path in enumerate(self._delete_files)}
        for name in ("deletes", "deleted_by"):
            found = [[numbers[path] for path in each] or None for each in data[name].to_pylist()]
            data = data.set_column(data.schema.get_field_index(name), name, pa.array(found, _NUMBERS))
        return pa.concat_tables([data, *self._delete_files.values()], promote_options="default")


def _live(files: Gathered) -> pa.BooleanArray:
    return pc.not_equal(files.entries["status"], DELETED).combine_chunks()


def _keys_of(files: Gathered) -> list[_Key]:
    paths, numbers = (files.entries[name].to_pylist() for name in ("file_path", "sequence_number"))
    return list(zip(paths, numbers, strict=True))


def _keys(opened: Iterable[Gathered]) -> set[_Key]:
    """Return the files that are in the table by these manifests."""
    return {
        key
        for each in opened
        for key, live in zip(_keys_of(each), _live(each).to_pylist(), strict=True)
        if live
    }


def _chosen(files: Gathered, keys: set[_Key]) -> pa.BooleanArray:
    """Return which of the entries are live, and these files."""
    return pc.and_(_live(files), pa.array([each in keys for each in _keys_of(files)], pa.bool_()))
