"""Applies an engine's changes of branches and tags.

They have Iceberg's meaning: a new reference names the current snapshot if no other is given, and a replaced
one keeps the retention that the change does not set.

Source: Iceberg table specification, "Snapshot Retention Policy" and "Snapshot References"; Apache Iceberg's
`UpdateSnapshotReferencesOperation`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, NoReturn

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRef, SnapshotRefType
from pyiceberg.table.update import (
    AssertRefSnapshotId,
    RemoveSnapshotRefUpdate,
    SetSnapshotRefUpdate,
    TableRequirement,
    TableUpdate,
)

from policy.errors import RequestInvalid

_SHOWN: Final = 80

Kind = Literal["branch", "tag"]
#: What to do if the reference exists, or does not exist.
Mode = Literal["create", "create-if-absent", "replace", "create-or-replace"]


@dataclass(frozen=True, slots=True)
class Retention:
    """How long a reference, and the snapshots of a branch, are kept. None leaves a setting as it is."""

    max_ref_age_ms: int | None = None
    max_snapshot_age_ms: int | None = None
    min_snapshots_to_keep: int | None = None


@dataclass(frozen=True, slots=True)
class SetRef:
    """Creates or replaces a branch or tag. Without a snapshot id, it names the current snapshot."""

    kind: Kind
    name: str
    mode: Mode
    snapshot_id: int | None = None
    retention: Retention = Retention()


@dataclass(frozen=True, slots=True)
class DropRef:
    """Removes a branch or tag; with `if_exists`, a missing one is no error."""

    kind: Kind
    name: str
    if_exists: bool = False


RefChange = SetRef | DropRef


def ref_updates(
    metadata: TableMetadata, changes: Sequence[RefChange]
) -> tuple[list[TableRequirement], list[TableUpdate]]:
    """Convert changes of branches and tags to requirements and updates of a commit.

    Raises:
        RequestInvalid: a change cannot be made, or two are of the same reference.
    """
    names = [each.name for each in changes]
    if len(set(names)) < len(names):
        _refuse("Two changes are of the same branch or tag")
    requirements: list[TableRequirement] = []
    updates: list[TableUpdate] = []
    for change in changes:
        ref = metadata.refs.get(change.name)
        update = _set(metadata, ref, change) if isinstance(change, SetRef) else _drop(ref, change)
        if update is not None:
            requirements.append(AssertRefSnapshotId(ref=change.name, snapshot_id=ref and ref.snapshot_id))
            updates.append(update)
    return requirements, updates


def _set(metadata: TableMetadata, ref: SnapshotRef | None, change: SetRef) -> TableUpdate | None:
    shown = f"{change.kind} {change.name[:_SHOWN]!r}"
    if ref is None and change.mode == "replace":
        _refuse(f"The {shown} does not exist")
    if ref is not None and change.mode == "create-if-absent":
        return None
    if ref is not None and change.mode == "create":
        _refuse(f"A branch or tag named {change.name[:_SHOWN]!r} already exists")
    _require_kind(ref, change)
    snapshot_id = metadata.current_snapshot_id if change.snapshot_id is None else change.snapshot_id
    if snapshot_id is None:
        _refuse(f"The table has no snapshot, so the {shown} would name none. Insert rows first")
    if metadata.snapshot_by_id(snapshot_id) is None:
        _refuse(f"The table has no snapshot {snapshot_id}")
    given = change.retention
    kept = Retention() if ref is None else _retention_of(ref)
    return SetSnapshotRefUpdate(
        ref_name=change.name,
        type=change.kind,
        snapshot_id=snapshot_id,
        max_ref_age_ms=given.max_ref_age_ms or kept.max_ref_age_ms,
        max_snapshot_age_ms=given.max_snapshot_age_ms or kept.max_snapshot_age_ms,
        min_snapshots_to_keep=given.min_snapshots_to_keep or kept.min_snapshots_to_keep,
    )


def _retention_of(ref: SnapshotRef) -> Retention:
    return Retention(ref.max_ref_age_ms, ref.max_snapshot_age_ms, ref.min_snapshots_to_keep)


def _drop(ref: SnapshotRef | None, change: DropRef) -> TableUpdate | None:
    if ref is None and change.if_exists:
        return None
    if ref is None:
        _refuse(f"The {change.kind} {change.name[:_SHOWN]!r} does not exist")
    _require_kind(ref, change)
    if change.name == MAIN_BRANCH:
        _refuse("The branch 'main' cannot be dropped")
    return RemoveSnapshotRefUpdate(ref_name=change.name)


def _require_kind(ref: SnapshotRef | None, change: RefChange) -> None:
    if ref is not None and ref.snapshot_ref_type != SnapshotRefType(change.kind):
        _refuse(f"{change.name[:_SHOWN]!r} is a {ref.snapshot_ref_type.value}, not a {change.kind}")


def _refuse(why: str) -> NoReturn:
    raise RequestInvalid(
        f"{why}.",
        rule="snapshot-reference",
        hint="Load the table's branches and tags, and correct the change.",
    )
