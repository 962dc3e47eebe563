"""Which policies can be about a resource, found without asking every policy.

The index is a tree over the first two levels of a resource: database and table, or storage type and location.
At each level a policy stands under the names that it writes, or under the text before its first wildcard or
macro. A request is looked up by its name and by the beginnings of its name. A location is also looked up
among what lies below it, since a policy about that can count. What is found is then matched one by one, so
the index changes no answer.

Whom a policy names is indexed, too: one that does not name the user says nothing.

The idea of looking up policies by the text before a wildcard is that of Ranger's RangerResourceTrie.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import prod
from typing import Final, Self

from policy.letter_case import fold
from policy.ranger.circumstances import Subject
from policy.ranger.matching import ResourcePattern, Target
from policy.ranger.model import Item, Policy
from policy.ranger.patterns import Pattern
from policy.ranger.servicedef import LEVELS, Level

_DEPTH: Final = 2
_MAX_KEYS: Final = 256
"""A policy with more combinations of names than this counts as open at the lowest level, or at both."""
#: The character after the slash: what lies below a location is in order between the two.
_AFTER_SLASH: Final = chr(ord("/") + 1)

_USER, _GROUP, _ROLE = "user", "group", "role"
_DATABASE: Final = "database"


@dataclass(frozen=True, slots=True)
class _Key:
    """What a policy is found under at one level.

    Attributes:
        text: the name, or what a name begins with.
        whole: whether it is the whole name.
    """

    text: str
    whole: bool


_OPEN: Final = _Key("", whole=False)


@dataclass(slots=True)
class _Node:
    """The policies under the keys of the levels above.

    Attributes:
        positions: where all of these policies stand.
        whole: the next level by whole names.
        begun: the next level by beginnings of names.
        lengths: the lengths of these beginnings, in order.
        order: these beginnings, in order.
    """

    positions: set[int] = field(default_factory=set)
    whole: dict[str, _Node] = field(default_factory=dict)
    begun: dict[str, _Node] = field(default_factory=dict)
    lengths: tuple[int, ...] = ()
    order: tuple[str, ...] = ()

    def add(self, position: int, keys: Sequence[_Key]) -> None:
        """Add a policy under the keys of the levels from here on."""
        self.positions.add(position)
        if keys:
            nodes = self.whole if keys[0].whole else self.begun
            nodes.setdefault(keys[0].text, _Node()).add(position, keys[1:])

    def complete(self, pause: Callable[[], None]) -> None:
        """Prepare look-ups, after the last policy was added."""
        pause()
        self.lengths = tuple(sorted({len(text) for text in self.begun}))
        self.order = tuple(sorted(self.begun))
        for node in (*self.whole.values(), *self.begun.values()):
            node.complete(pause)

    def find(self, target: Target, depth: int) -> Iterator[frozenset[int]]:
        """Where the policies stand that can be about `target`, of which `depth` levels are looked up."""
        if depth == min(_DEPTH, len(target.levels)):
            yield frozenset(self.positions)
            return
        for node in self.following(target.spellings[depth][0], LEVELS[target.levels[depth]]):
            yield from node.find(target, depth + 1)

    def following(self, name: str, level: Level) -> Iterator[_Node]:
        if (node := self.whole.get(name)) is not None:
            yield node
        for length in self.lengths:
            if length > len(name):
                break
            if (node := self.begun.get(name[:length])) is not None:
                yield node
        if level.location:
            first = bisect_left(self.order, f"{name}/")
            last = bisect_left(self.order, f"{name}{_AFTER_SLASH}")
            yield from (self.begun[text] for text in self.order[first:last])


@dataclass(frozen=True, slots=True)
class PossibleNames:
    """Names that a resource can have, for a policy to say something to a user; folded.

    Attributes:
        whole: whole names; none of them begins with one of `begun`.
        begun: what others begin with, in order; none begins with another one. The empty text is for all.
    """

    whole: frozenset[str]
    begun: tuple[str, ...]

    @classmethod
    def of(cls, whole: Iterable[str], begun: Iterable[str]) -> Self:
        """The same names, each by one entry only."""
        shortest: list[str] = []
        for text in sorted(begun):
            if not (shortest and text.startswith(shortest[-1])):
                shortest.append(text)
        texts = tuple(shortest)
        return cls(frozenset(name for name in whole if not name.startswith(texts)), texts)

    @property
    def is_every(self) -> bool:
        """Whether they are all names."""
        return self.begun == ("",)

    def __contains__(self, name: str) -> bool:
        """Whether a policy can say something about this name, folded or not; False is certain."""
        folded = fold(name)
        return folded in self.whole or folded.startswith(self.begun)


class PolicyIndex:
    """Policies of one type, in the order of their priority and then of the documents.

    Attributes:
        policies: the policies.
        scheduled: where those stand in which the time decides something.
        conditional: where those stand that have conditions.
        with_macros: where those stand whose resources depend on the user or the owner.
    """

    __slots__ = (
        "_by_names",
        "_of_everyone",
        "_of_subjects",
        "conditional",
        "policies",
        "scheduled",
        "with_macros",
    )

    def __init__(self, policies: Iterable[Policy], pause: Callable[[], None] = lambda: None) -> None:
        self.policies: tuple[Policy, ...] = tuple(sorted(policies, key=lambda policy: -policy.priority))
        self._by_names: dict[str, _Node] = {}
        self._of_subjects: dict[tuple[str, str], set[int]] = {}
        everyone, scheduled, macros, conditional = set[int](), set[int](), set[int](), set[int]()
        for position, policy in enumerate(self.policies):
            pause()
            if _is_for_everyone(policy):
                everyone.add(position)
            if policy.is_timed:
                scheduled.add(position)
            if policy.every_condition:
                conditional.add(position)
            if _has_macro(policy):
                macros.add(position)
            for name in _subjects(policy):
                self._of_subjects.setdefault(name, set()).add(position)
            for resource in policy.resources:
                root = self._by_names.setdefault(resource.hierarchy[0].name, _Node())
                for keys in _keys(resource):
                    root.add(position, keys)
        self._of_everyone, self.scheduled = frozenset(everyone), frozenset(scheduled)
        self.with_macros, self.conditional = frozenset(macros), frozenset(conditional)
        for root in self._by_names.values():
            root.complete(pause)

    def candidates(self, target: Target) -> Sequence[Policy]:
        """The policies that can match `target`, in order; some of them may not match."""
        return [self.policies[position] for position in self.positions(target)]

    def positions(self, target: Target) -> Sequence[int]:
        """Where they stand in `policies`."""
        return sorted(frozenset().union(*self.about(target)))

    def about(self, target: Target) -> tuple[frozenset[int], ...]:
        """Where they stand, in sets that were made before."""
        root = self._by_names.get(target.levels[0])
        return () if root is None else tuple(root.find(target, 0))

    def databases(self, own: frozenset[int]) -> PossibleNames:
        """Names of databases that some of these policies are about, or about something below."""
        root = self._by_names.get(_DATABASE)
        return self._names([] if root is None else [root], own, 1)

    def tables(self, database: str, own: frozenset[int]) -> PossibleNames:
        """Names of tables of a database that some of these policies are about, or about something below."""
        root = self._by_names.get(_DATABASE)
        nodes = [] if root is None else list(root.following(fold(database), LEVELS[_DATABASE]))
        return self._names(nodes, own, 2)

    def _names(self, nodes: Sequence[_Node], own: frozenset[int], levels: int) -> PossibleNames:
        """Names of the next level, by policies that name at least this number of levels."""

        def are_about(positions: set[int]) -> bool:
            return any(self._names_levels(position, levels) for position in own & positions)

        if any("" in node.begun and are_about(node.begun[""].positions) for node in nodes):
            return PossibleNames.of((), ("",))
        return PossibleNames.of(
            {
                name
                for node in nodes
                for name, each in node.whole.items()
                if not own.isdisjoint(each.positions)
            },
            {text for node in nodes for text, each in node.begun.items() if are_about(each.positions)},
        )

    def _names_levels(self, position: int, levels: int) -> bool:
        """Whether a policy names at least this number of levels."""
        return any(len(each.patterns) >= levels for each in self.policies[position].resources)

    def naming(self, subject: Subject) -> frozenset[int]:
        """Where the policies stand that can say something to a user.

        They are for everyone, or name the user, one of the user's groups or roles.
        """
        names = [(_USER, subject.name)]
        names += [(_GROUP, each) for each in subject.groups] + [(_ROLE, each) for each in subject.roles]
        return self._of_everyone.union(*(self._of_subjects.get(name, ()) for name in names))


def _items(policy: Policy) -> tuple[Item, ...]:
    return policy.items + policy.row_filters


def _is_for_everyone(policy: Policy) -> bool:
    """Whether it can say something to every user. Who owns a resource is another one for each."""
    return policy.deny_all_else or any(item.everyone or item.owner for item in _items(policy))


def _has_macro(policy: Policy) -> bool:
    return any(level.named for resource in policy.resources for level in resource.patterns)


def _subjects(policy: Policy) -> Iterable[tuple[str, str]]:
    """The users, groups and roles that its items name."""
    for item in _items(policy):
        yield from ((_USER, each) for each in item.users)
        yield from ((_GROUP, each) for each in item.groups)
        yield from ((_ROLE, each) for each in item.roles)


def _keys(resource: ResourcePattern) -> Iterable[tuple[_Key, ...]]:
    """The keys under which a policy is found: one for each of the first levels, in all combinations."""
    levels = [_level_keys(resource, depth) for depth in range(min(_DEPTH, len(resource.hierarchy)))]
    for depth in reversed(range(len(levels))):
        if prod(map(len, levels)) > _MAX_KEYS:
            levels[depth] = frozenset((_OPEN,))
    return product(*levels)


def _level_keys(resource: ResourcePattern, depth: int) -> frozenset[_Key]:
    """The keys for one level; a level that the policy leaves out, or excludes names of, is open."""
    if depth >= len(resource.patterns) or resource.patterns[depth].excludes:
        return frozenset((_OPEN,))
    return frozenset(map(_key, resource.patterns[depth].patterns))


def _key(pattern: Pattern) -> _Key:
    """What every name that a pattern matches is, or begins with.

    A location also matches what lies below it, so its text is a beginning. Where it does not have a whole
    scheme, it is compared with every spelling of a location (`Pattern.matches`), so that it is open.
    """
    first = pattern.tokens[0]
    if not isinstance(first, str) or (pattern.level.location and ":" not in first):
        return _OPEN
    return _Key(first, whole=pattern.text is not None and not pattern.level.location)
