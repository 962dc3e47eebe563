"""The resources of policies, tags and security zones, as documents write them.

Source: Ranger's RangerPolicyResource, RangerServiceResource and SecurityZoneInfo.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from policy.fields import Field
from policy.ranger.matching import LevelPattern, ResourcePattern
from policy.ranger.model import PolicyType
from policy.ranger.patterns import Pattern
from policy.ranger.servicedef import LEVELS, TABLES, TAGS, Level, hierarchy_of

_RESOURCE_LEVELS: Final = {PolicyType.MASK: TABLES, PolicyType.ROW_FILTER: TABLES[:2]}
_WILDCARDS: Final = frozenset("*?{}")


def resource_sets(members: Field, kind: PolicyType) -> tuple[ResourcePattern, ...]:
    """The sets of resources that a policy is about.

    Raises:
        PolicyInvalid: naming the field that is wrong.
    """
    first = resources_of(members["resources"])
    sets = (first, *(resources_of(more) for more in members["additionalResources"].elements()))
    if any(found.hierarchy != first.hierarchy for found in sets):
        raise members["additionalResources"].invalid(
            "additionalResources must use the same hierarchy as resources."
        )
    wanted = None if first.hierarchy == TAGS else _RESOURCE_LEVELS.get(kind)
    for found in sets:
        if (
            wanted is not None
            and found.hierarchy != TAGS
            and found.hierarchy[: len(found.patterns)] != wanted
        ):
            names = ", ".join(level.name for level in wanted)
            raise members["resources"].invalid(
                f"a policy of type {int(kind)} must name exactly these levels: {names}."
            )
    return sets


def resources_of(field: Field) -> ResourcePattern:
    """A set of resources: an object that has, by levels, what `_level_pattern` reads.

    Raises:
        PolicyInvalid: naming the field that is wrong.
    """
    return _of_levels(field, _level_pattern)


def literal_resources_of(field: Field) -> ResourcePattern:
    """A set of resources that is the same for every user.

    Raises:
        PolicyInvalid: naming the field that is wrong.
    """
    found = resources_of(field)
    _refuse_macros(field, found)
    return found


def zone_resources_of(field: Field) -> ResourcePattern:
    """What is in a security zone: by levels, lists of values. Locations stand for all below them.

    Raises:
        PolicyInvalid: naming the field that is wrong.
    """
    found = _of_levels(field, _zone_level)
    _refuse_macros(field, found)
    return found


def _refuse_macros(field: Field, found: ResourcePattern) -> None:
    for level, pattern in zip(found.hierarchy, found.patterns, strict=False):
        if pattern.named:
            raise field[level.name].invalid("macros are not supported here.", "Name the resources.")
    if found.hierarchy == TAGS:
        raise field.invalid("a tag is not a resource.", "Name databases, tables or columns.")


def _zone_level(field: Field, level: Level) -> LevelPattern:
    return LevelPattern.of(_patterns(field, level, level.location), excludes=False)


def _of_levels(field: Field, read: Callable[[Field, Level], LevelPattern]) -> ResourcePattern:
    names = field.names()
    for name in names:
        if name not in LEVELS:
            raise field[name].invalid(
                f"the resource {name[:80]!r} is unknown.", f"Use one of: {', '.join(sorted(LEVELS))}."
            )
    hierarchy = hierarchy_of(frozenset(names))
    if hierarchy is None:
        raise field.invalid("the resources are not the top levels of one hierarchy.")
    patterns = tuple(read(field[level.name], level) for level in hierarchy[: len(names)])
    return ResourcePattern(hierarchy, patterns)


def _level_pattern(field: Field, level: Level) -> LevelPattern:
    members = field.members(frozenset({"values", "isExcludes", "isRecursive"}))
    excludes = members["isExcludes"].boolean(False)
    recursive = members["isRecursive"].boolean(False)
    if excludes and not level.excludes:
        raise members["isExcludes"].invalid(f"isExcludes is not supported for a {level.name}.")
    if recursive and not level.location:
        raise members["isRecursive"].invalid(f"isRecursive is not supported for a {level.name}.")
    return LevelPattern.of(_patterns(members["values"], level, recursive), excludes)


def _patterns(field: Field, level: Level, recursive: bool) -> list[Pattern]:
    patterns = [_pattern(value, level, recursive) for value in field.elements()]
    if not patterns:
        raise field.invalid("a resource must have at least one value.", "Use * to match all.")
    return patterns


def _pattern(field: Field, level: Level, recursive: bool) -> Pattern:
    value = field.string()
    if level in TAGS and not _WILDCARDS.isdisjoint(value):
        raise field.invalid("wildcards and macros are not supported in a tag.", "Name each tag.")
    with field.located():
        return Pattern.of(value, level, recursive)
