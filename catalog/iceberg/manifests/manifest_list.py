"""Decodes manifest lists (Iceberg table specification, "Manifest Lists").

Rules:

- Fields that version 2 requires must be present in version 2 and later. In version 1, a list has neither
  sequence numbers (they are 0) nor delete manifests.
- An upgraded table keeps its lists of version 1. A list whose schema has none of the fields for sequence
  numbers and content is read as version 1 (Appendix E, "Reading v1 metadata for v2").
- Counts are not negative.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

import pyarrow as pa

from catalog.iceberg.avro.arrow import ArrowMaker
from catalog.iceberg.avro.columns import Column, Items, Maybe, Parts
from catalog.iceberg.avro.container import read_blocks
from catalog.iceberg.avro.limits import DEFAULT_LIMITS, DecodeLimits
from catalog.iceberg.avro.malformed import Malformed, naming
from catalog.iceberg.avro.records import DecodedRecord, open_container, read_records
from catalog.iceberg.avro.schema import Array, Option
from catalog.iceberg.manifests.shapes import LISTED, SUMMARY, Shape, check_record

_REQUIRED: Final = ("manifest_path", "manifest_length", "partition_spec_id", "added_snapshot_id")
_REQUIRED_SINCE_2: Final = (
    "content",
    "sequence_number",
    "min_sequence_number",
    "added_files_count",
    "existing_files_count",
    "deleted_files_count",
    "added_rows_count",
    "existing_rows_count",
    "deleted_rows_count",
)
#: `sequence_number`, `min_sequence_number` and `content`; a list without them is of version 1.
_FIELDS_SINCE_2: Final = (515, 516, 517)
#: A snapshot id is any 64-bit number; every other number is a count.
_COUNTS: Final = frozenset(
    shape.name
    for shape in LISTED.values()
    if shape.kind in ("int", "long") and shape.name != "added_snapshot_id"
)
_ARROW: Final = {
    "int": pa.int32(),
    "long": pa.int64(),
    "boolean": pa.bool_(),
}


class ManifestContent(IntEnum):
    """The kind of files in a manifest."""

    DATA = 0
    DELETES = 1


_CONTENTS: Final[dict[object, ManifestContent]] = {each.value: each for each in ManifestContent}


@dataclass(frozen=True, slots=True)
class PartitionSummary:
    """The summary of one partition field in a manifest list; bounds are in single-value form."""

    contains_null: bool
    contains_nan: bool | None
    lower_bound: bytes | None
    upper_bound: bytes | None


@dataclass(frozen=True, slots=True)
class ManifestListEntry:
    """One manifest, as its list describes it. In version 1, counts can be unknown."""

    manifest_path: str
    manifest_length: int
    partition_spec_id: int
    content: ManifestContent
    sequence_number: int
    min_sequence_number: int
    added_snapshot_id: int
    added_files_count: int | None
    existing_files_count: int | None
    deleted_files_count: int | None
    added_rows_count: int | None
    existing_rows_count: int | None
    deleted_rows_count: int | None
    partitions: tuple[PartitionSummary, ...] | None
    key_metadata: bytes | None
    first_row_id: int | None


def decode_manifest_list(
    data: bytes, *, path: str, format_version: int, limits: DecodeLimits = DEFAULT_LIMITS
) -> tuple[ManifestListEntry, ...]:
    """Decode a manifest list from untrusted bytes.

    Args:
        data: the whole file.
        path: its location, for the error.
        format_version: the table's format version.
        limits: bounds.

    Raises:
        MetadataInvalid: the bytes are malformed, or break a limit.
    """
    with naming(path, "The manifest list"):
        header, schema = open_container(data, limits)
        check_record(schema, LISTED)
        version = format_version if any(schema.find(i) is not None for i in _FIELDS_SINCE_2) else 1
        entries: list[ManifestListEntry] = []
        for records in read_records(read_blocks(data, header, limits), schema):
            entries.extend(_entries(_columns(records), version))
        return tuple(entries)


def _columns(records: DecodedRecord) -> dict[str, list[object]]:
    """Return the values of the records by field name."""
    columns = {
        shape.name: _values(records.arrow, records.column(field_id), shape, records.count)
        for field_id, shape in LISTED.items()
        if shape.kind != "summaries"
    }
    columns["partitions"] = _partitions(records)
    return columns


def _values(arrow: ArrowMaker, column: Column | None, shape: Shape, count: int) -> list[object]:
    if column is None:
        return [None] * count
    if shape.kind in _ARROW:
        made = arrow.numbers(column, _ARROW[shape.kind])
    else:
        made = arrow.text(column) if shape.kind == "string" else arrow.binary(column)
    values: list[object] = made.to_pylist()
    return values


def _partitions(records: DecodedRecord) -> list[object]:
    column = records.column(507)
    if column is None:
        return [None] * records.count
    valid = column.valid.tolist() if isinstance(column, Maybe) else [True] * records.count
    inner = column.inner if isinstance(column, Maybe) else column
    if not isinstance(inner, Items):
        raise TypeError("not a column of arrays")
    summaries = iter(_summaries(records, inner))
    counts = iter(inner.counts.tolist())
    return [tuple(next(summaries) for _ in range(next(counts))) if there else None for there in valid]


def _summaries(records: DecodedRecord, items: Items) -> list[PartitionSummary]:
    node = next(field.node for field in records.schema.fields if field.field_id == 507)
    array = node.inner if isinstance(node, Option) else node
    if not isinstance(array, Array):
        raise TypeError("not a list of summaries")
    schema = check_record(array.items, SUMMARY)
    if not isinstance(items.inner, Parts):
        raise TypeError("not a column of records")
    count = int(items.counts.sum())
    inner = DecodedRecord(records.arrow, schema, items.inner, count)
    columns = [_values(records.arrow, inner.column(i), shape, count) for i, shape in SUMMARY.items()]
    return [PartitionSummary(*row) for row in zip(*columns, strict=True)]


def _entries(columns: dict[str, list[object]], format_version: int) -> Iterator[ManifestListEntry]:
    """Check columns, and yield their rows."""
    if format_version == 1:
        since_2 = ("content", "sequence_number", "min_sequence_number")
        columns |= {name: [value or 0 for value in columns[name]] for name in since_2}
    required = _REQUIRED if format_version == 1 else _REQUIRED + _REQUIRED_SINCE_2
    for name in required:
        if None in columns[name]:
            raise Malformed("required", f"an entry lacks {name}")
    for name, values in columns.items():
        if name in _COUNTS and any(isinstance(value, int) and value < 0 for value in values):
            raise Malformed("negative", f"an entry has a negative {name}")
    contents = set(columns["content"])
    if not contents <= _CONTENTS.keys() or (format_version == 1 and contents - {0}):
        raise Malformed(
            "content", "the content of an entry is neither data nor deletes, or is deletes in version 1"
        )
    if "" in columns["manifest_path"]:
        raise Malformed("required", "an entry has an empty manifest_path")
    columns["content"] = [_CONTENTS[value] for value in columns["content"]]
    ordered = [columns[name] for name in ManifestListEntry.__slots__]
    return itertools.starmap(ManifestListEntry, zip(*ordered, strict=True))
