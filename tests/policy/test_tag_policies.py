"""Policies on tags, and security zones, in every question that policies answer."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from policy.errors import PolicyInvalid
from policy.misfits import moved
from policy.principal import Principal
from policy.privileges.requests import AccessRequest, Resource
from policy.ranger import PolicySet
from policy.ranger.equivalence import Equivalence
from policy.ranger.parse import parse_documents
from policy.restrictions.columns import SchemaField, TableColumns
from tests.support.tags import service_tags, tagged

Json = dict[str, Any]

NOW = datetime(2030, 1, 15, 12, tzinfo=UTC)
LATER = datetime(2031, 1, 15, 12, tzinfo=UTC)
ANN, BOB = Principal("ann"), Principal("bob")
EMAIL = tagged("sales", "people", "email", tags=["PII"])
ALL_OF_SALES = {"database": ["sales"], "table": ["*"], "column": ["*"]}


def item(access: str = "select", *users: str, **more: Any) -> Json:
    return {"accesses": [{"type": access}], "users": list(users or ("ann",)), **more}


def policy(name: str, resources: dict[str, list[str]], **more: Any) -> Json:
    said = {level: {"values": values} for level, values in resources.items()}
    return {"name": name, "resources": said, **more}


def on_tag(name: str, *items: Json, tag: str = "PII", **more: Any) -> Json:
    return policy(name, {"tag": [tag]}, policyItems=list(items), **more)


READERS = policy("readers", ALL_OF_SALES, policyItems=[item("select", "ann", "bob")])
DENIED = on_tag("pii", denyPolicyItems=[item("hive:select", "bob")])


def masking(name: str, resources: dict[str, list[str]], kind: str) -> Json:
    one = item("select") | {"dataMaskInfo": {"dataMaskType": kind}}
    return policy(name, resources, policyType=1, dataMaskPolicyItems=[one])


def filtering(name: str, resources: dict[str, list[str]], text: str) -> Json:
    one = item("select") | {"rowFilterInfo": {"filterExpr": text}}
    return policy(name, resources, policyType=2, rowFilterPolicyItems=[one])


def having(policies: list[Json], *tags: Json, **parts: Any) -> PolicySet:
    document = {"policies": policies, **parts}
    return PolicySet.parse({"p.json": json.dumps(document), "t.json": json.dumps(service_tags(tags))})


def selects(
    policies: PolicySet, who: Principal, *names: str, access: str = "select", now: datetime = NOW
) -> bool:
    resource = Resource(("database", "table", "column")[: len(names)], names)
    return policies.decide(AccessRequest(who, resource, access), now).allowed


def test_a_denial_on_a_tag_closes_what_has_it_and_no_more() -> None:
    found = having([READERS, DENIED], EMAIL)
    assert not selects(found, BOB, "sales", "people", "email")
    assert not selects(found, BOB, "Sales", "PEOPLE", "Email")
    assert selects(found, BOB, "sales", "people", "name")
    assert selects(found, BOB, "sales", "people")
    assert selects(found, ANN, "sales", "people", "email")


@pytest.mark.parametrize("names", [("sales", "people"), ("sales",)])
def test_a_tag_of_a_table_or_database_is_on_all_in_it(names: tuple[str, ...]) -> None:
    found = having([READERS, DENIED], tagged(*names, tags=["PII"]))
    assert not selects(found, BOB, "sales", "people", "name")
    assert not selects(found, BOB, "sales", "people")
    assert selects(found, BOB, "sales", "orders", "id") is (len(names) == 2)


def test_names_of_tags_have_letter_case() -> None:
    assert selects(having([READERS, DENIED], tagged("sales", "people", tags=["pii"])), BOB, "sales", "people")


def test_a_grant_on_a_tag_opens_what_has_it_and_its_names() -> None:
    found = having([on_tag("readers", item("lakewarden:select"))], EMAIL)
    assert selects(found, ANN, "sales", "people", "email")
    assert not selects(found, ANN, "sales", "people", "name")
    assert selects(found, ANN, "sales", "people", access="_any")
    assert not selects(found, BOB, "sales", "people", access="_any")
    assert "people" in found.tables_with_privileges(ANN, "sales")
    assert "orders" not in found.tables_with_privileges(ANN, "sales")
    assert "sales" in found.databases_with_privileges(ANN)
    assert "sales" not in found.databases_with_privileges(BOB)
    column = Resource.column("sales", "people", "email")
    assert found.grant_to_anyone(column, "select") is not None
    assert found.grant_to_anyone(column, "update") is None


def test_what_is_for_other_services_says_nothing() -> None:
    others = {"accesses": [{"type": "hdfs:read"}, {"type": "kafka:publish"}], "users": ["ann"]}
    found = having([on_tag("other", others)], EMAIL)
    assert not selects(found, ANN, "sales", "people", "email")
    assert "people" not in found.tables_with_privileges(ANN, "sales")


def test_priority_goes_before_tags() -> None:
    override = policy("override", ALL_OF_SALES, policyItems=[item("select", "bob")], policyPriority=1)
    assert selects(having([override, DENIED], EMAIL), BOB, "sales", "people", "email")
    denied = policy("denied", ALL_OF_SALES, denyPolicyItems=[item("select", "bob")])
    granted = on_tag("granted", item("hive:select", "bob"), policyPriority=1)
    assert selects(having([denied, granted], EMAIL), BOB, "sales", "people", "email")
    assert not selects(
        having([denied, granted | {"policyPriority": 0}], EMAIL), BOB, "sales", "people", "email"
    )


def test_a_tag_counts_while_it_is_valid() -> None:
    validity = [{"startTime": "2031/01/01 00:00:00", "timeZone": "Europe/Oslo"}]
    timed = tagged("sales", "people", "email", tags=[{"type": "PII", "validityPeriods": validity}])
    found = having([READERS, DENIED], timed)
    assert found.is_scheduled
    for _ in range(2):
        assert selects(found, BOB, "sales", "people", "email", now=NOW)
        assert not selects(found, BOB, "sales", "people", "email", now=LATER)


def test_a_mask_on_a_tag_comes_before_one_on_a_resource() -> None:
    shown = masking("a", ALL_OF_SALES, "MASK_SHOW_LAST_4")
    found = having([shown, masking("z", {"tag": ["PII"]}, "hive:MASK_HASH")], EMAIL)
    rule = found.mask_for(ANN, "sales", "people", "email", NOW)
    assert rule is not None
    assert (rule.type, rule.policy) == ("MASK_HASH", "z")
    rule = found.mask_for(ANN, "sales", "people", "name", NOW)
    assert rule is not None
    assert rule.policy == "a"


@pytest.mark.parametrize("priority", [0, 1])
def test_no_tag_lifts_the_mask_on_another_tag(priority: int) -> None:
    """Ranger takes the mask on the closest tag: here that of the column."""
    hashed = masking("z", {"tag": ["PII"]}, "hive:MASK_HASH")
    lifting = masking("a", {"tag": ["OPEN"]}, "hive:MASK_NONE") | {"policyPriority": priority}
    opened = tagged("sales", "people", tags=["OPEN"])
    rule = having([hashed, lifting], EMAIL, opened).mask_for(ANN, "sales", "people", "email", NOW)
    assert rule is not None and rule.type == "MASK_HASH"
    resource = masking("r", ALL_OF_SALES, "MASK")
    lifted = having([resource, lifting], opened).mask_for(ANN, "sales", "people", "email", NOW)
    assert lifted is None


def test_a_row_filter_is_about_tags_of_tables() -> None:
    filters = filtering("rows", {"tag": ["PII"]}, "id > 3")
    assert having([filters], EMAIL).row_filters_for(ANN, "sales", "people", NOW) == ()
    found = having([filters], tagged("sales", "people", tags=["PII"]))
    assert [rule.policy for rule in found.row_filters_for(ANN, "sales", "people", NOW)] == ["rows"]


def test_columns_that_tags_tell_apart_are_not_alike() -> None:
    found = Equivalence(having([READERS, DENIED], EMAIL), ("sales", "people"), None)
    assert found.columns(["id", "name", "email"]) == [["id", "name"], ["email"]]


def test_policies_about_a_table_have_those_on_its_tags() -> None:
    masks = masking("masks", {"tag": ["PII"]}, "hive:MASK")
    found = having([READERS, DENIED, masks], EMAIL)
    assert [each.name for each in found.about(("sales", "people"))] == ["readers", "pii", "masks"]
    assert [each.name for each in found.restricting("sales", "people")] == ["masks"]
    assert found.restricting("sales", "orders") == ()
    assert found.restrictions != having([READERS, DENIED, masks], tagged("sales", tags=["PII"])).restrictions
    assert having([READERS], EMAIL).restrictions == having([DENIED]).restrictions


def test_a_change_of_tags_is_another_set_of_policies() -> None:
    assert having([DENIED], EMAIL).version != having([DENIED]).version


STEWARD = policy("steward", ALL_OF_SALES, policyItems=[item("select", "ann", delegateAdmin=True)])


def administers(policies: PolicySet, changed: Json) -> bool:
    contents = parse_documents({"c.json": json.dumps(changed)})
    return policies.may_administer(ANN, contents.policies, NOW).allowed


def test_a_policy_on_tags_is_for_administrators() -> None:
    delegating = on_tag("delegating", item("hive:select", "ann", delegateAdmin=True))
    found = having([STEWARD, delegating], EMAIL)
    assert administers(found, READERS)
    assert not administers(found, on_tag("more", item("hive:select", "bob")))
    assert not administers(having([delegating], EMAIL), policy("email", {"database": ["sales"]}))


def test_whom_a_tag_denies_administers_nothing_that_has_it() -> None:
    denied = on_tag("no", denyPolicyItems=[item("hive:select", "ann")])
    found = having([STEWARD, denied], EMAIL)
    assert not administers(found, READERS)
    orders = {"database": ["sales"], "table": ["orders"], "column": ["*"]}
    assert administers(found, policy("orders", orders, policyItems=[item("select", "bob")]))


def test_whom_a_tag_denies_by_its_attributes_administers_nothing_that_has_it() -> None:
    conditions = [{"type": "expression", "values": ["TAG.level == 'high'"]}]
    denied = on_tag("no", denyPolicyItems=[item("hive:select", "ann", conditions=conditions)])
    high, low = ({"type": "PII", "attributes": {"level": level}} for level in ("high", "low"))
    assert not administers(having([STEWARD, denied], tagged("sales", "people", tags=[high])), READERS)
    assert administers(having([STEWARD, denied], tagged("sales", "people", tags=[low])), READERS)


def test_an_attribute_that_is_null_is_no_empty_text() -> None:
    null = tagged("sales", "people", tags=[{"type": "PII", "attributes": {"level": None}}])
    for text, truth in {
        "TAG.level == ''": False,
        "TAG.level == null": True,
        "HAS_TAG_ATTR('level')": True,
    }.items():
        conditions = [{"type": "expression", "values": [text]}]
        found = having([on_tag("granted", item("hive:select", "ann", conditions=conditions))], null)
        assert selects(found, ANN, "sales", "people") is truth


def test_names_with_what_a_tag_gives_their_owner_are_possible() -> None:
    found = having([on_tag("own", item("hive:select", "{OWNER}"))], EMAIL)
    email = Resource.column("sales", "people", "email")
    assert found.decide(AccessRequest(BOB, email, "select", owner="bob"), NOW).allowed
    assert "people" in found.tables_with_privileges(BOB, "sales")


def test_no_new_name_puts_another_row_filter_before_that_of_a_table() -> None:
    filtered = filtering("filtered", {"database": ["sales"], "table": ["*"]}, "email = 'a'")
    opened = filtering("opened", {"database": ["sales"], "table": ["open"]}, "")
    columns = TableColumns([SchemaField(1, ("email",), "string")])

    def lost(*policies: Json) -> list[str]:
        found = moved(having(list(policies)), ("sales", "t"), columns, columns, ("sales", "open"))
        return [each.policy for each in found]

    assert lost(filtered, opened | {"policyPriority": 1}) == ["opened"]
    assert lost(filtered, opened) == []
    assert lost(opened | {"policyPriority": 1}) == []


ZONES: Json = {
    "finance": {
        "zoneName": "finance",
        "resources": [{"database": ["fin"]}, {"database": ["sales"], "table": ["pay*"]}],
        "policies": [
            policy(
                "zoned",
                {"database": ["*"], "table": ["*"], "column": ["*"]},
                policyItems=[item("select", "bob")],
            )
        ],
    }
}


def test_a_zone_is_decided_by_its_own_policies() -> None:
    found = having([READERS], securityZones=ZONES)
    assert selects(found, ANN, "sales", "people", "name")
    assert not selects(found, ANN, "sales", "payments", "id")
    assert selects(found, BOB, "sales", "payments", "id")
    assert selects(found, BOB, "fin", "books")
    assert not selects(found, BOB, "other", "t")


def test_a_database_with_zones_below_is_in_none_but_shown_for_any_of_them() -> None:
    found = having([], securityZones=ZONES)
    assert not selects(found, BOB, "sales")
    assert selects(found, BOB, "sales", access="_any")


def test_policies_on_tags_are_those_without_a_zone_unless_it_has_a_tag_service() -> None:
    fin = tagged("fin", "books", tags=["PII"])
    own = DENIED | {"name": "own", "zoneName": "finance"}
    associated = {"finance": ZONES["finance"] | {"containsAssociatedTagService": True}}
    assert not selects(having([DENIED], fin, securityZones=ZONES), BOB, "fin", "books")
    assert selects(having([DENIED], fin, securityZones=associated), BOB, "fin", "books")
    assert selects(having([own], fin, securityZones=ZONES), BOB, "fin", "books")
    assert not selects(having([own], fin, securityZones=associated), BOB, "fin", "books")


def test_a_policy_of_an_unknown_zone_denies_and_grants_nothing() -> None:
    granted = READERS | {"name": "lost", "zoneName": "gone"}
    assert not selects(having([granted], securityZones=ZONES), ANN, "sales", "people")
    denied = policy("no", ALL_OF_SALES, denyPolicyItems=[item("select", "bob")], zoneName="gone")
    assert not selects(having([READERS, denied], securityZones=ZONES), BOB, "sales", "payments", "id")


def test_a_location_with_a_zone_below_needs_both() -> None:
    place = {"url": {"values": ["s3://lake/a"], "isRecursive": True}}
    grant = {"name": "a", "resources": place, "policyItems": [item("read", "ann")]}
    zones = {"z": {"resources": [{"url": ["s3://lake/a/b"]}]}}
    request = AccessRequest(ANN, Resource.url("s3://lake/a"), "read")
    assert having([grant]).decide(request, NOW).allowed
    assert not having([grant], securityZones=zones).decide(request, NOW).allowed


def test_a_location_in_several_zones_needs_the_policies_without_one_too() -> None:
    place = {"url": {"values": ["s3://lake/a"], "isRecursive": True}}
    zones = {name: {"resources": [{"url": ["s3://lake/a"]}]} for name in ("y", "z")}
    grant = {"policyItems": [item("read", "ann")], "resources": place}
    policies = [grant | {"name": f"in {name}", "zoneName": name} for name in (*zones, None)]
    request = AccessRequest(ANN, Resource.url("s3://lake/a/b"), "read")
    assert having(policies, securityZones=zones).decide(request, NOW).allowed
    for left_out in policies:
        kept = [each for each in policies if each is not left_out]
        assert not having(kept, securityZones=zones).decide(request, NOW).allowed


def test_a_zone_is_administered_by_its_own_policies() -> None:
    assert not administers(having([STEWARD], securityZones=ZONES), READERS | {"zoneName": "finance"})
    zoned = STEWARD | {"zoneName": "finance"}
    assert administers(having([zoned], securityZones=ZONES), READERS | {"zoneName": "finance"})
    assert not administers(having([zoned], securityZones=ZONES), READERS)


def test_zones_of_several_documents_are_joined_unless_they_differ_on_tags() -> None:
    more = {"finance": {"resources": [{"database": ["more"]}]}}
    documents = [json.dumps({"policies": [], "securityZones": zones}) for zones in (ZONES, more)]
    found = PolicySet.parse({str(number): text for number, text in enumerate(documents)})
    assert selects(found, BOB, "more", "t") and selects(found, BOB, "fin", "t")
    more["finance"]["containsAssociatedTagService"] = True
    with pytest.raises(PolicyInvalid, match=r"1, line .*containsAssociatedTagService: another document"):
        PolicySet.parse({"0": documents[0], "1": json.dumps({"securityZones": more})})


def changed(**parts: Any) -> Json:
    return service_tags([EMAIL]) | parts


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        (changed(isDelta=True), "isDelta: changes to earlier tags"),
        (changed(op="delete"), "op: 'delete' is not one of"),
        (changed(resourceToTagIds={"1": [7]}), r"resourceToTagIds.1\[0\]: there is no tag with the id 7"),
        (changed(resourceToTagIds={"2": [1]}), "resourceToTagIds.2: no resource"),
        (changed(tag={}), "unknown field 'tag'"),
        (service_tags([tagged("{USER}", tags=["PII"])]), "database: macros are not supported"),
        (service_tags([tagged("a", tags=[{"type": "PII", "isEnabled": False}])]), "isEnabled: a disabled"),
        (
            service_tags([tagged("a", tags=[{"type": "PII", "options": {"TAG_VALIDITY_PERIODS": "[]"}}])]),
            "validity periods in options are not supported",
        ),
        (service_tags([{"resource": {"path": {"values": ["/x"]}}, "tags": ["PII"]}]), "'path' is unknown"),
    ],
)
def test_a_document_of_tags_that_could_lose_one_is_refused(document: Json, problem: str) -> None:
    with pytest.raises(PolicyInvalid, match=rf"t\.json, line .*{problem}"):
        PolicySet.parse({"t.json": json.dumps(document)})
