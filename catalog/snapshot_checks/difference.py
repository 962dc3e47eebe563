"""Separates the manifests of a snapshot from those of its parent.

Rules:

- A manifest in both lists is shared: its record must equal the parent's. It was checked when it was new, and
  is not opened again.
- Every other manifest in the snapshot's list is new, even if it is sealed: a seal fixes the bytes of a file,
  and does not make it part of a snapshot. A new manifest must have this snapshot's id and sequence number.
- A manifest that only the parent lists is dropped. `carried` checks what happens to its files.

Source: Iceberg table specification, "Snapshots" and "Manifest Lists".
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass

from pyiceberg.table.snapshots import Snapshot

from catalog.iceberg.manifests import ManifestListEntry
from policy.errors import MetadataTampered


@dataclass(frozen=True, slots=True)
class Difference:
    """The manifests of a snapshot and of its parent.

    Attributes:
        shared: those that both list.
        fresh: those that the snapshot alone lists.
        dropped: those that the parent alone lists.
    """

    shared: tuple[ManifestListEntry, ...]
    fresh: tuple[ManifestListEntry, ...]
    dropped: tuple[ManifestListEntry, ...]


def difference(
    snapshot: Snapshot,
    listed: Sequence[ManifestListEntry],
    before: Sequence[ManifestListEntry],
    specs: Container[int],
    table: str,
) -> Difference:
    """Compare two manifest lists.

    Args:
        snapshot: the new snapshot.
        listed: its manifest list, which names no manifest twice.
        before: its parent's; empty if it has none.
        specs: ids of the table's partition specs.
        table: dotted name, for errors.

    Raises:
        MetadataTampered: a shared record is not the parent's, or a new one belongs to another snapshot.
    """
    old = {entry.manifest_path: entry for entry in before}
    new = {entry.manifest_path: entry for entry in listed}
    shared = tuple(entry for path, entry in new.items() if path in old)
    for entry in shared:
        if entry != old[entry.manifest_path]:
            raise MetadataTampered(
                "The manifest list describes a manifest differently than the list of the parent snapshot.",
                table=table,
                snapshot=snapshot.snapshot_id,
                path=entry.manifest_path,
                rule="carried-manifest",
                hint="Carry over the record unchanged, or write the manifest again.",
            )
    fresh = tuple(entry for path, entry in new.items() if path not in old)
    for entry in fresh:
        _check_belongs(entry, snapshot, specs, table)
    return Difference(shared, fresh, tuple(entry for path, entry in old.items() if path not in new))


def _check_belongs(entry: ManifestListEntry, snapshot: Snapshot, specs: Container[int], table: str) -> None:
    """Check that a new manifest has the id and number of its snapshot."""
    said = (entry.added_snapshot_id, entry.sequence_number)
    if said != (snapshot.snapshot_id, snapshot.sequence_number or 0) or entry.partition_spec_id not in specs:
        raise MetadataTampered(
            "The parent snapshot does not list this manifest, and its snapshot id, sequence "
            "number or partition spec in the manifest list is not that of a new manifest.",
            table=table,
            snapshot=snapshot.snapshot_id,
            path=entry.manifest_path,
            rule="new-manifest",
            hint="Carry over only manifests of the parent snapshot, and write the others again.",
        )
