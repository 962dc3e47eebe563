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
from spark_ext.pipelines.audit.file_ends import Problem
from spark_ext.pipelines.audit.rules import UNKNOWN_COLUMNS, WRONG_COLUMNS

# Of SchemaElement.
_SCHEMA: Final = 2
_TYPE, _REPETITION, _CHILDREN, _CONVERTED, _SCALE, _PRECISION, _ID, _LOGICAL = 1, 3, 5, 6, 7, 8, 9, 10
_REQUIRED, _REPEATED = 0, 2
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
    """

    leaf: Leaf
    element: Struct
    repeated: bool
    nullable: bool

    @property
    def logical(self) -> int | None:
        """Its logical type; None if it has none, or one that nobody knows."""
        said = self.element.get(_LOGICAL, thrift.STRUCT)
        if said is not None:
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
    def scale(self) -> int | None:
        """The scale of its decimals; None if it has none."""
        return (self.element.get(_SCALE, thrift.I32) or 0) if self.logical == _DECIMAL else None

    @property
    def precision(self) -> int:
        """The precision of its decimals."""
        return self.element.get(_PRECISION, thrift.I32) or 0

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
        required: fields that the current schema requires, outside of lists, maps and optional structs.
    """

    types: Mapping[int, tuple[IcebergType, ...]]
    required: frozenset[int]

    @classmethod
    def of(cls, schemas: Sequence[Schema]) -> TableColumns:
        """Index the schemas of a table, oldest first, the current one last."""
        types = dict(_RESERVED)
        for schema in schemas:
            for number, field in index_by_id(schema).items():
                known = types.get(number, ())
                types[number] = known if field.field_type in known else (*known, field.field_type)
        top = schemas[-1].fields if schemas else ()
        required = frozenset(f.field_id for f in top if f.required and f.field_type.is_primitive)
        return cls(types, required)


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
    found = []
    open_groups = [(metadata.structs(_SCHEMA)[0].get(_CHILDREN, thrift.I32) or 0, False, False)]
    for element in metadata.structs(_SCHEMA)[1:]:
        while open_groups[-1][0] == 0:
            open_groups.pop()
        left, repeated, nullable = open_groups.pop()
        open_groups.append((left - 1, repeated, nullable))
        repetition = element.get(_REPETITION, thrift.I32)
        repeated |= repetition == _REPEATED
        nullable |= repetition != _REQUIRED
        children = element.get(_CHILDREN, thrift.I32) or 0
        if children:
            open_groups.append((children, repeated, nullable))
        else:
            found.append(Column(next(leaves), element, repeated, nullable))
    return tuple(found)


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
    ids = [element.get(_ID, thrift.I32) for element in metadata.structs(_SCHEMA)[1:]]
    for twice in _repeated(each for each in ids if each is not None):
        yield Problem(UNKNOWN_COLUMNS, f"The field id {twice} stands at two columns.")
    for path in _repeated(each.leaf.path for each in columns):
        yield Problem(
            UNKNOWN_COLUMNS, "Two columns have one name.", b".".join(path).decode("utf-8", "replace")[:200]
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
    return column.scale == kind.scale and 0 < column.precision <= kind.precision


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
