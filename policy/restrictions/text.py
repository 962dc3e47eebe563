"""Writes row filters as SQL, for people: in `policy check`, `policy test` and the audit log."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from typing import Final

from policy.restrictions.predicate import (
    And,
    Compare,
    Comparison,
    Constant,
    In,
    IsNan,
    IsNull,
    Literal,
    Not,
    NotNan,
    NotNull,
    Or,
    Predicate,
)

_OPERATORS: Final = {
    Comparison.EQ: "=",
    Comparison.NOT_EQ: "<>",
    Comparison.LT: "<",
    Comparison.LT_EQ: "<=",
    Comparison.GT: ">",
    Comparison.GT_EQ: ">=",
}


def predicate_text(predicate: Predicate, name_of: Callable[[int], str]) -> str:
    """A row filter as SQL.

    Args:
        predicate: the filter.
        name_of: the name of a column by its field id.
    """
    match predicate:
        case Constant(value):
            return "TRUE" if value else "FALSE"
        case Not(child):
            return f"NOT ({predicate_text(child, name_of)})"
        case And(parts):
            return " AND ".join(_part(each, name_of) for each in parts)
        case Or(parts):
            return " OR ".join(_part(each, name_of) for each in parts)
    name = name_of(predicate.field_id)
    match predicate:
        case IsNull():
            return f"{name} IS NULL"
        case NotNull():
            return f"{name} IS NOT NULL"
        case IsNan():
            return f"isnan({name})"
        case NotNan():
            return f"NOT isnan({name})"
        case In(_, literals, negated):
            return f"{name} {'NOT IN' if negated else 'IN'} ({', '.join(map(_literal, literals))})"
        case Compare(Comparison.STARTS_WITH, _, literal):
            return f"startswith({name}, {_literal(literal)})"
        case Compare(Comparison.NOT_STARTS_WITH, _, literal):
            return f"NOT startswith({name}, {_literal(literal)})"
        case Compare(comparison, _, literal):
            return f"{name} {_OPERATORS[comparison]} {_literal(literal)}"
    raise AssertionError(predicate)


def _part(predicate: Predicate, name_of: Callable[[int], str]) -> str:
    text = predicate_text(predicate, name_of)
    return f"({text})" if isinstance(predicate, And | Or) else text


def _literal(literal: Literal) -> str:
    value = literal.value
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, datetime):
        return f"TIMESTAMP '{value.isoformat(' ')}'"
    if isinstance(value, date):
        return f"DATE '{value.isoformat()}'"
    if isinstance(value, str):
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
    return format(value, "f") if isinstance(value, Decimal) else repr(value)
