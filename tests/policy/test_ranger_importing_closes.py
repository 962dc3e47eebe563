"""Damaged documents: what is imported grants and shows nothing that the whole document would not."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from policy.principal import Principal
from policy.privileges.requests import AccessRequest
from policy.ranger import PolicySet
from policy.ranger.importing import import_ranger
from tests.policy.naive_ranger import World
from tests.policy.test_ranger_differential import (
    LITERALS,
    NOW,
    ROLES,
    access_policies,
    askers,
    filter_policies,
    mask_policies,
    parsed,
    requests,
)
from tests.support.tags import service_tags, tagged

Json = dict[str, Any]

EXAMPLES = settings(
    max_examples=settings.default.max_examples * 3 // 5,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)

WORLD = World(
    zones={"z": {"resources": [{"database": ["a"]}]}, "y": {"resources": []}, "unknown": {"resources": []}},
    tagged=[tagged("b", tags=["PII"])],
)
WILD: Json = {"resources": [{"name": name} for name in ("database", "table", "column")]}

NULL = ("MASK_NULL", "replace-with-null")
#: What no reader takes for something else, by the name of what it replaces.
UNREADABLE: dict[str, list[object]] = {
    "type": ["shuffle", "_read", 7],
    "users": [["{GROUP}"], "ann", ["ann", "{GROUP}"]],
    "groups": ["g1", [["g1"]]],
    "roles": ["r1", [7, "r1"]],
    "dataMaskType": ["CUSTOM", "SHUFFLE", None],
    "filterExpr": ["weird(a) > 2", "a = '${{USER.dept}}'", 7],
    "values": [["${{USER.dept}}"], ["a", "{GROUP}"], "a", []],
    "isAllowed": ["no"],
    "name": [7, ""],
}


def places(value: object) -> Iterator[tuple[Any, Any]]:
    """Every container in a policy, with each name or position in it."""
    for name in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield value, name
        yield from places(value[name])  # type: ignore[index]


@st.composite
def damaged(draw: st.DrawFn, policies: list[Json]) -> list[Json]:
    """Policies of which parts cannot be read any more."""
    found = copy.deepcopy(policies)
    for _ in range(draw(st.integers(1, 3))):
        container, name = draw(st.sampled_from(list(places(found))))
        how = draw(st.sampled_from(["replace", "replace", "add"]))
        if how == "add" and isinstance(container, dict):
            container["unknown"] = draw(st.sampled_from([None, 1, "x"]))
        elif name == "table" and "column" in container:
            del container[name]
        elif name not in ("resources", "policyType"):
            plain = [{"junk": 1}] if isinstance(container[name], str) else [{"junk": 1}, "junk"]
            container[name] = draw(st.sampled_from(UNREADABLE.get(name, plain)))
    return found


def imported(policies: list[Json]) -> PolicySet | None:
    """What is imported of policies; None if that is blocked."""
    document = {
        "policies": policies,
        "roles": ROLES,
        "securityZones": WORLD.zones,
        "serviceDef": {"name": "hive", "dataMaskDef": WILD, "rowFilterDef": WILD},
    }
    data = json.dumps(document).encode()
    tags = json.dumps(service_tags(WORLD.tagged)).encode()
    found = import_ranger({"export.json": data, "tags.json": tags})
    assert bool(found.documents) is not bool(found.blocked)
    return PolicySet.parse(found.documents) if found.documents else None


def named(policies: list[Json]) -> list[Json]:
    for number, policy in enumerate(policies):
        policy["name"] = f"p{number}"
    return policies


@EXAMPLES
@given(st.data(), st.sampled_from(["tables", "tables", "url", "storage", "key"]))
def test_an_import_of_damaged_policies_grants_no_more(data: st.DataObject, kind: str) -> None:
    policies = named(data.draw(st.lists(access_policies(kind), min_size=1, max_size=3), label="policies"))
    whole, found = parsed(policies, WORLD), imported(data.draw(damaged(policies), label="damaged"))
    if found is None:
        return
    for _ in range(8):
        asker = data.draw(askers(), label="asker")
        resource, access = data.draw(requests(kind), label="request")
        request = AccessRequest(Principal(asker.name, asker.groups), resource, access, asker.owner)
        decision = found.decide(request, NOW)
        assert not decision.allowed or whole.decide(request, NOW).allowed, decision.explanation


@EXAMPLES
@given(st.data())
def test_an_import_of_damaged_masks_shows_no_more(data: st.DataObject) -> None:
    policies = named(data.draw(st.lists(mask_policies(), min_size=1, max_size=3), label="policies"))
    whole, found = parsed(policies, WORLD), imported(data.draw(damaged(policies), label="damaged"))
    if found is None:
        return
    for _ in range(6):
        asker = data.draw(askers(), label="asker")
        names = [data.draw(LITERALS) for _ in range(3)]
        question = (Principal(asker.name, asker.groups), names[0], names[1], names[2], NOW)
        before = whole.mask_for(*question, owner=asker.owner)
        after = found.mask_for(*question, owner=asker.owner)
        assert before is None or after is not None
        assert before is None or before.type not in NULL or (after is not None and after.type in NULL)


@EXAMPLES
@given(st.data())
def test_an_import_of_damaged_row_filters_shows_no_more(data: st.DataObject) -> None:
    policies = named(data.draw(st.lists(filter_policies(), min_size=1, max_size=3), label="policies"))
    whole, found = parsed(policies, WORLD), imported(data.draw(damaged(policies), label="damaged"))
    if found is None:
        return
    for _ in range(6):
        asker = data.draw(askers(), label="asker")
        names = [data.draw(LITERALS) for _ in range(2)]
        question = (Principal(asker.name, asker.groups), names[0], names[1], NOW)
        before = whole.row_filters_for(*question, owner=asker.owner)
        after = found.row_filters_for(*question, owner=asker.owner)
        texts = {None if rule.filter is None else rule.filter.text for rule in after}
        none = None in texts or "FALSE" in texts
        assert none or {None if rule.filter is None else rule.filter.text for rule in before} <= texts


@EXAMPLES
@given(st.data())
def test_whole_policies_are_imported_as_they_are(data: st.DataObject) -> None:
    policies = named(data.draw(st.lists(access_policies("tables"), min_size=1, max_size=3), label="policies"))
    whole, found = parsed(policies, WORLD), imported(policies)
    assert found is not None
    for _ in range(4):
        asker = data.draw(askers(), label="asker")
        resource, access = data.draw(requests("tables"), label="request")
        request = AccessRequest(Principal(asker.name, asker.groups), resource, access, asker.owner)
        assert found.decide(request, NOW).allowed is whole.decide(request, NOW).allowed


ANYTHING = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.text(max_size=3), st.sampled_from(["name", "type"])
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=2), st.dictionaries(st.sampled_from(["name", "a"]), inner, max_size=2)
    ),
    max_leaves=4,
)
WHOLE: Json = {
    "serviceDef": {
        "name": "hive",
        "resources": [{"name": "table", "matcherOptions": {"wildCard": True}}],
        "accessTypes": [{"name": "update", "impliedGrants": ["select"]}],
        "policyConditions": [
            {"name": "expression", "evaluator": "x", "evaluatorOptions": {"scriptTemplate": ""}}
        ],
    },
    "policies": [
        {
            "name": "p",
            "service": "s",
            "serviceType": "hive",
            "policyType": 0,
            "resources": {"database": {"values": ["a"]}},
            "policyItems": [{"roles": ["r"], "accesses": [{"type": "select"}], "conditions": []}],
            "denyPolicyItems": [
                {"users": ["u"], "accesses": [{"type": "select"}], "conditions": [{"type": "t"}]}
            ],
        }
    ],
    "tagPolicies": {"policies": [{"name": "t", "resources": {"tag": {"values": ["T"]}}, "policyItems": []}]},
    "securityZones": {"z": {"resources": [{"database": ["b"]}], "policies": [{"name": "q"}]}},
    "roles": [{"name": "r", "users": [{"name": "ann"}], "groups": [], "roles": [{"name": "r2"}]}],
}
TAGS: Json = {
    "tags": {"1": {"type": "T", "attributes": {"a": "b"}}},
    "serviceResources": [{"id": 1, "resourceElements": {"database": {"values": ["a"]}}}],
    "resourceToTagIds": {"1": [1]},
}


@EXAMPLES
@given(st.data())
def test_an_import_of_anything_ends_with_a_set_in_force_or_is_blocked(data: st.DataObject) -> None:
    documents = copy.deepcopy([WHOLE, TAGS])
    for _ in range(data.draw(st.integers(1, 3))):
        container, name = data.draw(st.sampled_from(list(places(documents))))
        container[name] = data.draw(ANYTHING)
    found = import_ranger({f"{at}": json.dumps(each).encode() for at, each in enumerate(documents)})
    assert bool(found.documents) is not bool(found.blocked)
    PolicySet.parse(found.documents)
