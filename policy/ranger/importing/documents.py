"""Makes strict documents of what Ranger exports, and of what its plugins download.

Rules:
- All documents together are those of one service: policies, roles, tags and users belong together, because
  what a policy means depends on the roles that it names. Policies of services of other types are left out.
- Each part is taken over by itself (`policies`, `roles`). A part that can neither be taken over nor be left
  out blocks all.
- A policy of a security zone that no document defines blocks: which resources policies without a zone do not
  decide is unknown. Without a document of tags, so does a policy on tags, or with conditions on tags, if it
  restricts. One that only grants under such conditions is refused.
- Of policies with one name in a service and zone, each but the first is renamed after its place. Of policies
  with one id, each but the first loses it.
- The result is read as a whole by the reader of the documents in force.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from policy.ranger.conditions.condition import EVALUATED, EXPRESSIONS
from policy.ranger.conditions.names import OF_NAMED_TAGS
from policy.ranger.importing.policies import Facts, Taken, may_restrict, take
from policy.ranger.importing.report import Imported, Line, Outcome
from policy.ranger.importing.roles import take_roles
from policy.ranger.importing.sources import Part, Sorted, sort
from policy.ranger.importing.strict import OWN, TAGGED, Home, problem_of
from policy.ranger.items import ITEM_LISTS
from policy.ranger.servicedef import OWN_TYPES, TAG_TYPE, TAGS

Json = dict[str, Any]

_NO_TYPE: Final = (None, "")
_NO_TAGS: Final = (
    "no document has tags, on which it depends. Import the download of tags along with the "
    'policies, or for a source set `tags`. If there are no tags, add a file with {"serviceResources": []}.'
)
#: Of types, names and functions of conditions that ask for tags.
_OF_TAGS: Final = ("tag", *OF_NAMED_TAGS, *(EVALUATED - EXPRESSIONS))
_NO_ZONE: Final = (
    "no document defines its security zone {!r}, so that policies without a zone would decide what is in it. "
    "Import a download of the policies, which has the zones, in the place of an export."
)


def import_ranger(sources: Mapping[str, bytes], *, roles_elsewhere: bool = False) -> Imported:
    """Make strict documents of Ranger's.

    Args:
        sources: all documents of one service by name, which messages use: policies, roles, tags, user store.
        roles_elsewhere: whether roles that these documents do not have are defined by others.

    Returns:
        The documents with a report. Nothing is raised for what the documents contain.
    """
    parts = sort(sources)
    roles = take_roles([] if parts.roles is None and roles_elsewhere else parts.roles)
    taking = _Taking(bool(parts.tags))
    zones = {part.name: bare for part in parts.zones if (bare := taking.take_zone(part)) is not None}
    own, tagged = (Facts(each, roles.unknown) for each in (parts.definition, parts.tag_definition))
    homes = [(replace(OWN, zones=zones), own), (replace(TAGGED, zones=zones), tagged)]
    about_tags = [part for part in parts.policies if _is_about_tags(part.value)]
    others = [part for part in parts.policies if not _is_about_tags(part.value)]
    document: Json = {
        "policies": taking.take(others, *homes[0]),
        "roles": list(roles.roles),
        "tagPolicies": {"policies": taking.take([*about_tags, *parts.tag_policies], *homes[1])},
        "securityZones": {
            part.name: zones[part.name] | {"policies": taking.take(_zone_policies(part), *homes[0])}
            for part in parts.zones
            if part.name in zones
        },
    }
    documents = {"ranger": json.dumps(document).encode()} if parts.has_policies else {}
    lines = [*parts.blocked, *taking.lines(), *roles.lines]
    for kind, line, data in _others(parts, sources):
        lines.append(line)
        documents[kind] = data
    if not any(line.outcome is Outcome.BLOCKED for line in lines):
        if (problem := problem_of(document)) is None:
            return Imported(documents, tuple(lines))
        lines.append(Line("", "", "document", "", Outcome.BLOCKED, (problem,)))
    return Imported({}, tuple(lines))


@dataclass(slots=True)
class _Taking:
    """Takes over policies, and keeps what became of them; `has_tags` is whether a document has tags."""

    has_tags: bool
    names: set[object] = field(default_factory=set)
    services: dict[str, Part] = field(default_factory=dict)
    found: list[Line] = field(default_factory=list)

    def take(self, parts: Sequence[Part], home: Home, facts: Facts) -> list[Json]:
        """The policies of a list that are taken over."""
        return [policy for part in parts if (policy := self._take(part, home, facts)) is not None]

    def take_zone(self, part: Part) -> Json | None:
        """The definition of a security zone, without its policies; None if it cannot be read."""
        zone = part.value if isinstance(part.value, dict) else {"policies": part.value}
        bare = {name: value for name, value in zone.items() if name != "policies"}
        problem = problem_of({"policies": [], "securityZones": {part.name: bare}})
        if problem is None and not isinstance(zone.get("policies", []), list):
            problem = "policies: expected a list."
        if problem is None and not self._is_new(("zone", part.name)):
            problem = "another document has a zone of this name."
        self.found.append(
            part.line("zone", Outcome.TAKEN)
            if problem is None
            else part.line("zone", Outcome.BLOCKED, problem)
        )
        return bare if problem is None else None

    def lines(self) -> Iterator[Line]:
        """What became of each policy, and of their services."""
        yield from self.found
        if len(self.services) > 1:
            *_, last = self.services.values()
            why = f"service: there are policies of several services: {', '.join(sorted(self.services))}."
            yield last.line("document", Outcome.BLOCKED, why)

    def _take(self, part: Part, home: Home, facts: Facts) -> Json | None:
        if (other := _other_type(part.value, home)) is not None:
            why = f"it belongs to a service of the type {other!r}."
            self.found.append(part.line(home.what, Outcome.REFUSED, why))
            return None
        taken = take(part.value, part.place, home, facts)
        if taken.policy is not None:
            taken = self._without_others(taken, taken.policy, home)
        if taken.policy is not None:
            taken = self._told_apart(taken.policy, taken, part, home)
            service = part.value.get("service")  # type: ignore[attr-defined]
            if not home.tagged and service not in _NO_TYPE:
                self.services.setdefault(str(service), part)
        self.found.append(part.line(home.what, taken.outcome, *taken.reasons))
        return taken.policy

    def _without_others(self, taken: Taken, policy: Json, home: Home) -> Taken:
        """What becomes of a policy that needs what no document has."""
        zone = (policy.get("zoneName") or "").strip()
        if zone and zone not in home.zones:
            return Taken(None, Outcome.BLOCKED, (_NO_ZONE.format(zone),))
        asks = _asks_for_tags(policy)
        if self.has_tags or policy.get("isEnabled") is False or not (home.tagged or asks):
            return taken
        if may_restrict(policy):
            return Taken(None, Outcome.BLOCKED, (_NO_TAGS,))
        # Whether the resources have tags is known from the documents of others alone.
        return Taken(None, Outcome.REFUSED, (_NO_TAGS,)) if asks else taken

    def _told_apart(self, policy: Json, taken: Taken, part: Part, home: Home) -> Taken:
        """A policy with a name and an id that no policy before it has."""
        place = (home.what, policy.get("service"), policy.get("zoneName"))
        reasons = []
        if not self._is_new((*place, "name", policy["name"])):
            policy = policy | {"name": f"{policy['name']} ({part.place})"}
            reasons.append(f"name: another policy has it. Here it is {policy['name']!r}.")
        if policy.get("id") is not None and not self._is_new((home.what, "id", policy["id"])):
            policy = {name: value for name, value in policy.items() if name != "id"}
            reasons.append("id: another policy has it. It is left out.")
        if not reasons:
            return taken
        return replace(taken, policy=policy, outcome=Outcome.DIFFERENT, reasons=(*taken.reasons, *reasons))

    def _is_new(self, key: object) -> bool:
        if key in self.names:
            return False
        self.names.add(key)
        return True


def _other_type(policy: object, home: Home) -> str | None:
    """The type of another service that a policy belongs to; None if it is one of ours or not given."""
    found = policy.get("serviceType") if isinstance(policy, dict) else None
    ours = {TAG_TYPE} if home.tagged else OWN_TYPES
    return found if isinstance(found, str) and found not in (*ours, *_NO_TYPE) else None


def _zone_policies(zone: Part) -> list[Part]:
    policies = zone.value.get("policies", []) if isinstance(zone.value, dict) else []
    return [Part(zone.document, f"{zone.place}.policies[{at}]", each) for at, each in enumerate(policies)]


def _asks_for_tags(policy: Json) -> bool:
    """Whether a condition of a policy or of an item can ask for tags; whatever does has one of the words."""
    items = (item for name in ITEM_LISTS for item in policy.get(name) or ())
    said = json.dumps([each.get("conditions") for each in (policy, *items)]).lower()
    return any(word.lower() in said for word in _OF_TAGS)


def _is_about_tags(policy: object) -> bool:
    resources = policy.get("resources") if isinstance(policy, dict) else None
    return isinstance(resources, dict) and TAGS[0].name in resources


def _others(parts: Sorted, sources: Mapping[str, bytes]) -> Iterator[tuple[str, Line, bytes]]:
    """The documents of tags and users: their kind, what became of them, and their content."""
    for kind, found in (("tags", parts.tags), ("users", parts.users)):
        for part in found:
            problem = problem_of(part.value) if part is found[0] else f"another document has {kind}, too."
            if problem is None:
                yield kind, part.line(kind, Outcome.TAKEN), sources[part.document]
            else:
                yield kind, part.line(kind, Outcome.BLOCKED, problem), b""
