"""Resolves the columns of a file by field id: a file keeps the column names of the time it was written.

- A file with a field without an id, or with an id or a name twice, is refused: its columns could be mistaken
  for one another.
- A field that the file does not have reads as null where it may be null, and refuses the file where it may
  not; so does one that may hold null where the table has none.
- Types are widened as Iceberg promotes them, and in no other way.

Source: Iceberg table specification, "Column Projection", "Schema Evolution" and "Appendix A", Parquet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from catalog.client.errors import DataFileDamaged, damaged
from catalog.client.nested import relisted, remapped
from catalog.iceberg.selection import inner_fields
from policy.errors import NotSupportedYet

_ID_NAME: Final = b"PARQUET:field_id"
_PLAIN: Final[dict[type[IcebergType], pa.DataType]] = {
    BooleanType: pa.bool_(),
    IntegerType: pa.int32(),
    LongType: pa.int64(),
    FloatType: pa.float32(),
    DoubleType: pa.float64(),
    DateType: pa.date32(),
    TimeType: pa.time64("us"),
    TimestampType: pa.timestamp("us"),
    TimestamptzType: pa.timestamp("us", "UTC"),
    StringType: pa.string(),
    UUIDType: pa.binary(16),
    BinaryType: pa.binary(),
}


def arrow_type(kind: IcebergType, *, ids: bool = False) -> pa.DataType:
    """The Arrow type of a column.

    Args:
        kind: Iceberg's type.
        ids: whether nested fields carry their field ids, as Parquet's writer takes them.

    Raises:
        NotSupportedYet: a type without a like.
    """
    if isinstance(kind, StructType):
        return pa.struct([arrow_field(each, ids=ids) for each in kind.fields])
    if isinstance(kind, ListType):
        return pa.list_(arrow_field(kind.element_field, ids=ids))
    if isinstance(kind, MapType):
        return pa.map_(arrow_field(kind.key_field, ids=ids), arrow_field(kind.value_field, ids=ids))
    if isinstance(kind, DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    if isinstance(kind, FixedType):
        return pa.binary(len(kind))
    found = _PLAIN.get(type(kind))
    if found is None:
        raise NotSupportedYet(f"Arrow has no type for the Iceberg type {kind}.", rule="column-type")
    return found


def arrow_field(field: NestedField, *, ids: bool = False) -> pa.Field:
    """The Arrow field of a column; see `arrow_type`."""
    plain = pa.field(field.name, arrow_type(field.field_type, ids=ids), not field.required)
    return with_id(plain, field.field_id) if ids else plain


def with_id(field: pa.Field, number: int) -> pa.Field:
    """A field that carries a field id."""
    return field.with_metadata({_ID_NAME: str(number).encode()})


def arrow_schema(fields: Sequence[NestedField], *, ids: bool = False) -> pa.Schema:
    """The Arrow schema of columns; see `arrow_type`."""
    return pa.schema([arrow_field(each, ids=ids) for each in fields])


@dataclass(frozen=True, slots=True)
class FileColumns:
    """The columns of one file.

    Attributes:
        schema: as PyArrow reads it, field ids in the metadata.
        without_like: ids of columns whose absence does not mean null.
        masked: ids of top-level columns that are not looked at: they are null.
    """

    schema: pa.Schema
    without_like: frozenset[int] = frozenset()
    masked: frozenset[int] = frozenset()

    def leaves(self, wanted: Sequence[NestedField], readable: Callable[[int], bool]) -> list[int]:
        """The places of the primitive columns that have to be read, counted from the first.

        Of a struct none of whose wanted fields is in the file, one column is read all the same: it says where
        the struct is null.

        Args:
            wanted: the table's columns.
            readable: whether the column at a place may be read.

        Raises:
            DataFileDamaged: the file's fields are not told apart by their ids.
        """
        top = {each.field_id: each.field_type for each in wanted if each.field_id not in self.masked}
        return list(_Leaves(readable).below(tuple(self.schema), top))

    def project(self, table: pa.Table, wanted: Sequence[NestedField]) -> pa.Table:
        """The wanted columns, as the table names and types them.

        Args:
            table: what was read of the file.
            wanted: the table's columns.

        Raises:
            DataFileDamaged: a required column is not there, or a column of another type.
            NotSupportedYet: a column is not there whose values stand in the table's metadata.
        """
        fields = [self._field(table, each) for each in wanted]
        return pa.table(fields, schema=arrow_schema(wanted)) if wanted else table.select([])

    def _field(self, table: pa.Table, wanted: NestedField) -> pa.ChunkedArray:
        kind = arrow_type(wanted.field_type)
        if wanted.field_id in self.masked:
            return pa.chunked_array([pa.nulls(table.num_rows, kind)])
        for found in self.schema:
            if field_id(found) == wanted.field_id:
                column = table.column(found.name)
                if column.type == kind and _is_same(found, wanted):
                    return column
                chunks = [self._converted(each, found, wanted) for each in column.chunks]
                return pa.chunked_array(chunks, kind)
        return pa.chunked_array([self._absent(wanted, table.num_rows)], kind)

    def _absent(self, wanted: NestedField, rows: int) -> pa.Array:
        if wanted.field_id in self.without_like:
            raise NotSupportedYet(
                f"The file has no column {wanted.name}; values from the table's metadata are not supported.",
                rule="absent-column",
            )
        if wanted.required:
            raise damaged(f"The required column {wanted.name} is missing.", "required-column")
        return pa.nulls(rows, arrow_type(wanted.field_type))

    def _converted(self, array: pa.Array, found: pa.Field, wanted: NestedField) -> pa.Array:
        """The array of one field of the file as the table has it."""
        if wanted.required and found.nullable:
            raise damaged(
                f"The column {found.name} can contain null in the file, but the table requires a value.",
                "required-column",
            )
        kind = wanted.field_type
        if pa.types.is_null(found.type):
            return pa.nulls(len(array), arrow_type(kind))
        if isinstance(kind, StructType) and pa.types.is_struct(found.type):
            return self._struct(array, found.type, kind)
        if isinstance(kind, ListType) and _is_list(found.type):
            return self._list(array, found.type, kind)
        if isinstance(kind, MapType) and pa.types.is_map(found.type):
            return self._map(array, found.type, kind)
        if not kind.is_primitive or pa.types.is_nested(found.type):
            raise _mistyped(found.name)
        return _widened(array, arrow_type(kind), found.name)

    def _struct(self, array: pa.StructArray, found: pa.StructType, kind: StructType) -> pa.Array:
        known = {field_id(each): each for each in found}
        children = []
        for wanted in kind.fields:
            inner = known.get(wanted.field_id)
            if inner is None:
                children.append(self._absent(wanted, len(array)))
            else:
                children.append(self._converted(array.field(inner.name), inner, wanted))
        return pa.StructArray.from_arrays(children, fields=list(arrow_type(kind)), mask=array.is_null())

    def _list(self, array: pa.ListArray, found: pa.ListType, kind: ListType) -> pa.Array:
        _same_ids((found.value_field,), inner_fields(kind))
        return relisted(
            array,
            arrow_type(kind),
            lambda held: self._converted(held, found.value_field, kind.element_field),
        )

    def _map(self, array: pa.MapArray, found: pa.MapType, kind: MapType) -> pa.Array:
        _same_ids((found.key_field, found.item_field), inner_fields(kind))
        return remapped(
            array,
            arrow_type(kind),
            lambda held: self._converted(held, found.key_field, kind.key_field),
            lambda held: self._converted(held, found.item_field, kind.value_field),
        )


class _Leaves:
    """Counts the primitive columns of a file while it picks those that are wanted."""

    def __init__(self, readable: Callable[[int], bool]) -> None:
        self._readable = readable
        self._next = 0

    def below(
        self, fields: Sequence[pa.Field], wanted: dict[int, IcebergType], *, needed: bool = False
    ) -> Iterator[int]:
        """The places below some fields; with `needed` at least one."""
        ids = [field_id(each) for each in fields]
        if min(len(set(ids)), len({each.name for each in fields})) < len(ids):
            raise damaged("The file's schema repeats a field id or a name.", "field-id")
        first = self._next
        picked = [
            place
            for each, number in zip(fields, ids, strict=True)
            for place in self._of(each, wanted.get(number))
        ]
        if needed and not picked:
            picked = [self._any(first)]
        yield from picked

    def _any(self, first: int) -> int:
        """A column that says where its struct is null."""
        for place in range(first, self._next):
            if self._readable(place):
                return place
        raise NotSupportedYet(
            "All columns of a struct in the file have column keys, and the scan reads none of them. Without "
            "one, a null struct cannot be told from an empty one.",
            rule="absent-column",
            hint="Select a column of the struct that you can read, or rewrite the file.",
        )

    def _of(self, field: pa.Field, wanted: IcebergType | None) -> list[int]:
        inner = inner_arrow_fields(field.type)
        if inner is None:
            self._next += 1
            return [] if wanted is None else [self._readable_one(self._next - 1)]
        return list(self.below(inner, _inner(wanted), needed=wanted is not None))

    def _readable_one(self, place: int) -> int:
        """A column that is wanted. Without its key, the user sees NULL in its place, in a list or map."""
        if self._readable(place):
            return place
        raise NotSupportedYet(
            "The values in a list or map are NULL for you, and their column key is not released. Without it, "
            "the number of the values is not known.",
            rule="absent-column",
            hint="Leave the column out, or ask for a mask of the list or map as a whole.",
        )


def field_id(field: pa.Field) -> int:
    """The id of a file's field.

    Raises:
        DataFileDamaged: it has none.
    """
    text = (field.metadata or {}).get(_ID_NAME, b"")
    if text.isdigit():
        return int(text)
    raise damaged(f"The field {field.name} of the file has no field id.", "field-id")


def _same_ids(found: Sequence[pa.Field], wanted: Sequence[NestedField]) -> None:
    """What lies in a list or map is not looked up by its id; it is checked against it."""
    if [field_id(each) for each in found] != [each.field_id for each in wanted]:
        raise damaged("A list or map has different fields than in the table's schema.", "field-id")


def _is_same(found: pa.Field, wanted: NestedField) -> bool:
    """Whether a field of the file is exactly as the table has it: types, names, and every id."""
    if field_id(found) != wanted.field_id or (wanted.required and found.nullable):
        return False
    if found.type != arrow_type(wanted.field_type):
        return False
    inner = zip(inner_arrow_fields(found.type) or (), inner_fields(wanted.field_type), strict=True)
    return all(_is_same(each, like) for each, like in inner)


def inner_arrow_fields(kind: pa.DataType) -> list[pa.Field] | None:
    """What is nested in a type; None for a primitive one."""
    if pa.types.is_struct(kind):
        return list(kind)
    if pa.types.is_map(kind):
        return [kind.key_field, kind.item_field]
    if _is_list(kind):
        return [kind.value_field]
    return None


def _inner(wanted: IcebergType | None) -> dict[int, IcebergType]:
    """What is wanted inside a type, by id."""
    return {} if wanted is None else {each.field_id: each.field_type for each in inner_fields(wanted)}


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _widened(array: pa.Array, wanted: pa.DataType, name: str) -> pa.Array:
    """A primitive array in a type that Iceberg promotes its own to."""
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if array.type == wanted:
        return array
    if not _promotes(array.type, wanted):
        raise _mistyped(name)
    try:
        return array.cast(wanted)
    except pa.ArrowInvalid as error:
        raise _mistyped(name) from error


def _promotes(found: pa.DataType, wanted: pa.DataType) -> bool:
    kinds = pa.types
    if kinds.is_dictionary(found):
        return bool(found.value_type == wanted) or _promotes(found.value_type, wanted)
    if kinds.is_signed_integer(found) and kinds.is_signed_integer(wanted):
        return bool(found.bit_width < wanted.bit_width)
    if kinds.is_floating(found) and kinds.is_floating(wanted):
        return bool(found.bit_width < wanted.bit_width)
    if kinds.is_decimal(found) and kinds.is_decimal(wanted):
        return bool(found.scale == wanted.scale and found.precision <= wanted.precision)
    if kinds.is_timestamp(found) and kinds.is_timestamp(wanted):
        # A zone says how instants are shown, not which they are.
        return (found.tz is None) is (wanted.tz is None)
    if kinds.is_time(found) and kinds.is_time(wanted):
        return True
    texts = (kinds.is_large_string(found) or kinds.is_string_view(found)) and kinds.is_string(wanted)
    return bool(
        texts or ((kinds.is_large_binary(found) or kinds.is_binary_view(found)) and kinds.is_binary(wanted))
    )


def _mistyped(name: str) -> DataFileDamaged:
    return damaged(f"The column {name} has a different type than in the table's schema.", "column-type")
