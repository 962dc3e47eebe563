"""Finds the files that a branch got and lost since the snapshot that a commit is based on.

The manifests that both snapshots list are not opened. A file counts as the same if its identity and its file
sequence number are the same: a path that was removed and added again is another file.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation, Snapshot

from catalog.base.errors import ConcurrentModification
from catalog.reading.loading import LoadedTable
from catalog.reading.snapshots import SnapshotReader
from catalog.snapshot_checks.branches import lineage
from catalog.snapshot_checks.identities import identities
from catalog.writes.scopes import Files

#: What to do after a conflict.
HINT: Final = "Nothing was committed. Run the statement again, so that it reads the present rows."


@dataclass(frozen=True, slots=True)
class Since:
    """The difference of a branch's head from the base of a commit.

    Attributes:
        new: files of the head that the base does not have.
        gone: files of the base that the head does not have.
        replaces: the snapshots of operation `replace` that only replaced files of the base. What they added
            has rows of the base alone.
    """

    new: tuple[Files, ...] = ()
    gone: tuple[Files, ...] = ()
    replaces: frozenset[int] = frozenset()

    @property
    def new_paths(self) -> frozenset[str]:
        """Return the paths of the new files."""
        return _paths(self.new)

    @property
    def gone_paths(self) -> frozenset[str]:
        """Return the paths of the gone files."""
        return _paths(self.gone)


def since(reader: SnapshotReader, table: LoadedTable, base_id: int | None, head: Snapshot | None) -> Since:
    """Compare the head of a branch with the base of a commit.

    Args:
        reader: reads the manifests.
        table: the table, sealed.
        base_id: the snapshot that the commit is based on; None if the branch was empty.
        head: the head; None if the branch is empty.

    Raises:
        ConcurrentModification: the base is no ancestor of the head, or no longer in the table.
    """
    base = None if base_id is None else ancestor(table, base_id, head)
    if head is None or base is head:
        return Since()
    found = _difference(reader, table, base, head)
    return replace(found, replaces=_replaces(reader, table, base, head, found.gone))


def _replaces(
    reader: SnapshotReader, table: LoadedTable, base: Snapshot | None, head: Snapshot, gone: Sequence[Files]
) -> frozenset[int]:
    """Return the snapshots that only replaced files of the base, or of other such snapshots, by no more rows.

    A compaction of rows that came since the base would hide them otherwise.
    """
    chain = list(takewhile(lambda each: each is not base, _history(table.metadata, head)))
    known, found = _identified(gone), set[int]()
    for each in reversed(chain):
        parent = _parent(table.metadata, each)
        if parent is None or each.summary is None or each.summary.operation is not Operation.REPLACE:
            continue
        own = _difference(reader, table, parent, each)
        if _identified(own.gone) <= known and _adds_no_rows(own):
            found.add(each.snapshot_id)
            known |= _identified(own.new)
    return frozenset(found)


def _adds_no_rows(change: Since) -> bool:
    """Return whether neither data files nor delete files have more rows: a client can give any operation."""
    for is_data in (True, False):
        come, gone = (
            sum(pc.sum(each.entries["record_count"]).as_py() or 0 for each in some if each.is_data is is_data)
            for some in (change.new, change.gone)
        )
        if come > gone:
            return False
    return True


def _identified(some: Sequence[Files]) -> set[str]:
    return {key for each in some for key in _keys(each).filter(pa.array(each.chosen)).to_pylist()}


def _difference(reader: SnapshotReader, table: LoadedTable, base: Snapshot | None, head: Snapshot) -> Since:
    now = reader.manifests(table, head)
    before = () if base is None else reader.manifests(table, base)
    ours, theirs = ({each.manifest_path for each in some} for some in (now, before))
    added = [
        Files.live(each) for each in reader.open(table, (e for e in now if e.manifest_path not in theirs))
    ]
    removed = [
        Files.live(each) for each in reader.open(table, (e for e in before if e.manifest_path not in ours))
    ]
    return Since(tuple(_without(added, removed)), tuple(_without(removed, added)))


def ancestor(table: LoadedTable, base_id: int, head: Snapshot | None) -> Snapshot:
    """Return the base of a commit.

    Raises:
        ConcurrentModification: it is no ancestor of the head, or no longer in the table.
    """
    for each in () if head is None else _history(table.metadata, head):
        if each.snapshot_id == base_id:
            return each
    raise ConcurrentModification(
        f"The snapshot {base_id}, which the rows were read from, is not an ancestor of the branch's head "
        f"{None if head is None else head.snapshot_id}: it expired, or the branch was moved back.",
        table=table.name,
        snapshot=base_id,
        rule="base-snapshot",
        hint=HINT,
    )


def _history(metadata: TableMetadata, head: Snapshot) -> list[Snapshot]:
    return lineage(head.snapshot_id, {each.snapshot_id: each for each in metadata.snapshots})


def _parent(metadata: TableMetadata, snapshot: Snapshot) -> Snapshot | None:
    parent_id = snapshot.parent_snapshot_id
    return None if parent_id is None else metadata.snapshot_by_id(parent_id)


def _without(some: Sequence[Files], others: Sequence[Files]) -> Iterator[Files]:
    """Return the files that the others do not have."""
    known = pa.chunked_array([_keys(each).filter(pa.array(each.chosen)) for each in others], pa.string())
    for each in some:
        other = each.chosen & ~np.asarray(pc.is_in(_keys(each), value_set=known))
        if other.any():
            yield Files(each.manifest, other)


def _keys(files: Files) -> pa.Array:
    entries = files.manifest.entries
    numbers = entries["file_sequence_number"].combine_chunks().cast(pa.string())
    return pc.binary_join_element_wise(
        identities(entries), numbers, "\n", null_handling="replace", null_replacement=""
    )


def _paths(some: Sequence[Files]) -> frozenset[str]:
    return frozenset(path for each in some for path in each.entries["file_path"].to_pylist())
