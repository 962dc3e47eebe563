"""Restrictions of nested columns in files of older schemas, compared with a naive evaluation."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.schema import Schema
from pyiceberg.types import (
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
)

from catalog.client.columns import FileColumns, arrow_schema
from catalog.client.files import Opened
from catalog.client.nested import as_written
from catalog.client.reading import chosen
from catalog.client.restricted import Restricted, require_applicable, types_of
from catalog.iceberg.selection import all_ids, maps
from policy.restrictions.actions import MaskAction, takes
from policy.restrictions.wire_reading import restriction_of
from tests.support import naive_restrictions as naive

VALUES: Final[dict[str, list[Any]]] = {
    "int": [0, 42, -12345, -(2**31)],
    "long": [0, 42, 2**40, -(2**63)],
    "float": [0.0, -0.0, 1.5, float("nan")],
    "double": [0.0, -0.0, 0.1, float("nan")],
    "string": ["", "Abc9", "078-05-1120", "\U0001f600é\U0001d400xyz"],
}
KINDS: Final = [IntegerType(), LongType(), FloatType(), DoubleType(), StringType()]
#: What an older schema had in the place of a type.
FORMER: Final[dict[IcebergType, IcebergType]] = {LongType(): IntegerType(), DoubleType(): FloatType()}


class Schemas:
    """Makes up schemas and the older ones that they come from.

    Args:
        random: decides.
    """

    def __init__(self, random: Random) -> None:
        self._random = random
        self._next = 0

    def fields(self, depth: int = 0) -> tuple[NestedField, ...]:
        return tuple(self._field(depth) for _ in range(self._random.randint(1, 3)))

    def _id(self) -> int:
        self._next += 1
        return self._next

    def _field(self, depth: int) -> NestedField:
        field_id, required = self._id(), self._random.random() < 0.2
        return NestedField(field_id, f"c{field_id}", self._kind(depth + 1), required=required)

    def _kind(self, depth: int) -> IcebergType:
        nested = self._random.random() if depth < 4 else 0
        if nested < 0.5:
            return self._random.choice(KINDS)
        if nested < 0.8:
            return StructType(*self.fields(depth))
        if nested < 0.9:
            return ListType(self._id(), self._kind(depth + 1), element_required=False)
        return MapType(self._id(), StringType(), self._id(), self._kind(depth + 1), value_required=False)

    def former(self, fields: Sequence[NestedField]) -> tuple[NestedField, ...]:
        """Fields in another order, some under other names or of narrower types, some left out."""
        first, *others = fields
        left = [first, *(each for each in others if each.required or self._random.random() < 0.8)]
        self._random.shuffle(left)
        return tuple(
            NestedField(
                each.field_id,
                self._random.choice([each.name, f"old{each.field_id}"]),
                self._former_kind(each.field_type),
                required=each.required,
            )
            for each in left
        )

    def _former_kind(self, kind: IcebergType) -> IcebergType:
        if isinstance(kind, StructType):
            return StructType(*self.former(kind.fields))
        if isinstance(kind, ListType):
            return ListType(kind.element_id, self._former_kind(kind.element_type), element_required=False)
        if isinstance(kind, MapType):
            value = self._former_kind(kind.value_type)
            return MapType(kind.key_id, kind.key_type, kind.value_id, value, value_required=False)
        return FORMER.get(kind, kind) if self._random.random() < 0.5 else kind

    def value(self, kind: IcebergType, *, required: bool = False) -> Any:
        if not required and self._random.random() < 0.2:
            return None
        if isinstance(kind, StructType):
            return {each.name: self.value(each.field_type, required=each.required) for each in kind.fields}
        if isinstance(kind, ListType):
            return [self.value(kind.element_type) for _ in range(self._random.randint(0, 3))]
        if isinstance(kind, MapType):
            return [(key, self.value(kind.value_type)) for key in "ab"[: self._random.randint(0, 2)]]
        return self._random.choice(VALUES[str(kind)])

    def masks(self, schema: Schema) -> dict[int, str]:
        """Masks of fields that they can be on, none inside of another one."""
        kinds, found = types_of(schema), dict[int, str]()
        left = set(kinds).difference(*(all_ids((each.key_field,)) for each in maps(schema.fields)))
        for field_id in sorted(left):
            actions = [each for each in MaskAction if takes(each, kinds[field_id])]
            if schema.find_field(field_id).required:
                actions.remove(MaskAction.REPLACE_WITH_NULL)
            if field_id in left and actions and self._random.random() < 0.3:
                found[field_id] = self._random.choice(actions)
                left -= set(all_ids((schema.find_field(field_id),)))
        return found

    def condition(self, schema: Schema) -> Any:
        """A row filter on one of the columns that structs alone hold."""
        kinds = {each: kind for each, kind in _flat(schema.fields) if kind in ("int", "long", "string")}
        if not kinds or self._random.random() < 0.3:
            return True
        field_id = self._random.choice(sorted(kinds))
        column = {"type": "reference", "id": field_id}
        value = self._random.choice(VALUES[kinds[field_id]])
        compared = {"left": column, "right": {"type": "literal", "value": value}}
        kind = self._random.choice(["eq", "lt", "gt-eq", "is-null", "not-null"])
        return {"type": kind, **({"child": column} if kind.endswith("null") else compared)}


def _flat(fields: Sequence[NestedField]) -> Iterator[tuple[int, str]]:
    for each in fields:
        if isinstance(each.field_type, StructType):
            yield from _flat(each.field_type.fields)
        elif each.field_type.is_primitive:
            yield each.field_id, str(each.field_type)


def row_groups(fields: Sequence[NestedField], rows: Sequence[Mapping[str, Any]]) -> Opened:
    """The rows in a Parquet file with these fields, a few in each row group."""
    schema = arrow_schema(fields, ids=True)
    columns = [
        as_written(pa.array([row[each.name] for row in rows], each.type), each.type) for each in schema
    ]
    sink = io.BytesIO()
    written = pa.Table.from_arrays(columns, schema=schema)
    pq.write_table(written, sink, row_group_size=3, store_schema=False)
    parquet = pq.ParquetFile(io.BytesIO(sink.getvalue()))
    return Opened(parquet, FileColumns(parquet.schema_arrow), None, lambda rows: None)


def seen(field: NestedField, former: NestedField, value: Any, masks: Mapping[int, str], salt: bytes) -> Any:
    """A value of an older schema as it is shown."""
    kind, had = field.field_type, former.field_type
    if field.field_id in masks:
        plain = str(kind) if kind.is_primitive else {"type": "list"}
        return naive.masked(masks[field.field_id], plain, value, salt)
    if value is None:
        return None
    if isinstance(kind, StructType) and isinstance(had, StructType):
        return seen_row(kind.fields, had.fields, value, masks, salt)
    if isinstance(kind, ListType) and isinstance(had, ListType):
        return [seen(kind.element_field, had.element_field, each, masks, salt) for each in value]
    if isinstance(kind, MapType) and isinstance(had, MapType):
        return [(key, seen(kind.value_field, had.value_field, each, masks, salt)) for key, each in value]
    return value


def seen_row(
    fields: Sequence[NestedField],
    former: Sequence[NestedField],
    row: Mapping[str, Any],
    masks: Mapping[int, str],
    salt: bytes,
) -> dict[str, Any]:
    known = {each.field_id: each for each in former}
    shown = dict.fromkeys((each.name for each in fields), None)
    for each in fields:
        had = known.get(each.field_id)
        if had is not None:
            shown[each.name] = seen(each, had, row[had.name], masks, salt)
    return shown


def plain(fields: Sequence[NestedField], row: Mapping[str, Any]) -> Iterator[tuple[int, Any]]:
    """The values of a row by field id, through structs."""
    for each in fields:
        value = row.get(each.name)
        yield each.field_id, value
        if isinstance(each.field_type, StructType):
            yield from plain(each.field_type.fields, value or {})


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32).map(Random))
def test_nested_columns_of_older_files_show_what_a_naive_evaluation_shows(random: Random) -> None:
    made = Schemas(random)
    schema = Schema(*made.fields())
    former = made.former(schema.fields)
    rows = [made.value(StructType(*former), required=True) for _ in range(random.randint(0, 7))]
    masks, condition = made.masks(schema), made.condition(schema)
    said = {
        "required-row-filter": condition,
        "required-column-projections": [{"field-id": each, "action": name} for each, name in masks.items()],
    }
    restriction = restriction_of(said, types_of(schema))
    require_applicable(schema, restriction)
    every = [schema.find_column_name(each) for each in sorted(schema.field_ids)]
    columns = chosen(schema, random.choice([None, random.sample(every, min(2, len(every)))]), True)
    restricted = Restricted(restriction, columns, schema)

    source, read = row_groups(former, rows), restricted.read
    shown = [restricted.shown(group, read) for _, group in source.row_groups(read)]
    for each in shown:
        each.validate(full=True)
    known = dict(_flat(schema.fields))
    kept = [
        row
        for row in rows
        if naive.kept(condition, known, dict.fromkeys(known, None) | dict(plain(former, row)))
    ]
    wanted = [seen_row(columns, former, row, masks, restricted.salt) for row in kept]
    # As texts, NaN is itself, and the two zeros differ.
    assert [repr(row) for each in shown for row in each.to_pylist()] == [repr(row) for row in wanted]
