"""Counts the files of a table whose encryption differs from the current epoch.

It counts live data and delete files, at the heads of branches and in retained snapshots. Key metadata decides
whether a file is old, not the epoch of its sequence number: a file that is encrypted as the current epoch
requires is not old. Masks are stored in ORC files and not in key metadata, so the epoch of the sequence
number decides which masks a file has.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH, SnapshotRefType
from pyiceberg.table.snapshots import Snapshot

from catalog.base.progress import Tell, counted, silent
from catalog.envelope.key_metadata_columns import read_forms, stated
from catalog.key_management.uses import SnapshotUse, names_of
from catalog.reading.loading import LoadedTable
from catalog.reading.snapshots import OpenManifest, SnapshotReader, refuse_outside
from catalog.snapshot_checks.entries import alive
from policy.encryption.epochs import Epoch, check_migrated
from policy.encryption.file_formats import FileFormat

_COUNTED: Final = pa.schema([("epoch", pa.int64()), ("bytes", pa.int64()), ("old", pa.bool_())])


@dataclass(frozen=True, slots=True)
class EpochFiles:
    """Files at the head of a branch that one epoch governs by their sequence numbers.

    Attributes:
        branch: the branch.
        epoch: the epoch.
        files, bytes: all of them.
        old_files, old_bytes: those whose encryption differs from the current epoch.
    """

    branch: str
    epoch: Epoch
    files: int
    bytes: int
    old_files: int
    old_bytes: int


@dataclass(frozen=True, slots=True)
class OldSnapshot:
    """A retained snapshot with old files, and their number."""

    use: SnapshotUse
    files: int


class Census:
    """The files of one state of a table.

    Args:
        reader: reads manifests.
        table: the table, sealed.
        tell: is told how many snapshots are read.
    """

    def __init__(self, reader: SnapshotReader, table: LoadedTable, tell: Tell = silent) -> None:
        self._reader = reader
        self._tell = tell
        self._table = table

    def old(self, entries: pa.Table) -> pa.Array:
        """Return one flag per file: whether its encryption differs from the current epoch.

        Raises:
            DecryptionRefused: key metadata that is malformed.
        """
        key_metadata, epochs = entries["key_metadata"], self._table.governed.epochs
        old = np.zeros(entries.num_rows, np.bool_)
        for rows, keys, deletes in stated(entries, read_forms(key_metadata, entries["file_path"])):
            old[rows] = not check_migrated(epochs, keys, deletes=deletes).allowed
        fields = frozenset(self._table.metadata.schema().field_ids)
        otherwise_masked = np.array(
            [_masks_otherwise(each, epochs.current, fields) for each in epochs.entries]
        )
        return pa.array(old | otherwise_masked[self._epochs_of(entries)])

    def _epochs_of(self, entries: pa.Table) -> npt.NDArray[np.int64]:
        """Return, per file, the index of the epoch of its sequence number."""
        starts = [epoch.from_sequence_number for epoch in self._table.governed.epochs.entries]
        numbers = entries["file_sequence_number"].to_numpy()
        places: npt.NDArray[np.int64] = np.searchsorted(starts, numbers, side="right") - 1
        return places

    def branches(self) -> list[EpochFiles]:
        """Count the files at the heads of all branches, by branch and epoch, oldest first.

        Raises:
            MetadataTampered, MetadataInvalid, LocationNotAllowed, DecryptionRefused: a snapshot cannot be
                trusted.
        """
        return [each for branch, head in heads(self._table.metadata) for each in self._branch(branch, head)]

    def snapshots(self) -> list[OldSnapshot]:
        """Find the retained snapshots with old files, oldest first.

        Every manifest is read once, one at a time.

        Raises:
            as `branches`.
        """
        metadata, names = self._table.metadata, names_of(self._table.metadata)
        olds: dict[str, int] = {}
        found = []
        snapshots = sorted(metadata.snapshots, key=lambda each: each.sequence_number or 0)
        for snapshot in counted(snapshots, self._tell, "Snapshots read", len(snapshots)):
            listed = self._reader.manifests(self._table, snapshot)
            fresh = [entry for entry in listed if entry.manifest_path not in olds]
            for manifest in self._reader.open(self._table, fresh):
                old = self.old(alive(manifest.entries))
                olds[manifest.listed.manifest_path] = pc.sum(old).as_py() or 0
            files = sum(olds[entry.manifest_path] for entry in listed)
            if files:
                use = SnapshotUse(snapshot.snapshot_id, names.get(snapshot.snapshot_id, ()))
                found.append(OldSnapshot(use, files))
        return found

    def _branch(self, branch: str, head: Snapshot) -> Iterator[EpochFiles]:
        parts = [_COUNTED.empty_table()]
        for manifest in open_head(self._reader, self._table, head):
            entries = alive(manifest.entries)
            columns = [self._epochs_of(entries), entries["file_size_in_bytes"], self.old(entries)]
            parts.append(pa.table(columns, schema=_COUNTED))
        files = pa.concat_tables(parts)
        for number, epoch in enumerate(self._table.governed.epochs.entries):
            mine = files.filter(pc.equal(files["epoch"], number))
            if mine.num_rows:
                old = mine.filter(mine["old"])
                yield EpochFiles(branch, epoch, mine.num_rows, _total(mine), old.num_rows, _total(old))


def _masks_otherwise(epoch: Epoch, current: Epoch, fields: frozenset[int]) -> bool:
    """Return whether ORC files hold other masks of the fields. Dropped fields are ignored."""
    before, now = ([mask for mask in each.masks if mask[0] in fields] for each in (epoch, current))
    return current.spec.file_format is FileFormat.ORC and before != now


def _total(files: pa.Table) -> int:
    total: int = pc.sum(files["bytes"]).as_py() or 0
    return total


def heads(metadata: TableMetadata) -> list[tuple[str, Snapshot]]:
    """Return the branches with their heads, `main` first."""
    names = [name for name, ref in metadata.refs.items() if ref.snapshot_ref_type is SnapshotRefType.BRANCH]
    found = ((name, metadata.snapshot_by_name(name)) for name in sorted(names, key=_main_first))
    return [(name, head) for name, head in found if head is not None]


def open_head(reader: SnapshotReader, table: LoadedTable, head: Snapshot) -> Iterator[OpenManifest]:
    """Open the manifests of a snapshot, and check every live path in them.

    Raises:
        LocationNotAllowed: a path is not in the allowed list.
    """
    for manifest in reader.open(table, reader.manifests(table, head)):
        refuse_outside(table.governed.allowed, alive(manifest.entries)["file_path"], table.name, "files")
        yield manifest


def _main_first(branch: str) -> tuple[bool, str]:
    return branch != MAIN_BRANCH, branch
