"""Finds the files of a manifest that can match a filter, by column statistics, for all files at once.

The rules and results are those of pyiceberg's inclusive metrics evaluator, but for inequalities:

- A file is skipped only if its statistics prove that no row can match. Missing statistics prove nothing.
- A bound that is NaN proves nothing.
- A column with only nulls, or only NaN, matches no comparison.
- Bounds can be truncated, so they never prove that a value is in the file.
- A column without nulls and NaN whose bounds are equal has one value: it matches no inequality with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import BooleanExpression, BoundReference
from pyiceberg.expressions.visitors import BoundBooleanExpressionVisitor, visit
from pyiceberg.types import DoubleType, FloatType

from catalog.iceberg.bounds import Bounds, ByteBounds, Mask, as_bytes, bounds_of
from catalog.iceberg.manifests import FieldStatistics

#: A longer list of values is not evaluated (as in pyiceberg).
_MAX_LITERALS: Final = 200


def may_match(expression: BooleanExpression, statistics: Mapping[int, FieldStatistics], rows: int) -> Mask:
    """Return which files can have rows that match a bound expression without negations.

    Args:
        expression: the filter, bound to the table's schema.
        statistics: by column id; missing columns have no statistics.
        rows: number of files.
    """
    return visit(expression, _Evaluator(statistics, rows))


class _Evaluator(BoundBooleanExpressionVisitor[Mask]):
    def __init__(self, statistics: Mapping[int, FieldStatistics], rows: int) -> None:
        self._statistics = statistics
        self._all = np.ones(rows, np.bool_)
        self._none = np.zeros(rows, np.bool_)

    def visit_true(self) -> Mask:
        return self._all

    def visit_false(self) -> Mask:
        return self._none

    def visit_not(self, child_result: Mask) -> Mask:
        raise ValueError("negations must be rewritten before a filter is evaluated")

    def visit_and(self, left_result: Mask, right_result: Mask) -> Mask:
        return left_result & right_result

    def visit_or(self, left_result: Mask, right_result: Mask) -> Mask:
        return left_result | right_result

    def visit_is_null(self, term: Any) -> Mask:
        column = self._column(term)
        return self._all if column is None else ~_is(column.null_counts, 0)

    def visit_not_null(self, term: Any) -> Mask:
        return ~self._only_nulls(self._column(term))

    def visit_is_nan(self, term: Any) -> Mask:
        column = self._column(term)
        if column is None:
            return self._all
        return ~(_is(column.nan_counts, 0) | self._only_nulls(column))

    def visit_not_nan(self, term: Any) -> Mask:
        return ~self._only_nans(self._column(term))

    def visit_less_than(self, term: Any, literal: Any) -> Mask:
        return self._compare(
            term, lambda lower, _: ~(lower.above(literal.value) | lower.equal(literal.value))
        )

    def visit_less_than_or_equal(self, term: Any, literal: Any) -> Mask:
        return self._compare(term, lambda lower, _: ~lower.above(literal.value))

    def visit_greater_than(self, term: Any, literal: Any) -> Mask:
        return self._compare(
            term, lambda _, upper: ~(upper.below(literal.value) | upper.equal(literal.value))
        )

    def visit_greater_than_or_equal(self, term: Any, literal: Any) -> Mask:
        return self._compare(term, lambda _, upper: ~upper.below(literal.value))

    def visit_equal(self, term: Any, literal: Any) -> Mask:
        return self._compare(
            term, lambda lower, upper: lower.nan | ~(lower.above(literal.value) | upper.below(literal.value))
        )

    def visit_not_equal(self, term: Any, literal: Any) -> Mask:
        return self._differs(term, {literal.value})

    def visit_in(self, term: Any, literals: set[Any]) -> Mask:
        if len(literals) > _MAX_LITERALS:
            return ~self._nothing_to_compare(self._column(term))
        return self._compare(term, lambda lower, upper: _any_inside(lower, upper, literals))

    def visit_not_in(self, term: Any, literals: set[Any]) -> Mask:
        return self._all if len(literals) > _MAX_LITERALS else self._differs(term, literals)

    def visit_starts_with(self, term: Any, literal: Any) -> Mask:
        prefix = as_bytes(literal.value)
        column = self._column(term)
        lower, upper = self._prefix_bounds(term, len(prefix))
        if column is None or lower is None or upper is None:
            return self._all
        return ~(self._only_nulls(column) | lower.above(prefix) | upper.below(prefix))

    def visit_not_starts_with(self, term: Any, literal: Any) -> Mask:
        prefix = as_bytes(literal.value)
        column = self._column(term)
        lower, upper = self._prefix_bounds(term, len(prefix))
        if column is None or lower is None or upper is None:
            return self._all
        return _mask(column.null_counts.is_valid()) | ~(lower.equal(prefix) & upper.equal(prefix))

    def _compare(self, term: Any, rule: Callable[[Bounds, Bounds], Mask]) -> Mask:
        """Apply a rule to the lower and upper bounds, except where there are none."""
        column = self._column(term)
        if column is None:
            return self._all
        lower, upper = _bounds(term, column)
        if lower is None or upper is None:
            return ~self._nothing_to_compare(column)
        return rule(lower, upper) & ~self._nothing_to_compare(column)

    def _differs(self, term: Any, values: set[Any]) -> Mask:
        """Return the files that can have a row without any of these values."""
        column = self._column(term)
        if column is None:
            return self._all
        lower, upper = _bounds(term, column)
        if lower is None or upper is None:
            return self._all
        one = np.zeros(len(lower.present), np.bool_)
        for value in values:
            one |= lower.equal(value) & upper.equal(value)
        one &= _is(column.null_counts, 0)
        kind = term.ref().field.field_type
        return ~(one & _is(column.nan_counts, 0) if isinstance(kind, FloatType | DoubleType) else one)

    def _prefix_bounds(self, term: Any, length: int) -> tuple[ByteBounds | None, ByteBounds | None]:
        column = self._column(term)
        if column is None:
            return None, None
        lower, upper = _bounds(term, column)
        if not isinstance(lower, ByteBounds) or not isinstance(upper, ByteBounds):
            return None, None
        return lower.cut(length), upper.cut(length)

    def _column(self, term: Any) -> FieldStatistics | None:
        # Bounds and counts of a column are not those of a transform of it.
        return self._statistics.get(term.field.field_id) if isinstance(term, BoundReference) else None

    def _nothing_to_compare(self, column: FieldStatistics | None) -> Mask:
        return self._only_nulls(column) | self._only_nans(column)

    def _only_nulls(self, column: FieldStatistics | None) -> Mask:
        return self._none if column is None else _same(column.null_counts, column.value_counts)

    def _only_nans(self, column: FieldStatistics | None) -> Mask:
        return self._none if column is None else _same(column.nan_counts, column.value_counts)


def _bounds(term: Any, column: FieldStatistics) -> tuple[Bounds | None, Bounds | None]:
    """Return the lower and the upper bounds of a column."""
    kind = term.ref().field.field_type
    return bounds_of(kind, column.lower), bounds_of(kind, column.upper)


def _any_inside(lower: Bounds, upper: Bounds, literals: set[Any]) -> Mask:
    """Return where at least one value is neither below the lower nor above the upper bound."""
    inside = np.zeros(len(lower.present), np.bool_)
    for value in literals:
        inside |= ~(lower.above(value) | upper.below(value))
    return lower.nan | inside


def _is(counts: pa.Array, value: int) -> Mask:
    return _mask(pc.equal(counts, value))


def _same(part: pa.Array, whole: pa.Array) -> Mask:
    """Return where the part equals the whole, and neither is missing or zero."""
    return _mask(pc.and_(pc.equal(part, whole), pc.greater(whole, 0)))


def _mask(flags: pa.Array) -> Mask:
    made: Mask = np.asarray(pc.fill_null(flags, False))
    return made
