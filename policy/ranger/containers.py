"""The parts of a document of policies, whatever its form: policies, roles and security zones.

Source: Ranger's RangerPolicyList, ServicePolicies (TagPolicies, SecurityZoneInfo) and RangerRole.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from policy.fields import Field
from policy.ranger.resources import zone_resources_of
from policy.ranger.servicedef import OWN_TYPES, TAG_TYPE
from policy.ranger.zones import Zone

_CONTAINER: Final = frozenset(
    {
        "policies",
        "roles",
        "metaDataInfo",
        "startIndex",
        "pageSize",
        "totalCount",
        "resultSize",
        "sortType",
        "sortBy",
        "queryTimeMS",
        "serviceName",
        "serviceId",
        "policyVersion",
        "policyUpdateTime",
        "serviceDef",
        "auditMode",
        "tagPolicies",
        "securityZones",
        "policyDeltas",
        "serviceConfig",
    }
)
_TAG_CONTAINER: Final = frozenset(
    {
        "serviceName",
        "serviceId",
        "policyVersion",
        "policyUpdateTime",
        "policies",
        "serviceDef",
        "auditMode",
        "serviceConfig",
    }
)
_ZONE: Final = frozenset(
    {"zoneName", "resources", "policies", "policyDeltas", "containsAssociatedTagService"}
)
_LISTS: Final = frozenset({"policies", "roles", "tagPolicies", "securityZones"})


@dataclass(frozen=True, slots=True)
class Listed:
    """A policy in a document.

    Attributes:
        field: the policy.
        zone: the zone that it is listed under; None if it says itself which it belongs to.
        on_tags: whether it is listed as a policy on tags.
    """

    field: Field
    zone: str | None = None
    on_tags: bool = False


@dataclass(frozen=True, slots=True)
class Parts:
    """What a document lists.

    Attributes:
        policies: the policies.
        roles: the roles.
        zones: the zones, and where each stands.
    """

    policies: list[Listed]
    roles: list[Field]
    zones: list[tuple[Zone, Field]]


def parts_of(top: Field, pause: Callable[[], None]) -> Parts:
    """The policies, the roles and the zones in a document, whatever its form.

    Raises:
        PolicyInvalid: naming the field that is wrong.
    """
    if isinstance(top.value, list):
        return Parts(_listed(top, pause), [], [])
    names = top.names()
    if "resources" in names:
        return Parts([Listed(top)], [], [])
    if _LISTS.isdisjoint(names):
        raise top.invalid("the document is neither a policy nor a list of policies or roles.")
    container = top.members(_CONTAINER)
    policies, roles = _listed(container["policies"], pause), _elements(container["roles"], pause)
    _check_whole(container, max(len(policies), len(roles)))
    policies += _tag_policies(container["tagPolicies"], pause)
    zones = []
    for zone, field in _zones(container["securityZones"]):
        zones.append((zone, field))
        policies += (Listed(each, zone.name) for each in _elements(field["policies"], pause))
    return Parts(policies, roles, zones)


def _listed(field: Field, pause: Callable[[], None]) -> list[Listed]:
    return [Listed(each) for each in _elements(field, pause)]


def _elements(field: Field, pause: Callable[[], None]) -> list[Field]:
    found = []
    for each in field.elements():
        pause()
        found.append(each)
    return found


def _check_whole(container: Field, listed: int) -> None:
    """Refuse a container that leaves out, or keeps elsewhere, policies that may deny."""
    total = container["totalCount"].integer() or 0
    if total > listed:
        raise container["totalCount"].invalid(
            f"the document has {listed} of {total} entries.",
            "Export all entries into one document.",
        )
    for name in ("metaDataInfo", "serviceDef", "serviceConfig"):
        if container[name].given:
            container[name].names()
    _refuse_deltas(container)
    check_service_type(container["serviceDef"]["name"])


def _refuse_deltas(container: Field) -> None:
    if container["policyDeltas"].value:
        raise container["policyDeltas"].invalid("policyDeltas are not supported.")


def _tag_policies(field: Field, pause: Callable[[], None]) -> list[Listed]:
    if not field.given:
        return []
    container = field.members(_TAG_CONTAINER)
    check_service_type(container["serviceDef"]["name"], frozenset({TAG_TYPE}))
    return [Listed(each, on_tags=True) for each in _elements(container["policies"], pause)]


def _zones(field: Field) -> list[tuple[Zone, Field]]:
    if not field.given:
        return []
    return [(_zone(name, field[name]), field[name]) for name in field.names()]


def _zone(name: str, field: Field) -> Zone:
    members = field.members(_ZONE)
    if not name.strip() or members["zoneName"].optional_string() not in (None, name):
        raise members["zoneName"].invalid(f"the zone is listed under another name, {name!r}.")
    _refuse_deltas(members)
    resources = tuple(zone_resources_of(each) for each in members["resources"].elements())
    return Zone(name, resources, members["containsAssociatedTagService"].boolean(False))


def check_service_type(field: Field, known: frozenset[str] = OWN_TYPES | {TAG_TYPE}) -> None:
    """Refuse another type of service.

    Raises:
        PolicyInvalid: naming the field.
    """
    found = field.optional_string()
    if found is not None and found not in known:
        raise field.invalid(
            f"the service type {found!r} is not supported.",
            f"Export policies of these types only: {', '.join(sorted(known))}.",
        )
