"""Determines which versions of a table's keys are needed, and by what.

A version is needed by the epoch in force, by retained snapshots that list a live file under it, and by open
writes (`expiry` checks these).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyiceberg.table.metadata import TableMetadata

from catalog.key_management.manifests import used_versions
from catalog.reading.loading import LoadedTable
from catalog.reading.snapshots import SnapshotReader
from policy.encryption.epochs import PekRef

_SHOWN: Final = 10


@dataclass(frozen=True, slots=True)
class SnapshotUse:
    """A snapshot that needs a version of a key.

    Attributes:
        snapshot_id: the snapshot.
        names: the branches and tags that point to it.
    """

    snapshot_id: int
    names: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.snapshot_id} ({', '.join(self.names)})" if self.names else str(self.snapshot_id)


def uses(reader: SnapshotReader, table: LoadedTable) -> dict[PekRef, list[SnapshotUse]]:
    """Return the retained snapshots that need each version, oldest first; versions without one are left out.

    Every manifest is read once, one at a time.

    Raises:
        MetadataTampered, MetadataInvalid, LocationNotAllowed, DecryptionRefused: a snapshot failed
            verification, so what it needs cannot be determined.
    """
    names = names_of(table.metadata)
    by_manifest: dict[str, set[PekRef]] = {}
    found: dict[PekRef, list[SnapshotUse]] = {}
    for snapshot in sorted(table.metadata.snapshots, key=lambda each: each.sequence_number or 0):
        listed = reader.manifests(table, snapshot)
        fresh = [entry for entry in listed if entry.manifest_path not in by_manifest]
        for manifest in reader.open(table, fresh):
            by_manifest[manifest.listed.manifest_path] = used_versions(manifest)
        use = SnapshotUse(snapshot.snapshot_id, names.get(snapshot.snapshot_id, ()))
        for ref in set().union(*(by_manifest[entry.manifest_path] for entry in listed)):
            found.setdefault(ref, []).append(use)
    return found


@dataclass(frozen=True, slots=True)
class Need:
    """The reason why a version is needed, and what the user has to do first."""

    why: str
    hint: str


def need(table: LoadedTable, found: dict[PekRef, list[SnapshotUse]], ref: PekRef) -> Need | None:
    """Return why the table needs a version, given its `uses`; None if it does not."""
    if ref in table.governed.epochs.current.peks:
        return Need("is in force: new files use it", "Rotate the keys first.")
    snapshots = found.get(ref, [])
    if not snapshots:
        return None
    shown = ", ".join(str(each) for each in snapshots[:_SHOWN])
    more = f" and {len(snapshots) - _SHOWN} more" if len(snapshots) > _SHOWN else ""
    return Need(
        f"is needed by {len(snapshots)} retained snapshots: {shown}{more}",
        "Rewrap the keys, then expire these snapshots and remove their tags.",
    )


def names_of(metadata: TableMetadata) -> dict[int, tuple[str, ...]]:
    """Return the branches and tags that point to each snapshot, by snapshot id."""
    names: dict[int, tuple[str, ...]] = {}
    for name, ref in sorted(metadata.refs.items()):
        shown = f"{ref.snapshot_ref_type.value} {name}"
        names[ref.snapshot_id] = (*names.get(ref.snapshot_id, ()), shown)
    return names
