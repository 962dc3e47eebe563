"""Compares what a manifest states of a plaintext Parquet file with the file's footer.

A bound contradicts the file if a reader that trusts it would skip values: a lower bound above the minimum, or
an upper bound below the maximum. Columns are compared whose values Iceberg and Parquet encode in one way, and
only top-level ones, since others count nulls differently.

Source: Apache Parquet, `parquet.thrift`; Iceberg table specification, "Appendix D".
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Mapping
from typing import Any, Final

from pyiceberg.types import (
    BinaryType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    StringType,
    TimestampType,
    TimestamptzType,
    TimeType,
)

from catalog.client import footers, thrift
from catalog.client.footers import Leaf
from catalog.client.thrift import Struct
from spark_ext.pipelines.audit import rules
from spark_ext.pipelines.items import Rule

# Of FileMetaData, ColumnChunk, ColumnMetaData, Statistics and SchemaElement.
_ROWS: Final = 3
_STATISTICS: Final = 12
_NULLS, _GREATEST, _LEAST, _GREATEST_EXACT, _LEAST_EXACT = 3, 5, 6, 7, 8
_CONVERTED: Final = 6
_INT32, _INT64, _FLOAT, _DOUBLE, _BYTES = 1, 2, 4, 5, 6
_TIME_MICROS, _TIMESTAMP_MICROS = 8, 10
_INTEGERS: Final = (IntegerType, LongType, DateType)
_MICROS: Final[Mapping[type[IcebergType], int]] = {
    TimeType: _TIME_MICROS,
    TimestampType: _TIMESTAMP_MICROS,
    TimestamptzType: _TIMESTAMP_MICROS,
}


def contradictions(
    metadata: Struct, row: Mapping[str, Any], types: Mapping[int, IcebergType]
) -> Iterator[tuple[Rule, str]]:
    """Yield what of an entry contradicts its file.

    Args:
        metadata: Parquet's FileMetaData.
        row: the entry: `record_count`, `null_value_counts`, `lower_bounds` and `upper_bounds`.
        types: the types of top-level columns by field id.

    Raises:
        Malformed: the footer is damaged.
    """
    rows = metadata.get(_ROWS, thrift.I64)
    if rows != row["record_count"]:
        text = f"The file has {rows} rows, but its entry states {row['record_count']}."
        yield rules.WRONG_STATISTICS, text
    nulls, lower, upper = (
        dict(row[name] or ()) for name in ("null_value_counts", "lower_bounds", "upper_bounds")
    )
    for place, leaf in enumerate(footers.leaves_of(metadata)):
        if leaf.field_id is None or len(leaf.path) != 1 or leaf.field_id not in types:
            continue
        column = _Column(metadata, place, leaf, types[leaf.field_id])
        problem = column.contradicts(
            nulls.get(leaf.field_id), lower.get(leaf.field_id), upper.get(leaf.field_id)
        )
        if problem is not None:
            yield rules.WRONG_STATISTICS, f"The entry's {problem} of {leaf.name!r} contradicts the file."


class _Column:
    """What a file says of one of its columns."""

    def __init__(self, metadata: Struct, place: int, leaf: Leaf, kind: IcebergType) -> None:
        self._kind = kind
        self._leaf = leaf
        self._converted = _converted(metadata, leaf)
        self._said = [
            said
            for group in metadata.structs(footers.ROW_GROUPS)
            if (said := _statistics_of(group, place)) is not None
        ]
        self._complete = len(self._said) == len(metadata.structs(footers.ROW_GROUPS))

    def contradicts(self, nulls: int | None, lower: bytes | None, upper: bytes | None) -> str | None:
        """Return which statement of an entry contradicts the file."""
        counted = [each.get(_NULLS, thrift.I64) for each in self._said]
        if nulls is not None and self._complete and None not in counted and sum(counted) != nulls:
            return "null count"
        least, greatest = self._ends(_LEAST, _LEAST_EXACT), self._ends(_GREATEST, _GREATEST_EXACT)
        low, high = self._bound(lower), self._bound(upper)
        if low is not None and least and low > min(least):
            return "lower bound"
        if high is not None and greatest and high < max(greatest):
            return "upper bound"
        return None

    def _ends(self, number: int, exact: int) -> list[Any]:
        values = []
        for said in self._said:
            flag = said.fields.get(exact)
            data = said.get(number, thrift.BINARY)
            if data is not None and not (flag is not None and flag.kind == thrift.FALSE):
                value = self._value(data)
                if value is not None:
                    values.append(value)
        return values

    def _value(self, data: bytes) -> Any:
        """Return a value in Parquet's plain encoding; None if it is not compared."""
        physical, kind = self._leaf.kind, self._kind
        if isinstance(kind, _INTEGERS) and physical in (_INT32, _INT64):
            return _integer(data, 4 if physical == _INT32 else 8)
        if type(kind) in _MICROS and physical == _INT64 and self._converted == _MICROS[type(kind)]:
            return _integer(data, 8)
        if isinstance(kind, (FloatType, DoubleType)) and physical in (_FLOAT, _DOUBLE):
            return _real(data, 4 if physical == _FLOAT else 8)
        if isinstance(kind, DecimalType) and physical in (_INT32, _INT64):
            return _integer(data, 4 if physical == _INT32 else 8)
        if isinstance(kind, DecimalType):
            return int.from_bytes(data, "big", signed=True)
        if isinstance(kind, (StringType, BinaryType)) and physical == _BYTES:
            return data
        return None

    def _bound(self, data: bytes | None) -> Any:
        """Return a bound of the entry; None if there is none that is compared."""
        kind = self._kind
        if not data:
            return None
        if isinstance(kind, DecimalType):
            return int.from_bytes(data, "big", signed=True)
        if isinstance(kind, (FloatType, DoubleType)):
            return _real(data, len(data))
        if isinstance(kind, (StringType, BinaryType)):
            return data
        return _integer(data, len(data)) if isinstance(kind, (*_INTEGERS, *_MICROS)) else None


def _integer(data: bytes, width: int) -> int | None:
    return int.from_bytes(data, "little", signed=True) if len(data) == width else None


def _real(data: bytes, width: int) -> float | None:
    if len(data) != width or width not in (4, 8):
        return None
    (value,) = struct.unpack("<f" if width == 4 else "<d", data)
    return None if math.isnan(value) else float(value)


def _statistics_of(group: Struct, place: int) -> Struct | None:
    chunks = group.structs(footers.COLUMNS)
    if place >= len(chunks):
        raise thrift.Malformed("a row group with missing columns")
    said = chunks[place].get(footers.METADATA, thrift.STRUCT)
    found: Struct | None = None if said is None else said.get(_STATISTICS, thrift.STRUCT)
    return found


def _converted(metadata: Struct, leaf: Leaf) -> int | None:
    for element in metadata.structs(footers.SCHEMA):
        if element.get(footers.FIELD_ID, thrift.I32) == leaf.field_id:
            found: int | None = element.get(_CONVERTED, thrift.I32)
            return found
    return None
