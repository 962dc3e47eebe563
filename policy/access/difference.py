"""What a change of policies would grant to whom, and what it would take away.

Rules:
- What is compared are decisions: each access type of a resource, for a column with the mask, for a table with
  the row filters. Nothing is concluded from the texts of policies.
- Resources are alike if they are of one kind, in the same zones, and each policy relates to them in one way.
  A policy with a macro, or with a condition that looks at names or tags of the resource, tells all apart.
- Nothing is asked where it cannot matter: where both sets have the same policies about a resource, and for
  users to whom no policy that differs says anything and who hold the same roles. A difference of zones, and
  where there are conditions, of tags or attributes of users, can matter to everybody.
- Where policies that depend on the time differ, and the answers do not at this time, that is a change, too.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, TypeAlias

from policy.access.people import People, Relevant
from policy.principal import Principal
from policy.privileges.requests import ALL, ANY, AccessRequest, Resource
from policy.ranger.answers import relation
from policy.ranger.index import has_macro
from policy.ranger.matching import Match, Target
from policy.ranger.model import Policy
from policy.ranger.policy_set import PolicySet
from policy.ranger.tags import says

ROWS: Final = "rows"
"""What of a table's rows is seen, beside the access types."""

DENIED: Final = "denied"
ALLOWED: Final = "allowed"
AT_OTHER_TIMES: Final = "at other times"
"""The effect where policies differ that depend on the time, and the answers do not now."""

#: Policies of both sets about a resource.
_About: TypeAlias = tuple[Sequence[Policy], Sequence[Policy]]


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


@dataclass(slots=True)
class _Group:
    """Resources that are alike, by one of them."""

    first: Thing
    about: _About
    resources: list[Resource] = field(default_factory=list)


def differences(
    old: PolicySet, new: PolicySet, people: People, things: Iterable[Thing], now: datetime
) -> list[Change]:
    """What `new` would grant or take away.

    Args:
        old: the policies before.
        new: the policies after.
        people: the users, made of both sets in this order and of the owners of all things.
        things: what to compare.
        now: the time, with a zone.
    """
    comparison = _Comparison(old, new, people, now)
    groups: dict[Hashable, _Group] = {}
    for thing in things:
        for part, about in comparison.parts(thing):
            group = groups.setdefault(comparison.kind(part, about), _Group(part, about))
            group.resources.append(part.resource)
    found: dict[_Kind, dict[frozenset[int], list[Resource]]] = {}
    for group in groups.values():
        for kind, users in comparison.changes(group.first, group.about).items():
            found.setdefault(kind, {}).setdefault(frozenset(users), []).extend(group.resources)
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
    accesses: Set[str] | None = None,
) -> dict[str, str]:
    """What a set of policies answers to a user about a resource, by access type; to some, if not to all.

    For a column, `select` says the mask. For a table, `ROWS` says which rows are seen.
    """

    def allows(access: str) -> bool:
        return policies.decide(AccessRequest(principal, resource, access, owner), now).allowed

    asked = resource.access_types if accesses is None else resource.access_types & accesses
    found = {each: ALLOWED if allows(each) else DENIED for each in sorted(asked)}
    if resource.levels[-1] == "column" and found.get("select") == ALLOWED:
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
    def __init__(self, old: PolicySet, new: PolicySet, people: People, now: datetime) -> None:
        self._sets = (old, new)
        self._people = people
        self._now = now
        self._other_roles = people.with_other_roles
        users, tags, zones = (
            before != after for before, after in zip(old.surroundings, new.surroundings, strict=True)
        )
        self._conditions_differ, self._zones_differ = users or tags, zones

    def parts(self, thing: Thing) -> Iterator[tuple[Thing, _About]]:
        """What of a resource can differ: itself, and a table's columns, with the policies about it."""
        found: _About = (
            self._sets[0].candidates(thing.resource),
            self._sets[1].candidates(thing.resource),
        )
        if not self._concerned(found, thing.owner):
            return
        yield thing, _related(thing, found)
        changed = _changed(found)
        always = bool(self._other_roles) or self._zones_differ or self._by_conditions(found)
        for name in thing.columns():
            database, table = thing.resource.values
            column = Thing(Resource.column(database, table, name), thing.owner)
            if not always and not any(_related(column, (changed, ()))):
                continue
            about = _related(column, found)
            if self._concerned(about, thing.owner):
                yield column, about

    def _concerned(self, about: _About, owner: str | None) -> frozenset[int]:
        """The classes of users for whom the answers can differ."""
        if self._zones_differ or self._by_conditions(about):
            return self._people.everybody
        return self._people.named_by(_changed(about), owner) | self._other_roles

    def kind(self, thing: Thing, about: _About) -> Hashable:
        """What is the same for resources that are alike."""
        target = Target.of(thing.resource)
        policies = (*about[0], *about[1])
        return (
            thing.resource if any(map(_tells_resources_apart, policies)) else thing.resource.levels,
            thing.owner if any(map(_tells_owners_apart, policies)) else None,
            *(each.zones_of(thing.resource) for each in self._sets),
            *(
                tuple((id(each.origin or each), each.tag, relation(each, target, "", None)) for each in side)
                for side in about
            ),
        )

    def changes(self, thing: Thing, about: _About) -> dict[_Kind, set[int]]:
        """The differences for a resource, with the users."""
        sides = [Relevant(each, of, thing.owner) for each, of in zip(self._sets, about, strict=True)]
        concerned = self._concerned(about, thing.owner)
        # What policies about other access types say does not matter, unless something else differs, too.
        accesses = None if concerned & self._other_roles else _accesses(about)
        if self._zones_differ or self._by_conditions(about):
            accesses = None
        found: dict[_Kind, set[int]] = {}
        for alike in self._people.alike(concerned, sides):
            for kind in self._of_users(alike.first, thing, sides, accesses):
                found.setdefault(kind, set()).update(alike.users)
        return found

    def _by_conditions(self, about: _About) -> bool:
        """Whether what conditions look at differs, where there are any."""
        return self._conditions_differ and any(each.every_condition for side in about for each in side)

    def _of_users(
        self, principal: Principal, thing: Thing, sides: Sequence[Relevant], accesses: Set[str] | None
    ) -> Iterator[_Kind]:
        before, after = (
            answers(each, principal, thing.resource, thing.owner, self._now, accesses) for each in self._sets
        )
        timed = [timed_policies(side, principal) for side in sides]
        names = tuple(sorted({policy.name for side in timed for policy in side}))
        differ = [access for access in before if before[access] != after[access]]
        for access in differ:
            yield access, before[access], after[access], names
        if not differ and _changed((timed[0], timed[1])):
            yield None, "", "", names


def changed_policies(old: PolicySet, new: PolicySet) -> list[Policy]:
    """The policies that only one of the sets has."""
    return _changed((tuple(old.every_policy), tuple(new.every_policy)))


def named_keys(sets: Iterable[PolicySet]) -> frozenset[str]:
    """The master keys that policies name without wildcards."""
    levels = (
        level
        for side in sets
        for policy in side.every_policy
        for resource in policy.resources
        if resource.hierarchy[0].name == "key"
        for level in resource.patterns
    )
    return frozenset(each.text for level in levels for each in level.patterns if each.text)


def timed_policies(side: Relevant, principal: Principal) -> tuple[Policy, ...]:
    """The policies that can have a say for a user, and in which the time decides something."""
    subject = side.policies.subject(principal, side.owner)
    return tuple(
        policy for policy in side.about if side.policies.depends_on_time(policy) and says(policy, subject)
    )


def _related(thing: Thing, about: _About) -> _About:
    """Of the policies about a table, those about a part of it, whomever a macro stands for."""
    target = Target.of(thing.resource)
    old, new = (
        tuple(each for each in side if has_macro(each) or relation(each, target, "", None) is not Match.NONE)
        for side in about
    )
    return old, new


def _changed(about: _About) -> list[Policy]:
    """The policies that only one of the sets has."""
    old, new = about
    same = {id(each) for each in old} & {id(each) for each in new}
    left, right = ([each for each in side if id(each) not in same] for side in about)
    return [each for each in left if each not in right] + [each for each in right if each not in left]


def _accesses(about: _About) -> frozenset[str] | None:
    """The access types that policies can decide that differ; None for all of them."""
    changed = _changed(about)
    found = frozenset().union(*(item.accesses for policy in changed for item in policy.every_item))
    return None if ALL in found or any(policy.deny_all_else for policy in changed) else found


def _tells_resources_apart(policy: Policy) -> bool:
    return has_macro(policy) or any(each.looks_at_names for each in policy.every_condition)


def _tells_owners_apart(policy: Policy) -> bool:
    return has_macro(policy) or bool(policy.every_condition) or any(item.owner for item in policy.every_item)
