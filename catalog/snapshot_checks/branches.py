"""Finds the branches that a commit rolls back instead of advancing.

A branch advances to a descendant of its head. Every other change of a branch is a rollback, because it drops
what the head had:

- to an older snapshot, or to a snapshot of another branch
- to a new snapshot below an older parent, or without a parent (as REPLACE TABLE makes)
- removing the branch

Setting the main branch again after it was removed is a rollback too: it restores what was removed.

Source: Iceberg table specification, "Snapshot References".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRef, SnapshotRefType
from pyiceberg.table.snapshots import Snapshot


@dataclass(frozen=True, slots=True)
class Rollback:
    """A branch that is rolled back.

    Attributes:
        branch: its name.
        head: its head before the commit; None if the main branch was removed before.
        base: the newest snapshot below its new head that existed before, whose files are restored; None if
            there is none.
    """

    branch: str
    head: Snapshot | None
    base: Snapshot | None


def rollbacks(before: TableMetadata, after: TableMetadata) -> list[Rollback]:
    """Return the branches that a commit rolls back.

    Args:
        before: the table's metadata.
        after: what the commit makes of it.
    """
    old = {each.snapshot_id: each for each in before.snapshots}
    known = old | {each.snapshot_id: each for each in after.snapshots}
    heads = {name: old.get(ref.snapshot_id) for name, ref in before.refs.items() if _is_branch(ref)}
    found = []
    for name, head in ({MAIN_BRANCH: None} | heads).items():
        below = _lineage(after.refs.get(name), known)
        base = next((each for each in below if _is_same(each, old.get(each.snapshot_id))), None)
        if head is None and base is None:
            continue
        if head is None or not any(_is_same(each, head) for each in below):
            found.append(Rollback(name, head, base))
    return found


def sets_retention(before: TableMetadata, after: TableMetadata) -> bool:
    """Return whether a commit changes how long an existing branch, or its snapshots, are kept.

    The next expiry of snapshots would remove the branch, or what is below its head. Settings can be left out:
    PyIceberg moves branches without them.

    Args:
        before: the table's metadata.
        after: what the commit makes of it.
    """
    branches = {name: ref for name, ref in before.refs.items() if _is_branch(ref) and name in after.refs}
    return any(_kept_anew(ref, after.refs[name]) for name, ref in branches.items())


def _kept_anew(before: SnapshotRef, after: SnapshotRef) -> bool:
    settings = ("min_snapshots_to_keep", "max_snapshot_age_ms", "max_ref_age_ms")
    return any(getattr(after, each) not in (None, getattr(before, each)) for each in settings)


def _is_branch(ref: SnapshotRef) -> bool:
    return ref.snapshot_ref_type is SnapshotRefType.BRANCH


def new_snapshots(before: TableMetadata, after: TableMetadata) -> list[Snapshot]:
    """Return the snapshots that a commit adds.

    Args:
        before: the table's metadata.
        after: what the commit makes of it.
    """
    known = {each.snapshot_id: each for each in before.snapshots}
    return [each for each in after.snapshots if not _is_same(each, known.get(each.snapshot_id))]


def _is_same(snapshot: Snapshot, known: Snapshot | None) -> bool:
    """Return whether a snapshot existed before: an id can be removed and used again.

    Its parent can be left out: this happens when the parent expires.
    """
    if known is None or snapshot is known or snapshot == known:
        return known is not None
    return snapshot == known.model_copy(update={"parent_snapshot_id": None})


def _lineage(ref: SnapshotRef | None, known: Mapping[int, Snapshot]) -> list[Snapshot]:
    """Return the snapshot of a branch and its ancestors, newest first; empty for a tag."""
    if ref is None or not _is_branch(ref):
        return []
    return lineage(ref.snapshot_id, known)


def reaches_behind(below: Sequence[Snapshot], snapshot: Snapshot) -> bool:
    """Return whether known ancestors tell if a branch had the files of a snapshot since that was made.

    They do if they go back to before it, or if there are none.
    """
    number = snapshot.sequence_number or 0
    return not below or any((each.sequence_number or 0) < number for each in below)


def lineage(snapshot_id: int | None, known: Mapping[int, Snapshot]) -> list[Snapshot]:
    """Return a snapshot and its ancestors, newest first, as far as they are known.

    Metadata that was registered can name a snapshot as its own ancestor.
    """
    found: dict[int, Snapshot] = {}
    while snapshot_id is not None and snapshot_id in known and snapshot_id not in found:
        found[snapshot_id] = known[snapshot_id]
        snapshot_id = found[snapshot_id].parent_snapshot_id
    return list(found.values())
