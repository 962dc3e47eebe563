"""Skips row groups that cannot match a filter, by the statistics in the footer.

- A file is judged before: in an encrypted one the statistics are as authentic as the rows.
- Only columns at the top are looked at, that may be read here and are not masked. PyArrow ends the process
  when it is asked for the statistics of a column whose key it does not have.
- Bounds count where the file holds the column in the table's type, or in a narrower one of the same order:
  booleans, integers, dates, timestamps, decimals, text. Floats have none: Parquet leaves NaN out of them.
- What the statistics then prove is `catalog.iceberg.column_metrics`'s to say, as for files.

Source: Apache Parquet, parquet.thrift, "Statistics"; Iceberg table specification, "Appendix D".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.expressions import BooleanExpression
from pyiceberg.expressions.visitors import extract_field_ids
from pyiceberg.types import IcebergType, IntegerType, NestedField

from catalog.client.columns import FileColumns, arrow_type, field_id
from catalog.iceberg.column_metrics import may_match
from catalog.iceberg.manifests import FieldStatistics

_MICROSECONDS: Final = "timeUnit=microseconds"

Readable = Callable[[int], bool]
"""Whether the primitive column at a place of the file may be read."""

Bound = Callable[[Any], bytes]
"""Makes Iceberg's single-value form of a bound in Parquet's physical form."""


def matching(
    parquet: pq.ParquetFile,
    columns: FileColumns,
    readable: Readable,
    wanted: Sequence[NestedField],
    keep: BooleanExpression,
) -> Sequence[int]:
    """The numbers of the row groups that may hold rows that match.

    Args:
        parquet: the file, judged.
        columns: its columns.
        readable: which of them may be read.
        wanted: the table's columns, those of the filter among them.
        keep: the filter, bound to the table's columns and without negations.
    """
    asked = extract_field_ids(keep)
    looked_at = [each for each in wanted if each.field_id in asked and each.field_type.is_primitive]
    if not looked_at:
        return range(parquet.num_row_groups)
    groups = [parquet.metadata.row_group(number) for number in range(parquet.num_row_groups)]
    statistics: dict[int, FieldStatistics] = {}
    for field in looked_at:
        for found in (each for each in columns.schema if field_id(each) == field.field_id):
            for place in columns.leaves((field,), readable):
                if readable(place) and not pa.types.is_nested(found.type):
                    bound = _bound_of(field.field_type, found.type, parquet.schema.column(place))
                    statistics[field.field_id] = _statistics(groups, place, bound)
    return [int(number) for number in np.flatnonzero(may_match(keep, statistics, len(groups)))]


def _statistics(groups: Sequence[pq.RowGroupMetaData], place: int, bound: Bound | None) -> FieldStatistics:
    """What the row groups say of one column, one value a group."""
    said = [each.column(place).statistics for each in groups]
    nulls = [each.null_count if each is not None and each.has_null_count else None for each in said]
    ranges = [_range(each, bound) for each in said]
    return FieldStatistics(
        value_counts=pa.array([each.num_rows for each in groups], pa.int64()),
        null_counts=pa.array(nulls, pa.int64()),
        nan_counts=pa.nulls(len(groups), pa.int64()),
        lower=pa.array([each for each, _ in ranges], pa.binary()),
        upper=pa.array([each for _, each in ranges], pa.binary()),
    )


def _range(said: pq.Statistics | None, bound: Bound | None) -> tuple[bytes | None, bytes | None]:
    if said is None or bound is None or not said.has_min_max:
        return None, None
    return bound(said.min_raw), bound(said.max_raw)


def _bound_of(kind: IcebergType, found: pa.DataType, column: pq.ColumnSchema) -> Bound | None:
    """How physical values become Iceberg's; None where bounds do not count.

    Args:
        kind: the table's type.
        found: the file's, as PyArrow reads it.
        column: as Parquet stores it.
    """
    wanted = arrow_type(kind)
    if pa.types.is_decimal128(found) and pa.types.is_decimal128(wanted) and found.scale == wanted.scale:
        return _decimal
    if pa.types.is_signed_integer(found) and pa.types.is_signed_integer(wanted):
        return _int if isinstance(kind, IntegerType) else _long
    if found != wanted:
        return None
    if pa.types.is_timestamp(found) and _MICROSECONDS in str(column.logical_type):
        return _long
    return _SAME.get(found)


def _int(value: int) -> bytes:
    return value.to_bytes(4, "little", signed=True)


def _long(value: int) -> bytes:
    return value.to_bytes(8, "little", signed=True)


def _decimal(value: int | bytes) -> bytes:
    return value if isinstance(value, bytes) else value.to_bytes(8, "big", signed=True)


_SAME: Final[Mapping[pa.DataType, Bound]] = {
    pa.bool_(): lambda value: bytes((value,)),
    pa.date32(): _int,
    pa.string(): bytes,
}
