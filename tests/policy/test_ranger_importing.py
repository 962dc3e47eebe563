"""What an import makes of each kind of damage, and what it says about it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from policy.ranger import PolicySet
from policy.ranger.importing import Imported, Outcome, import_ranger
from policy.ranger.importing.strict import Home
from tests.support.tags import service_tags, tagged
from tests.support.vectors import each_row

Json = dict[str, Any]

ORDERS: Json = {
    "database": {"values": ["sales"]},
    "table": {"values": ["orders"]},
    "column": {"values": ["*"]},
}
ALL: Json = {name: {"values": ["*"]} for name in ORDERS}
ANN: Json = {"users": ["ann"], "accesses": [{"type": "select"}]}
EVERYONE: Json = {"groups": ["public"], "accesses": [{"type": "all"}]}
MASKED: Json = ANN | {"dataMaskInfo": {"dataMaskType": "MASK"}}
NULLED: Json = {
    "groups": ["public"],
    "accesses": [{"type": "select"}],
    "dataMaskInfo": {"dataMaskType": "MASK_NULL"},
}
HIVE: Json = {
    "name": "hive",
    "resources": [{"name": name, "matcherOptions": {"wildCard": "true"}} for name in ORDERS],
    "accessTypes": [{"name": "select"}, {"name": "all", "impliedGrants": ["select"]}],
}


def grants(**more: Any) -> Json:
    return {"name": "p", "resources": ORDERS, "policyItems": [ANN], **more}


def denies(**more: Any) -> Json:
    return {"name": "p", "resources": ORDERS, "denyPolicyItems": [ANN], **more}


def masks(*items: Json, **more: Any) -> Json:
    card = ORDERS | {"column": {"values": ["card"]}}
    return {"name": "p", "policyType": 1, "resources": card, "dataMaskPolicyItems": list(items), **more}


def filters(*items: Json, **more: Any) -> Json:
    table = {name: ORDERS[name] for name in ("database", "table")}
    return {"name": "p", "policyType": 2, "resources": table, "rowFilterPolicyItems": list(items), **more}


def load(*documents: object) -> Imported:
    return import_ranger({f"{at}.json": json.dumps(each).encode() for at, each in enumerate(documents)})


def one(policy: object, **container: Any) -> tuple[Json | None, Outcome, str]:
    """The policy as it is imported, what became of it, and why."""
    found = load({"roles": [], **container, "policies": [policy]})
    (line, *_) = found.report
    policies = json.loads(found.documents["ranger"])["policies"] if found.documents else []
    PolicySet.parse(found.documents)
    return (policies[0] if policies else None), line.outcome, " ".join(line.reasons)


TAKEN = [grants(), denies(), masks(MASKED), grants(id=7, description="d"), grants(isEnabled=False)]


@each_row("policy", TAKEN)
def test_what_is_read_is_taken_as_it_is(policy: Json) -> None:
    assert one(policy) == (policy, Outcome.TAKEN, "")


REFUSED = [
    (grants(resources={"shelf": {"values": ["a"]}}), "the resource 'shelf' is unknown"),
    (grants(resources={"database": {"values": ["a"]}, "column": {"values": ["b"]}}), "one hierarchy"),
    (grants(resources={name: {"values": ["${{x}}"]} for name in ORDERS}), "braces"),
    (grants(resources=[]), "resources"),
    (grants(resources=ORDERS | {"table": {"values": "orders"}}), "expected a list"),
    (grants(resources=ORDERS | {"table": {"values": ["${{x}}", "t"], "isExcludes": True}}), "braces"),
    (grants(additionalResources={}), "additionalResources"),
    (grants(policyPriority=7), "policyPriority: 7"),
    (grants(validitySchedules=[{}]), "validitySchedules"),
    (grants(options={"POLICY_VALIDITY_SCHEDULES": "[]"}), "validity schedules in options"),
    (grants(policyItems="ann"), "it is not a list"),
    (grants(policyItems=["ann"]), "it is not an object"),
    (grants(policyItems=[ANN | {"until": "noon"}]), "unknown field 'until'"),
    (grants(policyItems=[ANN | {"conditions": "noon"}]), "expected a list"),
    (grants(policyItems=[ANN | {"accesses": [{"type": "sleep"}]}]), "'sleep' is unknown"),
    (grants(serviceType="hdfs"), "a service of the type 'hdfs'"),
    (grants(policyType=3), "Ranger's audit"),
    (denies(isEnabled=False, resources={"shelf": {"values": ["a"]}}), "it is disabled"),
    (masks(ANN | {"dataMaskInfo": {"dataMaskType": "MASK_NONE", "x": 1}}, policyPriority=1), "dataMaskInfo"),
]


@each_row(("policy", "why"), REFUSED)
def test_what_only_grants_and_cannot_be_read_is_refused(policy: Json, why: str) -> None:
    found, outcome, reason = one(policy)
    if policy.get("dataMaskPolicyItems"):  # its item could mask
        assert (found, outcome) == (masks(NULLED, policyPriority=1), Outcome.DIFFERENT)
    else:
        assert (found, outcome) == (None, Outcome.REFUSED)
    assert why in reason, reason


BLOCKED = [
    ("policy", "it is not an object"),
    (grants(denyItems=[]), "denyItems: the field is unknown"),
    (denies(resources={"shelf": {"values": ["a"]}}), "'shelf' is unknown"),
    (denies(resources=None), "resources"),
    (denies(additionalResources="all"), "additionalResources"),
    (denies(additionalResources=[{"url": {"values": ["s3://a"]}}]), "the same hierarchy"),
    (denies(resources={"database": ORDERS["database"], "key": {"values": ["a"]}}), "one hierarchy"),
    (denies(denyPolicyItems="ann", resources={}), "resources"),
    (grants(isDenyAllElse="yes", resources={}), "resources"),
    (grants(zoneName=7), "zoneName: expected a string"),
    (grants(serviceType=["hive"]), "serviceType: expected a string"),
    (grants(policyType=4), "policyType: 4"),
    (grants(policyType=True), "policyType: True"),
    (grants(policyType=[]), "policyType: []"),
    (masks(MASKED, resources={}), "resources"),
    (denies(resources={"tag": {"values": ["*"]}}), "wildcards"),
]


@each_row(("policy", "why"), BLOCKED)
def test_what_can_restrict_nobody_knows_whom_or_what_blocks(policy: Json, why: str) -> None:
    found, outcome, reason = one(policy)
    assert (found, outcome) == (None, Outcome.BLOCKED)
    assert why in reason, reason


CHANGED = [
    (grants(description=7), grants(), "description: expected a string"),
    ({"resources": ORDERS, "policyItems": [ANN]}, grants(name="policies[0]"), ""),
    (
        grants(policyItems=[ANN, {"users": ["bob"]}, {"accesses": [{"type": "select"}]}]),
        grants(),
        "no effect",
    ),
    (grants(policyItems=[ANN | {"users": ["ann", "", "{GROUP}"]}]), grants(), "'{GROUP}' is unknown"),
    (
        grants(policyItems=[ANN | {"accesses": [{"type": "select"}, {"type": "sleep"}]}]),
        grants(),
        "policyItems[0].accesses: accesses[1].type: the access type 'sleep'",
    ),
    (grants(policyItems=[ANN | {"delegateAdmin": "yes"}, ANN]), grants(), "policyItems[0]: expected true or"),
    (
        grants(resources=ORDERS | {"table": {"values": ["orders", "${{x}}"]}}),
        grants(),
        "It grants nothing on what cannot be read",
    ),
    (
        grants(additionalResources=[ORDERS | {"column": {"values": ["{GROUP}"]}}, ALL]),
        grants(additionalResources=[ALL]),
        "It grants nothing on what cannot be read",
    ),
    (grants(rowFilterPolicyItems=[ANN]), grants(), "no effect in a policy of this type"),
    (denies(denyExceptions=[ANN | {"users": ["{GROUP}"]}]), denies(), "denyExceptions[0]: "),
    (
        denies(denyPolicyItems=[ANN | {"accesses": [{"type": "select"}, {"type": "sleep"}]}]),
        denies(denyPolicyItems=[{"users": ["ann"], "accesses": [{"type": "all"}]}]),
        "It restricts every access type",
    ),
    (
        denies(denyPolicyItems=[ANN | {"users": ["ann", "{GROUP}"]}]),
        denies(denyPolicyItems=[{"accesses": [{"type": "select"}], "groups": ["public"]}]),
        "It restricts everyone",
    ),
    (denies(denyPolicyItems=[ANN | {"conditions": "x"}]), denies(), "It restricts under all conditions"),
    (denies(denyPolicyItems=[ANN | {"delegateAdmin": 1}]), denies(), "It delegates nothing"),
    (denies(denyPolicyItems=[ANN | {"until": 1}]), denies(denyPolicyItems=[EVERYONE]), "as much as it can"),
    (denies(denyPolicyItems="x"), denies(denyPolicyItems=[EVERYONE]), "it is not a list"),
    (
        grants(denyPolicyItems=[ANN], policyPriority="high", validitySchedules=7),
        denies(policyPriority=1),
        "It restricts always. It grants nothing",
    ),
    (
        grants(isDenyAllElse="yes"),
        {"name": "p", "resources": ORDERS, "isDenyAllElse": True},
        "It denies all else",
    ),
    (
        denies(resources={"database": ORDERS["database"], "column": {"values": ["{GROUP}"]}}),
        denies(resources=ORDERS | {"table": {"values": ["*"]}, "column": {"values": ["*"]}}),
        "resources: they cannot be read",
    ),
    (
        denies(resources={"storage-type": {"values": ["iceberg"]}}),
        denies(
            resources={"storage-type": {"values": ["iceberg"]}, "storage-url": {"values": ["*"]}},
        ),
        "resources: they cannot be read",
    ),
    (
        masks(ANN | {"dataMaskInfo": {"dataMaskType": "CUSTOM", "valueExpr": "f({col})"}}),
        masks(ANN | {"dataMaskInfo": {"dataMaskType": "MASK_NULL"}}),
        "The mask is MASK_NULL",
    ),
    (
        masks(MASKED, ANN | {"dataMaskInfo": {"dataMaskType": "MASK_NONE"}}, isEnabled="x"),
        masks(ANN | {"dataMaskInfo": {"dataMaskType": "MASK_NULL"}}),
        "It restricts as an enabled one",
    ),
    (
        filters(ANN | {"rowFilterInfo": {"filterExpr": "weird(a) > 2"}}),
        filters(ANN | {"rowFilterInfo": {"filterExpr": "FALSE"}}),
        "No row is shown",
    ),
    (
        filters(ANN | {"rowFilterInfo": {"filterExpr": "a = 1"}}, resources=ORDERS),
        filters(ANN | {"rowFilterInfo": {"filterExpr": "FALSE"}}),
        "resources: they cannot be read",
    ),
]


@each_row(("policy", "expected", "why"), CHANGED)
def test_what_cannot_be_read_grants_nothing_and_restricts_more(
    policy: Json, expected: Json, why: str
) -> None:
    found, outcome, reason = one(policy)
    assert found == expected, found
    assert why in reason, reason
    assert outcome is Outcome.DIFFERENT or not reason


BY_ROLE = ANN | {"users": [], "roles": ["r"]}
WIDENED = {"accesses": [{"type": "select"}], "groups": ["public"]}
ROLE = {"name": "r", "users": [{"name": "ann"}]}


@each_row(
    ("roles", "is_known"),
    [
        (None, False),
        ([], True),
        ([ROLE], True),
        ([ROLE, ROLE | {"users": [{"name": "bob"}]}], True),
    ],
)
def test_without_any_role_what_is_restricted_for_roles_is_restricted_for_everyone(
    roles: list[Json] | None, is_known: bool
) -> None:
    found = load(
        {
            "policies": [denies(denyPolicyItems=[BY_ROLE]), grants(name="g", policyItems=[BY_ROLE])],
            "roles": roles,
        }
    )
    policies = json.loads(found.documents["ranger"])["policies"]
    assert policies[0]["denyPolicyItems"] == ([BY_ROLE] if is_known else [WIDENED])
    assert policies[1]["policyItems"][0]["roles"] == ["r"]
    PolicySet.parse(found.documents)


@each_row(
    "roles",
    [
        [ROLE | {"isEnabled": False}],
        [ROLE | {"users": "ann"}],
        [ROLE | {"users": [{"name": "ann", "until": 2030}]}],
        [ROLE | {"roles": [{"name": "s"}]}, {"name": "s", "groups": 7}],
        [ROLE | {"roles": [{"name": "s"}]}, {"name": "s", "roles": [{"name": "r"}]}],
        ["r"],
    ],
)
def test_a_role_that_cannot_be_read_blocks(roles: list[object]) -> None:
    # Documents of others can deny to it, too.
    found = load({"policies": [grants()], "roles": roles})
    assert found.documents == {}
    assert {line.what for line in found.blocked} == {"role"}


def test_roles_of_one_name_are_added_up() -> None:
    found = load({"rangerRoles": [ROLE, ROLE | {"users": [{"name": "ann"}, {"name": "bob"}]}]})
    (role,) = json.loads(found.documents["ranger"])["roles"]
    assert [each["name"] for each in role["users"]] == ["ann", "bob"]


def test_roles_can_be_defined_by_other_documents() -> None:
    data = json.dumps({"policies": [denies(denyPolicyItems=[BY_ROLE])]}).encode()
    assert import_ranger({"p": data}, roles_elsewhere=True).of(Outcome.TAKEN)


DEFINED = [
    ({"resources": [{"name": "table", "matcherOptions": {"ignoreCase": False}}]}, "grants"),
    ({"resources": [{"name": "table", "matcherOptions": {"wildCard": "false"}}]}, "grants"),
    ({"resources": [{"name": "database"}, {"name": "shelf"}, 7], "accessTypes": "x"}, ""),
    ({"accessTypes": [{"name": "Select", "impliedGrants": ["drop"]}]}, "denials"),
    ({"accessTypes": [{"name": "all", "impliedGrants": ["drop"]}]}, ""),
]


@each_row(("definition", "changes"), DEFINED)
def test_a_service_definition_that_means_something_else_counts(definition: Json, changes: str) -> None:
    more = {"serviceDef": {"name": "hive", **definition}}
    granted, denied = one(grants(), **more), one(denies(), **more)
    assert (granted[1] is Outcome.TAKEN) is (changes != "grants"), granted
    assert (denied[1] is Outcome.TAKEN) is (changes != "denials"), denied
    both, _, _ = one(grants(denyPolicyItems=[ANN]), **more)
    assert both is not None and ("policyItems" in both) is (changes != "grants")


NARROW_ALL = [{"name": "select"}, {"name": "drop"}, {"name": "all", "impliedGrants": ["select"]}]


@each_row("accesses", [NARROW_ALL, NARROW_ALL[:2]])
def test_all_grants_no_more_than_the_service_definition_implies(accesses: list[Json]) -> None:
    more = {"serviceDef": {"name": "hive", "accessTypes": accesses}}
    on_all = ANN | {"accesses": [{"type": "ALL"}]}
    assert one(grants(policyItems=[on_all]), **more)[1] is Outcome.REFUSED
    assert one(denies(denyPolicyItems=[on_all]), **more)[1] is Outcome.TAKEN
    found, _, _ = one(denies(denyExceptions=[on_all]), **more)
    assert found == denies()


@each_row(
    ("transformer", "mask"),
    [("mask_show_last_n({col}, 4, 'x', 'x', 'x', -1, '1')", "MASK_SHOW_LAST_4"), ("'***'", "MASK_NULL")],
)
def test_a_mask_that_the_service_defines_otherwise_is_null(transformer: str, mask: str) -> None:
    types = [{"name": "MASK_SHOW_LAST_4", "transformer": transformer}, {"name": "MASK_NONE"}]
    more = {"serviceDef": {"name": "hive", "dataMaskDef": {"maskTypes": types}}}
    shown = ANN | {"dataMaskInfo": {"dataMaskType": "MASK_SHOW_LAST_4"}}
    found, _, _ = one(masks(shown), **more)
    assert found == masks(ANN | {"dataMaskInfo": {"dataMaskType": mask}})


def wild(kind: str, *, wildcards: bool) -> Json:
    options = {"matcherOptions": {"wildCard": str(wildcards).lower()}}
    return {
        "serviceDef": {"name": "hive", kind: {"resources": [{"name": name, **options} for name in ORDERS]}}
    }


def test_wildcards_that_are_letters_to_the_service_show_nothing() -> None:
    # With Ranger, such a policy is about no column: it must not take the place of one that is.
    unmasking = ANN | {"dataMaskInfo": {"dataMaskType": "MASK_NONE"}}
    showing = ANN | {"rowFilterInfo": {"filterExpr": ""}}
    for policy in (masks(unmasking, policyPriority=1), filters(showing, policyPriority=1)):
        policy["resources"] = policy["resources"] | {"table": {"values": ["ord*"]}}
        assert one(policy)[1] is Outcome.REFUSED
    everything = masks(MASKED) | {"resources": ORDERS | {"column": {"values": ["c?"]}}}
    found, _, reason = one(everything)
    assert found is not None and found["dataMaskPolicyItems"] == [
        ANN | {"dataMaskInfo": {"dataMaskType": "MASK_NULL"}}
    ]
    assert "for letters" in reason
    assert one(everything, **wild("dataMaskDef", wildcards=False))[0] == found
    assert one(everything, **wild("dataMaskDef", wildcards=True))[1] is Outcome.TAKEN


def test_a_denial_at_recurring_times_denies_always() -> None:
    # Ranger reads these times in the time zone of its machine.
    times = {"minute": "0", "hour": "6", "dayOfWeek": "2-6", "month": "*", "year": "*"}
    recurring = [{"timeZone": "UTC", "recurrences": [{"schedule": times, "interval": {"hours": 12}}]}]
    assert one(denies(validitySchedules=recurring))[0] == denies()
    assert one(grants(validitySchedules=recurring, denyPolicyItems=[ANN]))[0] == denies()
    assert one(grants(validitySchedules=recurring))[1] is Outcome.TAKEN
    spans = [{"startTime": "2030/01/31 00:00:00", "timeZone": "UTC"}]
    assert one(denies(validitySchedules=spans))[1] is Outcome.TAKEN


def test_levels_that_match_less_here_deny_more_and_grant_as_before() -> None:
    odd = {
        "serviceDef": {"name": "hive", "resources": [{"name": "url", "matcherOptions": {"ignoreCase": True}}]}
    }
    item = {"users": ["ann"], "accesses": [{"type": "read"}]}
    at = {"resources": {"url": {"values": ["s3://a/b"]}}}
    assert one(grants(policyItems=[item], **at), **odd)[1] is Outcome.TAKEN
    denied, _, _ = one(denies(denyPolicyItems=[item], **at), **odd)
    assert denied is not None and denied["resources"] == {"url": {"values": ["*"]}}
    excluding = ORDERS | {"table": {"values": ["orders"], "isExcludes": True}}
    case = {
        "serviceDef": {
            "name": "hive",
            "resources": [{"name": "table", "matcherOptions": {"ignoreCase": False}}],
        }
    }
    denied, _, _ = one(denies(resources=excluding), **case)
    assert denied is not None and denied["resources"]["table"] == {"values": ["*"]}


CONDITION = {"type": "expression", "values": ["USER.dept == 'x'"]}
SCRIPT = "org.apache.ranger.plugin.conditionevaluator.RangerScriptConditionEvaluator"
EXPIRY = {
    "name": "accessed-after-expiry",
    "evaluator": SCRIPT.replace("Script", "ScriptTemplate"),
    "evaluatorOptions": {"scriptTemplate": "ctx.isAccessedAfter('expiry_date');"},
}


@each_row(
    ("conditions", "is_usual"),
    [
        ([{"name": "expression", "evaluator": SCRIPT}], True),
        ([{"name": "expression", "evaluator": "com.example.Mine"}], False),
        ([EXPIRY], False),
        (None, False),
    ],
)
def test_conditions_that_the_service_evaluates_otherwise_only_restrict(
    conditions: list[Json] | None, is_usual: bool
) -> None:
    more = {"serviceDef": {"name": "hive", "policyConditions": conditions}}
    item = ANN | {"conditions": [CONDITION]}
    assert (one(grants(policyItems=[item]), **more)[0] is not None) is is_usual
    assert (one(grants(conditions=[CONDITION]), **more)[0] is not None) is is_usual
    for policy in (denies(denyPolicyItems=[item]), denies(conditions=[CONDITION])):
        found, _, _ = one(policy, **more)
        assert found is not None and ("USER.dept" in json.dumps(found)) is is_usual


def test_conditions_that_are_not_understood_are_a_difference() -> None:
    odd = {"type": "ip-range", "values": ["10.*"]}
    for policy in (grants(conditions=[odd]), grants(policyItems=[ANN | {"conditions": [odd]}])):
        assert one(policy)[1:] == (Outcome.DIFFERENT, one(policy)[2])
        assert "only restricts, because" in one(policy)[2]


ZONE = {"zoneName": "z", "resources": [{"database": ["sales"]}]}


def test_zones_with_their_policies_are_taken_over() -> None:
    found = load(
        {"securityZones": {"z": ZONE | {"policies": [grants(), denies(denyItems=[]) | {"isEnabled": False}]}}}
    )
    assert [line.outcome for line in found.report] == [Outcome.TAKEN, Outcome.TAKEN, Outcome.REFUSED]
    assert len(json.loads(found.documents["ranger"])["securityZones"]["z"]["policies"]) == 1


@each_row(
    "zones", [[], {"z": 7}, {"z": ZONE | {"resources": [{"shelf": ["a"]}]}}, {"z": ZONE | {"policies": {}}}]
)
def test_zones_that_cannot_be_read_block(zones: object) -> None:
    assert load({"securityZones": zones}).blocked


def test_a_problem_is_named_without_its_place_even_in_a_zone_with_a_colon() -> None:
    (line,) = load({"securityZones": {"a:b": ZONE | {"zoneName": "a:b", "resources": 7}}}).blocked
    assert line.reasons == ("securityZones.a:b.resources: expected a list, got an integer.",)


@each_row("policy", [grants(), denies(), grants(isEnabled=False)])
def test_a_policy_of_a_zone_without_a_definition_blocks(policy: Json) -> None:
    # Policies without a zone would decide what is in the zone.
    found = load({"policies": [grants(name="everywhere"), policy | {"zoneName": "z"}], "roles": []})
    assert found.documents == {}
    (line,) = found.blocked
    assert "no document defines its security zone 'z'" in line.reasons[0]


TAG: Json = {"name": "t", "resources": {"tag": {"values": ["PII"]}}}
ON_TAGS = [
    (TAG | {"denyPolicyItems": [EVERYONE]}, True),
    (TAG | {"policyItems": [ANN], "isDenyAllElse": True}, True),
    (TAG | {"policyType": 1, "dataMaskPolicyItems": [MASKED]}, True),
    (TAG | {"policyItems": [ANN]}, False),
    (TAG | {"denyPolicyItems": [EVERYONE], "isEnabled": False}, False),
]


@each_row(("policy", "restricts"), ON_TAGS)
def test_a_policy_on_tags_that_restricts_blocks_without_tags(policy: Json, restricts: bool) -> None:
    listed: Json = {"policies": [grants()], "roles": [], "tagPolicies": {"policies": [policy]}}
    found = load(listed)
    assert bool(found.blocked) is restricts
    assert "no document has tags" in str(found.blocked) or not restricts
    assert load(listed, {"serviceResources": []}).documents.keys() == {"ranger", "tags"}


ASKING = ("HAS_TAG('PII')", "!ctx.hasAnyTag()", "ctx.getAttributeValue('A', 'b') == 'c'")


@pytest.mark.parametrize("text", ASKING)
@pytest.mark.parametrize("items", ["policyItems", "denyPolicyItems"])
def test_a_policy_with_conditions_on_tags_needs_tags(text: str, items: str) -> None:
    """Attack: where another source has tags, the resources of this one would count as having none."""
    asking = ANN | {"conditions": [{"type": "expression", "values": [text]}]}
    listed: Json = {"policies": [{"name": "p", "resources": ORDERS, items: [asking]}], "roles": []}
    found = load(listed)
    assert bool(found.blocked) is (items == "denyPolicyItems")
    assert found.refused or found.blocked
    assert not load(listed, {"serviceResources": []}).refused


@each_row("options", [{}, {"wildCard": "false"}, {"wildCard": "true", "ignoreCase": "false"}])
def test_how_the_service_matches_names_of_tags_does_not_matter(options: Json) -> None:
    # A tag is named without wildcards, and by its letters.
    definition = {"name": "tag", "resources": [{"name": "tag", "matcherOptions": options}]}
    tags: Json = {"serviceDef": definition, "policies": [TAG | {"policyItems": [ANN]}]}
    listed = {"roles": [], "tagPolicies": tags}
    assert load(listed, {"serviceResources": []}).report[0].outcome is Outcome.TAKEN


def test_policies_on_tags_are_taken_over_wherever_they_are_listed() -> None:
    tag = TAG | {"denyPolicyItems": [EVERYONE]}
    found = load(
        {"serviceResources": []},
        [tag],
        {"tagPolicies": {"policies": [tag | {"name": "u", "policyItems": [ANN | {"accesses": [7]}]}]}},
    )
    assert [(line.what, line.outcome) for line in found.report] == [
        ("tag policy", Outcome.TAKEN),
        ("tag policy", Outcome.DIFFERENT),
        ("tags", Outcome.TAKEN),
    ]
    assert found.documents


WHOLE: list[tuple[list[object], str]] = [
    ([7], "neither an object nor a list"),
    ([{"metrics": 1}], "neither policies, roles, tags nor users"),
    ([{"policies": {}}], "it is not a list"),
    ([{"roles": {}}], "it is not a list"),
    ([{"tagPolicies": []}], "it is not an object"),
    ([{"tagPolicies": {"pages": 2}}], "unknown field 'pages'"),
    ([{"policies": [], "totalCount": 3}], "not all of 3 entries"),
    ([{"policies": [], "totalCount": "3"}], "not all of 3 entries"),
    ([{"policies": [], "policyDeltas": [1]}], "policyDeltas are not supported"),
    ([{"policies": [], "serviceDef": {"name": "hdfs"}}], "'hdfs' is not supported"),
    ([{"policies": [grants(service="a"), denies(name="q", service="b")]}], "several services: a, b"),
    ([service_tags([tagged("a", tags=["T"])]), service_tags([])], "another document has tags"),
    ([{"serviceResources": 7}], "expected a list"),
    ([{"userAttrMapping": 7}], "expected an object"),
    ([{"securityZones": {"z": ZONE}}, {"securityZones": {"z": ZONE}}], "a zone of this name"),
    ([{"policies": [grants(name="p"), grants(name="p (0.json policies[1])"), grants(name="p")]}], ""),
]


@each_row(("documents", "why"), WHOLE)
def test_documents_that_are_not_whole_or_not_of_one_service_block(documents: list[object], why: str) -> None:
    found = load(*documents)
    if not why:
        assert len(json.loads(found.documents["ranger"])["policies"]) == 3
        return
    assert found.documents == {}
    assert why in " ".join(reason for line in found.blocked for reason in line.reasons)


def test_what_is_no_json_blocks() -> None:
    (line,) = import_ranger({"x": b"{"}).blocked
    assert line.reasons[0].startswith("Document x is not JSON")


def test_parts_that_are_read_alone_but_not_together_are_refused_or_block(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read = Home.problem

    def problem(self: Home, policy: Json) -> str | None:
        return "too many items" if len(policy.get("policyItems", ())) > 1 else read(self, policy)

    monkeypatch.setattr(Home, "problem", problem)
    two: Json = {"policyItems": [ANN, ANN]}
    assert one(grants(**two)) == (None, Outcome.REFUSED, "too many items")
    assert one(denies(**two)) == (None, Outcome.BLOCKED, "too many items")


def test_a_document_that_is_refused_as_a_whole_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("policy.ranger.importing.documents.problem_of", lambda document: "too long")
    found = load({"policies": [grants()], "roles": []})
    assert found.documents == {}
    assert [(line.what, line.reasons) for line in found.blocked] == [("document", ("too long",))]


def test_names_and_ids_that_come_twice_are_told_apart() -> None:
    found = load({"policies": [grants(id=1), denies(id=1)]})
    policies = json.loads(found.documents["ranger"])["policies"]
    assert [(each["name"], each.get("id")) for each in policies] == [("p", 1), ("p (policies[1])", None)]
    assert found.report[1].outcome is Outcome.DIFFERENT


def test_a_single_policy_and_kinds_that_are_given_alone_are_documents() -> None:
    assert load(grants()).documents.keys() == {"ranger"}
    assert load(service_tags([tagged("a", tags=["T"])])).documents.keys() == {"tags"}
    assert load({"userAttrMapping": {"ann": {"dept": "x"}}}).documents.keys() == {"users"}
