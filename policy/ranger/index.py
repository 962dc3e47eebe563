"""Which policies can be about a resource, found without asking every policy.

The index narrows by the literal names of the first two levels (database and table); the candidates are then
matched one by one, so it changes no answer. Locations are not indexed.

Whom a policy names is indexed, too: one that does not name the user says nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product
from typing import Final

from policy.ranger.evaluate import Subject
from policy.ranger.matching import LevelPattern, ResourcePattern, Target
from policy.ranger.model import Item, Policy

_DEPTH: Final = 2
_MAX_KEYS: Final = 256
"""A policy with more combinations of names than this counts as open at every level."""

_Key = tuple[str | None, ...]
_USER, _GROUP, _ROLE = "user", "group", "role"


class PolicyIndex:
    """Policies of one type, in the order of their priority and then of the documents."""

    __slots__ = ("_by_names", "_of_subjects", "of_everyone", "policies")

    def __init__(self, policies: Iterable[Policy]) -> None:
        self.policies: tuple[Policy, ...] = tuple(sorted(policies, key=lambda policy: -policy.priority))
        self._by_names: dict[_Key, list[int]] = {}
        self._of_subjects: dict[tuple[str, str], set[int]] = {}
        self.of_everyone = frozenset(at for at, each in enumerate(self.policies) if _is_for_everyone(each))
        for position, policy in enumerate(self.policies):
            for name in _subjects(policy):
                self._of_subjects.setdefault(name, set()).add(position)
            for key in {key for resource in policy.resources for key in _keys(resource)}:
                self._by_names.setdefault(key, []).append(position)

    def candidates(self, target: Target) -> Sequence[Policy]:
        """The policies that can match `target`, in order; some of them may not match."""
        return [self.policies[position] for position in self.positions(target)]

    def positions(self, target: Target) -> Sequence[int]:
        """Where they stand in `policies`."""
        names = tuple(spellings[0] for spellings in target.spellings[:_DEPTH])
        choices = [(name, None) for name in names]
        found: set[int] = set()
        for key in product((target.levels[0],), *choices):
            found.update(self._by_names.get(key, ()))
        return sorted(found)

    def naming(self, subject: Subject) -> frozenset[int]:
        """Where the policies stand that name a user, one of the user's groups or roles.

        Those for everyone, in `of_everyone`, can be others. No other policy says anything to the user.
        """
        names = [(_USER, subject.name)]
        names += [(_GROUP, each) for each in subject.groups] + [(_ROLE, each) for each in subject.roles]
        return frozenset().union(*(self._of_subjects.get(name, ()) for name in names))


def _items(policy: Policy) -> tuple[Item, ...]:
    return policy.items + policy.row_filters


def _is_for_everyone(policy: Policy) -> bool:
    """Whether it can say something to every user. Who owns a resource is another one for each."""
    return policy.deny_all_else or any(item.everyone or item.owner for item in _items(policy))


def _subjects(policy: Policy) -> Iterable[tuple[str, str]]:
    """The users, groups and roles that its items name."""
    for item in _items(policy):
        yield from ((_USER, each) for each in item.users)
        yield from ((_GROUP, each) for each in item.groups)
        yield from ((_ROLE, each) for each in item.roles)


def _keys(resource: ResourcePattern) -> Iterable[_Key]:
    """The keys under which a policy is found, for requests that name one level and for deeper ones."""
    root = resource.hierarchy[0].name
    names = [_names(resource, depth) for depth in range(_DEPTH)]
    if len(names[0]) * len(names[1]) > _MAX_KEYS:
        names = [(None,)] * _DEPTH
    for depth in range(1, _DEPTH + 1):
        yield from product((root,), *names[:depth])


def _names(resource: ResourcePattern, depth: int) -> tuple[str | None, ...]:
    if depth >= len(resource.patterns) or resource.hierarchy[depth].location:
        return (None,)
    pattern: LevelPattern = resource.patterns[depth]
    return pattern.literals or (None,)
