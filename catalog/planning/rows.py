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

`partition` tells of those columns alone that the scan reads or filters by. A partition field made from
another column is left out of the object, so that a plan shows nothing of a column that nobody was asked
about; a field that is there and null is a partition of nulls. A field whose column was dropped is there only
in plans of snapshots that still have the column.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final, cast
from uuid import UUID

import pyarrow as pa
from pyiceberg.conversions import to_json
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    NestedField,
    PrimitiveType,
    StringType,
    UUIDType,
)

from catalog.keyring import ScanKeys
from catalog.keys.key_metadata import KeyMetadata
from catalog.keys.transport import label_of
from catalog.manifests import ManifestListEntry
from catalog.manifests.arrow import FIELD_ID
from catalog.manifests.rows import partition_rows
from policy.errors import MetadataInvalid

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

#: How decoded partition values are held, by the type of their field; as whole numbers if it is not here.
_HELD_AS: Final[Mapping[type[IcebergType], type]] = {
    BooleanType: bool,
    FloatType: float,
    DoubleType: float,
    DecimalType: Decimal,
    StringType: str,
    UUIDType: bytes,
    FixedType: bytes,
    BinaryType: bytes,
}


def empty_rows() -> pa.Table:
    """No file."""
    return _PLANNED.empty_table()


class ShownPartitions:
    """What a plan shows of partition values.

    Args:
        specs: the table's partition specs by id.
        schema: the schema that is read with; partition values are of its types.
        field_ids: the fields of it that the scan may read.
    """

    def __init__(self, specs: Mapping[int, PartitionSpec], schema: Schema, field_ids: frozenset[int]) -> None:
        self._specs = specs
        self._schema = schema
        self._field_ids = field_ids

    def texts(self, partitions: pa.StructArray, listed: ManifestListEntry) -> pa.Array:
        """Each row's partition as JSON; a tuple that comes again is written once.

        Args:
            partitions: the partition column of a manifest.
            listed: the manifest.

        Raises:
            MetadataInvalid: the values are not those of the manifest's spec.
        """
        fields = self._fields(listed)
        if not fields or not len(partitions):
            return pa.array(["{}"] * len(partitions), pa.string())
        try:
            kept = _picked(partitions, [each.field_id for each in fields])
            return pa.array(_texts(fields, partition_rows(kept, uuid_as_bytes=True)), pa.string())
        except (KeyError, TypeError, ValueError, ArithmeticError, NotImplementedError) as problem:
            raise MetadataInvalid(
                "The manifest lacks a partition field of its spec, or has a value that is not of its type.",
                path=listed.manifest_path,
                rule="partition-spec",
            ) from problem

    def _fields(self, listed: ManifestListEntry) -> list[NestedField]:
        """The partition fields of the manifest's spec that are made from what may be read."""
        spec = self._specs.get(listed.partition_spec_id)
        if spec is None:
            raise MetadataInvalid(
                f"The table has no partition spec {listed.partition_spec_id}.",
                path=listed.manifest_path,
                rule="partition-spec",
            )
        sources = {each.field_id for each in spec.fields if each.source_id in self._field_ids}
        return [each for each in spec.partition_type(self._schema).fields if each.field_id in sources]


def planned_rows(entries: pa.Table, listed: ManifestListEntry, shown: ShownPartitions) -> pa.Table:
    """Manifest entries as rows of a plan, before keys and deletes.

    Args:
        entries: entries of one manifest, with inherited numbers.
        listed: the manifest.
        shown: what of their partitions is shown.

    Raises:
        MetadataInvalid: the partition values are not those of the manifest's spec.
    """
    count = entries.num_rows
    rows = entries.select(_CARRIED.names).cast(_CARRIED)
    spec_ids = pa.array([listed.partition_spec_id] * count, pa.int32())
    partitions = shown.texts(entries["partition"].combine_chunks(), listed)
    return (
        rows.append_column("spec_id", spec_ids)
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


def _picked(partitions: pa.StructArray, field_ids: Sequence[int]) -> pa.StructArray:
    """Some fields of a partition column, by their ids, in this order."""
    places = {int(kind.metadata[FIELD_ID.encode()]): place for place, kind in enumerate(partitions.type)}
    arrays = [partitions.field(places[field_id]) for field_id in field_ids]
    return pa.StructArray.from_arrays(arrays, [str(field_id) for field_id in field_ids])


def _texts(fields: Sequence[NestedField], rows: Iterable[tuple[Any, ...]]) -> list[str]:
    known: dict[tuple[Any, ...], str] = {}
    texts = []
    for row in rows:
        if row not in known:
            values = {
                each.name: _json(each.field_type, value) for each, value in zip(fields, row, strict=True)
            }
            known[row] = json.dumps(values, ensure_ascii=False)
        texts.append(known[row])
    return texts


def _json(kind: IcebergType, value: object) -> Any:
    """A partition value in Iceberg's single-value form ("Appendix D, JSON single-value serialization")."""
    if value is None:
        return None
    if type(value) is not _HELD_AS.get(type(kind), int):
        raise TypeError("a partition value is not of its field's type")
    held = UUID(bytes=cast(bytes, value)) if isinstance(kind, UUIDType) else value
    return to_json(cast(PrimitiveType, kind), held)
