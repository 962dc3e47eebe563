"""Compares the statistics in a manifest with those in the footer of a Parquet file.

- Bounds in the manifest have to contain those of each row group: a lower bound above a minimum, or an upper
  bound below a maximum, hides rows. Truncated bounds are wider, so they pass.
- Counts have to be equal. They are compared for columns outside of lists and maps, where a row has one value.
- What a footer does not say, or not exactly, proves nothing.

Source: Iceberg table specification, "Manifests" and "Appendix D: Single-value serialization"; Apache Parquet,
    ``parquet.thrift`` (Statistics, ColumnOrder).
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

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
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from catalog.client import thrift
from catalog.client.footers import COLUMNS, CRYPTO, METADATA, ROW_GROUPS
from catalog.client.thrift import Struct
from spark_ext.pipelines.audit.file_ends import ListedFile, Problem
from spark_ext.pipelines.audit.parquet_schemas import (
    BOOLEAN,
    BYTE_ARRAY,
    DOUBLE,
    FIXED,
    FLOAT,
    INT32,
    INT64,
    Column,
    TableColumns,
    flag,
)
from spark_ext.pipelines.audit.rules import WRONG_STATISTICS

# Of ColumnMetaData, Statistics.
_VALUES, _STATISTICS = 5, 12
_OLD_MAX, _OLD_MIN, _NULLS, _MAX, _MIN, _MAX_EXACT, _MIN_EXACT = 1, 2, 3, 5, 6, 7, 8
_PHYSICAL: Final = {BOOLEAN: "<?", INT32: "<i", INT64: "<q", FLOAT: "<f", DOUBLE: "<d"}
_UNSIGNED: Final = {INT32: "<I", INT64: "<Q"}
#: Single values, by their number of bytes: an integer or float can have become a long or double.
_NUMBERS: Final[Mapping[type[Any], Mapping[int, str]]] = {
    BooleanType: {1: "<?"},
    IntegerType: {4: "<i"},
    LongType: {4: "<i", 8: "<q"},
    DateType: {4: "<i"},
    TimeType: {8: "<q"},
    TimestampType: {8: "<q"},
    TimestamptzType: {8: "<q"},
    FloatType: {4: "<f"},
    DoubleType: {4: "<f", 8: "<d"},
}
_BYTES: Final = (StringType, BinaryType, FixedType, UUIDType)
_TIMES: Final = (TimeType, TimestampType, TimestamptzType)


def check_statistics(
    file: ListedFile, metadata: Struct, columns: Sequence[Column], table: TableColumns
) -> Iterator[Problem]:
    """Compare the statistics of a file's plaintext columns.

    Args:
        file: as its manifest lists it.
        metadata: Parquet's FileMetaData.
        columns: its columns.
        table: the columns of its table.
    """
    listed = file.statistics
    groups = [group.structs(COLUMNS) for group in metadata.structs(ROW_GROUPS)]
    for place, column in enumerate(columns):
        number = column.leaf.field_id
        chunks = [chunks[place] for chunks in groups if len(chunks) == len(columns)]
        if number is None or any(CRYPTO in each.fields for each in chunks):
            continue
        said = [each.get(METADATA, thrift.STRUCT) or Struct() for each in chunks]
        if not column.repeated:
            yield from _check_counts(file, column, number, said)
        kinds = table.types.get(number, ())
        lower, upper = listed.lower_bounds.get(number), listed.upper_bounds.get(number)
        if kinds and not (lower is None and upper is None):
            yield from _check_bounds(column, kinds[-1], said, lower, upper)
    known = {each.leaf.field_id for each in columns}
    for absent in sorted(listed.value_counts.keys() - known):
        if listed.value_counts[absent] != listed.null_value_counts.get(absent):
            yield Problem(
                WRONG_STATISTICS, f"The manifest counts values of the column {absent}, which the file lacks."
            )


def _check_counts(file: ListedFile, column: Column, number: int, said: Sequence[Struct]) -> Iterator[Problem]:
    listed = file.statistics
    values = sum(each.get(_VALUES, thrift.I64) or 0 for each in said)
    found = listed.value_counts.get(number)
    if found is not None and found != values:
        yield Problem(
            WRONG_STATISTICS, f"The manifest counts {found} values, the footer {values}.", column.leaf.name
        )
    nulls = [_nulls(each) for each in said]
    found = listed.null_value_counts.get(number)
    if found is not None and None not in nulls and found != sum(each or 0 for each in nulls):
        yield Problem(
            WRONG_STATISTICS,
            f"The manifest counts {found} nulls, the footer {sum(each or 0 for each in nulls)}.",
            column.leaf.name,
        )


def _nulls(said: Struct) -> int | None:
    statistics = said.get(_STATISTICS, thrift.STRUCT)
    found = None if statistics is None else statistics.get(_NULLS, thrift.I64)
    return None if found is None else int(found)


def _check_bounds(
    column: Column, kind: IcebergType, said: Sequence[Struct], lower: bytes | None, upper: bytes | None
) -> Iterator[Problem]:
    least, most = listed_value(kind, lower), listed_value(kind, upper)
    for statistics in (each.get(_STATISTICS, thrift.STRUCT) for each in said):
        if statistics is None:
            continue
        low = _stored(column, kind, statistics, _MIN, _OLD_MIN, _MIN_EXACT)
        high = _stored(column, kind, statistics, _MAX, _OLD_MAX, _MAX_EXACT)
        if least is not None and low is not None and least > low:
            yield Problem(
                WRONG_STATISTICS,
                "The manifest's lower bound is above the footer's minimum.",
                column.leaf.name,
            )
            return
        if most is not None and high is not None and most < high:
            yield Problem(
                WRONG_STATISTICS,
                "The manifest's upper bound is below the footer's maximum.",
                column.leaf.name,
            )
            return


def listed_value(kind: IcebergType | None, bound: bytes | None) -> Any:
    """Return a bound of a manifest, to compare; None if there is none, or if it has not its type.

    A bound that has not its type skips no file.
    """
    if bound is None:
        return None
    if isinstance(kind, _BYTES):
        return bound
    if isinstance(kind, DecimalType):
        return int.from_bytes(bound, "big", signed=True) if 0 < len(bound) <= 16 else None
    form = _NUMBERS.get(type(kind), {}).get(len(bound))
    return None if form is None else _number(form, bound)


def _stored(column: Column, kind: IcebergType, statistics: Struct, at: int, old: int, exact: int) -> Any:
    """A minimum or maximum of a footer, to compare; None if it is not known exactly."""
    if flag(statistics, exact) is False:
        return None
    raw = statistics.get(at, thrift.BINARY)
    if raw is None and column.leaf.kind in _PHYSICAL and not column.unsigned:
        # The older fields are ordered by signed numbers, so that they mean nothing for texts and bytes.
        raw = statistics.get(old, thrift.BINARY)
    if raw is None:
        return None
    if column.leaf.kind in (BYTE_ARRAY, FIXED):
        if isinstance(kind, DecimalType):
            return int.from_bytes(raw, "big", signed=True)
        return raw if isinstance(kind, _BYTES) else None
    forms = _UNSIGNED if column.unsigned else _PHYSICAL
    form = forms.get(column.leaf.kind)
    if form is None or (type(kind) not in _NUMBERS and not isinstance(kind, DecimalType)):
        return None
    found = _number(form, raw)
    if found is None or not isinstance(kind, _TIMES):
        return found
    numerator, denominator = column.micros
    return found * numerator // denominator


def _number(form: str, raw: bytes) -> Any:
    if len(raw) != struct.calcsize(form):
        return None
    (found,) = struct.unpack(form, raw)
    return None if isinstance(found, float) and math.isnan(found) else found
