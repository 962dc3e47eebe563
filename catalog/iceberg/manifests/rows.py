"""Converts manifest entries to pyiceberg's objects, for delete files and for rewriting.

They are made from this package's decoded manifests, never by pyiceberg's reader: its compiled decoder does
not compare lengths with the size of the file, and so reads memory of the process outside of the file.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from typing import Any, Final

import pyarrow as pa
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestEntry, ManifestEntryStatus
from pyiceberg.typedef import Record

from catalog.iceberg.manifests.manifest import DecodedManifest

#: `first_row_id`, `content_offset` and `content_size_in_bytes` are left out: version 2 does not have them.
_PLAIN: Final = (
    "file_path",
    "record_count",
    "file_size_in_bytes",
    "key_metadata",
    "split_offsets",
    "equality_ids",
    "sort_order_id",
    "referenced_data_file",
)
_FILE_VERSION: Final = 3
_NUMBERS: Final = ["status", "snapshot_id", "sequence_number", "file_sequence_number"]
_UUID_BYTES: Final = 16


def data_files(decoded: DecodedManifest, rows: Sequence[int], spec_id: int) -> list[DataFile]:
    """Return the files of some rows of a decoded manifest.

    Args:
        decoded: the manifest.
        rows: row numbers.
        spec_id: id of the partition spec of the manifest.
    """
    index = pa.array(rows, pa.int64())
    entries = decoded.entries.take(index)
    maps = decoded.statistics.take(index).to_pylist(maps_as_pydicts="strict")
    partitions = partition_rows(entries["partition"].combine_chunks())
    plain = entries.select([*_PLAIN, "content", "file_format"]).to_pylist()
    made = []
    for row, statistics, partition in zip(plain, maps, partitions, strict=True):
        row["content"] = DataFileContent(row["content"])
        row["file_format"] = FileFormat(row["file_format"])
        file = DataFile.from_args(_FILE_VERSION, **row, **statistics, partition=Record(*partition))
        file.spec_id = spec_id
        made.append(file)
    return made


def manifest_entries(
    decoded: DecodedManifest, numbered: pa.Table, rows: Sequence[int], spec_id: int
) -> list[ManifestEntry]:
    """Return some entries of a manifest.

    Args:
        decoded: the manifest.
        numbered: all of its entries, with values inherited from the manifest list.
        rows: row numbers.
        spec_id: id of the partition spec of the manifest.
    """
    taken = numbered.select(_NUMBERS).take(pa.array(rows, pa.int64())).to_pylist()
    files = data_files(decoded, rows, spec_id)
    return [
        ManifestEntry.from_args(**row | {"status": ManifestEntryStatus(row["status"])}, data_file=file)
        for row, file in zip(taken, files, strict=True)
    ]


def partition_rows(partitions: pa.StructArray, *, uuid_as_bytes: bool = False) -> Iterable[tuple[Any, ...]]:
    """Convert partition tuples to pyiceberg's form: dates and times as numbers since the epoch.

    Args:
        partitions: a partition column of a decoded manifest.
        uuid_as_bytes: 16 bytes instead of a UUID, as pyiceberg's literals are.
    """
    columns = [_values(partitions.field(i), uuid_as_bytes) for i in range(partitions.type.num_fields)]
    return zip(*columns, strict=True) if columns else [()] * len(partitions)


def _values(column: pa.Array, uuid_as_bytes: bool) -> list[Any]:
    kind = column.type
    if pa.types.is_date32(kind):
        return column.cast(pa.int32()).to_pylist()  # type: ignore[no-any-return]
    if pa.types.is_timestamp(kind) or pa.types.is_time64(kind):
        return column.cast(pa.int64()).to_pylist()  # type: ignore[no-any-return]
    values: list[Any] = column.to_pylist()
    if pa.types.is_fixed_size_binary(kind) and kind.byte_width == _UUID_BYTES and not uuid_as_bytes:
        return [value if value is None else uuid.UUID(bytes=value) for value in values]
    return values
