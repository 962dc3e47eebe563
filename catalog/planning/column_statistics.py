"""Sums up the statistics of the files of a plan, column by column, for engines that optimize by cost.

- A column has only statistics that every file of the plan has: nulls, a minimum and a maximum.
- They are of columns that the caller can select unmasked. For a column that a file encrypts, the encrypted
  statistics count.
- Rows that delete files delete count, so that the statistics are estimates. No answer of a query can depend
  on them.
- The number of distinct values is that of the last count (`catalog.state.distinct_counts`).
- Minimum and maximum are of booleans, integers, floating-point numbers, dates and timestamps. Bounds of texts
  can be truncated. A floating-point column has no maximum unless every file says that it has no NaN.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.types import DoubleType, FloatType, IcebergType, PrimitiveType

from catalog.iceberg.bounds import NumberBounds, bounds_of
from catalog.iceberg.manifests import FieldStatistics
from catalog.iceberg.single_values import value_to_json
from catalog.keyring.keyring import Keyring
from catalog.planning.gathering import Gathered
from catalog.planning.sealed import statistics_of
from catalog.reading.loading import LoadedTable


@dataclass(frozen=True, slots=True)
class ColumnSummary:
    """The statistics of a column in some files; None if they are unknown.

    Attributes:
        nulls: the number of nulls.
        minimum: a lower bound of its values; infinity if the files have no values.
        maximum: an upper bound of its values; minus infinity if the files have no values.
    """

    nulls: int | None = 0
    minimum: float | int | None = np.inf
    maximum: float | int | None = -np.inf

    def __or__(self, other: ColumnSummary) -> ColumnSummary:
        return ColumnSummary(
            None if self.nulls is None or other.nulls is None else self.nulls + other.nulls,
            None if self.minimum is None or other.minimum is None else min(self.minimum, other.minimum),
            None if self.maximum is None or other.maximum is None else max(self.maximum, other.maximum),
        )


class ColumnStatistics:
    """Sums up statistics while a plan is made.

    Args:
        keyring: opens encrypted statistics.
        table: the table.
        schema: the schema that it is read with.
        columns: ids of the columns.
        distinct: by column id how many distinct values were counted last.
    """

    def __init__(
        self,
        keyring: Keyring,
        table: LoadedTable,
        schema: Schema,
        columns: frozenset[int],
        distinct: Mapping[int, int],
    ) -> None:
        self._keyring = keyring
        self._table = table
        self._distinct = distinct
        kinds = {each: schema.find_type(each) for each in columns}
        self._kinds = {each: kind for each, kind in kinds.items() if isinstance(kind, PrimitiveType)}
        self._found = dict.fromkeys(self._kinds, ColumnSummary())

    def add(self, files: Gathered, kept: pa.BooleanArray) -> None:
        """Add some files of manifests.

        Args:
            files: manifests.
            kept: one flag an entry.

        Raises:
            as `SealedPruner.keeps`.
        """
        rows = np.flatnonzero(np.asarray(kept))
        if not len(rows) or not self._kinds:
            return
        statistics = statistics_of(self._keyring, self._table, files, rows, frozenset(self._kinds))
        for field_id, kind in self._kinds.items():
            self._found[field_id] |= summary_of(kind, statistics[field_id])

    def to_json(self) -> Mapping[str, Mapping[str, Any]]:
        """Return by column id what is known, values in Iceberg's JSON single-value form."""
        return {
            str(key): {"distinct-count": self._distinct.get(key), **_json(self._kinds[key], each)}
            for key, each in sorted(self._found.items())
        }


def summary_of(kind: IcebergType, files: FieldStatistics) -> ColumnSummary:
    """Sum up the statistics of one column in several files."""
    nulls = None if files.null_counts.null_count else pc.sum(files.null_counts, min_count=0).as_py()
    empty = np.asarray(pc.fill_null(pc.equal(files.null_counts, files.value_counts), False))
    ends: list[float | int | None] = []
    for raw, least in ((files.lower, True), (files.upper, False)):
        bounds = bounds_of(kind, raw)
        if not isinstance(bounds, NumberBounds) or not (bounds.present | empty).all() or bounds.nan.any():
            ends.append(None)
            continue
        values = bounds.values[bounds.present & ~empty]
        nothing = np.inf if least else -np.inf
        ends.append((values.min() if least else values.max()).item() if len(values) else nothing)
    if isinstance(kind, FloatType | DoubleType) and not _no_nan(files):
        ends[1] = None
    return ColumnSummary(nulls, *ends)


def _no_nan(files: FieldStatistics) -> bool:
    return bool(np.asarray(pc.fill_null(pc.equal(files.nan_counts, 0), False)).all())


def _json(kind: PrimitiveType, summary: ColumnSummary) -> Mapping[str, Any]:
    return {
        "null-count": summary.nulls,
        "minimum": _value(kind, summary.minimum),
        "maximum": _value(kind, summary.maximum),
    }


def _value(kind: PrimitiveType, value: float | int | None) -> Any:
    """Return a minimum or maximum; None for that of no value, and for infinity, which JSON does not have."""
    if value is None or not np.isfinite(value):
        return None
    return value_to_json(kind, bool(value) if str(kind) == "boolean" else value)
