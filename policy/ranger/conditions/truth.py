"""True, false and unknown, with Kleene's connectives.

Rule: a result is true or false only if it would be so whatever the unknown parts are.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NoReturn, TypeAlias


@dataclass(frozen=True, slots=True)
class Unknown:
    """Neither true nor false is known, or no value is.

    Attributes:
        reason: why, as a clause: ``the attributes of the user 'ann' are not known``.
    """

    reason: str

    def __bool__(self) -> NoReturn:
        # Else every unknown condition would hold wherever somebody writes `if condition.holds(...)`.
        raise TypeError("Unknown is neither true nor false")


Truth: TypeAlias = bool | Unknown


def all_of(truths: Iterable[Truth]) -> Truth:
    """Conjunction; what comes after the first false one is not looked at."""
    found: Truth = True
    for each in truths:
        if each is False:
            return False
        if found is True:
            found = each
    return found


def any_of(truths: Iterable[Truth]) -> Truth:
    """Disjunction; what comes after the first true one is not looked at."""
    found: Truth = False
    for each in truths:
        if each is True:
            return True
        if found is False:
            found = each
    return found


def negated(truth: Truth) -> Truth:
    """Negation."""
    return truth if isinstance(truth, Unknown) else not truth
