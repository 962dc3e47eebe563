"""Late materialization: reads the columns of the filter first, then the others of the rows that match.

- Of a row group in which no row matches, no other column is read. Of any other, the other columns are read
  as far as the last row that matches: behind it nothing is decoded, and so nothing checked, as in row groups
  that are left out.
- Columns are told apart at the top: of one that the filter looks into, everything that is wanted is read
  first.
- Which rows match is said by their numbers, so that all columns keep the same rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import BooleanExpression
from pyiceberg.expressions.visitors import extract_field_ids
from pyiceberg.types import NestedField

from catalog.client.columns import arrow_schema
from catalog.client.deletes import Positions
from catalog.client.files import Opened, RowGroup
from catalog.iceberg.selection import all_ids


@dataclass(frozen=True, slots=True)
class Sieve:
    """A filter over some columns.

    Attributes:
        looked_at: the columns that the filter looks at.
        others: the columns that are wanted beside them.
        bound: the filter, bound to `looked_at`.
        keep: the same one for Arrow.
    """

    looked_at: tuple[NestedField, ...]
    others: tuple[NestedField, ...]
    bound: BooleanExpression
    keep: pc.Expression

    @classmethod
    def of(
        cls, wanted: tuple[NestedField, ...], bound: BooleanExpression, keep: pc.Expression
    ) -> Sieve | None:
        """The sieve of a filter; None for one that looks at none of the wanted columns, or at all of them."""
        ids = extract_field_ids(bound)
        first = tuple(each for each in wanted if not ids.isdisjoint(all_ids((each,))))
        others = tuple(each for each in wanted if each not in first)
        return cls(first, others, bound, keep) if first and others else None

    def rows(self, source: Opened, gone: Positions | None) -> Iterator[pa.Table]:
        """The rows of a file that match, row group by row group; the filter's columns stand first.

        Args:
            source: the file, judged.
            gone: the rows that were deleted from it; None for none.
        """
        for group in source.matching(self.looked_at, self.bound):
            read = source.read(group, self.looked_at, group.rows)
            matching, numbers = self._matching(read, group, gone)
            if len(numbers):
                yield self._beside(matching, self._others(source, group, numbers))

    def _matching(
        self, read: pa.Table, group: RowGroup, gone: Positions | None
    ) -> tuple[pa.Table, np.ndarray[tuple[int], np.dtype[np.int64]]]:
        """The rows that match, and their numbers in the row group."""
        number = "#" * (1 + max((len(each) for each in read.column_names), default=0))
        numbered = read.append_column(number, pa.array(np.arange(group.rows)))
        if gone is not None:
            numbered = numbered.filter(gone.kept(group.start, group.start + group.rows))
        left = numbered.filter(self.keep)
        return left.drop_columns([number]), left[number].to_numpy()

    def _others(
        self, source: Opened, group: RowGroup, numbers: np.ndarray[tuple[int], np.dtype[np.int64]]
    ) -> pa.Table:
        """The other columns of the rows with some numbers."""
        count = int(numbers[-1]) + 1
        read = source.read(group, self.others, count)
        if len(numbers) == count:
            return read
        kept = np.zeros(count, dtype=bool)
        kept[numbers] = True
        return read.filter(pa.array(kept))

    def _beside(self, matching: pa.Table, others: pa.Table) -> pa.Table:
        schema = arrow_schema((*self.looked_at, *self.others))
        return pa.table([*matching.columns, *others.columns], schema=schema)
