"""Row filters as trees: conditions on columns by field id, with typed literals.

A row is kept only where the filter is true, by SQL's three-valued logic: a comparison with NULL is NULL, and
NULL keeps no row. NaN equals NaN and is greater than every other number, and 0.0 equals -0.0. Whether a
column is NaN is never NULL: NULL is not NaN. All of this is as in Spark.

`explicit` writes the same condition so that it does not depend on how a reader compares NULL, NaN and -0.0.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Final, TypeAlias

Value: TypeAlias = bool | int | float | Decimal | str | date | datetime


class Comparison(enum.StrEnum):
    """How a column is compared with a literal, by the names of Iceberg's expressions."""

    EQ = "eq"
    NOT_EQ = "not-eq"
    LT = "lt"
    LT_EQ = "lt-eq"
    GT = "gt"
    GT_EQ = "gt-eq"
    STARTS_WITH = "starts-with"
    NOT_STARTS_WITH = "not-starts-with"


@dataclass(frozen=True, slots=True)
class Literal:
    """A value of a column's type.

    Attributes:
        type: the column's type, as Iceberg writes it: ``decimal(9,2)``.
        value: a `bool`, `int`, `float`, `Decimal`, `str` or `date`; a `datetime` for a timestamp, with UTC as
            its zone for one with a zone.
    """

    type: str
    value: Value


@dataclass(frozen=True, slots=True)
class Constant:
    """True or false, whatever the row."""

    value: bool


@dataclass(frozen=True, slots=True)
class IsNull:
    """Whether a column is NULL; a field of a struct is NULL where the struct is."""

    field_id: int


@dataclass(frozen=True, slots=True)
class NotNull:
    """Whether a column is not NULL."""

    field_id: int


@dataclass(frozen=True, slots=True)
class IsNan:
    """Whether a floating-point column is NaN; false for NULL."""

    field_id: int


@dataclass(frozen=True, slots=True)
class NotNan:
    """Whether a floating-point column is not NaN; true for NULL."""

    field_id: int


@dataclass(frozen=True, slots=True)
class Compare:
    """A column compared with a literal."""

    comparison: Comparison
    field_id: int
    literal: Literal


@dataclass(frozen=True, slots=True)
class In:
    """Whether a column equals one of some literals; none of them, if it is `negated`."""

    field_id: int
    literals: tuple[Literal, ...]
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Not:
    """The negation of a condition; NULL stays NULL."""

    child: Predicate


@dataclass(frozen=True, slots=True)
class And:
    """Whether all of some conditions hold."""

    parts: tuple[Predicate, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """Whether one of some conditions holds."""

    parts: tuple[Predicate, ...]


Predicate: TypeAlias = Constant | IsNull | NotNull | IsNan | NotNan | Compare | In | Not | And | Or

TRUE: Final = Constant(True)
FALSE: Final = Constant(False)

_OPPOSITE: Final = {
    Comparison.EQ: Comparison.NOT_EQ,
    Comparison.NOT_EQ: Comparison.EQ,
    Comparison.LT: Comparison.GT_EQ,
    Comparison.GT_EQ: Comparison.LT,
    Comparison.GT: Comparison.LT_EQ,
    Comparison.LT_EQ: Comparison.GT,
    Comparison.STARTS_WITH: Comparison.NOT_STARTS_WITH,
    Comparison.NOT_STARTS_WITH: Comparison.STARTS_WITH,
}
#: The comparisons that hold for NaN, which is greater than every number.
_OF_NAN: Final = frozenset({Comparison.NOT_EQ, Comparison.GT, Comparison.GT_EQ})


def columns_of(predicate: Predicate) -> frozenset[int]:
    """The field ids of the columns that a filter reads."""
    return frozenset(_columns(predicate))


def _columns(predicate: Predicate) -> Iterator[int]:
    if isinstance(predicate, Not):
        yield from _columns(predicate.child)
    elif isinstance(predicate, And | Or):
        for part in predicate.parts:
            yield from _columns(part)
    elif not isinstance(predicate, Constant):
        yield predicate.field_id


def all_of(*parts: Predicate) -> Predicate:
    """The conjunction of some conditions, without what is true anyway."""
    return _joined(And, parts, TRUE, FALSE)


def any_of(*parts: Predicate) -> Predicate:
    """The disjunction of some conditions, without what is false anyway."""
    return _joined(Or, parts, FALSE, TRUE)


def _joined(
    kind: type[And] | type[Or], parts: tuple[Predicate, ...], neutral: Constant, decisive: Constant
) -> Predicate:
    flat: dict[Predicate, None] = {}
    for part in parts:
        flat.update(dict.fromkeys(part.parts if isinstance(part, kind) else (part,)))
    flat.pop(neutral, None)
    if decisive in flat:
        return decisive
    if len(flat) < 2:
        return next(iter(flat), neutral)
    return kind(tuple(flat))


def explicit(predicate: Predicate) -> Predicate:
    """The same filter for readers that differ in how they compare NULL, NaN and -0.0.

    It has no `Not`. Each comparison holds only where the column is not NULL, so that a logic of two values
    keeps the same rows as a logic of three. A comparison of floating-point numbers says what holds for NaN,
    and compares with the zero whose sign makes no difference.
    """
    return _positive(predicate)


def _positive(predicate: Predicate) -> Predicate:
    match predicate:
        case Not(child):
            return _negative(child)
        case And(parts):
            return all_of(*map(_positive, parts))
        case Or(parts):
            return any_of(*map(_positive, parts))
        case Compare():
            return all_of(NotNull(predicate.field_id), _compared(predicate))
        case In():
            return all_of(NotNull(predicate.field_id), _listed(predicate))
        case IsNan(field_id):
            return all_of(NotNull(field_id), predicate)
        case NotNan(field_id):
            return any_of(IsNull(field_id), predicate)
    return predicate


def _negative(predicate: Predicate) -> Predicate:
    match predicate:
        case Constant(value):
            return Constant(not value)
        case Not(child):
            return _positive(child)
        case And(parts):
            return any_of(*map(_negative, parts))
        case Or(parts):
            return all_of(*map(_negative, parts))
        case IsNull(field_id):
            return NotNull(field_id)
        case NotNull(field_id):
            return IsNull(field_id)
        case IsNan(field_id):
            return _positive(NotNan(field_id))
        case NotNan(field_id):
            return _positive(IsNan(field_id))
        case Compare(comparison, field_id, literal):
            return _positive(Compare(_OPPOSITE[comparison], field_id, literal))
        case In(field_id, literals, negated):
            return _positive(In(field_id, literals, not negated))
    raise AssertionError(predicate)


def _listed(predicate: In) -> Predicate:
    """A list of floating-point numbers as comparisons; other lists are exact."""
    if not any(isinstance(each.value, float) for each in predicate.literals):
        return predicate
    comparison = Comparison.NOT_EQ if predicate.negated else Comparison.EQ
    joined = all_of if predicate.negated else any_of
    compared = (Compare(comparison, predicate.field_id, each) for each in predicate.literals)
    return joined(*map(_compared, compared))


def _compared(predicate: Compare) -> Predicate:
    """A comparison of a column that is not NULL."""
    value = predicate.literal.value
    if not isinstance(value, float):
        return predicate
    if math.isnan(value):
        raise AssertionError("a literal is never NaN")
    number = _of_zero(predicate) if value == 0 else predicate
    if predicate.comparison in _OF_NAN:
        return any_of(IsNan(predicate.field_id), number)
    return all_of(NotNan(predicate.field_id), number)


def _of_zero(predicate: Compare) -> Predicate:
    """A comparison with zero that is the same whether -0.0 is less than 0.0 or equal to it."""

    def than(comparison: Comparison, value: float) -> Compare:
        return Compare(comparison, predicate.field_id, Literal(predicate.literal.type, value))

    match predicate.comparison:
        case Comparison.EQ:
            return all_of(than(Comparison.GT_EQ, -0.0), than(Comparison.LT_EQ, 0.0))
        case Comparison.NOT_EQ:
            return any_of(than(Comparison.LT, -0.0), than(Comparison.GT, 0.0))
        case Comparison.LT | Comparison.GT_EQ:
            return than(predicate.comparison, -0.0)
    return than(predicate.comparison, 0.0)
