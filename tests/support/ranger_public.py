"""Asks what the requests of Ranger's tests ask (tests/vectors/ranger-public), and compares the answers."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from policy.errors import InvalidInput
from policy.principal import Principal
from policy.privileges.requests import ACCESS_TYPES, ANY, AccessRequest, Resource
from policy.ranger import PolicySet
from policy.ranger.importing import Imported, Outcome, import_ranger
from tests.support.tags import service_tags, tagged

Json = dict[str, Any]

VECTORS = Path(__file__).parents[1] / "vectors" / "ranger-public"
KINDS = ("policies", "roles", "tags", "users")
NOW = datetime(2026, 6, 15, 12, tzinfo=UTC)
SAME, STRICTER, LAXER = "same", "refuses more", "allows more"
NULL = "MASK_NULL"
TABLES = ("database", "table", "column")


class NotAsked(Exception):
    """A request that cannot be put to a catalog."""


def vectors() -> dict[str, Json]:
    """The files with requests, by name."""
    found = {path.stem: json.loads(path.read_text("utf-8")) for path in sorted(VECTORS.glob("*.json"))}
    return {name: vector for name, vector in found.items() if "policies" in vector and "requests" in vector}


def imported(vector: Json, **more: Json) -> Imported:
    """The documents of a vector, as they are imported; without tags, if it has none."""
    found = {"tags": service_tags([])} | {kind: vector[kind] for kind in KINDS if kind in vector}
    return _imported(json.dumps(found | more))


@cache
def _imported(documents: str) -> Imported:
    return import_ranger({kind: json.dumps(each).encode() for kind, each in json.loads(documents).items()})


@cache
def _policies(documents: tuple[tuple[str, bytes], ...]) -> PolicySet:
    return PolicySet.parse(dict(documents))


def requests(vector: Json) -> Iterator[tuple[str, Json]]:
    """The requests of a vector by distinct names."""
    seen: Counter[str] = Counter()
    for request in vector["requests"]:
        kind = next(iter(request["expected"]))
        name = request["name"] if kind == "allowed" else f"{request['name']} ({kind})"
        seen[name] += 1
        yield name if seen[name] == 1 else f"{name} #{seen[name]}", request


def schedules() -> Iterator[tuple[str, Json]]:
    """Validity schedules by name, with whether they are valid, and whether they hold at a time."""
    for case in json.loads((VECTORS / "schedules.json").read_text("utf-8"))["schedules"]:
        yield case["name"], case


def in_force(case: Json) -> Json:
    """Whether a grant with these schedules is taken as it is, and whether it grants at the time."""
    grant = {"users": ["ann"], "accesses": [{"type": "select"}]}
    policy = {"name": "p", "resources": {"database": {"values": ["d"]}}, "policyItems": [grant]}
    document = {"policies": [policy | {"validitySchedules": case["validitySchedules"]}]}
    found = import_ranger({"schedule": json.dumps(document).encode()})
    request = AccessRequest(Principal("ann"), Resource.database("d"), "select")
    when = datetime.strptime(case["time"], "%Y%m%d-%H:%M:%S.%f%z") if case["time"] else NOW
    allowed = PolicySet.parse(found.documents).decide(request, when).allowed
    return {"valid": bool(found.of(Outcome.TAKEN)), "applicable": allowed}


def policies_for(vector: Json, request: Json) -> PolicySet:
    """The policies in force for a request, with the tags and the users that it brings along."""
    more: Json = {}
    if "tags" in request:
        names = [request["resource"][level] for level in TABLES if level in request["resource"]]
        tags = [
            {each: tag[each] for each in ("type", "attributes") if each in tag} for tag in request["tags"]
        ]
        more["tags"] = service_tags([tagged(*names, tags=tags)])
    if "userAttributes" in request:
        more["users"] = {"userAttrMapping": request["userAttributes"]}
    return _policies(tuple(imported(vector, **more).documents.items()))


def compared(policies: PolicySet, request: Json) -> str:
    """How our answer to a request differs from Ranger's: `SAME`, `STRICTER` or `LAXER`.

    Raises:
        NotAsked: the request cannot be put to a catalog.
    """
    ((kind, expected),) = request["expected"].items()
    if "resourceMatchingScope" in request or "isDescendantDenyIgnored" in request:
        raise NotAsked("a table together with its columns")
    principal = Principal(request["user"] or "nobody", frozenset(filter(None, request["groups"])))
    owner, names = request.get("owner"), tuple(request["resource"].values())
    if kind == "allowed":
        resource = _resource(request["resource"])
        access = _access(request["access"], resource)
        decision = policies.decide(AccessRequest(principal, resource, access, owner), NOW)
        return SAME if decision.allowed is expected else LAXER if decision.allowed else STRICTER
    if kind == "mask":
        if tuple(request["resource"]) != TABLES:
            raise NotAsked("a mask of something other than a column")
        rule = policies.mask_for(principal, *names, NOW, owner=owner)
        found = None if rule is None else rule.type
        return SAME if found == expected else STRICTER if found == NULL or expected is None else LAXER
    rules = policies.row_filters_for(principal, *names[:2], NOW, owner=owner)
    texts = ["FALSE" if rule.filter is None else rule.filter.text for rule in rules]
    if texts == [expected or ""][: bool(expected)]:
        return SAME
    return STRICTER if expected is None or "FALSE" in texts else LAXER


def _resource(levels: Json) -> Resource:
    names = tuple(levels)
    if names and names == TABLES[: len(names)]:
        return Resource(names, tuple(levels.values()))
    if names != ("url",) or not isinstance(levels["url"], str):
        raise NotAsked(f"a resource of {', '.join(names) or 'no level'}")
    try:
        return Resource.url(levels["url"])
    except InvalidInput as error:
        raise NotAsked("a location that no table can have") from error


def _access(access: str, resource: Resource) -> str:
    if access in ("", "_any"):
        return ANY
    if access not in ACCESS_TYPES[resource.levels]:
        raise NotAsked(f"the access type {access} on a {resource.levels[-1]}")
    return access
