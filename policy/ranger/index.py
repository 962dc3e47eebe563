"""Which policies can be about a resource, found without asking every policy.

The index narrows by the literal names of the first two levels (database and table); the candidates are then
matched one by one, so it changes no answer. Locations are not indexed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product
from typing import Final

from policy.ranger.matching import LevelPattern, ResourcePattern, Target
from policy.ranger.model import Policy

_DEPTH: Final = 2
_MAX_KEYS: Final = 256
"""A policy with more combinations of names than this counts as open at every level."""

_Key = tuple[str | None, ...]


class PolicyIndex:
    """Policies of one type, in the order of their priority and then of the documents."""

    __slots__ = ("_by_names", "policies")

    def __init__(self, policies: Iterable[Policy]) -> None:
        self.policies: tuple[Policy, ...] = tuple(sorted(policies, key=lambda policy: -policy.priority))
        self._by_names: dict[_Key, list[int]] = {}
        for position, policy in enumerate(self.policies):
            for key in {key for resource in policy.resources for key in _keys(resource)}:
                self._by_names.setdefault(key, []).append(position)

    def candidates(self, target: Target) -> Sequence[Policy]:
        """The policies that can match `target`, in order; some of them may not match."""
        names = tuple(spellings[0] for spellings in target.spellings[:_DEPTH])
        choices = [(name, None) for name in names]
        found: set[int] = set()
        for key in product((target.levels[0],), *choices):
            found.update(self._by_names.get(key, ()))
        return [self.policies[position] for position in sorted(found)]


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
