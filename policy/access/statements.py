"""Finds what policies say about a resource to which users.

Rules:
- A decision depends on a policy only by its content without names, how its resources relate to the resource,
  which of its items name the user, whether its conditions hold, and whether the user's name leaves doubt.
- So users, and resources of one kind in the same zones, get the same answer if all policies say the same of
  these to them.
- Conditions are evaluated once for all users and resources of whom they see the same (`Inputs`).
- Users whose names a pattern with ``{USER}`` cannot meet are alike to it (`UserNames`).
- Policies that are not in force now, and tags that conditions see at other times, are part of what is said.
  Where that is the same, answers are the same at every time.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final, TypeAlias

from policy.access.people import People, Users, first, places
from policy.access.user_names import UserNames
from policy.principal import Principal
from policy.privileges.requests import Resource
from policy.ranger.answers import relation
from policy.ranger.circumstances import Circumstances
from policy.ranger.conditions.condition import Condition
from policy.ranger.conditions.inputs import Inputs
from policy.ranger.conditions.truth import Unknown
from policy.ranger.evaluate import doubt_about
from policy.ranger.index import has_macro
from policy.ranger.matching import Match, Target
from policy.ranger.model import AssignedTag, Item, Policy, PolicyType
from policy.ranger.parse import no_pause
from policy.ranger.patterns import Wild
from policy.ranger.policy_set import PolicySet

_APART: Final = (Match.NONE, Match.ABOVE)

#: Disjoint sets of users, each with what is said to them.
Parts: TypeAlias = tuple[tuple[Users, Hashable], ...]


class Numbers:
    """Gives equal values one number, so that they are compared at once."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[Hashable, int] = {}

    def of(self, value: Hashable) -> int:
        """The number of a value."""
        return self._known.setdefault(value, len(self._known))


@dataclass(frozen=True, slots=True)
class Statement:
    """What a policy says about a resource, and to whom.

    Attributes:
        number: the same for statements that say the same to the same users.
        parts: the users, and what it says to them.
        in_force: whether the policy is in force now.
        timed: the policy's name, if the time decides something in it.
    """

    number: int
    parts: Parts
    in_force: bool
    timed: str | None

    @property
    def users(self) -> Users:
        """All to whom it says something."""
        found = 0
        for users, _ in self.parts:
            found |= users
        return found


#: What the policies of a set say to some users: the statements that are in force, and all of them.
Said: TypeAlias = tuple[tuple[Hashable, ...], tuple[Hashable, ...]]
_NOTHING: Final[Said] = ((), ())


@dataclass(frozen=True, slots=True)
class Alike:
    """Users to whom the policies of each set say the same.

    Attributes:
        users: the users.
        said: what is said to them, for each set.
    """

    users: Users
    said: tuple[Said, ...]


def alike(users: Users, sides: Sequence[Sequence[Statement]]) -> list[Alike]:
    """Divide users by what statements of some sets of policies say to them."""
    found = [Alike(users, (_NOTHING,) * len(sides))] if users else []
    for place, side in enumerate(sides):
        for statement in side:
            found = [part for each in found for part in _divided(each, place, statement)]
    return found


def _divided(some: Alike, place: int, statement: Statement) -> Iterator[Alike]:
    rest = some.users
    for users, what in statement.parts:
        if inside := rest & users:
            now, ever = some.said[place]
            said = ((*now, what) if statement.in_force else now, (*ever, what))
            yield Alike(inside, (*some.said[:place], said, *some.said[place + 1 :]))
            rest ^= inside
    if rest:
        yield some if rest == some.users else replace(some, users=rest)


@dataclass(frozen=True, slots=True)
class _Facts:
    """What is the same for a policy about every resource.

    Attributes:
        content: the number of its content.
        macros: whether its resources have a macro.
        by_user: whether they have ``{USER}``.
        by_owner: whether an item is for the owner.
        inputs: what its conditions look at; None if it has none.
        in_force: whether it is in force now.
        timed: its name, if the time decides something in it.
    """

    content: int
    macros: bool
    by_user: bool
    by_owner: bool
    inputs: Inputs | None
    in_force: bool
    timed: str | None


@dataclass(frozen=True, slots=True)
class _Question:
    """A resource, as policies look at it."""

    resource: Resource
    target: Target
    owner: str | None


class Statements:
    """Finds what the policies of one set say.

    Args:
        policies: the set.
        people: the users.
        names: their names.
        now: the time, with a zone.
        numbers: numbers of what is said; the same for all sets that are compared.
        pause: called before each policy that can be about a resource; an error that it raises ends the work.
    """

    def __init__(
        self,
        policies: PolicySet,
        people: People,
        names: UserNames,
        now: datetime,
        numbers: Numbers,
        pause: Callable[[], None] = no_pause,
    ) -> None:
        self._pause = pause
        self.policies = policies
        self.named = people.with_roles(policies)
        self._people, self._names, self._now, self._numbers = people, names, now, numbers
        self._has_zones = bool(policies.surroundings[2])
        self._facts: dict[Hashable, _Facts] = {}
        self._known: dict[Hashable, Statement] = {}
        self._said: dict[Hashable, Parts] = {}
        self._sights: dict[Hashable, _Sights] = {}
        self._outcomes: dict[Hashable, dict[int, Hashable]] = {}

    def about(
        self, resource: Resource, owner: str | None, candidates: Iterable[Policy]
    ) -> tuple[Statement, ...]:
        """What policies, some of which can be about a resource, say about it."""
        asked = _Question(resource, Target.of(resource), owner)
        found = (
            self._statement(each, asked)
            for each in candidates
            if not self._has_zones or self.policies.counts(each, resource)
        )
        return tuple(each for each in found if each is not None)

    def _statement(self, policy: Policy, asked: _Question) -> Statement | None:
        self._pause()
        identity = (id(policy.origin or policy), policy.tag, policy.limit)
        facts = self._facts.get(identity)
        if facts is None:
            facts = self._facts[identity] = self._facts_of(policy)
        if facts.by_user:
            return self._by_names(policy, facts, identity, asked)
        match = relation(policy, asked.target, "", asked.owner)
        if match in _APART:
            return None
        doubt = facts.macros and doubt_about(policy, "", asked.owner) is not None
        key = (identity, match, doubt, *self._sees(facts, asked))
        found = self._known.get(key)
        if found is None:
            said = self._said_by(policy, facts, identity, asked)
            what = (facts.content, match, doubt)
            parts = tuple((users, (what, each)) for users, each in said)
            found = self._known[key] = self._numbered(parts, facts)
        return found

    def _numbered(self, parts: Parts, facts: _Facts) -> Statement:
        number = self._numbers.of((parts, facts.in_force, facts.timed))
        return Statement(number, parts, facts.in_force, facts.timed)

    def _by_names(
        self, policy: Policy, facts: _Facts, identity: Hashable, asked: _Question
    ) -> Statement | None:
        """What a policy with ``{USER}`` in its resources says."""
        said = self._said_by(policy, facts, identity, asked)
        everyone = 0
        for users, _ in said:
            everyone |= users
        close = everyone & self._names.that_matter(policy, asked.target)
        far = everyone & ~close
        found: dict[tuple[Match, bool], Users] = {}
        for some in (*(1 << place for place in places(close)), *(far & each for each in self._names.kinds)):
            if some:
                name = self._people.users[first(some)].name
                match = relation(policy, asked.target, name, asked.owner)
                if match not in _APART:
                    how = (match, doubt_about(policy, name, asked.owner) is not None)
                    found[how] = found.get(how, 0) | some
        parts = tuple(
            (inside, ((facts.content, *how), what))
            for how, some in found.items()
            for users, what in said
            if (inside := some & users)
        )
        return self._numbered(parts, facts) if parts else None

    def _facts_of(self, policy: Policy) -> _Facts:
        conditions = policy.every_condition
        patterns = [each for one in policy.resources for level in one.patterns for each in level.named]
        return _Facts(
            content=self._numbers.of(_content(policy)),
            macros=has_macro(policy),
            by_user=any(Wild.USER in each.tokens for each in patterns),
            by_owner=any(item.owner for item in policy.every_item),
            inputs=_inputs(conditions) if conditions else None,
            in_force=policy.in_force(self._now),
            timed=policy.name if self.policies.depends_on_time(policy) else None,
        )

    def _sees(self, facts: _Facts, asked: _Question) -> tuple[Hashable, ...]:
        """What a policy sees of a resource, beside how it is about it."""
        owner = asked.owner if facts.by_owner else None
        if facts.inputs is None:
            return (owner,)
        resource = asked.resource
        tags = self.policies.tags_on(resource) if facts.inputs.tags else ()
        levels = resource.levels if facts.inputs.access else None
        return owner, facts.inputs.resource(resource, asked.owner, None), tags, levels

    def _said_by(self, policy: Policy, facts: _Facts, identity: Hashable, asked: _Question) -> Parts:
        """Which items name which users, and which conditions hold for them."""
        sees = self._sees(facts, asked)
        key = (identity, sees)
        if (known := self._said.get(key)) is not None:
            return known
        named = [self._users_of(item, asked.owner) for item in policy.every_item]
        base = self._people.everybody if policy.deny_all_else else 0
        for users in named:
            base |= users
        # Tags by which conditions can hold at other times are part of what is said.
        tags = sees[2] if facts.inputs is not None and facts.timed is not None else None
        found: list[tuple[Users, tuple[Hashable, ...]]] = [(base, (tags,))]
        found = _refined(found, self._outcomes_of(policy.conditions, base, policy.tag, asked), "policy")
        for place, (item, users) in enumerate(zip(policy.every_item, named, strict=True)):
            found = _refined(found, self._outcomes_of(item.conditions, users, policy.tag, asked), place)
        return self._said.setdefault(key, tuple((users, what) for users, what in found if users))

    def _users_of(self, item: Item, owner: str | None) -> Users:
        return self._people.everybody if item.everyone else self.named.by(item, owner)

    def _outcomes_of(
        self, conditions: tuple[Condition, ...], users: Users, tag: AssignedTag | None, asked: _Question
    ) -> Iterable[tuple[Users, Hashable]]:
        """For which of some users conditions hold, do not hold, or are unknown."""
        if not conditions or not users:
            return ((users, None),)
        inputs = _inputs(conditions)
        sights = self._sights.get(inputs.of_user)
        if sights is None:
            sights = self._sights[inputs.of_user] = _Sights(inputs, self._people.users, self.policies)
        anyone = self.policies.circumstances(
            self._people.users[first(users)], asked.resource, asked.owner, self._now
        )
        accesses = sorted(asked.resource.access_types) if inputs.access else [None]
        sees = inputs.resource(asked.resource, asked.owner, anyone.tags)
        known = self._outcomes.setdefault((conditions, tag, sees, tuple(accesses)), {})
        found: dict[Hashable, Users] = {}
        for number, some in sights.among(users):
            outcome = known.get(number)
            if outcome is None:
                subject = self.policies.subject(sights.one_of(number), asked.owner)
                c = replace(anyone, subject=subject, tag=None if tag is None else tag.seen)
                outcome = known[number] = tuple(_truths(conditions, replace(c, access=a)) for a in accesses)
            found[outcome] = found.get(outcome, 0) | some
        return [(some, outcome) for outcome, some in found.items()]


class _Sights:
    """The users in sets of those of whom conditions see the same."""

    def __init__(self, inputs: Inputs, users: Sequence[Principal], policies: PolicySet) -> None:
        numbers: dict[Hashable, int] = {}
        self._sets: list[Users] = []
        self._first: list[Principal] = []
        self._of_user: list[int] = []
        for place, each in enumerate(users):
            seen = inputs.user(policies.subject(each, None), policies.attributes)
            number = numbers.setdefault(seen, len(numbers))
            if number == len(self._sets):
                self._sets.append(0)
                self._first.append(each)
            self._sets[number] |= 1 << place
            self._of_user.append(number)

    def one_of(self, number: int) -> Principal:
        """A user of a set."""
        return self._first[number]

    def among(self, users: Users) -> Iterator[tuple[int, Users]]:
        """The numbers of sets, and which of some users are in them."""
        if len(self._sets) <= users.bit_count():
            yield from ((number, some) for number, each in enumerate(self._sets) if (some := each & users))
        else:
            yield from ((self._of_user[place], 1 << place) for place in places(users))


def _inputs(conditions: Iterable[Condition]) -> Inputs:
    return Inputs.of(each.script for each in conditions if each.script is not None)


def _truths(conditions: Iterable[Condition], c: Circumstances) -> tuple[bool | None, ...]:
    """Whether conditions hold; None for one that is unknown."""
    found = (each.holds(c) for each in conditions)
    return tuple(None if isinstance(each, Unknown) else each for each in found)


def _refined(
    parts: Iterable[tuple[Users, tuple[Hashable, ...]]],
    outcomes: Iterable[tuple[Users, Hashable]],
    where: Hashable,
) -> list[tuple[Users, tuple[Hashable, ...]]]:
    """Divide parts by the users of an item, or of a policy, and by how its conditions come out for them."""
    found = []
    for users, what in parts:
        rest = users
        for some, outcome in outcomes:
            if inside := rest & some:
                found.append((inside, (*what, (where, outcome))))
                rest ^= inside
        if rest:
            found.append((rest, what))
    return found


def _content(policy: Policy) -> Hashable:
    """What of a policy decides, beside its resources and users, and its name where that does not count."""
    lists = (
        policy.allow,
        policy.deny,
        policy.allow_exceptions,
        policy.deny_exceptions,
        policy.masks,
        policy.row_filters,
    )
    none = frozenset[str]()
    blank = (
        tuple(
            replace(item, label="", users=none, groups=none, roles=none, everyone=False, owner=False)
            for item in items
        )
        for items in lists
    )
    return (
        policy.type,
        policy.priority,
        policy.deny_all_else,
        policy.schedules,
        policy.limit is not None,
        policy.conditions,
        policy.zone,
        policy.tag,
        # Of two masks, that of the first name counts.
        policy.name if policy.type is PolicyType.MASK else None,
        *blank,
    )
