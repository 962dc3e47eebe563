"""Security zones: parts of the resources that are decided by policies of their own.

Rules:
- A resource in one zone is decided by the policies of that zone; one in none, or in several, by those without
  a zone. A resource that has a zone's resources below it is in that zone and in none.
- Policies on tags are those of the zone, if a tag service is associated with it, and those without a zone
  otherwise.
- "Any access" is granted if one of the zones of the resource grants it.
- A policy of a zone that no document defines counts everywhere, but only to deny.

Source: Ranger's RangerSecurityZoneMatcher and RangerPolicyEngineImpl. Stricter than Ranger: a location stands
for everything below it, so that each of its zones has to grant what is asked, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, TypeAlias

from policy.ranger.matching import Match, ResourcePattern, Target
from policy.ranger.model import Policy
from policy.ranger.resource_tree import ResourceTree

#: The name of a zone; None for what is in none.
ZoneName: TypeAlias = str | None

_KEPT_TARGETS: Final = 4096
_OUTSIDE: Final[tuple[ZoneName, ...]] = (None,)


@dataclass(frozen=True, slots=True)
class Zone:
    """A security zone.

    Attributes:
        name: its name.
        resources: what is in it.
        has_tag_service: whether a tag service is associated with it.
    """

    name: str
    resources: tuple[ResourcePattern, ...]
    has_tag_service: bool


class Zones:
    """The zones that documents define.

    Args:
        zones: the zones by name.

    Attributes:
        known: the same zones.
    """

    __slots__ = ("known", "of")

    def __init__(self, zones: Mapping[str, Zone]) -> None:
        self.known = zones
        known = tuple(zones.values())
        tree = ResourceTree(zone.resources for zone in known)
        self.of = lru_cache(_KEPT_TARGETS)(lambda target: _zones_of(known, tree, target))
        """The zones of a resource, one or more, in order."""

    def __bool__(self) -> bool:
        return bool(self.known)

    def counts(self, policy: Policy, zone: ZoneName) -> bool:
        """Whether a policy decides what is in a zone."""
        if policy.zone is not None and policy.zone not in self.known:
            return True
        if policy.tag is None or (zone is not None and self.known[zone].has_tag_service):
            return policy.zone == zone
        return policy.zone is None


def _zones_of(zones: tuple[Zone, ...], tree: ResourceTree, target: Target) -> tuple[ZoneName, ...]:
    found: set[ZoneName] = set()
    for position in frozenset().union(*tree.about(target)):
        zone = zones[position]
        matches = {resource.match(target, "") for resource in zone.resources} - {Match.NONE}
        if matches:
            found.add(zone.name)
        if Match.BELOW in matches:
            found.add(None)
    return tuple(sorted(found, key=lambda name: name or "")) or _OUTSIDE


def deciding(zones: tuple[ZoneName, ...]) -> ZoneName:
    """The zone whose policies decide an access, a mask or a row filter of a resource in some zones."""
    return zones[0] if len(zones) == 1 else None
