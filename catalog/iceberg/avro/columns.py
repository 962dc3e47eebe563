"""Columns of decoded values of many records: the result of `vectorized`, before Arrow.

A column has one value for each cursor (one record, or one item of an array) in the order of the file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Index = NDArray[np.int64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Longs:
    """Numbers; booleans are 0 and 1, empty types 0."""

    values: Index

    def take(self, index: Index) -> Longs:
        return Longs(self.values[index])


@dataclass(frozen=True, slots=True)
class Spans:
    """Bytes of varying length: start and stop in the chunk."""

    starts: Index
    stops: Index

    def take(self, index: Index) -> Spans:
        return Spans(self.starts[index], self.stops[index])


@dataclass(frozen=True, slots=True)
class Raw:
    """Bytes of fixed length: start in the chunk."""

    starts: Index
    size: int

    def take(self, index: Index) -> Raw:
        return Raw(self.starts[index], self.size)


@dataclass(frozen=True, slots=True)
class Maybe:
    """Nullable values; `inner` has a value for each valid cursor only."""

    valid: Flags
    inner: Column

    def take(self, index: Index) -> Maybe:
        position = np.cumsum(self.valid) - 1
        valid = self.valid[index]
        return Maybe(valid, self.inner.take(position[index[valid]]))


@dataclass(frozen=True, slots=True)
class Parts:
    """Records: one column per field."""

    columns: tuple[Column, ...]

    def take(self, index: Index) -> Parts:
        return Parts(tuple(column.take(index) for column in self.columns))


@dataclass(frozen=True, slots=True)
class Items:
    """Arrays: the number of items of each, and all items in one column."""

    counts: Index
    inner: Column

    def take(self, index: Index) -> Items:
        firsts = np.cumsum(self.counts) - self.counts
        counts = self.counts[index]
        return Items(counts, self.inner.take(spread(firsts[index], counts)))


Column = Longs | Spans | Raw | Maybe | Parts | Items


def spread(firsts: Index, counts: Index) -> Index:
    """Return for each cursor the numbers first, first + 1, ... as many as its count, all in one array."""
    before = np.cumsum(counts) - counts
    return np.repeat(firsts - before, counts) + np.arange(int(counts.sum()), dtype=np.int64)


def join(columns: Sequence[Column]) -> Column:
    """Concatenate columns of the same kind."""
    first = columns[0]
    if len(columns) == 1:
        return first
    match first:
        case Longs():
            return Longs(_cat([c.values for c in columns if isinstance(c, Longs)]))
        case Spans():
            spans = [c for c in columns if isinstance(c, Spans)]
            return Spans(_cat([c.starts for c in spans]), _cat([c.stops for c in spans]))
        case Raw():
            return Raw(_cat([c.starts for c in columns if isinstance(c, Raw)]), first.size)
        case Maybe():
            maybes = [c for c in columns if isinstance(c, Maybe)]
            return Maybe(np.concatenate([c.valid for c in maybes]), join([c.inner for c in maybes]))
        case Items():
            items = [c for c in columns if isinstance(c, Items)]
            return Items(_cat([c.counts for c in items]), join([c.inner for c in items]))
        case Parts():
            parts = [c.columns for c in columns if isinstance(c, Parts)]
            return Parts(tuple(join(same) for same in zip(*parts, strict=True)))


def _cat(arrays: Sequence[Index]) -> Index:
    return np.concatenate(arrays)
