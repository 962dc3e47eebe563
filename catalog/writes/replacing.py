"""Checks that a `replace` keeps the rows, whatever was committed since its files were read.

- The files to remove were in the snapshot that they were read from, and are in the branch's head. A path that
  was removed and added again since then is another file.
- No delete file applies to them at the head: the new files would restore the deleted rows.
- The new files have as many rows as the removed ones.
- The rows were read with the schema that is current: otherwise the values of a column that the earlier schema
  does not have would be lost.

So a rewrite fails if another commit removes or rewrites the same files, or deletes rows of them. Otherwise it
is committed on top of appends, removals and other rewrites. The new files have the sequence number of their
commit: later deletes apply to them. Earlier deletes do not, and did not apply to the old files either.

Source: Iceberg table specification, "Scan Planning" and "Snapshots": a `replace` changes files, and not the
table's data.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyiceberg.manifest import ManifestEntry
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from catalog.base.errors import CommitConflict
from catalog.iceberg.manifests import ManifestContent
from catalog.iceberg.partition_values import ShownPartitions
from catalog.planning.deletes import Deletes
from catalog.reading.loading import LoadedTable
from catalog.reading.snapshots import SnapshotReader
from catalog.writes.new_files import FileCommit
from policy.errors import RequestInvalid


def check_replaced(
    reader: SnapshotReader,
    table: LoadedTable,
    head: Snapshot | None,
    files: FileCommit,
    removed: Sequence[ManifestEntry],
) -> None:
    """Refuse a replace if its files are not the ones that were read, or if the number of rows differs.

    Args:
        reader: reads the delete files' manifests.
        table: the table, sealed.
        head: the head of the branch.
        files: the commit.
        removed: the head's entries of the files to be removed.

    Raises:
        CommitConflict: a file is not the one that was read, or has deleted rows; or the schema changed.
        RequestInvalid: rows would be lost or added.
        NotSupportedYet: the branch has equality deletes or deletion vectors.
    """
    if files.schema_id != table.metadata.current_schema_id:
        raise CommitConflict(
            f"The rows were read with schema {files.schema_id}, but the table now has schema "
            f"{table.metadata.current_schema_id}.",
            table=table.name,
            rule="replaced-schema",
            hint="Read the files again, write them, and give the current schema in schema-id.",
        )
    last = _last_number(table.metadata, files.base_snapshot_id)
    if last is None or any((entry.file_sequence_number or 0) > last for entry in removed):
        raise CommitConflict(
            "A file to remove changed after it was read.",
            table=table.name,
            rule="replaced-files",
            hint="Read the files again, and write them.",
        )
    gone, come = (
        sum(entry.data_file.record_count for entry in removed),
        sum(file.record_count for file in files.added),
    )
    if gone != come:
        raise RequestInvalid(
            f"A replace must keep the number of rows, but it removes {gone} rows and adds {come}.",
            table=table.name,
            rule="replaced-rows",
            hint="To change rows, commit an overwrite.",
        )
    if head is not None:
        _refuse_deleted(reader, table, head, removed)


def _last_number(metadata: TableMetadata, snapshot_id: int | None) -> int | None:
    """Return the sequence number of the snapshot that was read; None if that snapshot is gone."""
    base = None if snapshot_id is None else metadata.snapshot_by_id(snapshot_id)
    return None if base is None else base.sequence_number or 0


def _refuse_deleted(
    reader: SnapshotReader, table: LoadedTable, head: Snapshot, removed: Sequence[ManifestEntry]
) -> None:
    listed = [each for each in reader.manifests(table, head) if each.content is ManifestContent.DELETES]
    if not listed:
        return
    shown = ShownPartitions(table.metadata.specs(), table.metadata.schema(), frozenset())
    deletes = Deletes(reader.open(table, listed), shown, table.name)
    for entry in removed:
        if deletes.apply_to(entry.data_file, entry.sequence_number or 0):
            raise CommitConflict(
                "A delete file deletes rows of a file to replace.",
                table=table.name,
                path=entry.data_file.file_path,
                rule="replaced-deletes",
                hint="Compact the table with an engine that applies deletes.",
            )
