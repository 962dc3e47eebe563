"""Checks the position delete files that an engine wrote.

- A delete file names the data files that it deletes rows of, and has at least one row for each. It applies
  to files of its own partition and spec only, so each of them is in that partition.
- It has no column of the table, so its entry has no statistics of one. The whole file is under one data key.

Delete files are not opened. A user who writes a wrong one can also delete the rows.

Source: Iceberg table specification, "Position Delete Files" and "Scan Planning".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.manifest import DataFile, DataFileContent, ManifestEntry
from pyiceberg.table.snapshots import Snapshot

from catalog.iceberg.manifests import ManifestContent, data_files
from catalog.iceberg.partition_keys import partition_of
from catalog.reading.loading import LoadedTable
from catalog.reading.snapshots import SnapshotReader
from catalog.writes.applying import applies, certain_files, only_file
from catalog.writes.new_files import FileCommit, NewFile
from catalog.writes.scopes import Files
from policy.errors import RequestInvalid
from policy.write_settings import delete_settings

#: The field ids of `file_path` and `pos` (Iceberg specification, "Reserved Field IDs").
_PATH: Final = 2147483546
_COLUMNS: Final = frozenset({_PATH, 2147483545})


def settings_of(table: LoadedTable) -> dict[str, str]:
    """Return how delete files of a table are written: their format and granularity.

    An encrypted table's algorithm is for one format, so its delete files have the format of its data files.

    Raises:
        PropertyInvalid: a value that no writer could follow.
    """
    settings = delete_settings(table.metadata.properties, table.name)
    spec = table.governed.spec
    return settings if spec.file_format is None else settings | {"format": spec.file_format.value}


def check_kind(file: NewFile, table: str) -> None:
    """Check that a file has exactly the fields of its content.

    Raises:
        RequestInvalid: it does not.
    """
    if file.content == DataFileContent.DATA:
        if file.referenced_data_files:
            raise _refused("A data file has referenced-data-files.", file, table)
        return
    told: Sequence[Mapping[int, Any]] = (
        file.column_sizes,
        file.value_counts,
        file.null_value_counts,
        file.nan_value_counts,
        file.lower_bounds,
        file.upper_bounds,
    )
    foreign = set().union(*told) - _COLUMNS
    for problem, found in (
        ("refers to no data file", not file.referenced_data_files),
        ("has fewer rows than data files", file.record_count < len(file.referenced_data_files)),
        ("has statistics of columns that it does not have", bool(foreign)),
        ("has a sort order", file.sort_order_id is not None),
        ("has more than one data key", len(file.keys) > 1),
        ("has a data key for some columns", any(key.label.field_ids for key in file.keys)),
    ):
        if found:
            raise _refused(f"A position delete file {problem}.", file, table)


def path_bound(file: NewFile, least: Callable[[Iterable[bytes]], bytes]) -> dict[int, bytes]:
    """Return the bound of the paths in a delete file, by which readers find the data files that it is for.

    Args:
        file: the new file.
        least: `min` or `max`.
    """
    paths = [path.encode() for path in file.referenced_data_files]
    return {_PATH: least(paths)} if paths else {}


def referenced(added: Iterable[NewFile]) -> frozenset[str]:
    """Return the data files that new delete files refer to."""
    return frozenset(path for file in added for path in file.referenced_data_files)


def live_data_files(
    reader: SnapshotReader, table: LoadedTable, head: Snapshot | None, paths: frozenset[str]
) -> dict[str, tuple[DataFile, int]]:
    """Find live data files of a snapshot by path, each with its data sequence number."""
    if head is None or not paths:
        return {}
    wanted = pa.array(sorted(paths), pa.string())
    found: dict[str, tuple[DataFile, int]] = {}
    listed = [each for each in reader.manifests(table, head) if each.content is ManifestContent.DATA]
    for manifest in reader.open(table, listed):
        live = Files.live(manifest).chosen
        mask = live & np.asarray(pc.is_in(manifest.entries["file_path"], value_set=wanted))
        files = Files(manifest, mask)
        rows = files.numbers
        numbers = files.entries["sequence_number"].to_pylist()
        some = data_files(manifest.decoded, rows, manifest.listed.partition_spec_id) if rows else []
        found |= {file.file_path: (file, number) for file, number in zip(some, numbers, strict=True)}
    return found


def check_partitions(
    files: Sequence[NewFile],
    made: Sequence[DataFile],
    live: Mapping[str, tuple[DataFile, int]],
    table: str,
) -> None:
    """Check that each delete file is in the partition of the data files that it refers to.

    Args:
        files: the new files.
        made: their entries, in the same order.
        live: the data files that they refer to.
        table: dotted name, for errors.

    Raises:
        RequestInvalid: one is not.
    """
    for file, entry in zip(files, made, strict=True):
        for path in file.referenced_data_files:
            if partition_of(live[path][0]) != partition_of(entry):
                raise RequestInvalid(
                    f"The delete file has another partition or partition spec than the data file {path} that "
                    "it refers to, so that it would not apply.",
                    table=table,
                    path=file.path,
                    rule="delete-partition",
                    hint="Give each delete file the spec-id and partition of its data files.",
                )


def check_removed(
    reader: SnapshotReader,
    table: LoadedTable,
    head: Snapshot | None,
    files: FileCommit,
    made: Sequence[DataFile],
    removed: Sequence[ManifestEntry],
) -> None:
    """Check that no removed delete file leaves rows that it deleted, as far as its entry shows them.

    A live data file that it certainly has rows of must be removed, or have a new delete file. The entry of a
    delete file for several data files names two of them, by its bounds. So its partition must have a new
    delete file too, unless the commit is a `replace`, which compares numbers of rows.

    Args:
        reader: reads the manifests.
        table: the table, sealed.
        head: the head of the branch.
        files: the commit.
        made: the entries of its new files.
        removed: the entries of the files that the commit removes by name.

    Raises:
        RequestInvalid: one has no successor.
    """
    gone = [each for each in removed if each.data_file.content != DataFileContent.DATA]
    settled = referenced(files.added) | {each.data_file.file_path for each in removed}
    certain = {each.data_file.file_path: certain_files(each.data_file) - settled for each in gone}
    live = live_data_files(reader, table, head, frozenset[str]().union(*certain.values()))
    partitions = {partition_of(each) for each in made if each.content != DataFileContent.DATA}
    for each in gone:
        delete = each.data_file
        positional = delete.content == DataFileContent.POSITION_DELETES
        named = certain[delete.file_path].intersection(live)
        left = any(applies(each, *live[path]) for path in named)
        several = only_file(delete) is None and files.operation != "replace"
        if not positional or left or (several and partition_of(delete) not in partitions):
            raise RequestInvalid(
                "The commit removes a delete file, but neither adds one that includes its rows nor removes "
                "its data file. The deleted rows would come back.",
                table=table.name,
                path=delete.file_path,
                rule="removed-deletes",
                hint="Leave the delete file out of deleted-paths, or add one that includes its rows.",
            )


def _refused(message: str, file: NewFile, table: str) -> RequestInvalid:
    return RequestInvalid(
        message,
        table=table,
        path=file.path,
        rule="delete-file",
        hint='See docs/rest-api.md, "Position delete files".',
    )
