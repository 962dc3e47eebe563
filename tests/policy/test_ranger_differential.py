"""Generated policies and requests: the evaluator and one that is a plain reading of Ranger's order agree.

A profile of hypothesis that asks for more examples gets them.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from policy.principal import Principal
from policy.privileges.requests import ACCESS_TYPES, AccessRequest, Resource
from policy.ranger import PolicySet
from tests.policy.naive_ranger import EMPTY, Asker, World, allows, filters_of, mask_of
from tests.support.tags import service_tags

Json = dict[str, Any]

EXAMPLES = settings(deadline=None, suppress_health_check=list(HealthCheck))
NOW = datetime(2030, 1, 15, 12, tzinfo=UTC)
ROLES = [
    {"name": "r1", "users": [{"name": "ann"}], "roles": [{"name": "r2"}]},
    {"name": "r2", "groups": [{"name": "g1"}]},
]
HELD = {"ann": {"r1"}, "bob": set(), "a*": set(), "Ann": set()}

NAMES = st.sampled_from(["a", "b", "ab", "A", "*", "a*", "?", "*b", "{USER}", "{OWNER}", "x{USER}", "ann"])
LITERALS = st.sampled_from(["a", "b", "ab", "Ab", "ann", "xann", "*", "a*", "bob"])
BUCKET = "s3://lake"
PATHS = st.sampled_from(
    ["", "/a", "/a/b", "/a/*", "/*/b", "/a*", "/?", "/{USER}", "/{OWNER}/b", "/a/b/", "/*b", "/ab/{USER}*"]
).map(lambda path: BUCKET + path)
PLACES = st.sampled_from(["", "/a", "/a/b", "/ab", "/b", "/a/b/c", "/ann", "/ann/b", "/a/ab", "/ab/ann"]).map(
    lambda path: BUCKET + path
)


def level(values: st.SearchStrategy[str], *flags: str) -> st.SearchStrategy[Json]:
    said = {"values": st.lists(values, min_size=1, max_size=2)}
    return st.fixed_dictionaries(said, optional={flag: st.booleans() for flag in flags})


def named(*levels: str) -> st.SearchStrategy[Json]:
    return st.fixed_dictionaries({name: level(NAMES, "isExcludes") for name in levels})


RESOURCES = {
    "tables": st.one_of(named("database"), named("database", "table"), named("database", "table", "column")),
    "url": st.fixed_dictionaries({"url": level(PATHS, "isRecursive")}),
    "storage": st.fixed_dictionaries(
        {
            "storage-type": level(st.sampled_from(["iceberg", "*", "hive"])),
            "storage-url": level(PATHS, "isRecursive"),
        }
    ),
    "key": st.fixed_dictionaries({"key": level(NAMES)}),
}
ACCESSES = {
    "tables": ["select", "update", "create", "Select", "all"],
    "url": ["read", "write", "all"],
    "storage": ["rwstorage", "all"],
    "key": ["use", "release", "all"],
}
TAG_TYPES = st.sampled_from(["PII", "pii", "KEY"])
ON_TAGS = st.fixed_dictionaries({"tag": level(TAG_TYPES)})
ZONE_NAMES = st.sampled_from(["", "", "", "z", "y", "unknown"])
EXPRESSIONS = [
    "IS_IN_GROUP('g1')",
    "!IS_IN_ROLE('r1')",
    "USER.dept == 'hr'",
    "USER.dept != 'hr' && USER.dept",
    "RES._ownerUser == USER._name",
    "REQ.accessType == 'select'",
    "IS_ACCESS_TIME_AFTER('2031/01/01')",
    "HAS_TAG('PII')",
]
CONDITION = st.one_of(
    st.just({"type": "ip-range", "values": ["10.*"]}),
    st.sampled_from(EXPRESSIONS).map(lambda text: {"type": "expression", "values": [text]}),
)
CONDITIONS = st.one_of(st.just([]), st.just([]), st.lists(CONDITION, min_size=1, max_size=2))
ATTRIBUTES = {"ann": {"dept": "hr"}, "bob": {"dept": "it"}, "a*": {}}
WHO = st.fixed_dictionaries(
    {
        "users": st.lists(st.sampled_from(["ann", "bob", "{USER}", "{OWNER}", "a*"]), max_size=2),
        "groups": st.lists(st.sampled_from(["g1", "g2", "public"]), max_size=1),
        "roles": st.lists(st.sampled_from(["r1", "r2"]), max_size=1),
    }
).filter(lambda who: any(who.values()))


@st.composite
def items(draw: st.DrawFn, accesses: list[str]) -> list[Json]:
    found = []
    for who in draw(st.lists(WHO, max_size=2)):
        types = draw(st.lists(st.sampled_from(accesses), min_size=1, max_size=2, unique=True))
        found.append({**who, "accesses": [{"type": kind} for kind in types], "conditions": draw(CONDITIONS)})
    return found


@st.composite
def access_policies(draw: st.DrawFn, kind: str) -> Json:
    """Some are on tags."""
    on_tags = draw(st.sampled_from([False, False, True]))
    accesses = [f"hive:{each}" for each in ACCESSES[kind]] if on_tags else ACCESSES[kind]
    resources = ON_TAGS if on_tags else RESOURCES[kind]
    lists = ("policyItems", "denyPolicyItems", "allowExceptions", "denyExceptions")
    policy: Json = {name: draw(items(accesses)) for name in lists}
    policy["resources"] = draw(resources)
    policy["additionalResources"] = draw(st.lists(resources, max_size=1))
    policy["policyPriority"] = draw(st.integers(0, 1))
    policy["isDenyAllElse"] = draw(st.sampled_from([False, False, False, True]))
    policy["isEnabled"] = draw(st.sampled_from([True, True, True, False]))
    policy["conditions"] = draw(CONDITIONS)
    policy["zoneName"] = draw(ZONE_NAMES)
    return policy


@st.composite
def mask_policies(draw: st.DrawFn) -> Json:
    found = []
    for item in draw(items(["select"])):
        types = ["MASK_NONE", "MASK_NULL", "MASK", "MASK_HASH", "replace-with-null"]
        info: Json = {"dataMaskType": draw(st.sampled_from(types))}
        info["conditionExpr"] = draw(st.sampled_from(["", "", "x > 1"]))
        found.append({**item, "dataMaskInfo": info})
    return {
        "policyType": 1,
        "resources": draw(st.one_of(ON_TAGS, named("database", "table", "column"))),
        "policyPriority": draw(st.integers(0, 1)),
        "isEnabled": draw(st.sampled_from([True, True, True, False])),
        "conditions": draw(CONDITIONS),
        "zoneName": draw(ZONE_NAMES),
        "dataMaskPolicyItems": found,
    }


@st.composite
def filter_policies(draw: st.DrawFn) -> Json:
    texts = st.sampled_from([{}, {"filterExpr": ""}, {"filterExpr": "a = 1"}, {"filterExpr": "b = 2"}])
    return {
        "policyType": 2,
        "resources": draw(st.one_of(ON_TAGS, named("database", "table"))),
        "policyPriority": draw(st.integers(0, 1)),
        "isEnabled": draw(st.sampled_from([True, True, True, False])),
        "conditions": draw(CONDITIONS),
        "zoneName": draw(ZONE_NAMES),
        "rowFilterPolicyItems": [{**each, "rowFilterInfo": draw(texts)} for each in draw(items(["select"]))],
    }


@st.composite
def requests(draw: st.DrawFn, kind: str) -> tuple[Resource, str]:
    if kind == "tables":
        depth = draw(st.integers(1, 3))
        names = tuple(draw(LITERALS) for _ in range(depth))
        resource = Resource(("database", "table", "column")[:depth], names)
        access = draw(st.sampled_from(["select", "update", "create", "unprotect", "all", "_any"]))
        return resource, access
    if kind == "key":
        resource = Resource.key(draw(LITERALS))
    else:
        resource = (Resource.url if kind == "url" else Resource.storage)(draw(PLACES))
    return resource, draw(st.sampled_from([*sorted(ACCESS_TYPES[resource.levels]), "_any"]))


@st.composite
def askers(draw: st.DrawFn) -> Asker:
    name = draw(st.sampled_from(["ann", "bob", "a*", "Ann"]))
    groups = frozenset(draw(st.lists(st.sampled_from(["g1", "g2"]), max_size=1)))
    roles = set(HELD[name]) | ({"r2", "r1"} if "g1" in groups else set())
    owner = draw(st.sampled_from([None, "ann", "bob", "Ann"]))
    return Asker(name, groups, frozenset(roles), owner, ATTRIBUTES.get(name))


PLAIN = st.sampled_from(["a", "b", "ab", "A", "*", "a*", "?", "ann"])


def plain(*names: str) -> st.SearchStrategy[Json]:
    """Resources without macros, for zones and tags."""
    return st.fixed_dictionaries({name: st.lists(PLAIN, min_size=1, max_size=2) for name in names})


def places(kind: str) -> st.SearchStrategy[Json]:
    if kind == "tables":
        levels = ("database", "table", "column")
        return st.one_of(plain(*levels[:1]), plain(*levels[:2]), plain(*levels))
    paths = st.lists(PLACES, min_size=1, max_size=1)
    location = {"url": {"url": paths}, "storage": {"storage-type": st.just(["*"]), "storage-url": paths}}
    return st.fixed_dictionaries(location[kind]) if kind in location else plain("key")


@st.composite
def worlds(draw: st.DrawFn, kind: str) -> World:
    zone = st.fixed_dictionaries(
        {"resources": st.lists(places(kind), max_size=2), "containsAssociatedTagService": st.booleans()}
    )
    zones = draw(st.dictionaries(st.sampled_from(["z", "y"]), zone, max_size=2))
    tagged = []
    for place in draw(st.lists(places(kind), max_size=3)):
        resource: Json = {name: {"values": values} for name, values in place.items()}
        if kind in ("url", "storage"):
            resource["url" if kind == "url" else "storage-url"]["isRecursive"] = draw(st.booleans())
        tags = draw(st.lists(TAG_TYPES, min_size=1, max_size=2, unique=True))
        tagged.append({"resource": resource, "tags": tags})
    return World(zones, tagged)


def parsed(policies: list[Json], world: World = EMPTY) -> PolicySet:
    document = {"policies": policies, "roles": ROLES, "securityZones": world.zones}
    documents = {"p": document, "t": service_tags(world.tagged), "u": {"userAttrMapping": ATTRIBUTES}}
    return PolicySet.parse({name: json.dumps(each) for name, each in documents.items()})


@EXAMPLES
@given(st.data(), st.sampled_from(["tables", "tables", "url", "storage", "key"]))
def test_decisions_are_those_of_a_plain_reading_of_ranger(data: st.DataObject, kind: str) -> None:
    policies = data.draw(st.lists(access_policies(kind), min_size=1, max_size=4), label="policies")
    world = data.draw(worlds(kind), label="world")
    for number, policy in enumerate(policies):
        policy["name"] = f"p{number}"
    found = parsed(policies, world)
    for _ in range(8):
        asker = data.draw(askers(), label="asker")
        resource, access = data.draw(requests(kind), label="request")
        asked = dict(zip(resource.levels, resource.values, strict=True))
        principal = Principal(asker.name, asker.groups)
        decision = found.decide(AccessRequest(principal, resource, access, asker.owner), NOW)
        assert decision.allowed is allows(policies, asker, asked, access, world), decision.explanation


@EXAMPLES
@given(st.data())
def test_masks_are_those_of_a_plain_reading_of_ranger(data: st.DataObject) -> None:
    policies = data.draw(st.lists(mask_policies(), min_size=1, max_size=4), label="policies")
    world = data.draw(worlds("tables"), label="world")
    for number, policy in enumerate(policies):
        policy["name"] = f"p{number}"
    found = parsed(policies, world)
    for _ in range(6):
        asker = data.draw(askers(), label="asker")
        names = [data.draw(LITERALS) for _ in range(3)]
        asked = dict(zip(("database", "table", "column"), names, strict=True))
        rule = found.mask_for(
            Principal(asker.name, asker.groups), names[0], names[1], names[2], NOW, owner=asker.owner
        )
        assert (None if rule is None else rule.type) == mask_of(policies, asker, asked, world)


@EXAMPLES
@given(st.data())
def test_row_filters_are_those_of_a_plain_reading_of_ranger(data: st.DataObject) -> None:
    policies = data.draw(st.lists(filter_policies(), min_size=1, max_size=4), label="policies")
    world = data.draw(worlds("tables"), label="world")
    for number, policy in enumerate(policies):
        policy["name"] = f"p{number}"
    found = parsed(policies, world)
    for _ in range(6):
        asker = data.draw(askers(), label="asker")
        names = [data.draw(LITERALS) for _ in range(2)]
        asked = dict(zip(("database", "table"), names, strict=True))
        rules = found.row_filters_for(Principal(asker.name, asker.groups), *names, NOW, owner=asker.owner)
        told = [(rule.policy, None if rule.filter is None else rule.filter.text) for rule in rules]
        # A policy on two tags of a table, or on one tag twice, filters once for each.
        assert sorted(set(told), key=str) == sorted(set(filters_of(policies, asker, asked, world)), key=str)
