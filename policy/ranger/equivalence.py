"""Columns and principals whom the policies about a table cannot tell apart: one answer holds for all of them.

Rules:
- Columns are alike if they are in the same security zone, and each policy relates to them in the same way.
- Principals are alike if each item names all of them or none; the roles that they hold count.
- Where a policy's resources have a macro, or it has a condition anywhere, everybody and everything is told
  apart, by name.

Whether a policy is valid now, and whether it can be evaluated, is the same for all columns and principals.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate, islice
from typing import Final, TypeVar

from policy.principal import Principal
from policy.privileges.requests import Resource
from policy.ranger.answers import relation
from policy.ranger.circumstances import Subject
from policy.ranger.index import has_macro
from policy.ranger.matching import Match, Target
from policy.ranger.model import Policy
from policy.ranger.policy_set import PolicySet
from policy.ranger.zones import ZoneName

T = TypeVar("T")

ANONYMOUS: Final = "(anonymous)"
"""Stands for a user who is in a group, has a role, or is named by no policy; no user has this name."""


@dataclass(frozen=True, slots=True)
class PrincipalClass:
    """Some who are alike.

    Attributes:
        who: for principals: ``user 'ann'``, ``group 'hr'``, ``role 'clerk'`` or ``everybody else``.
        principal: one of them.
    """

    who: tuple[str, ...]
    principal: Principal


class Naming:
    """Finds which items of some policies name a principal; for those of whom it is the same, they are alike.

    Args:
        policies: the policies.
    """

    def __init__(self, policies: Iterable[Policy]) -> None:
        self._by_name: dict[tuple[str, str], set[int]] = {}
        always, owners = set[int](), set[int]()
        items = [item for policy in policies for item in policy.every_item]
        for position, item in enumerate(items):
            for kind, names in (("user", item.users), ("group", item.groups), ("role", item.roles)):
                for name in names:
                    self._by_name.setdefault((kind, name), set()).add(position)
            if item.everyone:
                always.add(position)
            if item.owner:
                owners.add(position)
        self._always, self._owners = frozenset(always), frozenset(owners)

    def of(self, subject: Subject) -> frozenset[int]:
        """Where the items stand that name a principal."""
        names = [("user", subject.name), *(("group", each) for each in subject.groups)]
        names += [("role", each) for each in subject.roles]
        found = self._always.union(*(self._by_name.get(each, ()) for each in names))
        return found | self._owners if subject.name == subject.owner else found


def tells_everybody_apart(policy: Policy) -> bool:
    """Whether a policy can decide by the name or by attributes of a user."""
    return has_macro(policy) or bool(policy.every_condition)


class Equivalence:
    """Tells for one table who and what is alike.

    Args:
        policies: those in force.
        table: its database and name.
        owner: the table's owner.

    Attributes:
        size: how many policies and items a column or a principal is matched with; 1 or more.
    """

    def __init__(self, policies: PolicySet, table: tuple[str, str], owner: str | None) -> None:
        self._policies = policies
        self._table = table
        self._owner = owner
        self._about = policies.about_table(*table)
        self._items = [item for policy in self._about for item in policy.items]
        self.size = max(1, len(self._about), len(self._items))
        self._naming = Naming(self._about)
        self._by_name = any(map(tells_everybody_apart, self._about))

    def principals(self, most: int) -> tuple[list[PrincipalClass], bool]:
        """The principals that the policies name, and one that none names; and whether that is all of them.

        Each user, group and role stands by itself: a user in several groups is none of these.

        Args:
            most: how many to look at.
        """
        named = list(islice(self._named(), most + 1))
        alike = _grouped(named[:most], lambda each: self._class_of_principal(each[1]))
        principals = [PrincipalClass(tuple(who for who, _ in each), each[0][1]) for each in alike]
        return principals, len(named) <= most

    def columns(self, names: Iterable[str]) -> list[list[str]]:
        """Columns by their full names, those together that are alike."""
        return _grouped(names, self._class_of_column)

    def _named(self) -> Iterator[tuple[str, Principal]]:
        yield "everybody else", Principal(ANONYMOUS)
        for group in sorted({name for item in self._items for name in item.groups}):
            yield f"group {group!r}", Principal(ANONYMOUS, groups=frozenset({group}))
        for role in sorted({name for item in self._items for name in item.roles}):
            yield f"role {role!r}", Principal(ANONYMOUS, roles=frozenset({role}))
        for user in sorted({name for item in self._items for name in item.users}):
            yield f"user {user!r}", Principal(user)

    def _class_of_principal(self, principal: Principal) -> Hashable:
        if self._by_name:
            return principal
        return self._naming.of(self._policies.subject(principal, self._owner))

    def _class_of_column(self, name: str) -> Hashable:
        """A nested field is decided with all that is around it."""
        if self._by_name:
            return name
        return tuple(map(self._relations, accumulate(name.split("."), "{}.{}".format)))

    def _relations(self, name: str) -> tuple[ZoneName, *tuple[Match, ...]]:
        column = Resource.column(*self._table, name)
        target = Target.of(column)
        matches = (relation(policy, target, "", None) for policy in self._about)
        return (self._policies.zone_of(column), *matches)


def _grouped(each: Iterable[T], kind_of: Callable[[T], Hashable]) -> list[list[T]]:
    found: dict[Hashable, list[T]] = {}
    for one in each:
        found.setdefault(kind_of(one), []).append(one)
    return list(found.values())
