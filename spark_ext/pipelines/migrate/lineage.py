"""Decides which snapshots of a branch a migration has to compare: no I/O.

A branch is followed from its head to the first snapshot that the table had when the migration began.
Snapshots between them came since. Those that replace files must not have changed a row; all others are of
writers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot


@dataclass(frozen=True, slots=True)
class Line:
    """What came on a branch since a migration began.

    Attributes:
        branch: the branch.
        head: its head.
        base: the snapshot that it came on; None for an empty table.
        replaces: whether a snapshot since then replaces files.
        writes: whether a snapshot since then can have changed rows.
        broken: whether snapshots since then have expired, so that they cannot be compared.
    """

    branch: str
    head: int
    base: int | None
    replaces: bool
    writes: bool
    broken: bool


def branches(metadata: TableMetadata) -> dict[str, int]:
    """Return the heads of all branches, by name."""
    kind = SnapshotRefType.BRANCH
    found = {name: ref.snapshot_id for name, ref in metadata.refs.items() if ref.snapshot_ref_type is kind}
    return dict(sorted(found.items()))


def line_of(metadata: TableMetadata, branch: str, known: Collection[int]) -> Line:
    """Follow a branch back to what it was when the migration began.

    Args:
        metadata: the table's.
        branch: one of its branches.
        known: the snapshots that the table had when the migration began.
    """
    head = metadata.refs[branch].snapshot_id
    since: list[Snapshot] = []
    for snapshot in _ancestors(metadata, head):
        if snapshot.snapshot_id in known:
            return _line(branch, head, snapshot.snapshot_id, since)
        since.append(snapshot)
    parent = since[-1].parent_snapshot_id if since else head
    if parent in known:
        return _line(branch, head, parent, since)
    # Later ones are compared with the oldest one. What came before it is not known, unless it was nothing.
    oldest = since.pop() if since else None
    base = None if oldest is None else oldest.snapshot_id
    return _line(branch, head, base, since, broken=parent is not None or bool(known))


def _line(branch: str, head: int, base: int | None, since: list[Snapshot], *, broken: bool = False) -> Line:
    kinds = {replaces(each) for each in since}
    return Line(branch, head, base, True in kinds, False in kinds, broken)


def replaces(snapshot: Snapshot) -> bool:
    """Return whether a snapshot replaces files without a change of rows."""
    return snapshot.summary is not None and snapshot.summary.operation is Operation.REPLACE


def on_branches(metadata: TableMetadata) -> frozenset[int]:
    """Return the snapshots in the history of a branch; others are staged, tagged or were rolled back."""
    heads = branches(metadata).values()
    return frozenset(each.snapshot_id for head in heads for each in _ancestors(metadata, head))


def _ancestors(metadata: TableMetadata, head: int) -> Iterator[Snapshot]:
    """Yield a snapshot and its ancestors, as far as they are retained."""
    known = {each.snapshot_id: each for each in metadata.snapshots}
    at: int | None = head
    while at is not None and at in known:
        snapshot = known.pop(at)
        yield snapshot
        at = snapshot.parent_snapshot_id
