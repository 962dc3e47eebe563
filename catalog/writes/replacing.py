"""Checks that a `replace` keeps the rows.

- The new files have as many rows as the removed ones. If delete files apply to the removed ones, the new
  files leave out the deleted rows: they have no more rows, and no fewer than the delete files can delete.
- It says by which schema the rows were read, which is then compared with the current one: otherwise the
  values of a column that the earlier schema does not have would be lost.
- It is of data files alone, or of position delete files alone. Then the new delete files name data files
  that the removed ones apply to, and have no more rows, each and together. That each has a successor is
  checked as for every commit (`delete_files.check_removed`).

Whether the files are still the ones that were read is validated as for every commit (`validation`). So a
rewrite fails if another commit removes or rewrites the same files, or deletes rows of them. Otherwise it is
committed on top of appends, removals and other rewrites. The new files have the sequence number of their
commit: later deletes apply to them. Earlier deletes do not: the rewrite has applied them.

Source: Iceberg table specification, "Scan Planning" and "Snapshots": a `replace` changes files, and not the
table's data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.manifest import DataFile, DataFileContent, ManifestEntry
from pyiceberg.table.snapshots import Snapshot

from catalog.iceberg.bounds import Mask
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
    live: Mapping[str, tuple[DataFile, int]],
) -> None:
    """Refuse a replace that changes rows.

    Args:
        reader: reads the delete files' manifests.
        table: the table, sealed.
        head: the head of the branch.
        files: the commit.
        added: its new files.
        removed: the head's entries of the files to be removed.
        live: the data files that its delete files refer to, with their data sequence numbers.

    Raises:
        NotSupportedYet: it has equality delete files, or data files and delete files.
        RequestInvalid: rows would be lost or added, or the schema is not given.
    """
    kinds = {each.content for each in added} | {each.data_file.content for each in removed}
    if kinds == {DataFileContent.POSITION_DELETES}:
        _check_deletes(reader, table, head, files, removed, live)
    elif kinds - {DataFileContent.DATA}:
        raise NotSupportedYet(
            "A replace of equality deletes, or of data files and delete files, is not supported.",
            table=table.name,
            rule="replaced-rows",
            hint="Replace data files alone, or position delete files alone.",
        )
    else:
        _check_data(reader, table, head, files, added, removed)


def _check_data(
    reader: SnapshotReader,
    table: LoadedTable,
    head: Snapshot | None,
    files: FileCommit,
    added: Sequence[DataFile],
    removed: Sequence[ManifestEntry],
) -> None:
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


def _check_deletes(
    reader: SnapshotReader,
    table: LoadedTable,
    head: Snapshot | None,
    files: FileCommit,
    removed: Sequence[ManifestEntry],
    live: Mapping[str, tuple[DataFile, int]],
) -> None:
    """Check that new position delete files delete the rows that the removed ones do, as far as is known."""
    gone = frozenset(each.data_file.file_path for each in removed)
    before = _deletes(reader, table, head, gone)
    for file in files.added:
        most = sum(before.deletable(*live[path]) for path in file.referenced_data_files)
        if file.record_count > most:
            raise RequestInvalid(
                f"A replace must not delete rows, but the delete file has {file.record_count} rows, and the "
                f"removed delete files delete at most {most} of its data files.",
                table=table.name,
                path=file.path,
                rule="replaced-rows",
                hint="To delete rows, commit a delete.",
            )
    _check_total(table, files, removed)


def _check_total(table: LoadedTable, files: FileCommit, removed: Sequence[ManifestEntry]) -> None:
    """Check that the delete files together have no more rows than before: a data file can be in several."""
    gone = sum(each.data_file.record_count for each in removed)
    come = sum(file.record_count for file in files.added)
    if come > gone:
        raise RequestInvalid(
            f"A replace must not delete rows, but the new delete files have {come} rows, and the removed "
            f"ones {gone}.",
            table=table.name,
            rule="replaced-rows",
            hint="To delete rows, commit a delete.",
        )


def _deletable(
    reader: SnapshotReader, table: LoadedTable, head: Snapshot, removed: Sequence[ManifestEntry]
) -> int:
    """Return how many rows of the removed files delete files can delete."""
    deletes = _deletes(reader, table, head, None)
    return sum(deletes.deletable(entry.data_file, entry.sequence_number or 0) for entry in removed)


def _deletes(
    reader: SnapshotReader, table: LoadedTable, head: Snapshot | None, among: frozenset[str] | None
) -> DeleteFiles:
    """Return the delete files of a snapshot, or those of the given paths."""
    listed = [] if head is None else reader.manifests(table, head)
    found = map(Files.live, reader.open(table, (e for e in listed if e.content is ManifestContent.DELETES)))
    if among is None:
        return DeleteFiles(table, found)
    wanted = pa.array(sorted(among), pa.string())
    return DeleteFiles(
        table,
        (
            Files(each.manifest, each.chosen & _is_in(each.manifest.entries["file_path"], wanted))
            for each in found
        ),
    )


def _is_in(paths: pa.ChunkedArray, wanted: pa.Array) -> Mask:
    return np.asarray(pc.is_in(paths, value_set=wanted))
