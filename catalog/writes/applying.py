"""Decides whether delete files apply to a data file, by what manifests say of them.

An equality delete file can have rows of each data file of its partition, so it always applies there.

Source: Iceberg table specification, "Scan Planning".
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from pyiceberg.manifest import DATA_FILE_TYPE, DataFile, DataFileContent, ManifestEntry

from catalog.iceberg.manifests import manifest_entries
from catalog.iceberg.partition_keys import partition_of
from catalog.reading.loading import LoadedTable
from catalog.writes.scopes import Files, is_unpartitioned

#: The field id of `file_path` in position delete files (Iceberg specification, "Reserved Field IDs").
_PATH: Final = 2147483546
#: The place of `referenced_data_file` in entries as `data_files` makes them; pyiceberg has no name for it.
_REFERENCED: Final = [each.name for each in DATA_FILE_TYPE[3].fields].index("referenced_data_file")


@dataclass(frozen=True, slots=True)
class AppliedDelete:
    """A delete file that applies to a data file.

    Attributes:
        path: its location.
        snapshot_id: the snapshot that added it; None if it is not known.
    """

    path: str
    snapshot_id: int | None


def only_file(delete: DataFile) -> str | None:
    """Return the data file that a position delete file is for; None if it can be for several."""
    only: str | None = delete[_REFERENCED]
    lower, upper = path_bounds(delete)
    if only is None and lower is not None and lower == upper:
        return lower.decode("utf-8", "replace")
    return only


def certain_files(delete: DataFile) -> frozenset[str]:
    """Return data files that a position delete file has rows of: its only one, or its bounds."""
    only = only_file(delete)
    paths = [each for each in path_bounds(delete) if each is not None]
    return frozenset({each.decode("utf-8", "replace") for each in paths} if only is None else {only})


def path_bounds(delete: DataFile) -> tuple[bytes | None, bytes | None]:
    """Return the least and the greatest path of data files in a position delete file; None if not known."""
    lower, upper = ((bounds or {}).get(_PATH) for bounds in (delete.lower_bounds, delete.upper_bounds))
    return lower, upper


def applies(delete: ManifestEntry, file: DataFile, sequence_number: int) -> bool:
    """Return whether a position delete file applies to a data file.

    Args:
        delete: the delete file.
        file: the data file.
        sequence_number: its data sequence number.
    """
    number = delete.sequence_number or 0
    if partition_of(delete.data_file) != partition_of(file):
        return False
    return _applies(delete.data_file, number, file, sequence_number)


class DeleteFiles:
    """Some delete files of a table.

    Args:
        table: the table.
        files: the delete files.
    """

    def __init__(self, table: LoadedTable, files: Iterable[Files]) -> None:
        specs = table.metadata.specs()
        self._everywhere: list[ManifestEntry] = []
        self._local: dict[tuple[int, str], list[ManifestEntry]] = defaultdict(list)
        for each in files:
            spec_id = each.manifest.listed.partition_spec_id
            unpartitioned = is_unpartitioned(specs[spec_id])
            for entry in manifest_entries(
                each.manifest.decoded, each.manifest.entries, each.numbers, spec_id
            ):
                if unpartitioned and not _is_positional(entry.data_file):
                    self._everywhere.append(entry)
                else:
                    self._local[partition_of(entry.data_file)].append(entry)

    def applying(self, file: DataFile, sequence_number: int) -> AppliedDelete | None:
        """Return the first delete file that applies to a data file; None if none does.

        Args:
            file: the data file.
            sequence_number: its data sequence number.
        """
        found = next(self._applying(file, sequence_number), None)
        return None if found is None else AppliedDelete(found.data_file.file_path, found.snapshot_id)

    def deletable(self, file: DataFile, sequence_number: int) -> int:
        """Return how many rows of a data file the delete files can delete: a position delete one a row.

        Args:
            file: the data file.
            sequence_number: its data sequence number.
        """
        rows: int = file.record_count
        found = [each.data_file for each in self._applying(file, sequence_number)]
        if not all(map(_is_positional, found)):
            return rows
        return min(rows, sum(each.record_count for each in found))

    def _applying(self, file: DataFile, sequence_number: int) -> Iterator[ManifestEntry]:
        for entry in (*self._local.get(partition_of(file), ()), *self._everywhere):
            if _applies(entry.data_file, entry.sequence_number or 0, file, sequence_number):
                yield entry


def _is_positional(delete: DataFile) -> bool:
    return bool(delete.content is DataFileContent.POSITION_DELETES)


def _applies(delete: DataFile, number: int, file: DataFile, sequence_number: int) -> bool:
    if not _is_positional(delete):
        return number > sequence_number
    if number < sequence_number:
        return False
    only: str | None = delete[_REFERENCED]
    if only is not None:
        return only == file.file_path
    path = file.file_path.encode()
    lower, upper = path_bounds(delete)
    return (lower is None or lower <= path) and (upper is None or path <= upper)
