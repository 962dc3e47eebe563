"""Delete files, committed with stock pieces of pyiceberg, as another engine would."""

from __future__ import annotations

from collections.abc import Sequence

from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestWriterV2,
    write_manifest_list,
)
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import AddSnapshotUpdate, SetSnapshotRefUpdate
from pyiceberg.typedef import Record

from tests.support.lake import Lake


class DeletesWriter(ManifestWriterV2):
    """pyiceberg's writer, for manifests of delete files, which it does not write by itself."""

    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


def add_deletes(
    lake: Lake,
    table: Table,
    content: DataFileContent,
    *,
    applies_to: Sequence[str] = (),
    file_format: FileFormat = FileFormat.PARQUET,
    stored: bytes = bytes(10),
) -> str:
    """Commit a delete file of one row for the files given, or for all; its path."""
    table = lake.catalog().load_table(table.name())
    head = table.current_snapshot()
    assert head is not None
    number = table.metadata.last_sequence_number + 1
    snapshot_id = table.metadata.new_snapshot_id()
    path = f"{table.location()}/data/{snapshot_id}-deletes.parquet"
    bounds = {2147483546: applies_to[0].encode()} if len(applies_to) == 1 else {}
    with table.io.new_output(path).create() as written:
        written.write(stored)
    file = DataFile.from_args(
        content=content,
        file_path=path,
        file_format=file_format,
        partition=Record(),
        record_count=1,
        file_size_in_bytes=len(stored),
        lower_bounds=bounds,
        upper_bounds=bounds,
        equality_ids=[1] if content is DataFileContent.EQUALITY_DELETES else None,
    )
    directory = f"{table.location()}/metadata"
    output = table.io.new_output(f"{directory}/d-{snapshot_id}.avro")
    writer = DeletesWriter(table.spec(), table.schema(), output, snapshot_id, "deflate")
    with writer:
        writer.add_entry(
            ManifestEntry.from_args(status=ManifestEntryStatus.ADDED, snapshot_id=snapshot_id, data_file=file)
        )
    listed = f"{directory}/snap-{snapshot_id}.avro"
    with write_manifest_list(
        2, table.io.new_output(listed), snapshot_id, head.snapshot_id, number, "deflate"
    ) as out:
        out.add_manifests([*head.manifests(table.io), writer.to_manifest_file()])
    snapshot = Snapshot(
        snapshot_id=snapshot_id,
        parent_snapshot_id=head.snapshot_id,
        sequence_number=number,
        timestamp_ms=head.timestamp_ms + 1,
        manifest_list=listed,
        summary=Summary(Operation.DELETE),
        schema_id=0,
    )
    updates = (
        AddSnapshotUpdate(snapshot=snapshot),
        SetSnapshotRefUpdate(ref_name="main", type="branch", snapshot_id=snapshot_id),
    )
    lake.catalog().commit_table(table, (), updates)
    return path
