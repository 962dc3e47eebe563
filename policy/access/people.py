"""The users about whom a report asks, those together whom the policies cannot tell apart.

Rules:
- Users are the catalog's, with their groups and roles; those whom only the policies name, without groups; and
  one whom neither names.
- Users are alike if the policies name the same of their groups, do not name them, and they hold the same
  roles and own nothing. So every item names all of them or none.
- A policy with a macro in its resources, or with a condition, tells everybody apart, by name. A report then
  asks for each user.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from policy.errors import RequestInvalid
from policy.principal import PUBLIC, Principal
from policy.ranger.equivalence import ANONYMOUS, tells_everybody_apart
from policy.ranger.model import GROUP, ROLE, USER, Item, Policy
from policy.ranger.policy_set import PolicySet

EVERYBODY_ELSE: Final = ANONYMOUS
"""The name of the user whom neither the catalog nor a policy names."""


@dataclass(frozen=True, slots=True)
class Alike:
    """Users who get one answer.

    Attributes:
        first: one of them.
        users: all of them, for `People.names`.
    """

    first: Principal
    users: frozenset[int]


@dataclass(frozen=True, slots=True)
class Relevant:
    """The policies of a set that can have a say in a question.

    Attributes:
        policies: the set.
        about: those of its policies.
        owner: the owner of what is asked for.
    """

    policies: PolicySet
    about: Sequence[Policy]
    owner: str | None


class People:
    """The users, in classes of those who are alike.

    Args:
        known: the users of the catalog, with every group and role.
        sets: the policies that are asked.
        owners: the owners of what is asked for.

    Attributes:
        classes: the classes; each user is in one.
        without_members: the groups that policies name, and no known user is in.
        everybody: all classes, by their positions.
        with_other_roles: the classes that hold other roles in one set than in another.
    """

    def __init__(
        self, known: Iterable[Principal], sets: Sequence[PolicySet], owners: Set[str] = frozenset()
    ) -> None:
        self._sets = tuple(sets)
        items = [item for each in sets for policy in each.every_policy for item in policy.every_item]
        none = frozenset[str]()
        users = none.union(*(item.users for item in items))
        groups = none.union(*(item.groups for item in items))
        by_name = {each.name: each for each in known}
        for name in sorted({*users, *owners}.difference(by_name)):
            # A policy can name what is no name of a user. It is for nobody.
            with suppress(RequestInvalid):
                by_name[name] = Principal(name)
        by_name.setdefault(ANONYMOUS, Principal(ANONYMOUS))
        alone = users | owners
        found: dict[Hashable, list[Principal]] = {}
        for each in by_name.values():
            own = each.name if each.name in alone else None
            held = tuple(self._held(side, each) for side in self._sets)
            found.setdefault((own, each.groups & groups, held), []).append(each)
        self.classes: tuple[tuple[Principal, ...], ...] = tuple(map(tuple, found.values()))
        self._singles = [each for alike in self.classes for each in alike]
        sizes = (len(each) for each in self.classes)
        self._offsets = list(accumulate(sizes, initial=len(self.classes)))
        members = frozenset[str]().union(*(each.groups for each in by_name.values()))
        self.without_members = tuple(sorted(groups - members - {PUBLIC}))
        self.everybody = frozenset(range(len(self.classes)))
        self._members = tuple(map(self._by_member, self._sets))
        self.with_other_roles = frozenset(
            place
            for place, alike in enumerate(self.classes)
            if len({self._held(side, alike[0]) for side in self._sets}) > 1
        )

    def _held(self, policies: PolicySet, principal: Principal) -> frozenset[str]:
        return policies.subject(principal, None).roles

    def _by_member(self, policies: PolicySet) -> dict[tuple[str, str], set[int]]:
        found: dict[tuple[str, str], set[int]] = {}
        for position, alike in enumerate(self.classes):
            first = alike[0]
            # A user whom an item names is in a class of their own.
            names = [(USER, first.name)] if len(alike) == 1 else []
            names += [(GROUP, each) for each in first.groups]
            names += [(ROLE, each) for each in self._held(policies, first)]
            for name in names:
                found.setdefault(name, set()).add(position)
        return found

    def named_by(self, policies: Iterable[Policy], owner: str | None) -> frozenset[int]:
        """The classes to whom some policies can say something."""
        found: frozenset[int] = frozenset()
        for policy in policies:
            items = policy.every_item
            if policy.deny_all_else or any(item.everyone for item in items):
                return self.everybody
            for place in range(len(self._sets)):
                found = found.union(*(self._named_in(place, item, owner) for item in items))
        return found

    def alike(self, classes: Iterable[int], sides: Sequence[Relevant]) -> Iterator[Alike]:
        """The users of some classes, those together who get one answer to a question.

        Args:
            classes: the classes.
            sides: the policies that can have a say in it, of each set.
        """
        if any(tells_everybody_apart(policy) for side in sides for policy in side.about):
            for position in classes:
                first = self._offsets[position]
                for place, each in enumerate(self.classes[position], first):
                    yield Alike(each, frozenset({place}))
            return
        for some in self._named_alike(frozenset(classes), sides):
            yield Alike(self.classes[min(some)][0], some)

    def _named_alike(self, classes: frozenset[int], sides: Sequence[Relevant]) -> Iterator[frozenset[int]]:
        """The classes together that the same items name."""
        labels: dict[int, list[int]] = {}
        items = [
            (place, side.owner, item)
            for place, side in enumerate(sides)
            for each in side.about
            for item in each.every_item
        ]
        for number, (place, owner, item) in enumerate(items):
            for position in self._named_in(place, item, owner) & classes:
                labels.setdefault(position, []).append(number)
        rest = classes.difference(labels)
        if rest:
            yield rest
        found: dict[tuple[int, ...], set[int]] = {}
        for position, numbers in labels.items():
            found.setdefault(tuple(numbers), set()).add(position)
        yield from map(frozenset, found.values())

    def _named_in(self, place: int, item: Item, owner: str | None) -> frozenset[int]:
        """The classes that an item of one of the sets names, if it does not name everyone."""
        names = _names(item, owner)
        return frozenset().union(*(self._members[place].get(each, ()) for each in names))

    def names(self, users: Iterable[int]) -> tuple[str, ...]:
        """The names of users, as `Alike.users` numbers them, sorted."""
        count = len(self.classes)
        found = [
            each.name
            for number in users
            for each in (self.classes[number] if number < count else (self._singles[number - count],))
        ]
        return tuple(sorted(found))


def _names(item: Item, owner: str | None) -> Iterable[tuple[str, str]]:
    yield from item.named
    if item.owner and owner is not None:
        yield USER, owner
