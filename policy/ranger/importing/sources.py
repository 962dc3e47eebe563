"""Sorts what Ranger's documents hold into policies, tag policies, zones, roles, tags and users.

Source: Ranger's RangerPolicyList, ServicePolicies, RangerRoleList, RangerRoles, ServiceTags, RangerUserStore.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from policy import strict_json
from policy.errors import PolicyInvalid
from policy.ranger.importing.definition import Definition
from policy.ranger.importing.report import Line, Outcome
from policy.ranger.importing.strict import problem_of

Json = dict[str, Any]

_TAGS: Final = frozenset({"tagDefinitions", "tags", "serviceResources", "resourceToTagIds"})
_USERS: Final = frozenset({"userAttrMapping", "groupAttrMapping", "userGroupMapping"})
_POLICIES: Final = frozenset({"policies", "roles", "tagPolicies", "securityZones", "policyDeltas"})
_STRICT: Final = _POLICIES | {"resources", "rangerRoles"}
#: What a container holds that is sorted; the strict reader checks the rest of it.
_SORTED: Final = ("policies", "roles", "tagPolicies", "securityZones", "totalCount")


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a document, with where it stands; `key` is the name under which an object has it."""

    document: str
    place: str
    value: object
    key: str = ""

    @property
    def name(self) -> str:
        """Its name; empty if it has none."""
        if self.key:
            return self.key
        name = self.value.get("name") if isinstance(self.value, dict) else None
        return name if isinstance(name, str) else ""

    def line(self, what: str, outcome: Outcome, *reasons: str) -> Line:
        """The line of the report about it."""
        return Line(self.document, self.place, what, self.name, outcome, reasons)


@dataclass(slots=True)
class Sorted:
    """The parts of all documents.

    Attributes:
        policies, tag_policies: policies on resources, and on tags.
        zones: definitions of security zones by name.
        roles: roles; None if no document has any.
        tags, users: tag downloads and user stores.
        definition, tag_definition: how the service definitions differ.
        blocked: what cannot be sorted.
        has_policies: whether a document is one of policies, roles or zones.
    """

    policies: list[Part] = field(default_factory=list)
    tag_policies: list[Part] = field(default_factory=list)
    zones: list[Part] = field(default_factory=list)
    roles: list[Part] | None = None
    tags: list[Part] = field(default_factory=list)
    users: list[Part] = field(default_factory=list)
    definition: Definition = field(default_factory=Definition)
    tag_definition: Definition = field(default_factory=Definition)
    blocked: list[Line] = field(default_factory=list)
    has_policies: bool = False


def sort(sources: Mapping[str, bytes]) -> Sorted:
    """Sort the parts of documents by name."""
    found = Sorted()
    for name, data in sources.items():
        try:
            top = strict_json.parse(data, what=f"Document {name}", error=PolicyInvalid)
        except PolicyInvalid as error:
            found.blocked.append(Part(name, "", None).line("document", Outcome.BLOCKED, error.message))
        else:
            _sort(Part(name, "", top), found)
    return found


def _sort(top: Part, found: Sorted) -> None:
    value = top.value
    found.has_policies |= not isinstance(value, dict) or bool(_STRICT & value.keys())
    names = set(value) if isinstance(value, dict) else set()
    if isinstance(value, list):
        found.policies += _elements(top, "", value)
    elif not isinstance(value, dict):
        _block(top, "it is neither an object nor a list.", found)
    elif "resources" in names:
        found.policies.append(top)
    elif "rangerRoles" in names:
        _roles(top, "rangerRoles", value["rangerRoles"], found)
    elif names & _POLICIES:
        _container(top, value, found)
    elif names & _TAGS:
        found.tags.append(top)
    elif names & _USERS:
        found.users.append(top)
    else:
        _block(top, "it has neither policies, roles, tags nor users.", found)


def _container(top: Part, value: Json, found: Sorted) -> None:
    rest = {name: each for name, each in value.items() if name not in _SORTED}
    definition = value.get("serviceDef")
    if (problem := problem_of(rest | {"policies": []})) is not None:
        return _block(top, problem, found)
    found.definition |= Definition.of(definition)
    listed = [len(each) for name in ("policies", "roles") if isinstance(each := value.get(name), list)]
    total = value.get("totalCount") or 0
    if not isinstance(total, int) or total > max(listed, default=0):
        _block(top, f"totalCount: the document has not all of {total} entries.", found)
    if value.get("policies") is not None:
        found.policies += _list(top, "policies", value["policies"], found)
    if value.get("roles") is not None:
        _roles(top, "roles", value["roles"], found)
    if value.get("tagPolicies") is not None:
        _tag_policies(top, value["tagPolicies"], found)
    if value.get("securityZones") is not None:
        _zones(top, value["securityZones"], found)
    return None


def _roles(top: Part, name: str, value: object, found: Sorted) -> None:
    found.roles = (found.roles or []) + _list(top, name, value, found)


def _tag_policies(top: Part, value: object, found: Sorted) -> None:
    part = Part(top.document, "tagPolicies", value)
    if not isinstance(value, dict):
        return _block(part, "it is not an object.", found)
    rest = {name: each for name, each in value.items() if name != "policies"}
    if (problem := problem_of({"policies": [], "tagPolicies": rest})) is not None:
        return _block(part, problem, found)
    found.tag_definition |= Definition.of(value.get("serviceDef"))
    found.tag_policies += _list(part, "tagPolicies.policies", value.get("policies") or [], found)
    return None


def _zones(top: Part, value: object, found: Sorted) -> None:
    if not isinstance(value, dict):
        return _block(Part(top.document, "securityZones", value), "it is not an object.", found)
    for name, zone in value.items():
        found.zones.append(Part(top.document, f"securityZones.{name}", zone, name))
    return None


def _list(top: Part, name: str, value: object, found: Sorted) -> list[Part]:
    if isinstance(value, list):
        return list(_elements(top, name, value))
    _block(Part(top.document, name, value), "it is not a list.", found)
    return []


def _elements(top: Part, name: str, values: list[object]) -> Iterator[Part]:
    return (Part(top.document, f"{name}[{at}]", each) for at, each in enumerate(values))


def _block(part: Part, why: str, found: Sorted) -> None:
    found.blocked.append(part.line("document" if not part.place else "list", Outcome.BLOCKED, why))
