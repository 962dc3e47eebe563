"""The expressions and statements of conditions, and what they say in given circumstances."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from policy.ranger.circumstances import Circumstances
from policy.ranger.conditions.names import FUNCTIONS, NAMES
from policy.ranger.conditions.times import Span
from policy.ranger.conditions.truth import Truth, Unknown, all_of, any_of, negated
from policy.ranger.conditions.values import Value, call, equals, less, member, outcome, same, truthy


@dataclass(frozen=True, slots=True)
class Constant:
    """A text, a number, ``true``, ``false`` or ``null``."""

    value: str | float | bool | None


@dataclass(frozen=True, slots=True)
class ListOf:
    """``[a, b]``."""

    items: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Named:
    """One of `NAMES`."""

    name: str


@dataclass(frozen=True, slots=True)
class Member:
    """``of.name``, ``of['name']``."""

    of: Expression
    name: Expression


@dataclass(frozen=True, slots=True)
class Method:
    """``of.name(arguments)``."""

    of: Expression
    name: str
    arguments: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Function:
    """``ctx.name(arguments)``, one of `FUNCTIONS`."""

    name: str
    arguments: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Within:
    """Whether the time is in a span."""

    span: Span


@dataclass(frozen=True, slots=True)
class Compare:
    """``left sign right``."""

    sign: str
    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class Not:
    """``!of``."""

    of: Expression


@dataclass(frozen=True, slots=True)
class All:
    """``a && b``."""

    parts: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class AnyOf:
    """``a || b``."""

    parts: tuple[Expression, ...]


Expression: TypeAlias = (
    Constant | ListOf | Named | Member | Method | Function | Within | Compare | Not | All | AnyOf
)


@dataclass(frozen=True, slots=True)
class Result:
    """``ctx.result = value``, or an expression that is the whole condition."""

    value: Expression


@dataclass(frozen=True, slots=True)
class If:
    """``if (test) then else otherwise``."""

    test: Expression
    then: tuple[Statement, ...]
    otherwise: tuple[Statement, ...]


Statement: TypeAlias = Result | If

_COMPARISONS: Final[Mapping[str, Callable[[Value, Value], Truth]]] = {
    "==": equals,
    "!=": lambda one, other: negated(equals(one, other)),
    "===": same,
    "!==": lambda one, other: negated(same(one, other)),
    "<": less,
    ">": lambda one, other: less(other, one),
    "<=": lambda one, other: negated(less(other, one)),
    ">=": lambda one, other: negated(less(one, other)),
}
SIGNS: Final = tuple(_COMPARISONS)
"""The signs of comparisons."""


def run(statements: Sequence[Statement], c: Circumstances, before: Truth = False) -> Truth:
    """The result of a condition; of one that sets none, the one before.

    Raises:
        Undecided: it is unknown as a whole.
    """
    found = before
    for each in statements:
        found = holds(each.value, c, result=True) if isinstance(each, Result) else _branch(each, c, found)
    return found


def _branch(statement: If, c: Circumstances, before: Truth) -> Truth:
    test = holds(statement.test, c)
    if not isinstance(test, Unknown):
        return run(statement.then if test else statement.otherwise, c, before)
    found = [run(each, c, before) for each in (statement.then, statement.otherwise)]
    return found[0] if found[0] == found[1] else test


def holds(expression: Expression, c: Circumstances, *, result: bool = False) -> Truth:
    """Whether an expression holds.

    The value of ``a && b`` and ``a || b`` is that of one of the two; so it matters what the value is for.

    Args:
        expression: the expression.
        c: the circumstances.
        result: whether its value is the result of the condition; else it is an operand.

    Raises:
        Undecided: the condition is unknown as a whole.
    """
    if isinstance(expression, All):
        last = len(expression.parts) - 1
        return all_of(
            holds(each, c, result=result and place == last) for place, each in enumerate(expression.parts)
        )
    if isinstance(expression, AnyOf):
        return any_of(holds(each, c, result=result) for each in expression.parts)
    value = value_of(expression, c)
    return outcome(value) if result else truthy(value)


def value_of(expression: Expression, c: Circumstances) -> Value:
    """The value of an expression.

    Raises:
        Undecided: the condition is unknown as a whole.
    """
    match expression:
        case Constant(value):
            return value
        case ListOf(items):
            return _values(items, c)
        case Named(name):
            return NAMES[name](c)
        case Member(of, name):
            return member(value_of(of, c), value_of(name, c))
        case Method(of, name, arguments):
            return call(value_of(of, c), name, _values(arguments, c))
        case Function(name, arguments):
            values = _values(arguments, c)
            unknown = next((each for each in values if isinstance(each, Unknown)), None)
            return FUNCTIONS[name][1](c, values) if unknown is None else unknown
        case Within(span):
            return span.has(c.now)
        case Compare(sign, left, right):
            return _COMPARISONS[sign](value_of(left, c), value_of(right, c))
        case Not(of):
            return negated(holds(of, c))
        case All() | AnyOf():
            return holds(expression, c)


def _values(expressions: Sequence[Expression], c: Circumstances) -> tuple[Value, ...]:
    return tuple(value_of(each, c) for each in expressions)
