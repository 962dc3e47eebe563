"""Tags of resources, and the policies on tags as policies on the resources that have them.

Rules:
- A tag of a resource is a tag of everything in it: that of a database is on its tables and columns. "Any
  access" to a resource looks at the tags of what is below it, too.
- A policy on tags is about every resource with a tag of that name, once for each tag: the same tag with other
  attributes is another one.
- A row filter is about the tags of a table and of its database, a mask about those of a column and what it is
  in.
- In names of tags, letter case counts. There are no wildcards.

Source: Ranger's RangerTagEnricher, RangerServiceResourceMatcher and RangerPolicyRepository.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, replace
from typing import Final

from policy.ranger.circumstances import Subject
from policy.ranger.evaluate import is_named
from policy.ranger.matching import LevelPattern, Match, ResourcePattern, Target
from policy.ranger.model import AssignedTag, Policy, PolicyType
from policy.ranger.patterns import Pattern
from policy.ranger.resource_tree import NO_NAMES, PossibleNames, ResourceTree
from policy.ranger.servicedef import TABLES, Level, limit_of


@dataclass(frozen=True, slots=True)
class TaggedResource:
    """A resource with its tags.

    Attributes:
        resource: the resource.
        tags: its tags.
    """

    resource: ResourcePattern
    tags: tuple[AssignedTag, ...]


class AssignedTags:
    """The tags of all resources.

    Attributes:
        are_timed: whether a tag is assigned at some times only.
        resources: the resources that have tags.
    """

    __slots__ = ("_tree", "are_timed", "resources")

    def __init__(
        self,
        resources: Iterable[TaggedResource],
        pause: Callable[[], None] = lambda: None,
    ) -> None:
        self.resources: tuple[TaggedResource, ...] = tuple(resources)
        self.are_timed = any(tag.validity for each in self.resources for tag in each.tags)
        self._tree = ResourceTree(([each.resource] for each in self.resources), pause)

    def about(self, targets: Iterable[Target]) -> dict[AssignedTag, list[ResourcePattern]]:
        """The tags of resources that can be one of these, in them or around them, with the resources."""
        positions = {place for target in targets for each in self._tree.about(target) for place in each}
        return _by_tag(self.resources[position] for position in sorted(positions))

    def on(self, target: Target) -> tuple[tuple[AssignedTag, bool], ...]:
        """The tags of a resource, with whether they are on it or around it, rather than on what is below."""
        found: dict[AssignedTag, bool] = {}
        for tag, resources in self.about([target]).items():
            matches = {each.match(target, "") for each in resources} - {Match.NONE}
            if matches:
                found[tag] = matches != {Match.BELOW}
        return tuple(found.items())

    def all(self) -> dict[AssignedTag, list[ResourcePattern]]:
        """All tags, with the resources that have them."""
        return _by_tag(self.resources)

    def names(self, database: str | None, types: Set[str]) -> PossibleNames:
        """Names of databases, or of tables of one, that have such a tag, or have something below with one."""
        if not types:
            return NO_NAMES

        def wanted(positions: Set[int], _levels: int) -> bool:
            return any(tag.type in types for each in positions for tag in self.resources[each].tags)

        return self._tree.names(database, wanted)


def _by_tag(resources: Iterable[TaggedResource]) -> dict[AssignedTag, list[ResourcePattern]]:
    found: dict[AssignedTag, list[ResourcePattern]] = {}
    for each in resources:
        for tag in each.tags:
            found.setdefault(tag, []).append(each.resource)
    return found


NO_TAGS: Final = AssignedTags(())
"""No resource has a tag."""


class TagPolicies:
    """The policies on tags, with the tags that are assigned.

    Args:
        policies: the policies, those on tags alone.
        tags: the tags of all resources.

    Attributes:
        policies: the policies, highest priority first.
    """

    __slots__ = ("_by_tag", "_tags", "policies")

    def __init__(self, policies: Iterable[Policy], tags: AssignedTags) -> None:
        self.policies = tuple(sorted(policies, key=lambda policy: -policy.priority))
        self._tags = tags
        self._by_tag: dict[str, list[Policy]] = {}
        for policy in self.policies:
            for name in _types(policy):
                self._by_tag.setdefault(name, []).append(policy)

    def about(self, kind: PolicyType, targets: Sequence[Target]) -> list[Policy]:
        """The policies of a type on tags of what can be one of these resources, in them or around them.

        Returns:
            each as a policy on the resources that have the tag; highest priority first.
        """
        if not self._by_tag:
            return []
        found = [
            bound
            for tag, resources in self._tags.about(targets).items()
            for policy in self._by_tag.get(tag.type, ())
            if policy.type is kind
            for bound in _bound(policy, tag, resources)
        ]
        return sorted(found, key=lambda policy: -policy.priority)

    @property
    def tags(self) -> AssignedTags:
        """The tags of all resources."""
        return self._tags

    @property
    def are_timed(self) -> bool:
        """Whether the time decides anything."""
        return self._tags.are_timed or any(policy.is_timed for policy in self.policies)

    def everywhere(self) -> Iterator[Policy]:
        """The policies on tags, each as a policy on all resources that have the tag."""
        for tag, resources in self._tags.all().items():
            for policy in self._by_tag.get(tag.type, ()):
                yield from _bound(policy, tag, resources)

    def names(self, database: str | None, subject: Subject) -> PossibleNames:
        """Names of databases, or of tables of one, with tags on which access policies can say something to a
        user."""
        own = (each for each in self.policies if each.type is PolicyType.ACCESS and says(each, subject))
        return self._tags.names(database, {name for policy in own for name in _types(policy)})


def says(policy: Policy, subject: Subject) -> bool:
    """Whether a policy can say something to a user, who can own some of its resources."""
    return policy.deny_all_else or any(item.owner or is_named(item, subject) for item in policy.every_item)


def _types(policy: Policy) -> frozenset[str]:
    levels = (level for resource in policy.resources for level in resource.patterns)
    return frozenset(pattern.text for level in levels for pattern in level.patterns if pattern.text)


def _bound(policy: Policy, tag: AssignedTag, resources: Iterable[ResourcePattern]) -> Iterator[Policy]:
    """A policy on tags as policies on what has the tag: one for each hierarchy of resources."""
    fitted = [found for each in resources if (found := _FITTED[policy.type](each)) is not None]
    for hierarchy in dict.fromkeys(each.hierarchy for each in fitted):
        own = tuple(each for each in fitted if each.hierarchy == hierarchy)
        limit = policy.limit or limit_of(hierarchy)
        yield replace(policy, resources=own, tag=tag, origin=policy, limit=limit)


def _with_all_below(resource: ResourcePattern) -> ResourcePattern:
    """A resource with everything in it."""
    missing = resource.hierarchy[len(resource.patterns) :]
    return replace(resource, patterns=(*resource.patterns, *map(_any, missing)))


def _columns(resource: ResourcePattern) -> ResourcePattern | None:
    """The columns in a resource; None if it is no table, column or database."""
    return _with_all_below(resource) if resource.hierarchy == TABLES else None


def _tables(resource: ResourcePattern) -> ResourcePattern | None:
    """The tables in a resource; None if it is no table or database."""
    found = _columns(resource)
    if found is None or not found.patterns[2].is_any or found.patterns[2].excludes:
        return None
    return replace(found, patterns=found.patterns[:2])


_FITTED: Final[dict[PolicyType, Callable[[ResourcePattern], ResourcePattern | None]]] = {
    PolicyType.ACCESS: _with_all_below,
    PolicyType.MASK: _columns,
    PolicyType.ROW_FILTER: _tables,
}


def _any(level: Level) -> LevelPattern:
    return LevelPattern.of([Pattern.of("*", level)], excludes=False)
