"""Applies the row filters of plans to unmasked values, by SQL's three-valued logic.

Source: docs/plan-format.md, "Restrictions".
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import NestedField

from catalog.client.picked_fields import values, way
from policy.restrictions.predicate import (
    And,
    Compare,
    Comparison,
    Constant,
    In,
    IsNan,
    IsNull,
    NotNan,
    NotNull,
    Or,
    Predicate,
)

_COMPARED = {
    Comparison.EQ: pc.equal,
    Comparison.NOT_EQ: pc.not_equal,
    Comparison.LT: pc.less,
    Comparison.LT_EQ: pc.less_equal,
    Comparison.GT: pc.greater,
    Comparison.GT_EQ: pc.greater_equal,
}


def kept(predicate: Predicate, rows: pa.Table, fields: Sequence[NestedField]) -> pa.ChunkedArray:
    """For each row whether the filter is true; NULL and false keep none.

    Args:
        predicate: the filter, in its explicit form.
        rows: with all columns that it reads.
        fields: of these rows.
    """
    match predicate:
        case Constant(value):
            return pa.chunked_array([pa.repeat(pa.scalar(value), rows.num_rows)])
        case And(parts):
            return reduce(pc.and_kleene, (kept(each, rows, fields) for each in parts))
        case Or(parts):
            return reduce(pc.or_kleene, (kept(each, rows, fields) for each in parts))
        case IsNull(field_id):
            return pc.is_null(_column(field_id, rows, fields))
        case NotNull(field_id):
            return pc.is_valid(_column(field_id, rows, fields))
        case IsNan(field_id):
            return pc.fill_null(pc.is_nan(_column(field_id, rows, fields)), False)
        case NotNan(field_id):
            return pc.invert(pc.fill_null(pc.is_nan(_column(field_id, rows, fields)), False))
        case In(field_id, literals, negated):
            column = _column(field_id, rows, fields)
            found = pc.is_in(column, pa.array([each.value for each in literals], column.type))
            return pc.and_(pc.is_valid(column), pc.invert(found) if negated else found)
        case Compare():
            return _compared(predicate, _column(predicate.field_id, rows, fields))
    raise AssertionError(predicate)


def _compared(predicate: Compare, column: pa.ChunkedArray) -> pa.ChunkedArray:
    value = predicate.literal.value
    if predicate.comparison is Comparison.STARTS_WITH:
        return pc.starts_with(column, str(value))
    if predicate.comparison is Comparison.NOT_STARTS_WITH:
        return pc.invert(pc.starts_with(column, str(value)))
    return _COMPARED[predicate.comparison](column, pa.scalar(value, column.type))


def _column(field_id: int, rows: pa.Table, fields: Sequence[NestedField]) -> pa.ChunkedArray:
    return values(rows, fields, way(fields, field_id))
