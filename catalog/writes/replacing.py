"""Checks that a `replace` keeps the rows.

- The new files have as many rows as the removed ones. If delete files apply to the removed ones, the new
  files leave out the deleted rows: they have no more rows, and no fewer than the delete files can delete.
- It says by which schema the rows were read, which is then compared with the current one: otherwise the
  values of a column that the earlier schema does not have would be lost.
- It has no delete files.

Whether the files are still the ones that were read is validated as for every commit (`validation`). So a
rewrite fails if another commit removes or rewrites the same files, or deletes rows of them. Otherwise it is
committed on top of appends, removals and other rewrites. The new files have the sequence number of their
commit: later deletes apply to them. Earlier deletes do not: the rewrite has applied them.

Source: Iceberg table specification, "Scan Planning" and "Snapshots": a `replace` changes files, and not the
table's data.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyiceberg.manifest import DataFile, DataFileContent, ManifestEntry
from pyiceberg.table.snapshots import Snapshot

from catalog.iceberg.manifests import ManifestContent
from catalog.reading.loading import LoadedTable
from catalog.reading.snapshots import SnapshotReader
from catalog.writes.applying import DeleteFiles
from catalog.writes.new_files import FileCommit
from catalog.writes.scopes import Files
from policy.errors import NotSupportedYet, RequestInvalid


def check_replaced(
    reader: SnapshotReader,
    table: LoadedTable,
    head: Snapshot | None,
    files: FileCommit,
    added: Sequence[DataFile],
    removed: Sequence[ManifestEntry],
) -> None:
    """Refuse a replace that changes rows.

    Args:
        reader: reads the delete files' manifests.
        table: the table, sealed.
        head: the head of the branch.
        files: the commit.
        added: its new files.
        removed: the head's entries of the files to be removed.

    Raises:
        NotSupportedYet: it has delete files.
        RequestInvalid: rows would be lost or added, or the schema is not given.
    """
    kinds = {each.content for each in added} | {each.data_file.content for each in removed}
    if kinds - {DataFileContent.DATA}:
        raise NotSupportedYet(
            "A replace of delete files is not supported.",
            table=table.name,
            rule="replaced-rows",
            hint="Replace data files alone.",
        )
    if files.schema_id is None:
        raise RequestInvalid(
            "A replace does not say which schema its rows were read with.",
            table=table.name,
            rule="replaced-schema",
            hint="Give the id of the plan's schema in schema-id.",
        )
    gone, come = (
        sum(entry.data_file.record_count for entry in removed),
        sum(file.record_count for file in added),
    )
    deleted = 0 if head is None else _deletable(reader, table, head, removed)
    if not gone - deleted <= come <= gone:
        without = f", of which delete files delete at most {deleted}" if deleted else ""
        raise RequestInvalid(
            f"A replace must keep the number of rows, but it removes {gone} rows{without}, and adds {come}.",
            table=table.name,
            rule="replaced-rows",
            hint="To change rows, commit an overwrite.",
        )


def _deletable(
    reader: SnapshotReader, table: LoadedTable, head: Snapshot, removed: Sequence[ManifestEntry]
) -> int:
    """Return how many rows of the removed files delete files can delete."""
    listed = [each for each in reader.manifests(table, head) if each.content is ManifestContent.DELETES]
    deletes = DeleteFiles(table, (Files.live(each) for each in reader.open(table, listed)))
    return sum(deletes.deletable(entry.data_file, entry.sequence_number or 0) for entry in removed)
