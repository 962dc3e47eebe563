"""Makes the metadata table `partitions`: one row for each partition that has live files.

Partitions that differ only in fields that the user does not see are one row.

Source: Apache Iceberg, `PartitionsTable`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyiceberg.table.metadata import TableMetadata

from catalog.metadata_tables.files import Part, Partitions
from catalog.planning.rows import EQUALITY_DELETES, POSITION_DELETES

_MICROS: Final = 1000
_TAKEN: Final = ("content", "record_count", "file_size_in_bytes", "snapshot_id")

Row = Mapping[str, Any]


@dataclass(slots=True)
class _Partition:
    """What is counted of one partition."""

    spec_id: int = 0
    records: int = 0
    files: int = 0
    size: int = 0
    position_records: int = 0
    position_files: int = 0
    equality_records: int = 0
    equality_files: int = 0
    updated_ms: int | None = None
    updated_by: int | None = None


class PartitionRows:
    """Counts the files of partitions.

    Args:
        metadata: of the table.
        partitions: converts partition tuples.
    """

    def __init__(self, metadata: TableMetadata, partitions: Partitions) -> None:
        self._partitions = partitions
        self._times = {each.snapshot_id: each.timestamp_ms for each in metadata.snapshots}
        self._found: dict[tuple[object, ...], _Partition] = {}
        self._values: list[list[pa.Array]] = []
        self._count = 0

    def add(self, part: Part) -> None:
        """Count live files of one manifest."""
        values = self._partitions.columns(part)
        keys = (
            zip(*(_keys(each) for each in values), strict=True) if values else iter([()] * len(part.entries))
        )
        files = zip(*(part.entries[name].to_pylist() for name in _TAKEN), strict=True)
        first = []
        for row, (key, (content, records, size, snapshot_id)) in enumerate(zip(keys, files, strict=True)):
            known = self._found.get(key)
            if known is None:
                known = self._found[key] = _Partition()
                first.append(row)
            known.spec_id = max(known.spec_id, part.listed.partition_spec_id)
            self._touch(known, snapshot_id)
            _count(known, content, records, size)
        self._values.append([each.take(pa.array(first, pa.int64())) for each in values])

    def _touch(self, partition: _Partition, snapshot_id: int) -> None:
        """Note the latest snapshot; one that is expired is not known."""
        at = self._times.get(snapshot_id)
        if at is not None and (partition.updated_ms is None or at > partition.updated_ms):
            partition.updated_ms, partition.updated_by = at, snapshot_id

    def values(self) -> list[pa.ChunkedArray]:
        """Return the partition fields of all partitions, in the order of `rows`."""
        return [pa.chunked_array(list(each)) for each in zip(*self._values, strict=True)]

    def rows(self) -> Iterator[Row]:
        """Return what is counted of each partition."""
        for each in self._found.values():
            yield {
                "spec_id": each.spec_id,
                "record_count": each.records,
                "file_count": each.files,
                "total_data_file_size_in_bytes": each.size,
                "position_delete_record_count": each.position_records,
                "position_delete_file_count": each.position_files,
                "equality_delete_record_count": each.equality_records,
                "equality_delete_file_count": each.equality_files,
                "last_updated_at": None if each.updated_ms is None else each.updated_ms * _MICROS,
                "last_updated_snapshot_id": each.updated_by,
            }


def _count(partition: _Partition, content: int, records: int, size: int) -> None:
    if content == POSITION_DELETES:
        partition.position_records += records
        partition.position_files += 1
    elif content == EQUALITY_DELETES:
        partition.equality_records += records
        partition.equality_files += 1
    else:
        partition.records += records
        partition.files += 1
        partition.size += size


def _keys(values: pa.Array) -> list[object]:
    """Return values by which partitions are told apart: NaN equals NaN, and 0.0 is not -0.0."""
    if pa.types.is_floating(values.type):
        return [each if each is None else each.hex() for each in values.to_pylist()]
    if pa.types.is_date(values.type) or pa.types.is_timestamp(values.type) or pa.types.is_time(values.type):
        return values.cast(pa.int32() if values.type.bit_width == 32 else pa.int64()).to_pylist()  # type: ignore[no-any-return]
    return values.to_pylist()  # type: ignore[no-any-return]
