"""The conditions of a row filter as it is written: by names of columns, without types, for any user.

`policy.restrictions.sql` reads them, and `policy.restrictions.binding` makes them a `Predicate`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import TypeAlias

from policy.restrictions.predicate import Comparison


@dataclass(frozen=True, slots=True)
class Column:
    """A column or a field of structs, by its name and those of what it is in."""

    path: tuple[str, ...]

    def __str__(self) -> str:
        return ".".join(self.path)


@dataclass(frozen=True, slots=True)
class Text:
    """A string."""

    value: str


@dataclass(frozen=True, slots=True)
class Number:
    """A number.

    Attributes:
        value: the number as it is written.
        double: whether it is written with an exponent, so that Spark compares with it as doubles.
    """

    value: Decimal
    double: bool = False


@dataclass(frozen=True, slots=True)
class Day:
    """A date."""

    value: date


@dataclass(frozen=True, slots=True)
class Moment:
    """A timestamp; with a zone only if it is written."""

    value: datetime


@dataclass(frozen=True, slots=True)
class User:
    """The name of the user.

    Attributes:
        word: what is written, if it has no parentheses: a column of that name comes first.
    """

    word: str | None = None


@dataclass(frozen=True, slots=True)
class Today:
    """The date of today.

    Attributes:
        steps: months and days that are added to it one after the other.
        word: what is written, if it has no parentheses: a column of that name comes first.
    """

    steps: tuple[tuple[int, int], ...] = ()
    word: str | None = None


@dataclass(frozen=True, slots=True)
class Truth:
    """True or false."""

    value: bool


Operand: TypeAlias = Column | Text | Number | Day | Moment | User | Today | Truth


@dataclass(frozen=True, slots=True)
class Member:
    """Whether the user is in a group."""

    group: str


@dataclass(frozen=True, slots=True)
class Related:
    """Two operands compared."""

    comparison: Comparison
    left: Operand
    right: Operand


@dataclass(frozen=True, slots=True)
class Listed:
    """Whether an operand equals one of some."""

    operand: Operand
    among: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class Null:
    """Whether a column is NULL."""

    column: Column


@dataclass(frozen=True, slots=True)
class Nan:
    """Whether a column is NaN."""

    column: Column


@dataclass(frozen=True, slots=True)
class Inverted:
    """The negation."""

    child: Condition


@dataclass(frozen=True, slots=True)
class Every:
    """Whether all conditions hold."""

    parts: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Some:
    """Whether one condition holds."""

    parts: tuple[Condition, ...]


Condition: TypeAlias = Column | Truth | Member | Related | Listed | Null | Nan | Inverted | Every | Some


@dataclass(frozen=True, slots=True)
class RowFilter:
    """A row filter of a policy.

    Attributes:
        text: as it is written.
        condition: what it says.
    """

    text: str
    condition: Condition

    @property
    def columns(self) -> frozenset[Column]:
        """The columns that it names."""
        return frozenset(_columns(self.condition))


def _columns(condition: Condition) -> Iterator[Column]:
    match condition:
        case Column():
            yield condition
        case Null(column) | Nan(column):
            yield column
        case Related(_, left, right):
            yield from (each for each in (left, right) if isinstance(each, Column))
        case Listed(operand, among):
            yield from (each for each in (operand, *among) if isinstance(each, Column))
        case Inverted(child):
            yield from _columns(child)
        case Every(parts) | Some(parts):
            for part in parts:
                yield from _columns(part)
