"""Finds key groups that policies split: a user can select some of the columns under a key and not the others.

A key opens all of its columns, so only users who can select every one of them unmasked get it. A user who
can select some of them loses these too. That is safe, and seldom what was meant. So a note says it when a
group is made.

Every principal that a policy about the table names is checked: each user, group and role by itself, and a
user whom none names. The key can be split for a user in several groups although it is split for none of them.

That is checked once for columns and principals that the policies cannot tell apart, and has a bound: it takes
place within requests. What was not looked at is said.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import product
from typing import Final

from policy.known_table import KnownTable
from policy.principal import Principal
from policy.ranger import PolicySet
from policy.ranger.equivalence import Equivalence, PrincipalClass
from policy.view import View

_MOST_COLUMNS: Final = 1_000
_MOST_PEOPLE: Final = 1_000
#: How often a policy is matched with a column, or an item with a principal: about a second's work.
_MOST_MATCHES: Final = 50_000
_MOST_SPLITS: Final = 100
_SHOWN: Final = 3


@dataclass(frozen=True, slots=True)
class Split:
    """A key of whose columns a user can select only some.

    Attributes:
        key_id: the master key id.
        who: for principals: ``user 'ann'``, ``group 'hr', role 'clerk' and 3 more`` or ``everybody else``.
        may: columns that they can select unmasked.
        withheld: columns that they cannot.
    """

    key_id: str
    who: str
    may: tuple[str, ...]
    withheld: tuple[str, ...]

    def __str__(self) -> str:
        return (
            f"The key {self.key_id!r} is split for {self.who}: SELECT is granted on {_quoted(self.may)} "
            f"but not on {_quoted(self.withheld)}. The key decrypts all of them, so none can be read."
        )


@dataclass(frozen=True, slots=True)
class Splits:
    """What was found.

    Attributes:
        found: the keys that are split, one for all principals for whom that is so in the same way.
        complete: whether all was looked at.
    """

    found: tuple[Split, ...]
    complete: bool

    @property
    def notes(self) -> list[str]:
        """All that there is to tell, in sentences."""
        more = "Not all columns and principals were checked: the policies can split further keys."
        return [*map(str, self.found), *([] if self.complete else [more])]


def splits(
    policies: PolicySet,
    table: tuple[str, str],
    groups: Mapping[str, Iterable[str]],
    now: datetime,
    *,
    owner: str | None = None,
) -> Splits:
    """The key groups of a table that policies split.

    Args:
        policies: those in force.
        table: its database and name.
        groups: by master key id the full names of the columns under the key, nested fields included.
        now: the time, with a zone.
        owner: the table's owner.
    """
    likeness = Equivalence(policies, table, owner)
    left = _MOST_MATCHES // likeness.size
    kinds, every_column = _kinds(likeness, groups, min(_MOST_COLUMNS, left))
    principals, everybody = likeness.principals(min(_MOST_PEOPLE, left))
    found: list[Split] = []
    for each, (key_id, alike) in product(principals, kinds.items()):
        left -= sum(_questions(columns[0]) for columns in alike)
        if left < 0:
            break
        split = _split(
            key_id, alike, each, lambda name, who: _entitled(policies, who, table, name, now, owner)
        )
        found += [] if split is None else [split]
    complete = every_column and everybody and left >= 0 and len(found) <= _MOST_SPLITS
    return Splits(tuple(found[:_MOST_SPLITS]), complete)


def _kinds(
    likeness: Equivalence, groups: Mapping[str, Iterable[str]], most: int
) -> tuple[dict[str, list[list[str]]], bool]:
    """Of each key the columns, those together that are alike; and whether `most` of them were enough for all.

    A key whose columns are all alike is split for nobody, and left out.
    """
    kinds, left = {}, most
    for key_id, columns in sorted(groups.items()):
        names = sorted(columns)
        alike = likeness.columns(names[: max(left, 0)])
        left -= len(names)
        if len(alike) > 1:
            kinds[key_id] = alike
    return kinds, left >= 0


def _split(
    key_id: str,
    alike: list[list[str]],
    principals: PrincipalClass,
    entitled: Callable[[str, Principal], bool],
) -> Split | None:
    answers = [(columns, entitled(columns[0], principals.principal)) for columns in alike]
    may, withheld = (
        tuple(sorted(name for columns, answer in answers if answer is wanted for name in columns))
        for wanted in (True, False)
    )
    return Split(key_id, _listed(principals.who), may, withheld) if may and withheld else None


def _questions(column: str) -> int:
    """How many columns are asked about for one: those around it, too."""
    return column.count(".") + 1


def _entitled(
    policies: PolicySet,
    principal: Principal,
    table: tuple[str, str],
    column: str,
    now: datetime,
    owner: str | None,
) -> bool:
    """As a key is released, but for row filters, which are the table's."""
    view = View.of(policies, now, principal, table, owner)
    names = KnownTable().inside(column)
    return view.first_masked(names) is None and view.withheld(names) is None


def _quoted(columns: tuple[str, ...]) -> str:
    return _listed(tuple(map(repr, columns)))


def _listed(words: tuple[str, ...]) -> str:
    more = len(words) - _SHOWN
    told = ", ".join(words[:_SHOWN])
    return f"{told} and {more} more" if more > 0 else told
