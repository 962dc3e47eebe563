"""Sums up the statistics of ranges of entries, so that a filter skips ranges that cannot match.

A range is summed up as if it were one file: the sum has the form of a file's statistics, and the rules for
files (`catalog.iceberg.column_metrics`) apply to it. Where some file of a range can match a filter, the range
can:

- A range has only nulls if every file does, and no nulls if no file does; else it has some. NaN likewise.
- A bound is the least or greatest of the files that have other values than null. It is missing where one of
  these has none, or one that is NaN or not of the column's type, or has bounds in the wrong order.

Sums go by the type that the manifest states. They are used for columns whose bounds have the same order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyiceberg.types import IcebergType, PrimitiveType

from catalog.iceberg.bounds import Bounds, ByteBounds, Mask, NumberBounds, bounds_of
from catalog.iceberg.manifests.column_types import order_of
from catalog.iceberg.manifests.statistics import FieldStatistics

#: The entries of a range; the last one can be shorter.
RANGE_ROWS: Final = 4096
#: The parts of `FieldStatistics`, in order, with their types.
PARTS: Final = (
    ("value_counts", pa.int64()),
    ("null_counts", pa.int64()),
    ("nan_counts", pa.int64()),
    ("lower", pa.binary()),
    ("upper", pa.binary()),
)
#: The counts of a range are of these: it has only, some, or no nulls.
_ALL, _SOME, _NONE = 2, 1, 0


def range_count(rows: int) -> int:
    """Return the number of ranges of `rows` entries."""
    return -(-rows // RANGE_ROWS)


@dataclass(frozen=True, slots=True)
class RangeStatistics:
    """The statistics of ranges of entries.

    Attributes:
        count: the number of ranges.
        orders: by column id the order of its bounds (`order_of`).
        columns: by column id its statistics: one value per range.
    """

    count: int
    orders: Mapping[int, str]
    columns: Mapping[int, FieldStatistics]

    @classmethod
    def of(
        cls,
        rows: int,
        statistics: Mapping[int, FieldStatistics],
        types: Mapping[int, PrimitiveType],
        size: int = RANGE_ROWS,
    ) -> Self:
        """Sum up the statistics of entries.

        Args:
            rows: the number of entries.
            statistics: by column id, one value per entry.
            types: by column id, as the manifest states them.
            size: the number of entries of a range.
        """
        starts = np.arange(0, rows, size)
        columns = {
            field_id: summed
            for field_id, each in sorted(statistics.items())
            if field_id in types and (summed := _summed(types[field_id], each, starts)) is not None
        }
        return cls(len(starts), {each: order_of(types[each]) for each in columns}, columns)

    def of_types(self, types: Mapping[int, IcebergType]) -> dict[int, FieldStatistics]:
        """Return the statistics of those columns whose bounds have the order of these types."""
        return {
            field_id: self.columns[field_id]
            for field_id, kind in types.items()
            if self.orders.get(field_id) == order_of(kind)
        }


def side_by_side(
    parts: Sequence[tuple[int, Mapping[int, FieldStatistics]]], field_ids: frozenset[int]
) -> dict[int, FieldStatistics]:
    """Join the statistics of columns of several manifests; they are unknown where a manifest has none.

    Args:
        parts: of each manifest the number of ranges, and the statistics by column id.
        field_ids: the columns.
    """
    return {
        field_id: FieldStatistics(
            *(
                pa.concat_arrays(
                    [
                        getattr(columns[field_id], name) if field_id in columns else pa.nulls(count, kind)
                        for count, columns in parts
                    ]
                )
                for name, kind in PARTS
            )
        )
        for field_id in field_ids
    }


def _summed(kind: PrimitiveType, files: FieldStatistics, starts: NDArray[np.int64]) -> FieldStatistics | None:
    lower, upper = bounds_of(kind, files.lower), bounds_of(kind, files.upper)
    if not len(starts) or lower is None or upper is None:
        return None
    only_nulls = _every(files.null_counts, files.value_counts)
    known = lower.present & ~lower.nan & upper.present & ~upper.nan & ~_crossed(lower, upper)
    bounded = np.logical_and.reduceat(known | only_nulls, starts)
    used = known & ~only_nulls
    return FieldStatistics(
        pa.array(np.full(len(starts), _ALL, np.int64)),
        _portion(only_nulls, files.null_counts, starts),
        _portion(_every(files.nan_counts, files.value_counts), files.nan_counts, starts),
        _ends(lower, files.lower, used, bounded, starts, least=True),
        _ends(upper, files.upper, used, bounded, starts, least=False),
    )


def _portion(every: Mask, counts: pa.Array, starts: NDArray[np.int64]) -> pa.Array:
    """Return whether the files of each range have all, some or none of their values counted."""
    none = np.logical_and.reduceat(np.asarray(pc.fill_null(pc.equal(counts, 0), False)), starts)
    return pa.array(np.where(np.logical_and.reduceat(every, starts), _ALL, np.where(none, _NONE, _SOME)))


def _ends(
    bounds: Bounds, raw: pa.Array, used: Mask, bounded: Mask, starts: NDArray[np.int64], *, least: bool
) -> pa.Array:
    """Return the least or greatest bound of each range, null where there is none."""
    stops = [*starts[1:].tolist(), len(used)]
    rows = [
        _end(bounds, np.flatnonzero(used[start:stop]) + start, least) if has else None
        for start, stop, has in zip(starts.tolist(), stops, bounded.tolist(), strict=True)
    ]
    return raw.take(pa.array(rows, pa.int64()))


def _end(bounds: Bounds, rows: NDArray[np.int64], least: bool) -> int | None:
    """Return the row of the least or greatest of some bounds."""
    if not len(rows):
        return None
    if isinstance(bounds, NumberBounds):
        values = bounds.values[rows]
        return int(rows[values.argmin() if least else values.argmax()])
    keys = _keys(bounds).take(pa.array(rows))
    found = pc.min(keys) if least else pc.max(keys)
    return int(rows[pc.index(keys, found).as_py()])


def _crossed(lower: Bounds, upper: Bounds) -> Mask:
    """Return where a lower bound is above the upper one."""
    if isinstance(lower, NumberBounds) and isinstance(upper, NumberBounds):
        return np.asarray(lower.values > upper.values, np.bool_)
    return np.asarray(pc.fill_null(pc.greater(_keys(lower), _keys(upper)), False))


def _keys(bounds: Bounds) -> Any:
    if not isinstance(bounds, ByteBounds):
        raise TypeError("not bounds that sort as bytes")
    return bounds.values


def _every(part: pa.Array, whole: pa.Array) -> Mask:
    """Return where the part equals the whole, and neither is missing or zero."""
    return np.asarray(pc.fill_null(pc.and_(pc.equal(part, whole), pc.greater(whole, 0)), False))
