"""Reads row filters: predicates in Spark's SQL, limited to what an Iceberg expression can say.

- Comparisons of a column with a constant, `IN`, `BETWEEN`, `IS NULL`, `LIKE 'prefix%'`, `AND`, `OR`, `NOT`; a
  boolean column by itself. Columns are not compared with each other, and no function takes a column, but
  `isnull`, `isnotnull`, `isnan` and `startswith`. `is_member('group')` is a condition.
- `policy.restrictions.operands` reads columns and constants, `policy.restrictions.syntax` the text.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sqlglot import exp

from policy.restrictions.conditions import (
    Column,
    Condition,
    Every,
    Inverted,
    Listed,
    Member,
    Nan,
    Null,
    Operand,
    Related,
    RowFilter,
    Some,
    Text,
    Truth,
    User,
)
from policy.restrictions.dates import refused
from policy.restrictions.operands import column_of, operand_of
from policy.restrictions.predicate import Comparison
from policy.restrictions.syntax import SHOWN, call, joined, parts, tree_of, unknown, unknown_function

_COMPARISONS: Final[Mapping[type[exp.Expr], Comparison]] = {
    exp.EQ: Comparison.EQ,
    exp.NEQ: Comparison.NOT_EQ,
    exp.LT: Comparison.LT,
    exp.LTE: Comparison.LT_EQ,
    exp.GT: Comparison.GT,
    exp.GTE: Comparison.GT_EQ,
}
_MIRRORED: Final = {
    Comparison.LT: Comparison.GT,
    Comparison.LT_EQ: Comparison.GT_EQ,
    Comparison.GT: Comparison.LT,
    Comparison.GT_EQ: Comparison.LT_EQ,
}


def row_filter(text: str) -> RowFilter:
    """Read a row filter.

    Raises:
        PolicyInvalid: it is not a predicate of the kind that the module describes.
    """
    return RowFilter(text, _condition(tree_of(text)))


def _condition(node: exp.Expr) -> Condition:
    match node:
        case exp.Paren():
            return _condition(parts(node, "this")["this"])
        case exp.And() | exp.Or():
            found = tuple(map(_condition, joined(node, type(node))))
            return Every(found) if isinstance(node, exp.And) else Some(found)
        case exp.Not():
            return Inverted(_condition(parts(node, "this")["this"]))
        case exp.Boolean():
            return Truth(bool(node.this))
        case exp.Column() | exp.Dot():
            return column_of(node)
        case exp.Is():
            return _is(node)
        case exp.NullSafeEQ():
            return _null_safe(node)
        case exp.Between():
            return _between(node)
        case exp.In():
            return _in(node)
        case exp.Like():
            return _like(node)
        case exp.Anonymous():
            return _function(node)
    comparison = _COMPARISONS.get(type(node))
    if comparison is None:
        raise unknown(node)
    sides = parts(node, "this", "expression")
    return _related(comparison, operand_of(sides["this"]), operand_of(sides["expression"]))


def _related(comparison: Comparison, left: Operand, right: Operand) -> Related:
    """A comparison whose column, if there is one, is on the left."""
    if isinstance(right, Column):
        if isinstance(left, Column):
            raise refused(f"it compares the columns {left} and {right} with each other")
        return Related(_MIRRORED.get(comparison, comparison), right, left)
    return Related(comparison, left, right)


def _is(node: exp.Expr) -> Condition:
    sides = parts(node, "this", "expression")
    if not isinstance(sides["expression"], exp.Null):
        raise unknown(node)
    return Null(column_of(sides["this"]))


def _null_safe(node: exp.Expr) -> Condition:
    sides = parts(node, "this", "expression")
    left, right = sides["this"], sides["expression"]
    if isinstance(right, exp.Null):
        return Null(column_of(left))
    related = _related(Comparison.EQ, operand_of(left), operand_of(right))
    if not isinstance(related.left, Column):
        return related
    return Every((Inverted(Null(related.left)), related))


def _between(node: exp.Expr) -> Condition:
    found = parts(node, "this", "low", "high")
    operand, low, high = (operand_of(found[name]) for name in ("this", "low", "high"))
    return Every(
        (_related(Comparison.GT_EQ, operand, low), _related(Comparison.LT_EQ, operand, high)),
    )


def _in(node: exp.Expr) -> Condition:
    found = parts(node, "this", "expressions")
    if not found.get("expressions"):
        raise refused("IN has no list of constants")
    among = tuple(map(operand_of, found["expressions"]))
    if any(isinstance(each, Column) for each in among):
        raise refused("IN has a column in its list")
    return Listed(operand_of(found["this"]), among)


def _like(node: exp.Expr) -> Condition:
    sides = parts(node, "this", "expression", "negate")
    column, pattern = column_of(sides["this"]), operand_of(sides["expression"])
    if not isinstance(pattern, Text):
        raise refused("LIKE has no string behind it")
    prefix = pattern.value.removesuffix("%")
    if not prefix or "%" in prefix or "_" in prefix:
        raise refused(
            f"LIKE {pattern.value[:SHOWN]!a} is not a prefix", "Use LIKE 'prefix%', or compare with =."
        )
    comparison = Comparison.EQ if prefix == pattern.value else Comparison.STARTS_WITH
    related = Related(comparison, column, Text(prefix))
    return Inverted(related) if "negate" in sides else related


def _function(node: exp.Anonymous) -> Condition:
    name, arguments = call(node)
    match name, arguments:
        case "is_member", [argument]:
            group = operand_of(argument)
            if not isinstance(group, Text) or not group.value.strip():
                raise refused("is_member takes the name of a group, as a string")
            return Member(group.value)
        case "isnull", [argument]:
            return Null(column_of(argument))
        case "isnotnull", [argument]:
            return Inverted(Null(column_of(argument)))
        case "isnan", [argument]:
            return Nan(column_of(argument))
        case "startswith", [argument, prefix]:
            found = operand_of(prefix)
            if not isinstance(found, Text | User) or found == Text(""):
                raise refused("startswith takes a column and a string that is not empty")
            return Related(Comparison.STARTS_WITH, column_of(argument), found)
    raise unknown_function(node)
