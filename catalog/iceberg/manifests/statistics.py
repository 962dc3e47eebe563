"""Extracts the statistics of single columns from the maps in manifests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class FieldStatistics:
    """The statistics of one column in the entries of a manifest: one value per entry, null if there is none.

    Attributes:
        value_counts: number of values, nulls and NaN included.
        null_counts: number of nulls.
        nan_counts: number of NaN.
        lower: lower bounds in single-value form (Iceberg table specification, "Appendix D").
        upper: upper bounds.
    """

    value_counts: pa.Array
    null_counts: pa.Array
    nan_counts: pa.Array
    lower: pa.Array
    upper: pa.Array


_MAPS = ("value_counts", "null_value_counts", "nan_value_counts", "lower_bounds", "upper_bounds")


def field_statistics(statistics: pa.Table, field_ids: frozenset[int]) -> Mapping[int, FieldStatistics]:
    """Return the statistics of some columns, by column id."""
    return StatisticsLookup(statistics).of(field_ids) if field_ids else {}


class StatisticsLookup:
    """Finds the statistics of columns. It shares the memory of the maps.

    Args:
        statistics: maps by column id.
    """

    def __init__(self, statistics: pa.Table) -> None:
        self._maps = [_Lookup(statistics[name]) for name in _MAPS]

    def of(self, field_ids: frozenset[int]) -> Mapping[int, FieldStatistics]:
        """Return the statistics of some columns, by column id."""
        return {each: FieldStatistics(*(lookup.of(each) for lookup in self._maps)) for each in field_ids}


def bounded_fields(statistics: pa.Table) -> frozenset[int]:
    """Return the columns that have a lower or an upper bound in any entry."""
    return _fields_of(statistics, ("lower_bounds", "upper_bounds"))


def described_fields(statistics: pa.Table) -> frozenset[int]:
    """Return the columns that have a bound, a count or a size in any entry."""
    return _fields_of(statistics, statistics.column_names)


def _fields_of(statistics: pa.Table, names: Iterable[str]) -> frozenset[int]:
    found: set[int] = set()
    for name in names:
        for chunk in statistics[name].chunks:
            found.update(pc.unique(chunk.keys).to_pylist())
    return frozenset(found)


class _Lookup:
    """One column of maps, to look up a key in all of them at once."""

    def __init__(self, column: pa.ChunkedArray) -> None:
        maps = column.combine_chunks()
        offsets = np.asarray(maps.offsets)
        self._rows = len(maps)
        self._keys = np.asarray(maps.keys)[offsets[0] : offsets[-1]]
        self._items = maps.items.slice(offsets[0])
        self._offsets = offsets
        self._alike = self._common()

    def of(self, key: int) -> pa.Array:
        if self._alike is not None:
            return self._at(np.flatnonzero(self._alike == key))
        hits = np.flatnonzero(self._keys == key)
        if len(hits) == self._rows and len(hits) == len(self._keys):
            return self._items.slice(0, self._rows)
        index = np.full(self._rows, -1, np.int64)
        index[self._owners[hits]] = hits
        return self._items.take(pa.array(index, mask=index < 0))

    @property
    def _owners(self) -> NDArray[np.int64]:
        return np.repeat(np.arange(self._rows), np.diff(self._offsets))

    def _common(self) -> NDArray[np.int32] | None:
        """Return the keys that every map has, in the same order; None if they differ."""
        if not self._rows or len(self._keys) % self._rows:
            return None
        width = len(self._keys) // self._rows
        table = self._keys.reshape(self._rows, width)
        alike = (np.diff(self._offsets) == width).all() and (table == table[:1]).all()
        return table[0] if alike else None

    def _at(self, places: NDArray[np.int64]) -> pa.Array:
        """Return the item at a place of every map."""
        if not len(places):
            return pa.nulls(self._rows, self._items.type)
        assert self._alike is not None
        width = len(self._alike)
        if width == 1:
            return self._items.slice(0, self._rows)
        return self._items.take(pa.array(np.arange(self._rows) * width + places[0]))
