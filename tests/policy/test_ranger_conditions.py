"""Policies whose conditions decide, with the attributes of users, in all that policies are asked."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from policy.errors import PolicyInvalid
from policy.explain import Book, explain
from policy.misfits import moved
from policy.principal import Principal
from policy.privileges.requests import AccessRequest, Resource
from policy.ranger import PolicySet
from policy.ranger.equivalence import Equivalence
from policy.ranger.parse import kind_of, parse_documents
from policy.restrictions.columns import SchemaField, TableColumns
from tests.support.tags import service_tags, tagged
from tests.support.vectors import each_row

Json = dict[str, Any]

NOW = datetime(2030, 6, 15, tzinfo=UTC)
ANN, BOB, EVE = Principal("ann"), Principal("bob"), Principal("eve")
STORE = {
    "userStoreVersion": 3,
    "userStoreUpdateTime": 1,
    "userAttrMapping": {"ann": {"dept": "hr", "none": None}, "bob": {"dept": "it"}},
    "groupAttrMapping": {"g1": {"site": "10"}},
    "userGroupMapping": {"dora": ["staff"]},
    "userCloudIdMapping": {},
}
HR = [{"type": "expression", "values": ["USER.dept == 'hr'"]}]
ODD = [{"type": "expression", "values": ["eval(USER.dept)"]}]


def item(conditions: list[Json], *accesses: str, **more: Any) -> Json:
    types = [{"type": each} for each in accesses or ("select",)]
    return {"groups": ["public"], "accesses": types, "conditions": conditions, **more}


def policy(name: str = "p", **more: Any) -> Json:
    levels = {"database": {"values": ["db"]}, "table": {"values": ["*"]}, "column": {"values": ["*"]}}
    return {"name": name, "resources": levels, **more}


def policies(
    *found: Json, users: Json | None = STORE, tags: Json | None = None, on_tags: Sequence[Json] = ()
) -> PolicySet:
    listed = {"policies": list(found), "tagPolicies": {"policies": list(on_tags)}}
    documents = {"p.json": listed, "u.json": users, "t.json": tags}
    return PolicySet.parse({name: json.dumps(each) for name, each in documents.items() if each is not None})


def who_selects(found: PolicySet, now: datetime = NOW) -> set[str]:
    column = Resource.column("db", "t", "c")
    return {
        each.name
        for each in (ANN, BOB, EVE)
        if found.decide(AccessRequest(each, column, "select"), now).allowed
    }


@each_row(
    ("more", "allowed"),
    [
        ({"policyItems": [item(HR)]}, {"ann"}),
        ({"conditions": HR, "policyItems": [item([])]}, {"ann"}),
        ({"policyItems": [item([])], "denyPolicyItems": [item(HR)]}, {"bob"}),
        ({"policyItems": [item([])], "allowExceptions": [item(HR)]}, {"bob"}),
        ({"policyItems": [item([])], "denyPolicyItems": [item([])], "denyExceptions": [item(HR)]}, {"ann"}),
        ({"policyItems": [item(ODD)]}, set()),
        ({"policyItems": [item([])], "denyPolicyItems": [item(ODD)]}, set()),
        ({"policyItems": [item(HR + ODD)]}, set()),
        ({"policyItems": [item([])], "denyPolicyItems": [item(HR + ODD)]}, {"bob"}),
        ({"policyItems": [item(HR)], "isDenyAllElse": True}, {"ann"}),
    ],
)
def test_what_is_unknown_denies_and_what_does_not_hold_is_not_there(more: Json, allowed: set[str]) -> None:
    assert who_selects(policies(policy(**more))) == allowed


def test_a_condition_that_does_not_hold_leaves_the_decision_to_other_policies() -> None:
    override = policy("first", policyPriority=1, conditions=HR, denyPolicyItems=[item([])])
    assert who_selects(policies(override, policy(policyItems=[item([])]))) == {"bob"}


def test_without_attributes_they_are_unknown() -> None:
    other = [{"type": "expression", "values": ["USER.dept != 'hr'"]}]
    assert who_selects(policies(policy(policyItems=[item(other)]), users=None)) == set()
    assert who_selects(policies(policy(policyItems=[item(other)]))) == {"bob"}
    decision = policies(policy(policyItems=[item(other)])).decide(
        AccessRequest(EVE, Resource.column("db", "t", "c"), "select"), NOW
    )
    assert "the attributes of the user 'eve' are not known" in decision.reasons[1].detail


def test_without_any_tag_they_are_unknown() -> None:
    sensitive = [{"type": "expression", "values": ["HAS_TAG('PII')"]}]
    found = policy(policyItems=[item([])], denyPolicyItems=[item(sensitive)])
    assert who_selects(policies(found)) == set()
    elsewhere = service_tags([tagged("db", "u", tags=["PII"])])
    assert who_selects(policies(found, tags=elsewhere)) == {"ann", "bob", "eve"}


def test_a_policy_on_tags_sees_each_tag_and_all_of_them() -> None:
    low, high = ({"type": "PII", "attributes": {"level": level}} for level in ("low", "high"))
    tags = service_tags([tagged("db", "t", "c", tags=[low, "PCI"]), tagged("db", "t", "d", tags=[high])])
    on_tag = {"name": "p", "resources": {"tag": {"values": ["PII"]}}}
    named = [{"type": "expression", "values": ["TAG.level == 'low' && HAS_TAG('PCI')"]}]
    granting = {**on_tag, "policyItems": [item(named, "hive:select")]}
    found = policies(tags=tags, on_tags=[granting])
    column = Resource.column("db", "t", "c")
    assert found.decide(AccessRequest(ANN, column, "select"), NOW)
    assert not found.decide(AccessRequest(ANN, Resource.column("db", "t", "d"), "select"), NOW)
    expired = [{"type": "accessed-after-expiry", "values": ["yes"]}]
    for date, allowed in (("2030/06/16", True), ("2030/06/15", False), ("soon", False)):
        tags = service_tags(
            [tagged("db", "t", "c", tags=[{"type": "PII", "attributes": {"expiry_date": date}}])]
        )
        denying = {**on_tag, "denyPolicyItems": [item(expired, "hive:select")]}
        found = policies(policy("q", policyItems=[item([])]), tags=tags, on_tags=[denying])
        assert found.decide(AccessRequest(ANN, column, "select"), NOW).allowed is allowed


def test_masks_and_row_filters_follow_their_conditions() -> None:
    masks = policy(
        "m",
        policyType=1,
        dataMaskPolicyItems=[
            item(HR, dataMaskInfo={"dataMaskType": "MASK_NONE"}),
            item([], dataMaskInfo={"dataMaskType": "MASK_HASH"}),
        ],
    )
    rows = policy("r", policyType=2, rowFilterPolicyItems=[item(HR, rowFilterInfo={"filterExpr": "a = 1"})])
    del rows["resources"]["column"]
    found = policies(masks, rows)

    def seen(principal: Principal) -> tuple[str | None, list[str | None]]:
        mask = found.mask_for(principal, "db", "t", "c", NOW)
        filters = found.row_filters_for(principal, "db", "t", NOW)
        return mask and mask.type, [each.filter and each.filter.text for each in filters]

    assert seen(ANN) == (None, ["a = 1"])
    assert seen(BOB) == ("MASK_HASH", [])
    assert seen(EVE) == ("MASK_HASH", [None])


def test_a_condition_on_time_is_asked_again() -> None:
    until = [{"type": "expression", "values": ["IS_ACCESS_TIME_BEFORE('2030/07/01')"]}]
    found = policies(policy(policyItems=[item(until)]))
    assert found.is_scheduled
    for now, allowed in ((NOW, True), (NOW.replace(month=8), False), (NOW, True)):
        assert (who_selects(found, now) == {"ann", "bob", "eve"}) is allowed
    assert not policies(policy(policyItems=[item(HR)])).is_scheduled


def test_a_condition_on_the_access_type_is_for_each_of_them() -> None:
    reading = [{"type": "expression", "values": ["REQ.accessType == 'select'"]}]
    found = policies(policy(policyItems=[item(reading, "all")]))
    table = Resource.table("db", "t")
    assert found.decide(AccessRequest(ANN, table, "select"), NOW)
    assert found.decide(AccessRequest(ANN, table, "_any"), NOW)
    assert not found.decide(AccessRequest(ANN, table, "drop"), NOW)
    assert not found.decide(AccessRequest(ANN, table, "all"), NOW)


def test_a_grant_to_anyone_can_be_conditional() -> None:
    table = Resource.table("db", "t")
    for conditions, granted in ((HR, True), (ODD, False)):
        for found in (
            policy(policyItems=[item(conditions)]),
            policy(conditions=conditions, policyItems=[item([])]),
        ):
            assert (policies(found).grant_to_anyone(table, "select") is not None) is granted


def test_delegation_needs_a_condition_that_holds_for_all_resources() -> None:
    here = [{"type": "expression", "values": ["RES.table == 't'"]}]
    changed = parse_documents({"c": json.dumps(policy("c", policyItems=[item([])]))}).policies
    for conditions, allowed in ((HR, {"ann"}), (here, set()), (ODD, set()), ([], {"ann", "bob", "eve"})):
        found = policies(policy(policyItems=[item(conditions, delegateAdmin=True)]))
        assert {each.name for each in (ANN, BOB, EVE) if found.may_administer(each, changed, NOW)} == allowed


def test_users_with_conditions_in_their_way_are_told_apart() -> None:
    users = policy(policyItems=[item(HR), {"users": ["ann", "bob"], "accesses": [{"type": "select"}]}])
    classes, _ = Equivalence(policies(users), ("db", "t"), None).principals(10)
    assert ["user 'ann'"] in [list(each.who) for each in classes]
    assert ["user 'bob'"] in [list(each.who) for each in classes]


def fields(name: str) -> TableColumns:
    return TableColumns([SchemaField(1, (name,), "string")])


def test_no_rename_takes_a_column_out_of_a_condition_on_names() -> None:
    named = [{"type": "expression", "values": ["RES.column == 'ssn'"]}]
    mask = policy(
        "m", policyType=1, dataMaskPolicyItems=[item(named, dataMaskInfo={"dataMaskType": "MASK_NULL"})]
    )
    denial = policy("d", denyPolicyItems=[item(named)])
    for found in (mask, denial):
        assert not list(moved(policies(found), ("db", "t"), fields("ssn"), fields("ssn")))
        assert list(moved(policies(found), ("db", "t"), fields("ssn"), fields("free")))
    everywhere = policy("d", denyPolicyItems=[item(HR)])
    assert not list(moved(policies(everywhere), ("db", "t"), fields("ssn"), fields("free")))


def test_an_explanation_says_which_condition_is_in_the_way() -> None:
    documents = {
        "p": json.dumps([policy(policyItems=[item(HR)]), policy("odd", policyItems=[item(ODD)])]),
        "u": json.dumps(STORE),
    }
    book = Book(parse_documents(documents))
    considered = book.consider(AccessRequest(BOB, Resource.column("db", "t", "c"), "select"), NOW)
    details = [each.detail for each in explain(book, considered).changes if each.what == "conditions"]
    assert (
        "The conditions of policyItems[0] of policy 'p' must hold: expression USER.dept == 'hr'." in details
    )
    assert any("'eval' at character 1 is not supported" in each for each in details)
    assert book.consider(AccessRequest(ANN, Resource.column("db", "t", "c"), "select"), NOW).decision


def test_a_policy_says_which_of_its_conditions_are_not_understood() -> None:
    found = policy(
        conditions=HR, policyItems=[item(HR + ODD)], denyPolicyItems=[item([{"type": "ip-range"}])]
    )
    (read,) = parse_documents({"p": json.dumps(found)}).policies
    assert [(label, each.type, each.problem) for label, each in read.not_understood] == [
        ("policyItems[0]", "expression", "'eval' at character 1 is not supported"),
        ("denyPolicyItems[0]", "ip-range", "conditions of this type are not evaluated"),
    ]


def test_known_users_have_no_attributes_and_others_unknown_ones() -> None:
    found = parse_documents({"u": json.dumps(STORE)}).users
    assert found.users == {"ann": {"dept": "hr", "none": None}, "bob": {"dept": "it"}, "dora": {}}
    assert found.groups == {"g1": {"site": "10"}, "staff": {}}


def test_attributes_come_from_one_document() -> None:
    more = {"userGroupMapping": {"ann": ["g1"]}, "userAttrMapping": {"eve": {"dept": "hr"}}}
    found = parse_documents({"u": json.dumps(STORE), "v": json.dumps(more)}).users
    assert found.users["ann"]["dept"] == "hr" and found.users["eve"] == {"dept": "hr"}
    twice = {"userAttrMapping": {"ann": {"dept": "it"}}}
    with pytest.raises(PolicyInvalid, match=r"v, line 1, userAttrMapping\.ann: another document has"):
        parse_documents({"u": json.dumps(STORE), "v": json.dumps(twice)})


@each_row(
    ("store", "why"),
    [
        ({"userAttrMapping": {"ann": {"dept": 5}}}, "userAttrMapping.ann.dept: expected a string"),
        ({"userAttrMapping": {"ann": "hr"}}, "userAttrMapping.ann: expected an object"),
        ({"userAttrMapping": []}, "userAttrMapping: expected an object"),
        ({"userAttrMapping": {}, "usrAttrMapping": {}}, "unknown field 'usrAttrMapping'"),
        ({"userGroupMapping": {"ann": "staff"}}, "userGroupMapping.ann: expected a list"),
        ({"userAttrMapping": {}, "policies": []}, "unknown field 'policies'"),
        ({"userAttrMapping": {}, "userStoreVersion": "3"}, "expected an integer"),
    ],
)
def test_a_user_store_is_read_strictly(store: Json, why: str) -> None:
    with pytest.raises(PolicyInvalid) as refused:
        parse_documents({"u": json.dumps(store)})
    assert why in str(refused.value)


def test_a_document_is_of_the_kind_that_it_is_kept_as() -> None:
    texts = {"u": json.dumps(STORE), "p": json.dumps([policy(policyItems=[item([])])])}
    assert {name: kind_of(name, text) for name, text in texts.items()} == {"u": "users", "p": "ranger"}
    PolicySet.parse(texts, kinds={"u": "users", "p": "ranger"})
    for wrong in ({"u": "ranger"}, {"p": "users"}):
        with pytest.raises(PolicyInvalid, match="the document is of the kind"):
            PolicySet.parse(texts, kinds=wrong)


@each_row(
    "conditions",
    [[{"type": "expression", "valus": ["true"]}], [{"values": ["true"]}], ["true"], [{"type": 1}]],
)
def test_a_condition_of_another_form_refuses_the_document(conditions: Any) -> None:
    with pytest.raises(PolicyInvalid):
        policies(policy(policyItems=[item(conditions)]))
