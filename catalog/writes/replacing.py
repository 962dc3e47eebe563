"""Whether files may be replaced by others with the same rows, whatever was committed since they were read.

- The files that go were in the snapshot that they were read from, and are in the branch's head: a path that
  was removed and added again since is another file.
- No delete applies to them at the head: the new files would bring the deleted rows back.
- The files that come have as many rows as those that go.
- Their rows were read by the schema that is current: what another column holds would be lost with the files
  that go.

So a rewrite fails when somebody removes or rewrites the same files, or deletes rows of them, and otherwise
goes on top of appends, removals and other rewrites. The new files are of the sequence number of their commit:
deletes that come later apply to them, and those that were there did not apply to the old ones either.

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
    """Refuse to replace files that are not what was read, or not by the same number of rows.

    Args:
        reader: reads the delete files' manifests.
        table: the table, sealed.
        head: the head of the branch.
        files: what is committed.
        removed: the head's entries of the files to be removed.

    Raises:
        CommitConflict: a file is another one than was read, or has deleted rows; or the columns changed.
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
    """The sequence number of the snapshot that was read; None if there is none of that id any more."""
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
