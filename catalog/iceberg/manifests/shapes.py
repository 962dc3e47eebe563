"""Field ids and types of manifest lists and manifests (Iceberg table specification, "Manifests").

Rules:

- Fields are identified by id, never by name or position.
- A known field has one of the types given here, and required fields are present.
- An unknown field is decoded, so that its bytes are checked, and dropped.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from catalog.iceberg.avro.malformed import Malformed
from catalog.iceberg.avro.schema import Array, Node, Option, Record, Scalar

_KINDS: Final = MappingProxyType(
    {
        "int": ("int", "long"),
        "long": ("int", "long"),
        "string": ("string",),
        "bytes": ("bytes",),
        "boolean": ("boolean",),
    }
)


@dataclass(frozen=True, slots=True)
class Shape:
    """The expected type of a known field.

    Attributes:
        name: name of the field in the specification.
        kind: ``int``, ``long``, ``string``, ``bytes``, ``boolean``, ``ints`` (a list of numbers), ``map`` (of
            numbers to `value`), ``record``, ``summaries`` (a list of partition summaries).
        required: whether the file must have the field.
        ids: field ids of key and value of a map.
        value: ``long`` or ``bytes``, of a map.
    """

    name: str
    kind: str
    required: bool = False
    ids: tuple[int, int] = (0, 0)
    value: str = ""


ENTRY: Final[Mapping[int, Shape]] = MappingProxyType(
    {
        0: Shape("status", "int", True),
        1: Shape("snapshot_id", "long"),
        3: Shape("sequence_number", "long"),
        4: Shape("file_sequence_number", "long"),
        2: Shape("data_file", "record", True),
    }
)
DATA_FILE: Final[Mapping[int, Shape]] = MappingProxyType(
    {
        134: Shape("content", "int"),
        100: Shape("file_path", "string", True),
        101: Shape("file_format", "string", True),
        102: Shape("partition", "record", True),
        103: Shape("record_count", "long", True),
        104: Shape("file_size_in_bytes", "long", True),
        108: Shape("column_sizes", "map", ids=(117, 118), value="long"),
        109: Shape("value_counts", "map", ids=(119, 120), value="long"),
        110: Shape("null_value_counts", "map", ids=(121, 122), value="long"),
        137: Shape("nan_value_counts", "map", ids=(138, 139), value="long"),
        125: Shape("lower_bounds", "map", ids=(126, 127), value="bytes"),
        128: Shape("upper_bounds", "map", ids=(129, 130), value="bytes"),
        131: Shape("key_metadata", "bytes"),
        132: Shape("split_offsets", "ints"),
        135: Shape("equality_ids", "ints"),
        140: Shape("sort_order_id", "int"),
        142: Shape("first_row_id", "long"),
        143: Shape("referenced_data_file", "string"),
        144: Shape("content_offset", "long"),
        145: Shape("content_size_in_bytes", "long"),
    }
)
LISTED: Final[Mapping[int, Shape]] = MappingProxyType(
    {
        500: Shape("manifest_path", "string", True),
        501: Shape("manifest_length", "long", True),
        502: Shape("partition_spec_id", "int", True),
        517: Shape("content", "int"),
        515: Shape("sequence_number", "long"),
        516: Shape("min_sequence_number", "long"),
        503: Shape("added_snapshot_id", "long"),
        504: Shape("added_files_count", "int"),
        505: Shape("existing_files_count", "int"),
        506: Shape("deleted_files_count", "int"),
        512: Shape("added_rows_count", "long"),
        513: Shape("existing_rows_count", "long"),
        514: Shape("deleted_rows_count", "long"),
        507: Shape("partitions", "summaries"),
        519: Shape("key_metadata", "bytes"),
        520: Shape("first_row_id", "long"),
    }
)
SUMMARY: Final[Mapping[int, Shape]] = MappingProxyType(
    {
        509: Shape("contains_null", "boolean", True),
        518: Shape("contains_nan", "boolean"),
        510: Shape("lower_bound", "bytes"),
        511: Shape("upper_bound", "bytes"),
    }
)


def check_record(node: Node, shapes: Mapping[int, Shape]) -> Record:
    """Check a record of the writer's schema against the known fields.

    Raises:
        Malformed: a field has another type, or is missing.
    """
    if not isinstance(node, Record):
        raise Malformed("schema", "its Avro schema must have a record here")
    for field in node.fields:
        shape = shapes.get(field.field_id)
        if shape is not None and not _fits(field.node, shape):
            raise Malformed(
                "schema",
                f"the field {shape.name} ({field.field_id}) has an unexpected type in its Avro schema",
            )
    present = {field.field_id for field in node.fields}
    for field_id, shape in shapes.items():
        if shape.required and field_id not in present:
            raise Malformed("schema", f"its Avro schema lacks the field {shape.name} ({field_id})")
    return node


def _fits(node: Node, shape: Shape) -> bool:
    inner = node.inner if isinstance(node, Option) else node
    match inner:
        case Scalar(kind=kind):
            return kind in _KINDS.get(shape.kind, ())
        case Record():
            return shape.kind == "record" and inner is node
        case Array(Record() as items) if shape.kind == "summaries":
            return check_record(items, SUMMARY) is items
        case Array(items):
            return _list_fits(items, shape)
        case _:
            return False


def _list_fits(items: Node, shape: Shape) -> bool:
    if shape.kind == "ints":
        return isinstance(items, Scalar) and items.kind in _KINDS["long"]
    if shape.kind != "map" or not isinstance(items, Record) or len(items.fields) != 2:
        return False
    kinds = (_KINDS["int"], _KINDS[shape.value])
    return all(
        field.field_id == field_id and isinstance(field.node, Scalar) and field.node.kind in allowed
        for field, field_id, allowed in zip(items.fields, shape.ids, kinds, strict=True)
    )
