"""A second evaluator of Ranger policies, written for being read: no index, no compiled pattern, no shortcut.

It takes policies as the JSON says them and follows Ranger's order word by word (`RangerPolicyEngineImpl`,
`RangerDefaultPolicyEvaluator`, `RangerDefaultPolicyResourceMatcher`), with the closed rules of
docs/policies.md where they differ. It shares no code with the evaluator that it judges.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

Json = dict[str, Any]

HIERARCHIES = [["database", "table", "column"], ["url"], ["storage-type", "storage-url"], ["key"]]
ACCESS_TYPES = {
    "database": ["alter", "create", "drop", "select", "unprotect", "update"],
    "url": ["read", "write"],
    "storage-type": ["rwstorage"],
    "key": ["destroy", "release", "rotate", "use"],
}


@dataclass(frozen=True)
class Asker:
    name: str
    groups: frozenset[str]
    roles: frozenset[str]
    owner: str | None
    attributes: dict[str, str] | None = None
    tags: frozenset[str] | None = None


def truth(conditions: list[Json], asker: Asker, access: str) -> bool | None:
    """Whether all conditions hold; None if it cannot be known."""
    found = [one_truth(each["values"][0], asker, access) for each in conditions]
    return False if False in found else None if None in found else True


def one_truth(text: str, asker: Asker, access: str) -> bool | None:
    """The few expressions that are generated, and an address, which is not known."""
    known = {
        "IS_IN_GROUP('g1')": "g1" in asker.groups,
        "!IS_IN_ROLE('r1')": "r1" not in asker.roles,
        "RES._ownerUser == USER._name": None if asker.owner is None else asker.owner == asker.name,
        "REQ.accessType == 'select'": access == "select",
        "IS_ACCESS_TIME_AFTER('2031/01/01')": False,
        "HAS_TAG('PII')": None if asker.tags is None else "PII" in asker.tags,
    }
    if text in known or asker.attributes is None:
        return known.get(text)
    dept = asker.attributes.get("dept")
    return {
        "USER.dept == 'hr'": dept == "hr",
        "USER.dept != 'hr' && USER.dept": bool(dept) and dept != "hr" and None,
    }.get(text)


@dataclass(frozen=True)
class World:
    """What policies are about beside resources.

    Attributes:
        zones: the security zones by name, as a download has them.
        tagged: resources with the names of their tags.
    """

    zones: Json = field(default_factory=dict)
    tagged: list[Json] = field(default_factory=list)


EMPTY = World()


def symbols(value: str, asker: Asker) -> list[str] | None:
    """Characters and the marks <*> and <?>; None if it names an owner and there is none."""
    found: list[str] = []
    while value:
        if value.startswith("{USER}"):
            found, value = found + list(asker.name), value[6:]
        elif value.startswith("{OWNER}"):
            if asker.owner is None:
                return None
            found, value = found + list(asker.owner), value[7:]
        else:
            found.append(f"<{value[0]}>" if value[0] in "*?" else value[0])
            value = value[1:]
    return found


def same(pattern: list[str], text: str) -> bool:
    if not pattern:
        return not text
    if pattern[0] == "<*>":
        return same(pattern[1:], text) or (bool(text) and same(pattern, text[1:]))
    return bool(text) and pattern[0] in ("<?>", text[0]) and same(pattern[1:], text[1:])


def continues(pattern: list[str], text: str) -> bool:
    """Whether something that begins with `text` is matched."""
    if not text:
        return True
    if not pattern:
        return False
    if pattern[0] == "<*>":
        return continues(pattern[1:], text) or continues(pattern, text[1:])
    return pattern[0] in ("<?>", text[0]) and continues(pattern[1:], text[1:])


def takes_all(pattern: list[str], text: str) -> bool:
    """Whether everything that begins with `text` is matched."""
    if pattern and pattern[0] == "<*>":
        return (not text and set(pattern) == {"<*>"}) or (
            takes_all(pattern[1:], text) or (bool(text) and takes_all(pattern, text[1:]))
        )
    return bool(text and pattern) and pattern[0] in ("<?>", text[0]) and takes_all(pattern[1:], text[1:])


def is_location(level: str) -> bool:
    return level in ("url", "storage-url")


def value_matches(level: str, value: str, said: Json, name: str, asker: Asker) -> bool:
    if is_location(level):
        pattern = symbols(value.removesuffix("/"), asker)
        ends = [at for at, letter in enumerate(name) if letter == "/"] if said.get("isRecursive") else []
        return pattern is not None and any(same(pattern, name[:end]) for end in [*ends, len(name)])
    pattern = symbols(value, asker)
    if pattern is None or not ignores_case(level):
        return pattern is not None and same(pattern, name)
    return same([mark if len(mark) > 1 else mark.lower() for mark in pattern], name.lower())


def taken_for_another(value: str, asker: Asker) -> bool:
    """Whether a name in it is not in lower case, where that makes no difference."""
    names = [("{USER}", asker.name), ("{OWNER}", asker.owner or "")]
    return any(macro in value and name != name.lower() for macro, name in names)


def ignores_case(level: str) -> bool:
    return level in ("database", "table", "column", "storage-type")


def level_matches(level: str, said: Json, name: str, asker: Asker) -> bool:
    values = said["values"]
    if said.get("isExcludes") and ignores_case(level):
        values = [value for value in values if not taken_for_another(value, asker)]
    hit = any(value_matches(level, value, said, name, asker) for value in values)
    return not hit if said.get("isExcludes") else hit


def relation(resources: Json, asked: dict[str, str], asker: Asker) -> str:
    """Ranger's match type: none, self, below, or above; `whole` is a location with all that is below it."""
    chain = next(chain for chain in HIERARCHIES if set(resources) == set(chain[: len(resources)]))
    if not set(asked) <= set(chain):
        return "none"
    for level in chain:
        if level in asked and level in resources:
            if not level_matches(level, resources[level], asked[level], asker):
                return below_location(resources, asked, asker)
        elif level in resources and "*" in resources[level]["values"] and resources[level].get("isExcludes"):
            return "none"
    if len(asked) > len(resources):
        return "above"
    if len(asked) == len(resources):
        return "whole" if is_location(level) and takes_tree(resources[level], asked[level], asker) else "self"
    rest = chain[len(asked) : len(resources)]
    return "self" if all("*" in resources[level]["values"] for level in rest) else "below"


def takes_tree(said: Json, name: str, asker: Asker) -> bool:
    if said.get("isRecursive") and level_matches("url", said, name, asker):
        return True
    patterns = [symbols(value.removesuffix("/"), asker) for value in said["values"]]
    return any(pattern is not None and takes_all(pattern, name + "/") for pattern in patterns)


def below_location(resources: Json, asked: dict[str, str], asker: Asker) -> str:
    *upper, lowest = asked
    if not is_location(lowest):
        return "none"
    if not all(level_matches(level, resources[level], asked[level], asker) for level in upper):
        return "none"
    patterns = [symbols(value.removesuffix("/"), asker) for value in resources[lowest]["values"]]
    tree = asked[lowest] + "/"
    return "below" if any(p is not None and continues(p, tree) for p in patterns) else "none"


def closest(policy: Json, asked: dict[str, str], asker: Asker) -> str:
    sets = [policy["resources"], *policy.get("additionalResources", [])]
    found = [relation(resources, asked, asker) for resources in sets]
    return next(place for place in ("whole", "self", "below", "none", "above") if place in found)


def holds(said: Json, asker: Asker, access: str) -> bool | None:
    """Whether the conditions of a policy or an item hold."""
    return truth(said.get("conditions") or [], asker, access)


def tags_of(asked: dict[str, str], asker: Asker, world: World) -> frozenset[str] | None:
    """The tags of a resource; None if one is on what is below alone, or nothing has any."""
    places: dict[str, set[str]] = {}
    for each in world.tagged:
        for tag in each["tags"]:
            places.setdefault(tag, set()).add(relation(each["resource"], asked, asker))
    seen = {tag: found - {"none"} for tag, found in places.items() if found != {"none"}}
    return None if not world.tagged or {"below"} in seen.values() else frozenset(seen)


def concerns(item: Json, asker: Asker, access: str) -> bool:
    if holds(item, asker, access) is False:
        return False
    given = [
        entry["type"].lower().removeprefix("hive:")
        for entry in item["accesses"]
        if entry.get("isAllowed", True)
    ]
    if access not in given and "all" not in given:
        return False
    users, groups, roles = (item.get(who, []) for who in ("users", "groups", "roles"))
    return (
        asker.name in users
        or "{USER}" in users
        or ("{OWNER}" in users and asker.owner == asker.name)
        or "public" in groups
        or bool(set(groups) & asker.groups)
        or bool(set(roles) & asker.roles)
    )


def verdict(policy: Json, asker: Asker, access: str) -> str | None:
    """deny, allow, maybe (an allow that cannot be evaluated) or None, by the policy's items."""

    def hits(name: str) -> list[Json]:
        return [item for item in policy.get(name, []) if concerns(item, asker, access)]

    certain = [item for item in hits("denyExceptions") if holds(item, asker, access)]
    if hits("denyPolicyItems") and not certain:
        return "deny"
    allowed = [] if hits("allowExceptions") else hits("policyItems")
    sure = any(holds(item, asker, access) for item in allowed)
    if policy.get("isDenyAllElse") and not sure:
        return "deny"
    return None if not allowed else "allow" if sure else "maybe"


def doubtful(policy: Json, asker: Asker, world: World, access: str = "select") -> bool:
    sets = [policy["resources"], *policy.get("additionalResources", [])]
    unclear = any(
        ignores_case(level) and taken_for_another(value, asker)
        for resources in sets
        for level, said in resources.items()
        for value in said["values"]
    )
    return bool(holds(policy, asker, access) is None or is_of_unknown_zone(policy, world) or unclear)


def is_of_unknown_zone(policy: Json, world: World) -> bool:
    return bool(policy.get("zoneName")) and policy["zoneName"] not in world.zones


def zones_of(asked: dict[str, str], asker: Asker, world: World) -> list[str]:
    """Ranger's zones for a resource and its children; the empty name is for what is in none."""
    found = set()
    for name, zone in world.zones.items():
        for resource in zone["resources"]:
            said = {level: {"values": values, "isRecursive": True} for level, values in resource.items()}
            place = relation(said, asked, asker)
            if place != "none":
                found.add(name)
            if place == "below":
                found.add("")
    return sorted(found) or [""]


def one_zone(asked: dict[str, str], asker: Asker, world: World) -> str:
    zones = zones_of(asked, asker, world)
    return zones[0] if len(zones) == 1 else ""


@dataclass(frozen=True)
class Placed:
    policy: Json
    place: str
    by_tag: bool


def placed(
    policies: list[Json], asked: dict[str, str], asker: Asker, world: World, zone: str
) -> list[Placed]:
    """What each policy of a zone has to do with a resource; one on tags once for each tag of a resource."""
    found: list[Placed] = []
    for policy in policies:
        own = policy.get("zoneName") or ""
        by_tag = "tag" in policy["resources"]
        associated = bool(zone) and world.zones[zone].get("containsAssociatedTagService")
        wanted = zone if associated or not by_tag else ""
        if not policy.get("isEnabled", True) or (own != wanted and not is_of_unknown_zone(policy, world)):
            continue
        if not by_tag:
            found.append(Placed(policy, closest(policy, asked, asker), False))
            continue
        sets = [policy["resources"], *policy.get("additionalResources", [])]
        names = {name for resources in sets for name in resources["tag"]["values"]}
        for tagged in world.tagged:
            if names & set(tagged["tags"]):
                place = relation(tagged["resource"], asked, asker)
                found.append(Placed(policy, "self" if place == "above" else place, True))
    return found


def ranked(found: list[Placed], kind: int, priority: int) -> list[Placed]:
    return [
        each
        for each in found
        if each.policy.get("policyType", 0) == kind and each.policy.get("policyPriority", 0) == priority
    ]


def allows(
    policies: list[Json], asker: Asker, asked: dict[str, str], access: str, world: World = EMPTY
) -> bool:
    asker = replace(asker, tags=tags_of(asked, asker, world))
    zones = zones_of(asked, asker, world)
    if access == "_any":
        return any(allows_in(policies, asker, asked, access, world, zone) for zone in zones)
    if is_location(list(asked)[-1]):
        return all(allows_in(policies, asker, asked, access, world, zone) for zone in zones)
    return allows_in(policies, asker, asked, access, world, one_zone(asked, asker, world))


def allows_in(
    policies: list[Json], asker: Asker, asked: dict[str, str], access: str, world: World, zone: str
) -> bool:
    every = ACCESS_TYPES[next(iter(asked))]
    found = placed(policies, asked, asker, world, zone)
    if access == "all":
        return all(allows_one(found, asker, each, "self", world) for each in every)
    if access == "_any":
        return any(allows_one(found, asker, each, "anywhere", world) for each in every)
    scope = "tree" if is_location(list(asked)[-1]) else "self"
    return allows_one(found, asker, access, scope, world)


def allows_one(found: list[Placed], asker: Asker, access: str, scope: str, world: World) -> bool:
    for priority in (1, 0):
        allowed = False
        for each in ranked(found, 0, priority):
            if holds(each.policy, asker, access) is False:
                continue
            place, said = each.place, verdict(each.policy, asker, access)
            if said == "deny" and (place in ("self", "whole") or (place == "below" and scope == "tree")):
                return False
            if said == "allow" and not doubtful(each.policy, asker, world, access):
                granting = {"tree": ["whole"], "anywhere": ["self", "whole", "below"]}
                allowed = allowed or place in granting.get(scope, ["self", "whole"])
        if allowed:
            return True
    return False


def mask_of(policies: list[Json], asker: Asker, asked: dict[str, str], world: World = EMPTY) -> str | None:
    """The type of the mask in force."""
    asker = replace(asker, tags=tags_of(asked, asker, world))
    around = placed(policies, asked, asker, world, one_zone(asked, asker, world))
    found: list[tuple[int, bool, int, str, str]] = []
    for priority in (1, 0):
        for each in ranked(around, 1, priority):
            if each.place != "self" or holds(each.policy, asker, "select") is False:
                continue
            kind = mask_said(each.policy, asker, world)
            if kind is not None:
                order = {"MASK_NULL": 0, "replace-with-null": 0, "MASK_NONE": 2}
                name = each.policy["name"]
                found.append((-priority, not each.by_tag, order.get(kind, 1), name, kind))
    tagged = {each[4] for each in found if not each[1]}
    if tagged != {"MASK_NONE"}:
        found = [each for each in found if each[1] or each[4] != "MASK_NONE"]
    if not found:
        return None
    kind = min(found)[4]
    return None if kind == "MASK_NONE" else kind


def mask_said(policy: Json, asker: Asker, world: World) -> str | None:
    """The first item for the asker; one that unmasks counts only where it certainly holds."""
    for item in policy["dataMaskPolicyItems"]:
        if not concerns(item, asker, "select"):
            continue
        kind: str = item["dataMaskInfo"]["dataMaskType"].removeprefix("hive:")
        unsure = bool(not holds(item, asker, "select") or item["dataMaskInfo"].get("conditionExpr"))
        if kind != "MASK_NONE":
            return "MASK_NULL" if unsure or doubtful(policy, asker, world) else kind
        if not unsure:
            return None if doubtful(policy, asker, world) else kind
    return None


def filters_of(
    policies: list[Json], asker: Asker, asked: dict[str, str], world: World = EMPTY
) -> list[tuple[str, str | None]]:
    """The row filters in force, by policy; None for one that may be in force, which shows no row."""
    asker = replace(asker, tags=tags_of(asked, asker, world))
    around = placed(policies, asked, asker, world, one_zone(asked, asker, world))
    for priority in (1, 0):
        found: list[tuple[str, str | None]] = []
        decided = False
        for each in ranked(around, 2, priority):
            if each.place == "self" and holds(each.policy, asker, "select") is not False:
                said = filter_said(each.policy, asker, world)
                decided = decided or said is not None
                found += [(each.policy["name"], one) for one in said or []]
        if decided:
            return found
    return []


def filter_said(policy: Json, asker: Asker, world: World) -> list[str | None] | None:
    """The first item for the asker, empty if it filters nothing; one that does must certainly hold."""
    for item in policy["rowFilterPolicyItems"]:
        if not concerns(item, asker, "select"):
            continue
        text = item["rowFilterInfo"].get("filterExpr")
        sure = holds(item, asker, "select")
        unsure = not sure or doubtful(policy, asker, world)
        if text:
            return [None if unsure else text]
        if sure:
            return None if unsure else []
    return None
