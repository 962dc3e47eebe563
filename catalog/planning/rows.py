"""The files of a plan as Arrow.

One row a file: data files first, then the delete files that apply to them.

| column | type | meaning |
|---|---|---|
| `content` | int8 | 0 data, 1 position deletes |
| `file_path`, `file_format` | string | where and what it is |
| `spec_id` | int32 | its partition spec |
| `partition` | string | its partition values by field name, a JSON object in Iceberg's single-value form |
| `record_count`, `file_size_in_bytes` | int64 | rows, bytes |
| `sequence_number`, `file_sequence_number` | int64 | the age of its rows, and of the file |
| `split_offsets` | list of int64 | where it may be split |
| `sort_order_id` | int32 | how it is sorted |
| `deletes` | list of int32 | the rows of this table that delete from it |
| `keys` | list of struct | its data keys under the scan's key: `key_name`, `field_ids`, `wrapped` |

Nothing of a column's bounds, counts or sizes is in it, nor key metadata.
"""

from __future__ import annotations

import json
from typing import Any, Final, cast

import pyarrow as pa
from pyiceberg.conversions import to_json
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import PrimitiveType

from catalog.keyring import ScanKeys
from catalog.keys.key_metadata import KeyMetadata
from catalog.keys.transport import label_of
from catalog.manifests.rows import partition_rows

_CARRIED: Final = pa.schema(
    [
        ("content", pa.int8()),
        ("file_path", pa.string()),
        ("file_format", pa.string()),
        ("record_count", pa.int64()),
        ("file_size_in_bytes", pa.int64()),
        ("sequence_number", pa.int64()),
        ("file_sequence_number", pa.int64()),
        ("split_offsets", pa.list_(pa.int64())),
        ("sort_order_id", pa.int32()),
        ("key_metadata", pa.binary()),
    ]
)
_PLANNED: Final = (
    _CARRIED.append(pa.field("spec_id", pa.int32()))
    .append(pa.field("partition", pa.string()))
    .append(pa.field("deletes", pa.list_(pa.int32())))
)
_KEY: Final = pa.struct(
    [("key_name", pa.string()), ("field_ids", pa.list_(pa.int32())), ("wrapped", pa.binary())]
)


def empty_rows() -> pa.Table:
    """No file."""
    return _PLANNED.empty_table()


def planned_rows(entries: pa.Table, spec_id: int, metadata: TableMetadata) -> pa.Table:
    """Manifest entries as rows of a plan, before keys and deletes.

    Args:
        entries: entries of one manifest, with inherited numbers.
        spec_id: the manifest's partition spec.
        metadata: the table's metadata.
    """
    count = entries.num_rows
    rows = entries.select(_CARRIED.names).cast(_CARRIED)
    partitions = _partition_texts(entries["partition"].combine_chunks(), spec_id, metadata)
    return (
        rows.append_column("spec_id", pa.array([spec_id] * count, pa.int32()))
        .append_column("partition", partitions)
        .append_column("deletes", pa.nulls(count, pa.list_(pa.int32())))
    )


def with_keys(planned: pa.Table, keys: ScanKeys | None) -> pa.Table:
    """The rows of a plan with data keys in place of key metadata."""
    metadata = planned["key_metadata"].to_pylist() if keys else [None] * planned.num_rows
    wrapped = keys.wrapped if keys else [()] * planned.num_rows
    column = pa.array([_keys(*each) for each in zip(metadata, wrapped, strict=True)], pa.list_(_KEY))
    return planned.drop_columns("key_metadata").append_column("keys", column)


def _keys(metadata: bytes | None, wrapped: tuple[bytes, ...]) -> list[dict[str, Any]] | None:
    if metadata is None:
        return None
    labels = [label_of(entry) for entry in KeyMetadata.parse(metadata).entries]
    return [
        {"key_name": label.key_name, "field_ids": list(label.field_ids), "wrapped": dek}
        for label, dek in zip(labels, wrapped, strict=True)
    ]


def _partition_texts(partitions: pa.StructArray, spec_id: int, metadata: TableMetadata) -> pa.Array:
    """Each row's partition as JSON; a tuple that comes again is written once."""
    fields = metadata.specs()[spec_id].partition_type(metadata.schema()).fields
    if not fields:
        return pa.array(["{}"] * len(partitions), pa.string())
    known: dict[tuple[Any, ...], str] = {}
    texts = []
    for row in partition_rows(partitions):
        if row not in known:
            values = {
                each.name: None if value is None else to_json(cast(PrimitiveType, each.field_type), value)
                for each, value in zip(fields, row, strict=True)
            }
            known[row] = json.dumps(values, ensure_ascii=False)
        texts.append(known[row])
    return pa.array(texts, pa.string())
