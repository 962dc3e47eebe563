"""What a change of policies would grant to whom, and what it would take away.

Rules:
- What is compared are decisions: each access type of a resource, for a column with the mask, for a table with
  the row filters. Nothing is concluded from the texts of policies.
- A decision about a kind of resource, in the same zones, depends only on what policies say to the user about
  it (`policy.access.statements`). One is enough for all users and resources for whom that is the same.
- Where both sets say the same, nothing is decided: the answers are equal, now and at every time.
- Roles, attributes, tags and owners decide which items name a user and which conditions hold. That is part of
  what policies say. Where zones differ, every answer is compared.
- Where both sets say different things, answers that are the same now can differ at another time, if the time
  decides something in what they say. That is a change, too.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, TypeAlias

from policy.access.people import People, Users, first
from policy.access.statements import Numbers, Statement, Statements, alike
from policy.access.timed import timed_names
from policy.access.user_names import UserNames
from policy.principal import Principal
from policy.privileges.requests import ANY, AccessRequest, Resource
from policy.ranger.model import Policy
from policy.ranger.parse import no_pause
from policy.ranger.policy_set import PolicySet

ROWS: Final = "rows"
"""What of a table's rows is seen, beside the access types."""

DENIED: Final = "denied"
ALLOWED: Final = "allowed"
AT_OTHER_TIMES: Final = "at other times"
"""The effect where policies say different things, some by the time, and the answers are the same now."""


@dataclass(frozen=True, slots=True)
class Thing:
    """A resource to compare.

    Attributes:
        resource: the resource.
        owner: its owner.
        columns: names of a table's columns and fields; called only if they can matter.
    """

    resource: Resource
    owner: str | None = None
    columns: Callable[[], Iterable[str]] = tuple


@dataclass(frozen=True, slots=True)
class Change:
    """One difference, with all users and resources for which it is the same.

    Attributes:
        effect: ``grants``, ``takes away``, ``changes`` (another mask or row filter), or `AT_OTHER_TIMES`.
        access: the access type, or `ROWS`; None if policies that depend on the time differ.
        before: the answer by the old policies: ``denied``, ``allowed``, a mask or row filters.
        after: the answer by the new ones.
        users: names of the users.
        resources: the resources.
        timed: names of the policies by which the answers depend on the time.
    """

    effect: str
    access: str | None
    before: str
    after: str
    users: tuple[str, ...]
    resources: tuple[Resource, ...]
    timed: tuple[str, ...]


#: A difference, without users and resources.
_Kind: TypeAlias = tuple[str | None, str, str, tuple[str, ...]]


def differences(
    old: PolicySet,
    new: PolicySet,
    people: People,
    things: Iterable[Thing],
    now: datetime,
    pause: Callable[[], None] = no_pause,
) -> list[Change]:
    """What `new` would grant or take away.

    Args:
        old: the policies before.
        new: the policies after.
        people: the users, made of both sets in this order and of the owners of all things.
        things: what to compare. Most of the work for one is done before the next one is taken.
        now: the time, with a zone.
        pause: called often meanwhile; an error that it raises ends the comparison.
    """
    comparison = _Comparison(old, new, people, now, pause)
    found: dict[_Kind, dict[Users, list[Resource]]] = {}
    for thing in things:
        for resource, changes in comparison.changes(thing):
            for kind, users in changes.items():
                found.setdefault(kind, {}).setdefault(users, []).append(resource)
    return [
        Change(_effect(*kind), *kind[:3], people.names(users), tuple(resources), kind[3])
        for kind, by_users in found.items()
        for users, resources in by_users.items()
    ]


def answers(
    policies: PolicySet,
    principal: Principal,
    resource: Resource,
    owner: str | None,
    now: datetime,
) -> dict[str, str]:
    """What a set of policies answers to a user about a resource, by access type.

    For a column, `select` says the mask. For a table, `ROWS` says which rows are seen.
    """

    def allows(access: str) -> bool:
        return policies.decide(AccessRequest(principal, resource, access, owner), now).allowed

    found = {each: ALLOWED if allows(each) else DENIED for each in sorted(resource.access_types)}
    if resource.levels[-1] == "column" and found["select"] == ALLOWED:
        database, table, column = resource.values
        mask = policies.mask_for(principal, database, table, column, now, owner=owner)
        found["select"] = ALLOWED if mask is None else f"masked: {mask.type}"
    if resource.levels[-1] == "table":
        found[ROWS] = _rows(policies, principal, resource, owner, now) if allows(ANY) else DENIED
    return found


def _rows(
    policies: PolicySet, principal: Principal, table: Resource, owner: str | None, now: datetime
) -> str:
    database, name = table.values
    filters = policies.row_filters_for(principal, database, name, now, owner=owner)
    texts = {"no row" if each.filter is None else each.filter.text for each in filters}
    return f"where {' AND '.join(f'({each})' for each in sorted(texts))}" if texts else ALLOWED


def _effect(access: str | None, before: str, after: str, timed: tuple[str, ...]) -> str:
    if access is None:
        return AT_OTHER_TIMES
    if before == DENIED or after == ALLOWED:
        return "grants"
    return "takes away" if after == DENIED or before == ALLOWED else "changes"


class _Comparison:
    """Compares what two sets of policies answer."""

    def __init__(
        self, old: PolicySet, new: PolicySet, people: People, now: datetime, pause: Callable[[], None]
    ) -> None:
        self._people, self._now, self._pause = people, now, pause
        names, numbers = UserNames([each.name for each in people.users]), Numbers()
        self._sides = tuple(Statements(each, people, names, now, numbers, pause) for each in (old, new))
        users, tags, self._zones_differ = (
            before != after for before, after in zip(old.surroundings, new.surroundings, strict=True)
        )
        self._other_roles = self._roles_that_differ()
        self._conditions_differ = users or tags or bool(self._other_roles)
        self._changes: dict[Hashable, dict[_Kind, Users]] = {}
        self._answers: tuple[dict[Hashable, dict[str, str]], ...] = ({}, {})

    def _roles_that_differ(self) -> frozenset[str]:
        """The roles that other users hold in the one set than in the other."""
        old, new = (side.named for side in self._sides)
        return frozenset(each for each in old.roles | new.roles if old.holders(each) != new.holders(each))

    def changes(self, thing: Thing) -> Iterator[tuple[Resource, dict[_Kind, Users]]]:
        """The differences for a resource and a table's columns, with the users."""
        found = tuple(side.policies.candidates(thing.resource) for side in self._sides)
        if self._are_equal(found):
            return
        yield thing.resource, self._of(thing.resource, thing.owner, found)
        for name in thing.columns():
            database, table = thing.resource.values
            column = Resource.column(database, table, name)
            yield column, self._of(column, thing.owner, found)

    def _are_equal(self, found: Sequence[Sequence[Policy]]) -> bool:
        """Whether both sets have the same policies about a resource and its columns, which say the same."""
        old, new = found
        return (
            not self._zones_differ
            and len(old) == len(new)
            and all(each is other or each == other for each, other in zip(old, new, strict=True))
            and not any(map(self._says_another_thing, old))
        )

    def _says_another_thing(self, policy: Policy) -> bool:
        """Whether the same policy can say different things in the two sets."""
        if self._conditions_differ and policy.every_condition:
            return True
        return any(not item.roles.isdisjoint(self._other_roles) for item in policy.every_item)

    def _of(
        self, resource: Resource, owner: str | None, found: Sequence[Sequence[Policy]]
    ) -> dict[_Kind, Users]:
        said = [side.about(resource, owner, about) for side, about in zip(self._sides, found, strict=True)]
        zones = tuple(side.policies.zones_of(resource) for side in self._sides)
        key = (resource.levels, zones, *(tuple(each.number for each in side) for side in said))
        known = self._changes.get(key)
        if known is None:
            known = self._changes[key] = self._compared(resource, owner, said, zones)
        return known

    def _compared(
        self,
        resource: Resource,
        owner: str | None,
        said: Sequence[Sequence[Statement]],
        zones: Sequence[Hashable],
    ) -> dict[_Kind, Users]:
        found: dict[_Kind, Users] = {}
        concerned = self._people.everybody if self._zones_differ else _concerned(*said)
        for some in alike(concerned, said):
            self._pause()
            old, new = some.said
            if old[1] == new[1] and not self._zones_differ:
                continue
            asker = self._people.users[first(some.users)]
            before, after = (
                self._answered(place, zones[place], some.said[place][0], asker, resource, owner)
                for place in range(len(self._sides))
            )
            differ = [(access, before[access], after[access]) for access in before]
            kinds: list[tuple[str | None, str, str]] = [each for each in differ if each[1] != each[2]]
            timed = timed_names(said, some.users)
            for kind in kinds or ([(None, "", "")] if timed else []):
                found[(*kind, timed)] = found.get((*kind, timed), 0) | some.users
        return found

    def _answered(
        self,
        place: int,
        zones: Hashable,
        said: Hashable,
        asker: Principal,
        resource: Resource,
        owner: str | None,
    ) -> dict[str, str]:
        known, key = self._answers[place], (resource.levels, zones, said)
        if key not in known:
            known[key] = answers(self._sides[place].policies, asker, resource, owner, self._now)
        return known[key]


def changed_policies(old: PolicySet, new: PolicySet) -> list[Policy]:
    """The policies that only one of the sets has."""
    before, after = (dict.fromkeys(side.every_policy) for side in (old, new))
    return [*(each for each in before if each not in after), *(each for each in after if each not in before)]


def named_keys(sets: Iterable[PolicySet]) -> frozenset[str]:
    """The master keys that policies name without wildcards."""
    return _named(sets, "key")


def named_engines(sets: Iterable[PolicySet]) -> frozenset[str]:
    """The engines that policies name without wildcards."""
    return _named(sets, "engine")


def _named(sets: Iterable[PolicySet], level: str) -> frozenset[str]:
    levels = (
        found
        for side in sets
        for policy in side.every_policy
        for resource in policy.resources
        if resource.hierarchy[0].name == level
        for found in resource.patterns
    )
    return frozenset(each.text for found in levels for each in found.patterns if each.text)


def _concerned(old: Sequence[Statement], new: Sequence[Statement]) -> Users:
    """The users to whom something is said that is not said to them in both sets, in the same order."""
    both = {each.number for each in old} & {each.number for each in new}
    shared = [[each.number for each in side if each.number in both] for side in (old, new)]
    wanted = both if shared[0] == shared[1] else frozenset[int]()
    found = 0
    for each in (*old, *new):
        found |= 0 if each.number in wanted else each.users
    return found
