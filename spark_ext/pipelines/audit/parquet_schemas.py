"""The columns of a Parquet file as its footer describes them, against those of the table.

Source: Apache Parquet, ``parquet.thrift`` (SchemaElement) and "Logical Types"; Iceberg table specification,
    "Appendix A: Format-specific Requirements", Parquet, and "Schema Evolution".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pyiceberg.schema import Schema, index_by_id
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
    LongType,
    NestedField,
    StringType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from catalog.client import thrift
from catalog.client.footers import Leaf, leaves_of
from catalog.client.thrift import Malformed, Struct
from catalog.iceberg.selection import inner_fields
from spark_ext.pipelines.audit.file_ends import Problem
from spark_ext.pipelines.audit.rules import UNKNOWN_COLUMNS, WRONG_COLUMNS

# Of SchemaElement.
_SCHEMA: Final = 2
_TYPE, _REPETITION, _NAME, _CHILDREN, _CONVERTED, _SCALE, _PRECISION, _ID, _LOGICAL = (
    1,
    3,
    4,
    5,
    6,
    7,
    8,
    9,
    10,
)
_REQUIRED, _OPTIONAL, _REPEATED = 0, 1, 2
#: Physical types.
BOOLEAN, INT32, INT64, INT96, FLOAT, DOUBLE, BYTE_ARRAY, FIXED = range(8)
#: Logical types.
_STRING, _ENUM, _DECIMAL, _DATE, _TIME, _TIMESTAMP, _INTEGER, _JSON = 1, 4, 5, 6, 7, 8, 10, 12
_UUID_BYTES: Final = 16
#: Columns of position delete files and of rows of version 3 (specification, "Reserved Field IDs").
_RESERVED: Final[Mapping[int, tuple[IcebergType, ...]]] = {
    2147483546: (StringType(),),
    2147483545: (LongType(),),
    2147483540: (LongType(),),
    2147483539: (LongType(),),
}
#: The same as older writers give them: converted types.
_CONVERTED_TO: Final = {
    0: _STRING, 4: _ENUM, 5: _DECIMAL, 6: _DATE, 7: _TIME, 8: _TIME, 9: _TIMESTAMP, 10: _TIMESTAMP, 19: _JSON,
    **dict.fromkeys(range(11, 19), _INTEGER),
}  # fmt: skip
_CONVERTED_DECIMAL: Final = 5
_OF_DECIMALS: Final = (INT32, INT64, BYTE_ARRAY, FIXED)
_MOST_DIGITS: Final = {INT32: 9, INT64: 18}
_UNSIGNED: Final = range(11, 15)
_UNIT, _IS_SIGNED = 2, 2
#: Microseconds of a unit: numerator and denominator, by the field of the union TimeUnit.
_MICROS: Final = {1: (1000, 1), 2: (1, 1), 3: (1, 1000)}
_CONVERTED_MICROS: Final = {7: (1000, 1), 8: (1, 1), 9: (1000, 1), 10: (1, 1)}


@dataclass(frozen=True, slots=True)
class Column:
    """A primitive column of a Parquet file.

    Attributes:
        leaf: its path, physical type and field id.
        element: what the schema says of it.
        repeated: whether it is inside a list or map, so that it has not one value for each row.
        nullable: whether it, or what it is nested in, can be null.
        around: the field ids of what it is nested in.
    """

    leaf: Leaf
    element: Struct
    repeated: bool
    nullable: bool
    around: frozenset[int] = frozenset()

    @property
    def logical(self) -> int | None:
        """Its logical type; None if it has none, or one that nobody knows."""
        said = self.element.get(_LOGICAL, thrift.STRUCT)
        if said is not None:
            if any(each.kind != thrift.STRUCT for each in said.fields.values()):
                raise Malformed("a logical type with an unexpected type")
            return next(iter(said.fields), None)
        return _CONVERTED_TO.get(self._converted)

    @property
    def micros(self) -> tuple[int, int]:
        """How many microseconds its values count, as a fraction."""
        said = self._body()
        unit = None if said is None else said.get(_UNIT, thrift.STRUCT)
        if unit is not None:
            return _MICROS.get(next(iter(unit.fields), 2), (1, 1))
        return _CONVERTED_MICROS.get(self._converted, (1, 1))

    @property
    def unsigned(self) -> bool:
        """Whether its numbers have no sign."""
        said = self._body() if self.logical == _INTEGER else None
        if said is not None:
            return not flag(said, _IS_SIGNED)
        return self._converted in _UNSIGNED

    @property
    def decimals(self) -> frozenset[tuple[int, int]]:
        """The precision and scale of its decimals; several where the file contradicts itself."""
        found = set()
        said = self._body() if self.logical == _DECIMAL else None
        if said is not None:
            found.add((said.get(2, thrift.I32) or 0, said.get(1, thrift.I32) or 0))
        if self._converted == _CONVERTED_DECIMAL:
            precision, scale = (self.element.get(each, thrift.I32) or 0 for each in (_PRECISION, _SCALE))
            found.add((precision, scale))
        return frozenset(found)

    @property
    def _converted(self) -> int:
        found = self.element.get(_CONVERTED, thrift.I32)
        return -1 if found is None else found

    def _body(self) -> Struct | None:
        said = self.element.get(_LOGICAL, thrift.STRUCT)
        held = None if said is None else next(iter(said.fields.values()), None)
        return held.held if held is not None and isinstance(held.held, Struct) else None


@dataclass(frozen=True, slots=True)
class TableColumns:
    """The columns that a table has and had.

    Attributes:
        types: all types of each field id, oldest first.
        required: top-level columns that the current schema requires.
        once_required: fields that some schema requires.
        around: the fields that each nested field is in.
    """

    types: Mapping[int, tuple[IcebergType, ...]]
    required: frozenset[int]
    once_required: frozenset[int]
    around: Mapping[int, frozenset[int]]

    @classmethod
    def of(cls, schemas: Sequence[Schema]) -> TableColumns:
        """Index the schemas of a table, oldest first, the current one last."""
        once = set(_RESERVED)
        types, around = dict(_RESERVED), dict[int, frozenset[int]]()
        for schema in schemas:
            around.update(_around(schema.fields, frozenset()))
            for number, field in index_by_id(schema).items():
                known = types.get(number, ())
                once |= {number} if field.required else set()
                types[number] = known if field.field_type in known else (*known, field.field_type)
        top = schemas[-1].fields if schemas else ()
        required = frozenset(f.field_id for f in top if f.required and f.field_type.is_primitive)
        return cls(types, required, frozenset(once), around)


def flag(said: Struct, number: int) -> bool | None:
    """Return a truth value of a structure; None if it is not there.

    Raises:
        Malformed: it is something else.
    """
    found = said.fields.get(number)
    if found is None:
        return None
    if found.kind not in (thrift.TRUE, thrift.FALSE):
        raise Malformed("a field with an unexpected type")
    return bool(found.held)


def columns_of(metadata: Struct) -> tuple[Column, ...]:
    """Return the primitive columns of a file, in its order.

    Raises:
        Malformed: its schema is none.
    """
    leaves = iter(leaves_of(metadata))
    root, *elements = metadata.structs(_SCHEMA)
    groups = [_Group(root.get(_CHILDREN, thrift.I32) or 0, repeated=False, nullable=False, ids=frozenset())]
    found = []
    for element in elements:
        while groups[-1].left == 0:
            groups.pop()
        outer = groups[-1]
        outer.left -= 1
        repetition, number = element.get(_REPETITION, thrift.I32), element.get(_ID, thrift.I32)
        if repetition not in (_REQUIRED, _OPTIONAL, _REPEATED):
            raise Malformed("a schema element with an unknown repetition")
        repeated = outer.repeated or repetition == _REPEATED
        nullable = outer.nullable or repetition != _REQUIRED
        children = element.get(_CHILDREN, thrift.I32) or 0
        if children:
            ids = outer.ids if number is None else outer.ids | {number}
            groups.append(_Group(children, repeated=repeated, nullable=nullable, ids=ids))
        else:
            found.append(Column(next(leaves), element, repeated, nullable, outer.ids))
    return tuple(found)


@dataclass(slots=True)
class _Group:
    """A group of a schema, and the number of its elements that are left to be read."""

    left: int
    repeated: bool
    nullable: bool
    ids: frozenset[int]


def _around(fields: Iterable[NestedField], outer: frozenset[int]) -> Iterator[tuple[int, frozenset[int]]]:
    for each in fields:
        yield each.field_id, outer
        yield from _around(inner_fields(each.field_type), outer | {each.field_id})


def check_schema(
    metadata: Struct, columns: Sequence[Column], table: TableColumns, *, whole: bool
) -> Iterator[Problem]:
    """Check the columns of a file against those of its table.

    Args:
        metadata: Parquet's FileMetaData.
        columns: its columns.
        table: the table's.
        whole: whether it holds rows of the table, and no deletes.
    """
    yield from _check_ids(metadata, columns, table)
    known = {each.leaf.field_id for each in columns}
    for missing in sorted(table.required - known) if whole else ():
        yield Problem(WRONG_COLUMNS, f"The required column with the field id {missing} is missing.")
    for each in columns:
        kinds = table.types.get(-1 if each.leaf.field_id is None else each.leaf.field_id)
        if kinds and not any(_is_stored(kind, each) for kind in kinds):
            yield Problem(WRONG_COLUMNS, f"The column has another type than {_shown(kinds)}.", each.leaf.name)
        elif whole and each.leaf.field_id in table.required and each.nullable:
            yield Problem(
                WRONG_COLUMNS, "The table requires a value, but the file can have nulls.", each.leaf.name
            )


def _check_ids(metadata: Struct, columns: Sequence[Column], table: TableColumns) -> Iterator[Problem]:
    for each in columns:
        if each.leaf.field_id is None:
            yield Problem(UNKNOWN_COLUMNS, "The column has no field id.", each.leaf.name)
        elif each.leaf.field_id not in table.types:
            yield Problem(
                UNKNOWN_COLUMNS,
                f"No schema of the table has the field id {each.leaf.field_id}.",
                each.leaf.name,
            )
        elif each.around != table.around.get(each.leaf.field_id, frozenset()):
            yield Problem(WRONG_COLUMNS, "The column is in other fields than the table's.", each.leaf.name)
    ids = [element.get(_ID, thrift.I32) for element in metadata.structs(_SCHEMA)[1:]]
    for element in metadata.structs(_SCHEMA)[1:]:
        number = element.get(_ID, thrift.I32)
        # Where no null can be, values are read without the levels that say where one is.
        if (
            number in table.types
            and number not in table.once_required
            and element.get(_REPETITION, thrift.I32) == _REQUIRED
        ):
            name = (element.get(_NAME, thrift.BINARY) or b"").decode("utf-8", "replace")[:200]
            yield Problem(UNKNOWN_COLUMNS, "The column can have no null, but the table's always could.", name)
    for twice in _repeated(each for each in ids if each is not None):
        yield Problem(WRONG_COLUMNS, f"The field id {twice} stands at two columns.")
    for path in _repeated(each.leaf.path for each in columns):
        yield Problem(
            WRONG_COLUMNS, "Two columns have one name.", b".".join(path).decode("utf-8", "replace")[:200]
        )


def _repeated(values: Iterable[Hashable]) -> list[Any]:
    return [each for each, count in Counter(values).items() if count > 1]


def _shown(kinds: Sequence[IcebergType]) -> str:
    return " or ".join(str(each)[:80] for each in kinds)


def _is_stored(kind: IcebergType, column: Column) -> bool:
    """Whether a column holds values of a type, or of one that Iceberg promotes to it."""
    known = _STORED.get(type(kind))
    if known is None:
        # A type of a later format version is left to readers; a struct, list or map is no primitive column.
        return kind.is_primitive
    return known(kind, column)


def _is_integer(column: Column, physical: Sequence[int]) -> bool:
    return column.leaf.kind in physical and column.logical in (None, _INTEGER) and not column.unsigned


def _is_decimal(kind: DecimalType, column: Column) -> bool:
    digits = min(kind.precision, _MOST_DIGITS.get(column.leaf.kind, kind.precision))
    fits = (scale == kind.scale and 0 < precision <= digits for precision, scale in column.decimals)
    stored = column.leaf.kind in _OF_DECIMALS and column.logical == _DECIMAL
    return stored and len(column.decimals) == 1 and all(fits)


def _is(physical: Sequence[int], logical: Sequence[int | None]) -> Callable[[Any, Column], bool]:
    return lambda _, column: column.leaf.kind in physical and column.logical in logical


_INSTANT: Final = _is((INT64, INT96), (_TIMESTAMP,))


def _is_instant(kind: IcebergType, column: Column) -> bool:
    # Hive and Impala wrote timestamps of 96 bits, which have no logical type.
    return column.leaf.kind == INT96 or _INSTANT(kind, column)


_STORED: Final[Mapping[type[IcebergType], Callable[[Any, Column], bool]]] = {
    BooleanType: _is((BOOLEAN,), (None,)),
    IntegerType: lambda _, column: _is_integer(column, (INT32,)),
    LongType: lambda _, column: _is_integer(column, (INT32, INT64)),
    FloatType: _is((FLOAT,), (None,)),
    DoubleType: _is((FLOAT, DOUBLE), (None,)),
    DateType: _is((INT32,), (_DATE,)),
    TimeType: _is((INT32, INT64), (_TIME,)),
    TimestampType: _is_instant,
    TimestamptzType: _is_instant,
    TimestampNanoType: _is_instant,
    TimestamptzNanoType: _is_instant,
    DecimalType: _is_decimal,
    StringType: _is((BYTE_ARRAY,), (_STRING, _ENUM, _JSON)),
    BinaryType: _is((BYTE_ARRAY,), (None,)),
    FixedType: lambda kind, column: column.leaf.kind == FIXED and column.leaf.length == len(kind),
    UUIDType: lambda _, column: column.leaf.kind == FIXED and column.leaf.length == _UUID_BYTES,
}
