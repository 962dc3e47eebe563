"""Decides which snapshots, branches and tags of a table expire: no I/O.

- A branch keeps the snapshots that are young enough, and at least the last few. Its own settings come before
  those of the call, and these before the table's properties.
- A branch or tag whose snapshot is too old ends. `main` never does.
- A snapshot that no branch has in its history, such as a staged one, is kept while it is young enough.
- A snapshot that is named expires, whatever its age. The head of a branch and a tagged snapshot never do.

Source: Apache Iceberg's `RemoveSnapshots`; Iceberg documentation, "Table properties" (`history.expire.…`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Final

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRef, SnapshotRefType
from pyiceberg.table.snapshots import Snapshot

from catalog.rules.file_deletion import require_deletable
from policy.errors import RequestInvalid
from policy.write_properties import invalid, is_number

_LARGEST: Final = 2**63 - 1
_FIVE_DAYS_MS: Final = 5 * 24 * 3600 * 1000


@dataclass(frozen=True, slots=True)
class Expired:
    """What expires: ids of snapshots, and names of branches and tags."""

    snapshots: frozenset[int] = frozenset()
    refs: frozenset[str] = frozenset()


def expired(
    metadata: TableMetadata,
    table: str,
    now_ms: int,
    *,
    older_than_ms: int | None = None,
    retain_last: int | None = None,
    snapshot_ids: Collection[int] = (),
) -> Expired:
    """Decide what expires.

    Args:
        metadata: the table's.
        table: dotted name, for errors.
        now_ms: the time in milliseconds.
        older_than_ms: snapshots of before that expire; None for `history.expire.max-snapshot-age-ms`.
        retain_last: snapshots that each branch keeps; None for `history.expire.min-snapshots-to-keep`.
        snapshot_ids: snapshots that expire as well; one that the table does not have is no error.

    Raises:
        RequestInvalid: a branch or tag points to a snapshot that is named, or `gc.enabled` is false.
        PropertyInvalid: a property is no number.
    """
    require_deletable(metadata, table)
    read = _Numbers(metadata, table)
    default_age = read.property("max-snapshot-age-ms", _FIVE_DAYS_MS)
    default_keep = read.property("min-snapshots-to-keep", 1)
    default_ref_age = read.property("max-ref-age-ms", _LARGEST)
    before = now_ms - default_age if older_than_ms is None else older_than_ms
    keep = default_keep if retain_last is None else retain_last
    kept_refs = {
        name: ref
        for name, ref in metadata.refs.items()
        if name == MAIN_BRANCH or _is_young(metadata, ref, now_ms, default_ref_age)
    }
    _refuse_referenced(kept_refs, snapshot_ids, table)
    retained = {ref.snapshot_id for ref in kept_refs.values()}
    known = set[int]()
    for ref in kept_refs.values():
        history = list(_history(metadata, ref))
        known.update(each.snapshot_id for each in history)
        if ref.snapshot_ref_type is SnapshotRefType.BRANCH:
            least = ref.min_snapshots_to_keep or keep
            oldest = before if ref.max_snapshot_age_ms is None else now_ms - ref.max_snapshot_age_ms
            retained.update(_retained(history, oldest, least))
    retained.update(
        each.snapshot_id
        for each in metadata.snapshots
        if each.snapshot_id not in known and each.timestamp_ms >= before
    )
    gone = {each.snapshot_id for each in metadata.snapshots} - (retained - set(snapshot_ids))
    return Expired(frozenset(gone), frozenset(metadata.refs.keys() - kept_refs.keys()))


def _retained(history: list[Snapshot], oldest_ms: int, least: int) -> Iterator[int]:
    for count, each in enumerate(history):
        if count >= least and each.timestamp_ms < oldest_ms:
            return
        yield each.snapshot_id


def _history(metadata: TableMetadata, ref: SnapshotRef) -> Iterator[Snapshot]:
    """Return the snapshot of a branch or tag, and for a branch its ancestors, latest first."""
    each = metadata.snapshot_by_id(ref.snapshot_id)
    seen = set[int]()
    while each is not None and each.snapshot_id not in seen:
        yield each
        seen.add(each.snapshot_id)
        parent = each.parent_snapshot_id
        if parent is None or ref.snapshot_ref_type is not SnapshotRefType.BRANCH:
            return
        each = metadata.snapshot_by_id(parent)


def _is_young(metadata: TableMetadata, ref: SnapshotRef, now_ms: int, default_age: int) -> bool:
    snapshot = metadata.snapshot_by_id(ref.snapshot_id)
    age = default_age if ref.max_ref_age_ms is None else ref.max_ref_age_ms
    return snapshot is not None and now_ms - snapshot.timestamp_ms <= age


def _refuse_referenced(refs: dict[str, SnapshotRef], snapshot_ids: Collection[int], table: str) -> None:
    for name, ref in sorted(refs.items()):
        if ref.snapshot_id in snapshot_ids:
            raise RequestInvalid(
                f"Snapshot {ref.snapshot_id} cannot expire: the {ref.snapshot_ref_type} {name[:80]!r} points "
                "to it.",
                table=table,
                snapshot=ref.snapshot_id,
                rule="snapshot-reference",
                hint="Drop the branch or tag first, or leave the snapshot out.",
            )


class _Numbers:
    """Reads the table's properties."""

    def __init__(self, metadata: TableMetadata, table: str) -> None:
        self._properties = metadata.properties
        self._table = table

    def property(self, name: str, default: int) -> int:
        """A whole number above 0."""
        full = f"history.expire.{name}"
        value = self._properties.get(full)
        if value is None:
            return default
        if not is_number(value, _LARGEST):
            raise invalid(full, value, f"a whole number from 1 to {_LARGEST}", self._table)
        return int(value)
