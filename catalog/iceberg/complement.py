"""Builds the complement of a filter: it matches a row exactly if the filter does not.

A filter does not match a row for which a comparison is null, as in SQL. So the complement of `x > 5` is `x <=
5` or null. NaN is in the complement of every comparison, since readers order it in two ways.

It decides whether all rows of a file match: if the file can have no row of the complement. Conditions that
are joined by AND are decided one by one, because the partition can decide one of them and the bounds another.
"""

from __future__ import annotations

from typing import Any

from pyiceberg.expressions import (
    AlwaysFalse,
    AlwaysTrue,
    And,
    BooleanExpression,
    BoundPredicate,
    IsNaN,
    IsNull,
    NotNull,
    Or,
    UnboundPredicate,
)
from pyiceberg.expressions.visitors import BooleanExpressionVisitor, rewrite_not, visit


def complements(row_filter: BooleanExpression) -> list[BooleanExpression]:
    """Return the complement of each condition of a filter.

    Args:
        row_filter: the filter, not bound to a schema.

    Returns:
        filters. A row matches `row_filter` if it matches none of them.
    """
    return [visit(each, _Complement()) for each in _conditions(rewrite_not(row_filter))]


def _conditions(expression: BooleanExpression) -> list[BooleanExpression]:
    """Return the parts that are joined by AND."""
    if isinstance(expression, And):
        return [*_conditions(expression.left), *_conditions(expression.right)]
    return [expression]


class _Complement(BooleanExpressionVisitor[BooleanExpression]):
    def visit_true(self) -> BooleanExpression:
        return AlwaysFalse()

    def visit_false(self) -> BooleanExpression:
        return AlwaysTrue()

    def visit_not(self, child_result: BooleanExpression) -> BooleanExpression:
        raise ValueError("negations are rewritten before the complement is built")

    def visit_and(self, left_result: BooleanExpression, right_result: BooleanExpression) -> BooleanExpression:
        return Or(left_result, right_result)

    def visit_or(self, left_result: BooleanExpression, right_result: BooleanExpression) -> BooleanExpression:
        return And(left_result, right_result)

    def visit_unbound_predicate(self, predicate: UnboundPredicate) -> BooleanExpression:
        is_null, is_nan = (_predicate(kind, predicate.term) for kind in (IsNull, IsNaN))
        if isinstance(predicate, IsNull | NotNull):
            return ~predicate
        if isinstance(predicate, IsNaN):
            return Or(~predicate, is_null)
        return Or(~predicate, Or(is_null, is_nan))

    def visit_bound_predicate(self, predicate: BoundPredicate) -> BooleanExpression:
        raise ValueError("the complement is built of filters that are not bound")


def _predicate(kind: Any, term: Any) -> BooleanExpression:
    """Return a predicate of a class of pyiceberg's, which are not fully typed."""
    made: BooleanExpression = kind(term)
    return made
