"""The users about whom a report asks, as sets of bits.

Rules:
- Users are the catalog's, with their groups and roles; those whom only policies, roles, attributes or owners
  name, without groups; and one whom nothing names.
- A set of users is an integer with a bit for each, so that sets of ten thousand users are compared at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Set
from contextlib import suppress
from typing import Final, TypeAlias

from policy.errors import RequestInvalid
from policy.principal import PUBLIC, Principal
from policy.ranger.equivalence import ANONYMOUS
from policy.ranger.model import GROUP, ROLE, USER, Item
from policy.ranger.policy_set import PolicySet

EVERYBODY_ELSE: Final = ANONYMOUS
"""The name of the user whom neither the catalog nor a policy names."""

#: A set of users: bit n is set for the user at place n.
Users: TypeAlias = int


class People:
    """The users.

    Args:
        known: the users of the catalog, with every group and role.
        sets: the policies that are asked.
        owners: the owners of what is asked for.

    Attributes:
        users: the users; their places are the bits of sets.
        everybody: the set of all of them.
        without_members: the groups that policies and roles name, and no known user is in.
    """

    def __init__(
        self, known: Iterable[Principal], sets: Sequence[PolicySet], owners: Set[str] = frozenset()
    ) -> None:
        items = [item for each in sets for policy in each.every_policy for item in policy.every_item]
        none = frozenset[str]()
        groups = none.union(*(item.groups for item in items), *(each.groups_in_roles for each in sets))
        users = none.union(*(item.users for item in items), *(each.users_beside_policies for each in sets))
        by_name = {each.name: each for each in known}
        for name in sorted({*users, *owners}.difference(by_name)):
            # A policy can name what is no name of a user. It is for nobody.
            with suppress(RequestInvalid):
                by_name[name] = Principal(name)
        by_name.setdefault(ANONYMOUS, Principal(ANONYMOUS))
        self.users = tuple(by_name.values())
        self.everybody: Users = (1 << len(self.users)) - 1
        members = none.union(*(each.groups for each in self.users))
        self.without_members = tuple(sorted(groups - members - {PUBLIC}))
        named = [
            (name, place)
            for place, each in enumerate(self.users)
            for name in ((USER, each.name), *((GROUP, group) for group in each.groups))
        ]
        self._named = _sets(named)

    def with_roles(self, policies: PolicySet) -> Named:
        """The users by what items name them by; their roles are those that they hold by a set of policies."""
        held = [
            ((ROLE, role), place)
            for place, each in enumerate(self.users)
            for role in policies.subject(each, None).roles
        ]
        return Named(self._named | _sets(held))

    def names(self, users: Users) -> tuple[str, ...]:
        """The names of some users, sorted."""
        return tuple(sorted(self.users[place].name for place in places(users)))


class Named:
    """The users by the names that items call them by."""

    __slots__ = ("_by_name",)

    def __init__(self, by_name: dict[tuple[str, str], Users]) -> None:
        self._by_name = by_name

    def by(self, item: Item, owner: str | None) -> Users:
        """The users whom an item names, beside those whom it names as everyone."""
        found = 0
        for name in item.named:
            found |= self._by_name.get(name, 0)
        if item.owner and owner is not None:
            found |= self._by_name.get((USER, owner), 0)
        return found

    def holders(self, role: str) -> Users:
        """The users who hold a role."""
        return self._by_name.get((ROLE, role), 0)

    @property
    def roles(self) -> frozenset[str]:
        """The roles that somebody holds."""
        return frozenset(name for kind, name in self._by_name if kind == ROLE)


def _sets(named: Iterable[tuple[tuple[str, str], int]]) -> dict[tuple[str, str], Users]:
    found: dict[tuple[str, str], Users] = {}
    for name, place in named:
        found[name] = found.get(name, 0) | 1 << place
    return found


def places(users: Users) -> Iterator[int]:
    """The places of some users, in order."""
    bits = f"{users:b}"[::-1]
    place = bits.find("1")
    while place >= 0:
        yield place
        place = bits.find("1", place + 1)


def first(users: Users) -> int:
    """The place of the first of some users."""
    return (users & -users).bit_length() - 1
