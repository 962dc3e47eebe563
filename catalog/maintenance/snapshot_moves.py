"""Decides what Iceberg's snapshot procedures do: which branch moves to which snapshot.

Whether a user can move the branch is decided by the commit.

Source: Apache Iceberg's `SetSnapshotOperation`, `UpdateSnapshotReferencesOperation`, `CherryPickOperation`
and `WapUtil`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NoReturn

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot

from catalog.snapshot_checks.branches import lineage, reaches_behind
from catalog.snapshot_checks.cherry_picks import source_id
from policy.errors import RequestInvalid

#: Snapshot summary entries, as Iceberg writes them.
STAGED: Final = "wap.id"
PUBLISHED: Final = "published-wap-id"
SOURCE: Final = "source-snapshot-id"
REPLACES: Final = "replace-partitions"

_SHOWN: Final = 80


@dataclass(frozen=True, slots=True)
class Rollback:
    """Takes main back to an ancestor of its head: by id, or the last one before a time."""

    snapshot_id: int | None = None
    before_ms: int | None = None


@dataclass(frozen=True, slots=True)
class SetCurrent:
    """Moves main to any snapshot of the table: by id, or that of a branch or tag."""

    snapshot_id: int | None = None
    ref: str | None = None


@dataclass(frozen=True, slots=True)
class FastForward:
    """Moves a branch to the snapshot of another branch or tag, a descendant of its head."""

    branch: str
    to: str


@dataclass(frozen=True, slots=True)
class Pick:
    """Applies a snapshot to main again: by id, or the one that is staged under an id."""

    snapshot_id: int | None = None
    wap_id: str | None = None


SnapshotChange = Rollback | SetCurrent | FastForward | Pick


@dataclass(frozen=True, slots=True)
class Move:
    """What a change comes to.

    Attributes:
        branch: the branch that moves.
        previous_id: its head before; None if it is empty or does not exist.
        target: the snapshot that it moves to; of a pick, the snapshot whose files it gets.
        applies: whether the files of the target are added in a new snapshot.
    """

    branch: str
    previous_id: int | None
    target: Snapshot
    applies: bool = False


def move_of(metadata: TableMetadata, change: SnapshotChange) -> Move:
    """Decide what a change does.

    Raises:
        RequestInvalid: it cannot be made.
    """
    match change:
        case Rollback():
            return Move(MAIN_BRANCH, metadata.current_snapshot_id, _ancestor(metadata, change))
        case SetCurrent():
            return Move(MAIN_BRANCH, metadata.current_snapshot_id, _chosen(metadata, change))
        case FastForward():
            return _forward(metadata, change)
        case Pick():
            return _pick(metadata, change)


def _known(metadata: TableMetadata) -> dict[int, Snapshot]:
    return {each.snapshot_id: each for each in metadata.snapshots}


def ancestors(metadata: TableMetadata, snapshot_id: int | None) -> Sequence[Snapshot]:
    """Return a snapshot, by default the current one, and its known ancestors, newest first.

    Raises:
        RequestInvalid: the table has no such snapshot.
    """
    if snapshot_id is not None:
        _snapshot(metadata, snapshot_id)
    return lineage(metadata.current_snapshot_id if snapshot_id is None else snapshot_id, _known(metadata))


def _ancestor(metadata: TableMetadata, change: Rollback) -> Snapshot:
    below = ancestors(metadata, None)
    if change.snapshot_id is not None:
        found = _snapshot(metadata, change.snapshot_id)
        if found not in below:
            _refuse(f"The snapshot {change.snapshot_id} is not an ancestor of the current one")
        return found
    before = change.before_ms or 0
    older = [each for each in below if each.timestamp_ms < before]
    if not older:
        _refuse(f"The current snapshot has no ancestor that is older than {before} ms")
    return max(older, key=lambda each: each.timestamp_ms)


def _chosen(metadata: TableMetadata, change: SetCurrent) -> Snapshot:
    if change.snapshot_id is not None:
        return _snapshot(metadata, change.snapshot_id)
    return _named(metadata, change.ref or "")


def _forward(metadata: TableMetadata, change: FastForward) -> Move:
    target, ref = _named(metadata, change.to), metadata.refs.get(change.branch)
    if ref is None:
        return Move(change.branch, None, target)
    if ref.snapshot_ref_type is not SnapshotRefType.BRANCH:
        _refuse(f"{change.branch[:_SHOWN]!r} is a tag, not a branch")
    if ref.snapshot_id not in {each.snapshot_id for each in lineage(target.snapshot_id, _known(metadata))}:
        _refuse(f"The head of {change.branch[:_SHOWN]!r} is not an ancestor of {change.to[:_SHOWN]!r}")
    return Move(change.branch, ref.snapshot_id, target)


def _pick(metadata: TableMetadata, change: Pick) -> Move:
    source = _source(metadata, change)
    head = metadata.current_snapshot_id
    if source.parent_snapshot_id == head:
        return Move(MAIN_BRANCH, head, source)
    said = summary_of(source)
    if not _is_append(source) and not replaces_partitions(source):
        _refuse(
            f"The snapshot {source.snapshot_id} is neither an append nor a dynamic overwrite, and its parent "
            "is not the current snapshot"
        )
    below = ancestors(metadata, None)
    if any(source.snapshot_id in (each.snapshot_id, source_id(each)) for each in below):
        _refuse(f"The snapshot {source.snapshot_id} is in the current one already")
    if not reaches_behind(below, source):
        _refuse(
            f"Snapshots below the current one have expired, so it is not known whether the snapshot "
            f"{source.snapshot_id} was in it before"
        )
    wap_id = said.get(STAGED)
    published = {summary_of(each).get(name) for each in below for name in (STAGED, PUBLISHED)}
    if wap_id and wap_id in published:
        _refuse(f"The changes under wap.id {wap_id[:_SHOWN]!r} are published already")
    return Move(MAIN_BRANCH, head, source, applies=True)


def _source(metadata: TableMetadata, change: Pick) -> Snapshot:
    if change.snapshot_id is not None:
        return _snapshot(metadata, change.snapshot_id)
    shown = repr((change.wap_id or "")[:_SHOWN])
    staged = [each for each in metadata.snapshots if summary_of(each).get(STAGED) == change.wap_id]
    if len(staged) > 1:
        _refuse(f"{len(staged)} snapshots are staged under wap.id {shown}. Pick them by their ids")
    if not staged:
        _refuse(f"No snapshot is staged under wap.id {shown}")
    return staged[0]


def summary_of(snapshot: Snapshot) -> Mapping[str, str]:
    """Return the entries of a snapshot's summary, without its operation."""
    return {} if snapshot.summary is None else snapshot.summary.additional_properties


def _is_append(snapshot: Snapshot) -> bool:
    return snapshot.summary is not None and snapshot.summary.operation is Operation.APPEND


def replaces_partitions(snapshot: Snapshot) -> bool:
    """Return whether a snapshot is a dynamic overwrite."""
    said = snapshot.summary
    return (
        said is not None
        and said.operation is Operation.OVERWRITE
        and said.additional_properties.get(REPLACES, "").lower() == "true"
    )


def _snapshot(metadata: TableMetadata, snapshot_id: int) -> Snapshot:
    found = metadata.snapshot_by_id(snapshot_id)
    if found is None:
        _refuse(f"The table has no snapshot {snapshot_id}")
    return found


def _named(metadata: TableMetadata, name: str) -> Snapshot:
    found = metadata.snapshot_by_name(name)
    if found is None:
        _refuse(f"The table has no branch or tag {name[:_SHOWN]!r}")
    return found


def _refuse(why: str) -> NoReturn:
    raise RequestInvalid(
        f"{why}.",
        rule="snapshot-move",
        hint="Look at the table's snapshots, branches and tags, and choose another one.",
    )
