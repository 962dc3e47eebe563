"""Reads row filters: predicates in Spark's SQL, limited to what an Iceberg expression can say.

- Comparisons of a column with a constant, `IN`, `BETWEEN`, `IS NULL`, `LIKE 'prefix%'`, `AND`, `OR`, `NOT`; a
  boolean column by itself. Columns are not compared with each other, and no function takes a column, but
  `isnull`, `isnotnull`, `isnan` and `startswith`.
- Constants are strings, numbers, `TRUE`, `FALSE`, `DATE '…'`, `TIMESTAMP '…'`, and these functions:
  `current_user`, `session_user`, `user`, `current_date`, `date_add`, `date_sub`, `add_months`, intervals of
  days, weeks, months and years beside a date. `is_member('group')` is a condition.
- What can be read in two ways is refused: a backslash, strings that stand beside each other, NULL in a
  comparison, the macros of Ranger's resources.

sqlglot is made for translating, not for refusing. So every node that it makes is known here with all its
parts, or the filter is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any, ClassVar, Final

import sqlglot
from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ErrorLevel, SqlglotError
from sqlglot.parsers.spark import SparkParser

from policy.errors import PolicyInvalid
from policy.restrictions.conditions import (
    Column,
    Condition,
    Day,
    Every,
    Inverted,
    Listed,
    Member,
    Moment,
    Nan,
    Null,
    Number,
    Operand,
    Related,
    RowFilter,
    Some,
    Text,
    Today,
    Truth,
    User,
)
from policy.restrictions.dates import day_of, moment_of, refused
from policy.restrictions.predicate import Comparison

MAX_LENGTH: Final = 16 * 1024
"""Longest filter, in characters."""
MAX_NODES: Final = 2_000
"""Most parts of a filter."""
MAX_LEVELS: Final = 50
"""Deepest nesting of a filter; conditions that one AND or OR joins are one level."""

_SHOWN: Final = 60
_MACRO: Final = re.compile(r"\{(USER|OWNER|GROUP)\}|\$\{\{", re.IGNORECASE)
_MAX_EXPONENT: Final = 400
_MAX_SHIFT: Final = 1_000_000
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
_USER_NAMES: Final = frozenset({"current_user", "session_user", "user"})
_UNITS: Final = {"DAY": (0, 1), "WEEK": (0, 7), "MONTH": (1, 0), "YEAR": (12, 0)}
_FUNCTIONS: Final = (
    "current_user is_member current_date date_add date_sub add_months isnull isnotnull isnan startswith"
)


class _Parser(SparkParser):
    """Keeps functions under the names that the text gives them."""

    FUNCTIONS: ClassVar[dict[str, Callable[..., Any]]] = {}
    FUNCTION_PARSERS: ClassVar[dict[str, Callable[..., Any]]] = {"CAST": SparkParser.FUNCTION_PARSERS["CAST"]}


class _Dialect(Spark):
    Parser = _Parser


def row_filter(text: str) -> RowFilter:
    """Read a row filter.

    Raises:
        PolicyInvalid: it is not a predicate of the kind that the module describes.
    """
    if len(text) > MAX_LENGTH:
        raise refused(f"it has more than {MAX_LENGTH} characters")
    if "\\" in text:
        raise refused("it has a backslash, which Spark reads in one of two ways")
    try:
        tree = sqlglot.parse_one(text, dialect=_Dialect, error_level=ErrorLevel.IMMEDIATE, into=exp.Condition)
    except (SqlglotError, RecursionError) as error:
        raise refused(f"{text[:_SHOWN]!a} is not a predicate in Spark's SQL") from error
    _check_size(tree)
    return RowFilter(text, _condition(tree))


def _check_size(tree: exp.Expr) -> None:
    left: list[tuple[exp.Expr, int]] = [(tree, 0)]
    count = 0
    while left:
        node, level = left.pop()
        count += 1
        if count > MAX_NODES or level > MAX_LEVELS:
            raise refused("it is too long, or nested too deeply")
        for each in node.iter_expressions():
            joined = type(each) is type(node) and isinstance(node, exp.And | exp.Or)
            left.append((each, level if joined else level + 1))


def _condition(node: exp.Expr) -> Condition:
    match node:
        case exp.Paren():
            return _condition(_only(node, "this")["this"])
        case exp.And() | exp.Or():
            parts = tuple(map(_condition, _joined(node, type(node))))
            return Every(parts) if isinstance(node, exp.And) else Some(parts)
        case exp.Not():
            return Inverted(_condition(_only(node, "this")["this"]))
        case exp.Boolean():
            return Truth(bool(node.this))
        case exp.Column() | exp.Dot():
            return _column(node)
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
        raise _unknown(node)
    sides = _only(node, "this", "expression")
    return _related(comparison, _operand(sides["this"]), _operand(sides["expression"]))


def _joined(node: exp.Expr, kind: type[exp.Expr]) -> Iterator[exp.Expr]:
    """The conditions that one kind of operator joins, in order; sqlglot nests them to the left."""
    left = [node]
    while left:
        each = left.pop()
        if type(each) is kind:
            sides = _only(each, "this", "expression")
            left += [sides["expression"], sides["this"]]
        else:
            yield each


def _related(comparison: Comparison, left: Operand, right: Operand) -> Related:
    """A comparison whose column, if there is one, is on the left."""
    if isinstance(right, Column):
        if isinstance(left, Column):
            raise refused(f"it compares the columns {left} and {right} with each other")
        return Related(_MIRRORED.get(comparison, comparison), right, left)
    return Related(comparison, left, right)


def _is(node: exp.Expr) -> Condition:
    sides = _only(node, "this", "expression")
    if not isinstance(sides["expression"], exp.Null):
        raise _unknown(node)
    return Null(_column(sides["this"]))


def _null_safe(node: exp.Expr) -> Condition:
    sides = _only(node, "this", "expression")
    left, right = sides["this"], sides["expression"]
    if isinstance(right, exp.Null):
        return Null(_column(left))
    related = _related(Comparison.EQ, _operand(left), _operand(right))
    if not isinstance(related.left, Column):
        return related
    return Every((Inverted(Null(related.left)), related))


def _between(node: exp.Expr) -> Condition:
    parts = _only(node, "this", "low", "high")
    operand, low, high = (_operand(parts[name]) for name in ("this", "low", "high"))
    return Every(
        (_related(Comparison.GT_EQ, operand, low), _related(Comparison.LT_EQ, operand, high)),
    )


def _in(node: exp.Expr) -> Condition:
    parts = _only(node, "this", "expressions")
    if not parts.get("expressions"):
        raise refused("IN has no list of constants")
    among = tuple(map(_operand, parts["expressions"]))
    if any(isinstance(each, Column) for each in among):
        raise refused("IN has a column in its list")
    return Listed(_operand(parts["this"]), among)


def _like(node: exp.Expr) -> Condition:
    sides = _only(node, "this", "expression")
    column, pattern = _column(sides["this"]), _operand(sides["expression"])
    if not isinstance(pattern, Text):
        raise refused("LIKE has no string behind it")
    prefix = pattern.value.removesuffix("%")
    if not prefix or "%" in prefix or "_" in prefix:
        raise refused(
            f"LIKE {pattern.value[:_SHOWN]!a} is not a prefix", "Use LIKE 'prefix%', or compare with =."
        )
    comparison = Comparison.EQ if prefix == pattern.value else Comparison.STARTS_WITH
    return Related(comparison, column, Text(prefix))


def _function(node: exp.Anonymous) -> Condition:
    name, arguments = _call(node)
    match name, arguments:
        case "is_member", [argument]:
            group = _operand(argument)
            if not isinstance(group, Text) or not group.value.strip():
                raise refused("is_member takes the name of a group, as a string")
            return Member(group.value)
        case "isnull", [argument]:
            return Null(_column(argument))
        case "isnotnull", [argument]:
            return Inverted(Null(_column(argument)))
        case "isnan", [argument]:
            return Nan(_column(argument))
        case "startswith", [argument, prefix]:
            found = _operand(prefix)
            if not isinstance(found, Text | User) or found == Text(""):
                raise refused("startswith takes a column and a string that is not empty")
            return Related(Comparison.STARTS_WITH, _column(argument), found)
    raise _unknown_function(node)


def _column(node: exp.Expr) -> Column:
    return Column(tuple(_names(node)))


def _names(node: exp.Expr) -> Iterator[str]:
    match node:
        case exp.Paren():
            yield from _names(_only(node, "this")["this"])
        case exp.Column():
            parts = _only(node, "this", "table", "db", "catalog")
            yield from (_name(parts[each]) for each in ("catalog", "db", "table", "this") if each in parts)
        case exp.Dot():
            sides = _only(node, "this", "expression")
            yield from _names(sides["this"])
            yield _name(sides["expression"])
        case _:
            raise refused(f"{_text(node)} is not a column")


def _name(node: exp.Expr) -> str:
    if not isinstance(node, exp.Identifier):
        raise refused(f"{_text(node)} is not the name of a column")
    return str(node.this)


def _operand(node: exp.Expr) -> Operand:
    match node:
        case exp.Paren():
            return _operand(_only(node, "this")["this"])
        case exp.Column() | exp.Dot():
            return _column(node)
        case exp.Literal():
            return _literal(node)
        case exp.Neg():
            number = _operand(_only(node, "this")["this"])
            if not isinstance(number, Number):
                raise _unknown(node)
            return Number(number.value.copy_negate())
        case exp.Boolean():
            return Truth(bool(node.this))
        case exp.Cast():
            return _cast(node)
        case exp.CurrentUser() | exp.SessionUser():
            _only(node)
            return User()
        case exp.CurrentDate():
            _only(node)
            return Today()
        case exp.Add() | exp.Sub():
            return _shifted(node)
        case exp.Anonymous():
            return _called(node)
        case exp.Null():
            raise refused("a comparison with NULL is never true", "Use IS NULL or IS NOT NULL.")
    raise _unknown(node)


def _literal(node: exp.Literal) -> Operand:
    if node.is_string:
        value = str(node.this)
        if _MACRO.search(value):
            raise refused(
                f"the string {value[:_SHOWN]!a} has a macro, which row filters do not replace",
                "Use current_user().",
            )
        return Text(value)
    try:
        number = Decimal(str(node.this))
    except InvalidOperation as error:
        raise refused(f"{str(node.this)[:_SHOWN]!a} is not a number") from error
    if abs(number.adjusted()) > _MAX_EXPONENT:
        raise refused(f"the number {str(node.this)[:_SHOWN]} is too large or too small")
    return Number(number)


def _cast(node: exp.Cast) -> Operand:
    parts = _only(node, "this", "to")
    kind, found = parts["to"].this, _operand(parts["this"])
    if isinstance(found, Text) and kind is exp.DataType.Type.DATE:
        return Day(day_of(found.value))
    moments = (exp.DataType.Type.TIMESTAMPTZ, exp.DataType.Type.TIMESTAMPNTZ, exp.DataType.Type.TIMESTAMP)
    if isinstance(found, Text) and kind in moments:
        return Moment(moment_of(found.value))
    raise refused(
        f"{_text(node)} is not supported",
        "Write DATE '2026-01-31', TIMESTAMP '…', or a number without a type.",
    )


def _shifted(node: exp.Expr) -> Today:
    """Today, with an interval or a number of days added."""
    sides = _only(node, "this", "expression")
    today, by = sides["this"], sides["expression"]
    if isinstance(node, exp.Add) and isinstance(today, exp.Interval):
        today, by = by, today
    months, days = _interval(by) if isinstance(by, exp.Interval) else (0, _whole(by))
    sign = -1 if isinstance(node, exp.Sub) else 1
    return _later(_operand(today), sign * months, sign * days)


def _interval(node: exp.Expr) -> tuple[int, int]:
    parts = _only(node, "this", "unit")
    count = parts["this"]
    number = exp.Literal.number(str(count.this)) if isinstance(count, exp.Literal) else count
    unit = _UNITS.get(str(parts["unit"].this).upper().removesuffix("S")) if "unit" in parts else None
    if unit is None:
        raise refused(f"{_text(node)} is not an interval of days, weeks, months or years")
    months, days = unit
    return months * _whole(number), days * _whole(number)


def _whole(node: exp.Expr) -> int:
    found = _operand(node)
    if not isinstance(found, Number) or found.value != found.value.to_integral_value():
        raise refused(f"{_text(node)} is not a whole number")
    if abs(found.value) > _MAX_SHIFT:
        raise refused(f"{_text(node)} is too large")
    return int(found.value)


def _later(today: Operand, months: int, days: int) -> Today:
    if not isinstance(today, Today):
        raise refused("date arithmetic is supported on current_date alone")
    return Today((*today.steps, (months, days)))


def _called(node: exp.Anonymous) -> Operand:
    name, arguments = _call(node)
    if name in _USER_NAMES and not arguments:
        return User()
    match name, arguments:
        case "current_date" | "curdate", []:
            return Today()
        case "date_add" | "dateadd", [today, days]:
            return _later(_operand(today), 0, _whole(days))
        case "date_sub", [today, days]:
            return _later(_operand(today), 0, -_whole(days))
        case "add_months", [today, months]:
            return _later(_operand(today), _whole(months), 0)
    raise _unknown_function(node)


def _call(node: exp.Anonymous) -> tuple[str, list[exp.Expr]]:
    parts = _only(node, "this", "expressions")
    return str(parts["this"]).lower(), list(parts.get("expressions") or ())


def _only(node: exp.Expr, *names: str) -> dict[str, Any]:
    """The parts of a node, which has no others than these."""
    parts = {name: value for name, value in node.args.items() if value not in (None, False, [])}
    if not parts.keys() <= set(names):
        raise _unknown(node)
    return parts


def _text(node: exp.Expr) -> str:
    return ascii(node.sql(dialect=_Dialect, comments=False)[:_SHOWN])


def _unknown(node: exp.Expr) -> PolicyInvalid:
    return refused(f"{_text(node)} is not supported")


def _unknown_function(node: exp.Expr) -> PolicyInvalid:
    return refused(
        f"{_text(node)} is not a supported function", f"Use one of: {', '.join(_FUNCTIONS.split())}."
    )
