"""Computes the number of rows of a DataFrame and a checksum that does not depend on their order.

- Each row has two 64-bit hashes with different seeds. The checksum is the sum of each over all rows, modulo
  2^64. So equal rows count as often as they occur, and checksums can be added and subtracted like multisets.
- The hashes distinguish NULL from every value, an absent struct from one with NULL fields, `-0.0` from `0.0`,
  and where one list ends and the next begins. All NaN are one value. Entries of a map have no order.
- Columns count by position, not by name. Values count as the widest type that Iceberg can promote them to, so
  that a promoted column has the same checksum.
- Sums are made of 16 bits each, which no number of rows that fits a table can overflow.

Rows that differ have equal checksums with a probability of about 2^-128, unless a person constructs them: the
checksum finds errors, and is no proof against an attacker who chooses rows.

Source: Iceberg table specification, "Schema Evolution" (type promotion); Spark's function `xxhash64`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from policy.errors import NotSupportedYet

_SEEDS: Final = (1, 2)
_PARTS: Final = 4
_PART_BITS: Final = 16
_MODULUS: Final = 1 << (_PARTS * _PART_BITS)
_PLAIN: Final = (StringType, BinaryType, BooleanType, DateType, TimestampType, TimestampNTZType)
_WHOLE: Final = (ByteType, ShortType, IntegerType, LongType)
_LARGEST_PRECISION: Final = 38


@dataclass(frozen=True, slots=True)
class Checksum:
    """The number of some rows, and their checksum.

    Attributes:
        rows: how many there are.
        first, second: sums of their hashes, modulo 2^64.
    """

    rows: int = 0
    first: int = 0
    second: int = 0

    def __add__(self, other: Checksum) -> Checksum:
        return Checksum(
            self.rows + other.rows,
            (self.first + other.first) % _MODULUS,
            (self.second + other.second) % _MODULUS,
        )

    def __neg__(self) -> Checksum:
        return Checksum(-self.rows, -self.first % _MODULUS, -self.second % _MODULUS)

    def __str__(self) -> str:
        return f"{self.rows} rows with checksum {self.first:016x}{self.second:016x}"

    def to_json(self) -> dict[str, Any]:
        """Encode it; the sums as text, because not every reader of JSON has numbers of 64 bits."""
        return {"rows": self.rows, "first": f"{self.first:016x}", "second": f"{self.second:016x}"}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        """Decode what `to_json` encoded."""
        return cls(document["rows"], int(document["first"], 16), int(document["second"], 16))


def checksum(frame: DataFrame, places: Sequence[int]) -> Checksum:
    """Compute the checksum of all rows.

    Args:
        frame: the rows.
        places: the positions of the columns that count.

    Raises:
        NotSupportedYet: a column has a type that has no checksum.
        PySparkException: the rows cannot be read.
    """
    (row,) = _renamed(frame).select(*_hashes(frame, places)).agg(*_sums()).collect()
    return _of(row)


def balance(frame: DataFrame, places: Sequence[int], kind: int) -> Checksum:
    """Compute the checksum of inserted rows less that of deleted ones.

    Args:
        frame: changes of rows, as the metadata table `changes` has them.
        places: the positions of the columns that count.
        kind: the position of the column that is ``INSERT`` or ``DELETE``.

    Raises:
        as `checksum`.
    """
    renamed = _renamed(frame)
    inserted = (renamed[_name(kind)] == "INSERT").alias("inserted")
    total = Checksum()
    for row in renamed.select(inserted, *_hashes(frame, places)).groupBy("inserted").agg(*_sums()).collect():
        total = total + (_of(row) if row["inserted"] else -_of(row))
    return total


def counted_types(schema: StructType) -> list[str]:
    """Return the type that each column is counted as; columns of the same one can be compared.

    Raises:
        NotSupportedYet: a column has a type that has no checksum.
    """
    return [_canonical(field.dataType, field.name).simpleString() for field in schema.fields]


def _name(place: int) -> str:
    return f"c{place}"


def _renamed(frame: DataFrame) -> DataFrame:
    """Name columns by position: Spark cannot tell names apart that differ in letter case alone."""
    return frame.toDF(*map(_name, range(len(frame.schema.fields))))


def _hashes(frame: DataFrame, places: Sequence[int]) -> list[Column]:
    fields = frame.schema.fields
    kinds = {place: _canonical(fields[place].dataType, fields[place].name) for place in places}
    return [
        F.xxhash64(
            F.lit(seed),
            *(part for place, kind in kinds.items() for part in _parts(_cast(place, kind), kind, seed)),
        ).alias(f"h{seed}")
        for seed in _SEEDS
    ]


def _cast(place: int, kind: DataType) -> Column:
    return F.col(_name(place)).cast(kind)


def _sums() -> list[Column]:
    parts = [
        F.sum(
            F.shiftrightunsigned(F.col(f"h{seed}"), at * _PART_BITS).bitwiseAND(F.lit((1 << _PART_BITS) - 1))
        )
        for seed in _SEEDS
        for at in range(_PARTS)
    ]
    return [F.count(F.lit(1)), *parts]


def _of(row: Row) -> Checksum:
    rows, *parts = list(row)[-1 - _PARTS * len(_SEEDS) :]
    first, second = (
        sum((part or 0) << (at * _PART_BITS) for at, part in enumerate(some)) % _MODULUS
        for some in (parts[:_PARTS], parts[_PARTS:])
    )
    return Checksum(rows, first, second)


def _canonical(kind: DataType, column: str) -> DataType:
    """Return the type that values are counted as; its fields are named by position."""
    if isinstance(kind, _PLAIN):
        return kind
    if isinstance(kind, _WHOLE):
        return LongType()
    if isinstance(kind, FloatType | DoubleType):
        return DoubleType()
    if isinstance(kind, DecimalType):
        return DecimalType(_LARGEST_PRECISION, kind.scale)
    if isinstance(kind, ArrayType):
        return ArrayType(_canonical(kind.elementType, column), kind.containsNull)
    if isinstance(kind, MapType):
        key, value = (_canonical(each, column) for each in (kind.keyType, kind.valueType))
        return MapType(key, value, kind.valueContainsNull)
    if isinstance(kind, StructType):
        fields = enumerate(kind.fields)
        return StructType(
            [StructField(_name(at), _canonical(each.dataType, column), each.nullable) for at, each in fields]
        )
    raise NotSupportedYet(
        f"Column {column[:80]} has the type {kind.simpleString()[:80]}, which has no checksum.",
        rule="checksum-type",
        hint="Migrate this table with the procedure rewrite_data_files.",
    )


def _parts(value: Column, kind: DataType, seed: int) -> Iterator[Column]:
    """Return what a value is hashed by: never NULL alone, which the hash passes over, nor a map."""
    yield value.isNull()
    if isinstance(kind, StructType):
        for field in kind.fields:
            yield from _parts(value.getField(field.name), field.dataType, seed)
    elif isinstance(kind, ArrayType):
        yield F.size(value)
        yield F.transform(value, lambda each: _struct(_parts(each, kind.elementType, seed)))
    elif isinstance(kind, MapType):
        yield F.size(value)
        yield F.array_sort(F.transform(F.map_entries(value), lambda entry: _entry(entry, kind, seed)))
    else:
        yield value
    if isinstance(kind, DoubleType):
        yield (value == F.lit(0.0)) & (value.cast("string") == F.lit("-0.0"))


def _struct(parts: Iterator[Column]) -> Column:
    return F.struct(*(part.alias(_name(at)) for at, part in enumerate(parts)))


def _entry(entry: Column, kind: MapType, seed: int) -> Column:
    key = _parts(entry.getField("key"), kind.keyType, seed)
    value = _parts(entry.getField("value"), kind.valueType, seed)
    return F.xxhash64(F.lit(seed), *key, *value)
