"""Which policies can be about a resource, found without asking every policy.

The index narrows by the literal names of the first two levels (database and table); the candidates are then
matched one by one, so it changes no answer. Locations are not indexed.

With each policy stands whom it names (`Named`): a policy that does not name the user says nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final

from policy.ranger.evaluate import Subject
from policy.ranger.matching import LevelPattern, ResourcePattern, Target
from policy.ranger.model import Policy

_DEPTH: Final = 2
_MAX_KEYS: Final = 256
"""A policy with more combinations of names than this counts as open at every level."""

_Key = tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class Named:
    """A policy, and everyone whom one of its items names.

    Attributes:
        policy: the policy.
        everyone: whether it can say something to every user.
        users, groups, roles: their names.
    """

    policy: Policy
    everyone: bool
    users: frozenset[str]
    groups: frozenset[str]
    roles: frozenset[str]

    @classmethod
    def of(cls, policy: Policy) -> Named:
        """Whom a policy names. Who owns a resource is another one for each."""
        items = policy.items + policy.row_filters
        return cls(
            policy,
            policy.deny_all_else or any(item.everyone or item.owner for item in items),
            frozenset().union(*(item.users for item in items)),
            frozenset().union(*(item.groups for item in items)),
            frozenset().union(*(item.roles for item in items)),
        )

    def is_about(self, subject: Subject) -> bool:
        """Whether it can say something to a user; a true answer costs time alone."""
        return (
            self.everyone
            or subject.name in self.users
            or not self.groups.isdisjoint(subject.groups)
            or not self.roles.isdisjoint(subject.roles)
        )


class PolicyIndex:
    """Policies of one type, in the order of their priority and then of the documents."""

    __slots__ = ("_by_names", "_named", "policies")

    def __init__(self, policies: Iterable[Policy]) -> None:
        self.policies: tuple[Policy, ...] = tuple(sorted(policies, key=lambda policy: -policy.priority))
        self._named = tuple(map(Named.of, self.policies))
        self._by_names: dict[_Key, list[int]] = {}
        for position, policy in enumerate(self.policies):
            for key in {key for resource in policy.resources for key in _keys(resource)}:
                self._by_names.setdefault(key, []).append(position)

    def candidates(self, target: Target) -> Sequence[Policy]:
        """The policies that can match `target`, in order; some of them may not match."""
        return [each.policy for each in self.named(target)]

    def named(self, target: Target) -> Sequence[Named]:
        """The same with whom each names."""
        names = tuple(spellings[0] for spellings in target.spellings[:_DEPTH])
        choices = [(name, None) for name in names]
        found: set[int] = set()
        for key in product((target.levels[0],), *choices):
            found.update(self._by_names.get(key, ()))
        return [self._named[position] for position in sorted(found)]


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
