"""Reads what a row filter compares: columns and constants.

- Constants are strings, numbers, `TRUE`, `FALSE`, `DATE '…'`, `TIMESTAMP '…'`, and these functions:
  `current_user`, `session_user`, `user`, `current_date`, `date_add`, `date_sub`, `add_months`, intervals of
  days, weeks, months and years beside a date.
- The string `'${{USER._name}}'` is the user's name. Ranger puts the name into the text of the filter; here it
  is a constant, so that a name is never read as SQL. Ranger's other expressions in `${{…}}` are JavaScript.
- What can be read in two ways is refused: strings that stand beside each other, NULL in a comparison, all
  other macros in strings, a zone behind a timestamp without one.
- `current_user` and the like without parentheses are columns for Spark, where the table has one of the name.

Source: Ranger's RangerRequestExprResolver and RangerRequestScriptEvaluator.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal, InvalidOperation
from typing import Final

from sqlglot import exp

from policy.restrictions.conditions import Column, Day, Moment, Number, Operand, Text, Today, Truth, User
from policy.restrictions.dates import day_of, moment_of, refused
from policy.restrictions.syntax import NO_MACROS, SHOWN, call, parts, shown, unknown, unknown_function

_MACRO: Final = re.compile(r"\{(USER|OWNER|GROUP)\}|\$\{\{", re.IGNORECASE)
#: The user's name in Ranger's row filters.
_USER_MACRO: Final = re.compile(r"\$\{\{ *USER\._name *\}\}")
_MAX_EXPONENT: Final = 400
_MAX_SHIFT: Final = 1_000_000
_USER_NAMES: Final = frozenset({"current_user", "session_user", "user"})
_UNITS: Final = {"DAY": (0, 1), "WEEK": (0, 7), "MONTH": (1, 0), "YEAR": (12, 0)}
_MOMENTS: Final = frozenset(
    {exp.DataType.Type.TIMESTAMPTZ, exp.DataType.Type.TIMESTAMPNTZ, exp.DataType.Type.TIMESTAMP}
)


def column_of(node: exp.Expr) -> Column:
    """The column that a node is.

    Raises:
        PolicyInvalid: it is none.
    """
    return Column(tuple(_names(node)))


def _names(node: exp.Expr) -> Iterator[str]:
    match node:
        case exp.Paren():
            yield from _names(parts(node, "this")["this"])
        case exp.Column():
            found = parts(node, "this", "table", "db", "catalog")
            yield from (_name(found[each]) for each in ("catalog", "db", "table", "this") if each in found)
        case exp.Dot():
            sides = parts(node, "this", "expression")
            yield from _names(sides["this"])
            yield _name(sides["expression"])
        case _:
            raise refused(f"{shown(node)} is not a column")


def _name(node: exp.Expr) -> str:
    if not isinstance(node, exp.Identifier):
        raise refused(f"{shown(node)} is not the name of a column")
    return str(node.this)


def operand_of(node: exp.Expr) -> Operand:
    """The column or the constant that a node is.

    Raises:
        PolicyInvalid: it is none of them.
    """
    match node:
        case exp.Paren():
            return operand_of(parts(node, "this")["this"])
        case exp.Column() | exp.Dot():
            return column_of(node)
        case exp.Literal():
            return _literal(node)
        case exp.Neg():
            number = operand_of(parts(node, "this")["this"])
            if not isinstance(number, Number):
                raise unknown(node)
            return replace(number, value=number.value.copy_negate())
        case exp.Boolean():
            return Truth(bool(node.this))
        case exp.Cast():
            return _cast(node)
        case exp.CurrentUser() | exp.SessionUser() | exp.CurrentDate():
            return _without_parentheses(node)
        case exp.Add() | exp.Sub():
            return _shifted(node)
        case exp.Anonymous():
            return _called(node)
        case exp.Null():
            raise refused("a comparison with NULL is never true", "Use IS NULL or IS NOT NULL.")
    raise unknown(node)


def _literal(node: exp.Literal) -> Operand:
    written = str(node.this)
    if node.is_string:
        if _USER_MACRO.fullmatch(written):
            return User()
        if _MACRO.search(written):
            raise refused(
                f"the string {written[:SHOWN]!a} has a macro, which row filters do not replace", NO_MACROS
            )
        return Text(written)
    try:
        number = Decimal(written)
    except InvalidOperation as error:
        raise refused(f"{written[:SHOWN]!a} is not a number") from error
    if abs(number.adjusted()) > _MAX_EXPONENT:
        raise refused(f"the number {written[:SHOWN]} is too large or too small")
    return Number(number, double="e" in written.lower())


def _cast(node: exp.Cast) -> Operand:
    sides = parts(node, "this", "to")
    kind, found = parts(sides["to"], "this")["this"], operand_of(sides["this"])
    if isinstance(found, Text) and kind is exp.DataType.Type.DATE:
        return Day(day_of(found.value))
    if isinstance(found, Text) and kind in _MOMENTS:
        moment = moment_of(found.value)
        if kind is exp.DataType.Type.TIMESTAMPNTZ and moment.tzinfo is not None:
            raise refused(f"{shown(node)} has a zone, which Spark passes over", "Use TIMESTAMP '…'.")
        return Moment(moment)
    raise refused(
        f"{shown(node)} is not supported",
        "Write DATE '2026-01-31', TIMESTAMP '…', or a number without a type.",
    )


def _without_parentheses(node: exp.Expr) -> Operand:
    parts(node)
    match node:
        case exp.CurrentUser():
            return User("current_user")
        case exp.SessionUser():
            return User("session_user")
    return Today(word="current_date")


def _shifted(node: exp.Expr) -> Today:
    """Today, with an interval or a number of days added."""
    sides = parts(node, "this", "expression")
    today, by = sides["this"], sides["expression"]
    if isinstance(node, exp.Add) and isinstance(today, exp.Interval):
        today, by = by, today
    months, days = _interval(by) if isinstance(by, exp.Interval) else (0, _whole(by))
    sign = -1 if isinstance(node, exp.Sub) else 1
    return _later(operand_of(today), sign * months, sign * days)


def _interval(node: exp.Expr) -> tuple[int, int]:
    found = parts(node, "this", "unit")
    count, unit = found["this"], found.get("unit")
    number = exp.Literal.number(str(count.this)) if isinstance(count, exp.Literal) else count
    known = _UNITS.get(str(unit.this).upper().removesuffix("S")) if type(unit) is exp.Var else None
    if known is None:
        raise refused(f"{shown(node)} is not an interval of days, weeks, months or years")
    months, days = known
    return months * _whole(number), days * _whole(number)


def _whole(node: exp.Expr) -> int:
    found = operand_of(node)
    if not isinstance(found, Number) or found.value != found.value.to_integral_value():
        raise refused(f"{shown(node)} is not a whole number")
    if abs(found.value) > _MAX_SHIFT:
        raise refused(f"{shown(node)} is too large")
    return int(found.value)


def _later(today: Operand, months: int, days: int) -> Today:
    if not isinstance(today, Today):
        raise refused("date arithmetic is supported on current_date alone")
    return replace(today, steps=(*today.steps, (months, days)))


def _called(node: exp.Anonymous) -> Operand:
    name, arguments = call(node)
    if name in _USER_NAMES and not arguments:
        return User()
    match name, arguments:
        case "current_date" | "curdate", []:
            return Today()
        case "date_add" | "dateadd", [today, days]:
            return _later(operand_of(today), 0, _whole(days))
        case "date_sub", [today, days]:
            return _later(operand_of(today), 0, -_whole(days))
        case "add_months", [today, months]:
            return _later(operand_of(today), _whole(months), 0)
    raise unknown_function(node)
