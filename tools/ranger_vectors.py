"""Makes tests/vectors/ranger-public from a checkout of apache/ranger.

    python tools/ranger_vectors.py CHECKOUT

Policies, roles, tags and zones stay as they are. Of service definitions, what only describes is left out.
Requests are reduced to what decisions depend on, and to the decision that Ranger's test expects.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

Json = dict[str, Any]

RESOURCES: Final = Path("agents-common/src/test/resources")
VECTORS: Final = Path(__file__).parents[1] / "tests/vectors/ranger-public"
#: Documents of other types of services, which are refused. Their policies are enough.
OTHER_SERVICES: Final = (
    "policyengine/test_policyengine_atlas.json",
    "policyengine/test_policyengine_aws_s3.json",
    "policyengine/test_policyengine_hbase.json",
    "policyengine/test_policyengine_hdfs_zones.json",
    "policyengine/test_policyengine_kafka.json",
    "policyengine/test_policyengine_priority.json",
)
#: What the plugins keep of a download.
DOWNLOADS: Final = "admin.client/hiveServer2_dev_hive"
PLUGIN: Final = "plugin/test_base_plugin_hive.json"
SCHEDULES: Final = "policyengine/validityscheduler/test-validity-schedules-{}.json"
_RESOURCE: Final = ("name", "level", "parent", "mandatory", "matcher", "matcherOptions")
_ACCESS_TYPE: Final = ("name", "impliedGrants")
_CONDITION: Final = ("name", "evaluator", "evaluatorOptions")


def main(checkout: Path) -> None:
    source = checkout / RESOURCES
    for path in sorted((source / "policyengine").glob("test_policyengine_*.json")):
        case = json.loads(path.read_text("utf-8"))
        if case["serviceDef"]["name"] == "hive":
            write(f"{path.stem.removeprefix('test_policyengine_')}.json", vector(case, source))
            if "updatedPolicies" in case:
                write(
                    f"{path.stem.removeprefix('test_policyengine_')}_done.json",
                    vector(updated(case), source),
                )
    others = [policies_of(json.loads((source / name).read_text("utf-8"))) for name in OTHER_SERVICES]
    write("other-services.json", {"documents": others})
    write("plugin.json", plugin(source))
    write("downloads.json", downloads(source))
    write("schedules.json", {"schedules": list(schedules(source))})


def vector(case: Json, source: Path) -> Json:
    """One test file: its documents, and its requests with what is expected."""
    found: Json = {"policies": policies_of(case)}
    if roles := roles_of(case):
        found["roles"] = {"serviceName": case["serviceName"], "roleVersion": 1, "rangerRoles": roles}
    if tags := tags_of(case, source):
        found["tags"] = tags
    found["requests"] = [each for test in case["tests"] for each in requests(test)]
    return found


def policies_of(case: Json) -> Json:
    """A test's policies in the form in which Ranger's plugins download them."""
    found: Json = {"serviceName": case["serviceName"], "policyVersion": 100}
    found["serviceDef"] = definition(case["serviceDef"])
    found["policies"] = case["policies"]
    if "tagPolicyInfo" in case:
        tags = case["tagPolicyInfo"]
        found["tagPolicies"] = {
            "serviceName": tags["serviceName"],
            "serviceDef": definition(tags["serviceDef"]),
            "policies": tags["tagPolicies"],
        }
    return found | {name: case[name] for name in ("securityZones", "serviceConfig") if name in case}


def definition(said: Json) -> Json:
    """A service definition without what has no effect on decisions."""
    found: Json = {"name": said["name"], "id": said.get("id")}
    for name, kept in (
        ("resources", _RESOURCE),
        ("accessTypes", _ACCESS_TYPE),
        ("policyConditions", _CONDITION),
    ):
        found[name] = [only(each, kept) for each in said.get(name) or []]
    return found


def only(said: Json, names: tuple[str, ...]) -> Json:
    return {name: said[name] for name in names if name in said}


def roles_of(case: Json) -> list[Json]:
    """The roles of a test, which it keeps by their members."""
    roles: dict[str, Json] = {}
    for kind in ("user", "group", "role"):
        for member, held in case.get(f"{kind}Roles", {}).items():
            for name in held:
                role = roles.setdefault(name, {"name": name, "users": [], "groups": [], "roles": []})
                role[f"{kind}s"].append({"name": member, "isAdmin": True})
    return list(roles.values())


def tags_of(case: Json, source: Path) -> Json | None:
    """The tags in the file that a test's context enricher reads."""
    enrichers = case.get("tagPolicyInfo", {}).get("serviceDef", {}).get("contextEnrichers") or []
    for enricher in enrichers:
        if name := enricher.get("enricherOptions", {}).get("serviceTagsFileName"):
            tags: Json = json.loads((source / name.lstrip("/")).read_text("utf-8"))
            return tags
    return None


def requests(test: Json) -> Iterator[Json]:
    """A test's request, once for each answer that it expects."""
    if "request" not in test:
        return
    said = test["request"]
    found: Json = {"name": test["name"], "resource": said["resource"].get("elements", {})}
    found["access"] = said.get("accessType") or ""
    found |= {"user": said.get("user"), "groups": said.get("userGroups") or []}
    if owner := said["resource"].get("ownerUser"):
        found["owner"] = owner
    found |= only(said, ("resourceMatchingScope", "isDescendantDenyIgnored"))
    context = said.get("context") or {}
    if tags := context.pop("TAGS", ""):
        found["tags"] = json.loads(tags)
    if context:
        found["context"] = context
    found |= only(test, ("userAttributes",))
    if (expected := test.get("result")) is not None:
        yield found | {"expected": {"allowed": expected["isAllowed"]}}
    if (expected := test.get("dataMaskResult")) is not None:
        yield found | {"expected": {"mask": expected["additionalInfo"]["maskType"]}}
    if (expected := test.get("rowFilterResult")) is not None:
        yield found | {"expected": {"filter": expected["additionalInfo"]["filterExpr"]}}


def updated(case: Json) -> Json:
    """A test's policies and zones after their changes, with the requests that follow."""
    changes = case["updatedPolicies"]
    zones = {name: dict(zone) for name, zone in case.get("securityZones", {}).items()}
    for name, zone in (changes.get("securityZones") or {}).items():
        known = zones.get(name, {}).get("policies", [])
        zones[name] = zone | {"policies": changed(known, zone.pop("policyDeltas", []))}
    policies = changed(case["policies"], changes["policyDeltas"])
    found = case | {"policies": policies, "tests": case["updatedTests"]}
    return found | ({"securityZones": zones} if zones else {})


def changed(policies: list[Json], deltas: list[Json]) -> list[Json]:
    """Policies after changes, each of which adds, replaces or removes (type 2) one."""
    found = {policy["id"]: policy for policy in policies}
    for delta in deltas:
        policy = delta["policy"]
        found.pop(policy["id"], None)
        if delta["changeType"] != 2:
            found[policy["id"]] = policy
    return list(found.values())


def plugin(source: Path) -> Json:
    """The test of a whole plugin: policies, zones, tags, roles and users."""
    case = json.loads((source / PLUGIN).read_text("utf-8"))

    def read(name: str) -> Json:
        found: Json = json.loads((source / case[name].lstrip("/")).read_text("utf-8"))
        return found

    policies = read("policiesFilename")
    roles = read("rolesFilename")
    for member in (member for role in roles["rangerRoles"] for member in role["users"]):
        if "usAdmin" in member:  # a slip of the pen, which an import refuses
            member["isAdmin"] = member.pop("usAdmin")
    for part in (policies, policies["tagPolicies"]):
        part["serviceDef"] = definition(part["serviceDef"])
    return {
        "policies": policies,
        "roles": roles,
        "tags": read("tagsFilename"),
        "users": read("userStoreFilename"),
        "requests": [each for test in case["tests"] for each in requests(test)],
    }


def downloads(source: Path) -> Json:
    """What the plugins' cache holds."""
    kinds = {"policies": "", "roles": "_roles", "tags": "_tag", "users": "_userstore"}
    return {
        kind: json.loads((source / f"{DOWNLOADS}{suffix}.json").read_text("utf-8"))
        for kind, suffix in kinds.items()
    }


def schedules(source: Path) -> Iterator[Json]:
    """Validity schedules, with whether they are valid and whether they hold at a time."""
    for kind in ("valid", "invalid", "valid-and-applicable"):
        for case in json.loads((source / SCHEDULES.format(kind)).read_text("utf-8")):
            result = case["result"]
            yield {
                "name": f"{kind}: {case['name']}",
                "validitySchedules": case["validitySchedules"],
                "time": case["accessTime"],
                "expected": {"valid": result["isValid"], "applicable": result["isApplicable"]},
            }


def write(name: str, found: Json) -> None:
    """Write a file with a line for each element of its lists, so that changes can be read."""
    (VECTORS / name).write_text(lines_of(found) + "\n", "utf-8")


def lines_of(value: object, depth: int = 0) -> str:
    """JSON with line breaks down to the elements of lists."""
    inner, outer = "\n" + " " * (depth + 1), "\n" + " " * depth
    if isinstance(value, dict) and depth < 3 and value:
        members = (f"{json.dumps(name)}: {lines_of(each, depth + 1)}" for name, each in value.items())
        return "{" + inner + f",{inner}".join(members) + outer + "}"
    if isinstance(value, list) and depth < 4 and value and isinstance(value[0], dict):
        elements = (json.dumps(each, ensure_ascii=False) for each in value)
        return "[" + inner + f",{inner}".join(elements) + outer + "]"
    return json.dumps(value, ensure_ascii=False)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
