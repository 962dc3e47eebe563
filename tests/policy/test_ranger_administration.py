"""Who may change which policy: delegateAdmin."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from policy.decision import Decision
from policy.errors import RequestInvalid
from policy.principal import Principal
from policy.ranger import PolicySet
from policy.ranger.model import Policy
from policy.ranger.parse import parse_documents
from tests.support.vectors import each_row

Json = dict[str, Any]

NOW = datetime(2030, 1, 15, 12, tzinfo=UTC)
ANN = Principal("ann")
SALES = {"database": ["sales"], "table": ["*"]}


def policy(name: str, resources: dict[str, list[str]], *items: Json, **more: Any) -> Json:
    said = {level: {"values": values} for level, values in resources.items()}
    return {"name": name, "resources": said, "policyItems": list(items), **more}


def item(*accesses: str, delegate: bool = False, **who: Any) -> Json:
    people = who or {"users": ["ann"]}
    return {"accesses": [{"type": access} for access in accesses], "delegateAdmin": delegate, **people}


def read(document: Json) -> Policy:
    contents = parse_documents({"changed.json": json.dumps(document)})
    return (contents.policies + contents.disabled)[0]


def asked(in_force: list[Json], *changed: Json, principal: Principal = ANN) -> Decision:
    roles = [{"name": "stewards", "groups": [{"name": "data"}]}]
    found = PolicySet.parse({"p.json": json.dumps({"policies": in_force, "roles": roles})})
    return found.may_administer(principal, [read(each) for each in changed], NOW)


STEWARD = policy("steward", SALES, item("select", "update", delegate=True))
ORDERS = policy("orders", {"database": ["sales"], "table": ["orders"]}, item("select", users=["bob"]))


def test_delegated_resources_and_access_types_may_be_administered() -> None:
    decision = asked([STEWARD], ORDERS)
    assert decision.allowed
    reason = decision.reasons[0]
    assert (reason.rule, reason.policy, reason.item) == ("policy-delegation", "steward", "policyItems[0]")
    assert reason.detail == (
        "Policy 'steward' lets 'ann' administer select by Policy 'orders', by policyItems[0]."
    )


def test_nothing_is_delegated_by_a_grant_alone() -> None:
    decision = asked([policy("reader", SALES, item("select", "update"))], ORDERS)
    assert not decision.allowed
    assert decision.reasons[0].rule == "policy-no-delegation"
    assert decision.explanation == "No policy lets 'ann' administer select by Policy 'orders'."


def test_an_item_that_delegates_does_not_delegate_for_the_items_beside_it() -> None:
    two = policy("two", SALES, item("select"), item("update", delegate=True))
    assert not asked([two], ORDERS).allowed
    assert not asked(
        [policy("two", SALES, item("select"), item("select", delegate=True, users=["bob"]))], ORDERS
    )


def test_no_change_at_all_is_refused() -> None:
    assert asked([STEWARD]).reasons[0].rule == "empty-conjunction"


def test_the_policy_before_and_the_one_after_are_both_asked_for() -> None:
    elsewhere = policy("orders", {"database": ["hr"], "table": ["orders"]}, item("select"))
    assert not asked([STEWARD], ORDERS, elsewhere).allowed
    assert not asked([STEWARD], elsewhere, ORDERS).allowed
    assert asked([STEWARD], ORDERS, {**ORDERS, "isEnabled": False}).allowed


@each_row(
    "changed",
    [
        policy("p", {"database": ["hr"], "table": ["*"]}, item("select")),
        policy("p", {"database": ["sales", "hr"], "table": ["*"]}, item("select")),
        policy("p", {"database": ["sale?"], "table": ["*"]}, item("select")),
        policy("p", {"database": ["*"], "table": ["orders"]}, item("select")),
        policy("p", {**SALES, "column": ["*"]}, item("select")),
        policy("p", SALES, item("create")),
        policy("p", SALES, item("select", "create")),
        policy("p", SALES, item("all")),
        policy("p", SALES),
        policy("p", SALES, item("select"), isDenyAllElse=True),
        policy("p", SALES, item("select"), policyPriority=1),
        policy("p", SALES, denyPolicyItems=[item("create")]),
        policy("p", SALES, item("select"), allowExceptions=[item("create")]),
        policy("p", SALES, item("select"), denyExceptions=[item("create")]),
        policy("p", SALES, item("select"), additionalResources=[{"database": {"values": ["hr"]}}]),
        policy("p", {"key": ["sales"]}, item("use")),
        {
            **policy("p", {}, item("select")),
            "resources": {"database": {"values": ["sales"], "isExcludes": True}, "table": {"values": ["*"]}},
        },
    ],
    ids=lambda changed: json.dumps(changed)[:120],
)
def test_what_is_not_delegated_may_not_be_administered(changed: Json) -> None:
    assert not asked([STEWARD], changed).allowed


@each_row(
    "changed",
    [
        policy("p", {"database": ["SALES"], "table": ["a", "b*"]}, item("select", users=["bob"])),
        policy("p", {"database": ["sales"]}, item("update", users=["bob"])),
        policy("p", SALES, denyPolicyItems=[item("Select", groups=["public"])]),
        policy("p", SALES, item("select", delegate=True, users=["bob"])),
        policy("p", {"database": ["sales"], "table": ["{USER}", "x{OWNER}"]}, item("select")),
        {
            **policy("p", {}, item("select")),
            "resources": {
                "database": {"values": ["sales"]},
                "table": {"values": ["secret"], "isExcludes": True},
            },
        },
    ],
    ids=lambda changed: json.dumps(changed)[:120],
)
def test_what_is_delegated_may_be_administered(changed: Json) -> None:
    assert asked([STEWARD], changed).allowed


def test_all_delegates_everything() -> None:
    every = policy("every", SALES, item("all", delegate=True))
    for changed in (
        policy("p", SALES, item("all")),
        policy("p", SALES),
        policy("p", SALES, item("index", users=["bob"]), isDenyAllElse=True),
    ):
        assert asked([every], changed).allowed


def test_masks_and_row_filters_are_about_select() -> None:
    column = {"database": ["sales"], "table": ["orders"], "column": ["card"]}
    masking = {
        **policy("m", column),
        "policyType": 1,
        "dataMaskPolicyItems": [{**item("select"), "dataMaskInfo": {"dataMaskType": "MASK_NONE"}}],
    }
    assert not asked([STEWARD], masking).allowed
    columns = policy("columns", {**SALES, "column": ["*"]}, item("select", delegate=True))
    assert asked([columns], masking).allowed
    assert not asked([policy("columns", {**SALES, "column": ["*"]}, item("update", delegate=True))], masking)


CARD = {"database": ["sales"], "table": ["orders"], "column": ["card"]}
COLUMNS = policy("columns", {**SALES, "column": ["*"]}, item("select", delegate=True))


def mask(name: str, *types: str, user: str = "ann", **more: Any) -> Json:
    items = [{**item("select", users=[user]), "dataMaskInfo": {"dataMaskType": each}} for each in types]
    return {**policy(name, CARD, **more), "policyType": 1, "dataMaskPolicyItems": items}


def row_filter(name: str, expression: str | None) -> Json:
    items = [{**item("select"), "rowFilterInfo": {"filterExpr": expression} if expression else {}}]
    return {**policy(name, {**SALES, "table": ["orders"]}), "policyType": 2, "rowFilterPolicyItems": items}


def test_nobody_lifts_a_mask_from_himself() -> None:
    masked = mask("masked", "MASK_HASH")
    for changed in (masked, mask("masked", "MASK_NONE"), mask("other", "MASK_NONE", user="bob")):
        decision = asked([COLUMNS, masked], changed)
        assert not decision.allowed
        assert (decision.reasons[0].policy, decision.reasons[0].item) == ("masked", "dataMaskPolicyItems[0]")
    assert not asked([COLUMNS, mask("masked", "MASK_HASH", policyPriority=1)], masked).allowed
    assert not asked(
        [{**COLUMNS, "policyPriority": 1}, mask("m", "MASK_HASH", policyPriority=1)], masked
    ).allowed


def test_masks_that_are_not_on_him_or_not_there_are_delegated() -> None:
    masked = mask("masked", "MASK_HASH")
    elsewhere = {**masked, "resources": {**masked["resources"], "column": {"values": ["name"]}}}
    for other in (mask("m", "MASK_HASH", user="bob"), mask("m", "MASK_NONE", "MASK_HASH"), elsewhere):
        assert asked([COLUMNS, other], masked).allowed
    assert asked([{**COLUMNS, "policyPriority": 1}, masked], masked).allowed
    assert asked([COLUMNS, masked], policy("p", {**SALES, "column": ["*"]}, item("select"))).allowed


def test_nobody_lifts_a_row_filter_from_himself() -> None:
    changed = row_filter("other", None)
    assert not asked([STEWARD, row_filter("filtered", "id < 3")], changed).allowed
    assert asked([STEWARD, row_filter("filtered", None)], changed).allowed
    assert asked([STEWARD, COLUMNS, mask("masked", "MASK_HASH")], changed).allowed


def test_delegation_through_groups_and_roles() -> None:
    by_role = policy("steward", SALES, item("select", delegate=True, roles=["stewards"]))
    assert asked([by_role], ORDERS, principal=Principal("bob", frozenset({"data"}))).allowed
    assert not asked([by_role], ORDERS, principal=Principal("bob")).allowed


def test_two_policies_may_delegate_together() -> None:
    select = policy("s", SALES, item("select", delegate=True))
    update = policy("u", SALES, item("update", delegate=True))
    both = policy("p", SALES, item("select", "update"))
    assert asked([select, update], both).allowed
    assert not asked([select], both).allowed


@each_row(
    "doubt",
    [
        {"conditions": [{"type": "ip-range", "values": ["10.*"]}]},
        {"zoneName": "z"},
        {"isEnabled": False},
        {"validitySchedules": [{"endTime": "2030/01/01 00:00:00"}]},
        {"policyItems": [{**item("select", delegate=True), "conditions": [{"type": "x", "values": ["y"]}]}]},
        {"allowExceptions": [item("select")]},
        {"denyPolicyItems": [item("select", groups=["public"])]},
    ],
    ids=lambda doubt: next(iter(doubt)),
)
def test_what_may_not_hold_delegates_nothing(doubt: Json) -> None:
    assert asked([policy("steward", SALES, item("select", delegate=True))], ORDERS).allowed
    assert not asked([{**STEWARD, **doubt}], ORDERS).allowed


def test_whom_a_policy_denies_an_access_may_not_change_who_gets_it() -> None:
    denied = policy("central", {"database": ["sales"], "table": ["orders"]})
    denied["denyPolicyItems"] = [item("select")]
    decision = asked([STEWARD, denied], ORDERS)
    assert not decision.allowed
    reason = decision.reasons[0]
    assert (reason.rule, reason.policy, reason.item) == ("policy-deny", "central", "denyPolicyItems[0]")
    assert (
        decision.explanation
        == "Policy 'central' denies 'ann' the right to administer select by Policy 'orders'."
    )
    # Neither beside nor around it, but elsewhere.
    assert not asked([STEWARD, denied], policy("p", SALES, item("select"))).allowed
    assert asked(
        [STEWARD, denied], policy("p", {"database": ["sales"], "table": ["t"]}, item("select"))
    ).allowed
    assert asked([STEWARD, denied], policy("p", SALES, item("update"))).allowed


def test_macros_in_force_are_those_of_who_asks() -> None:
    home = policy("homes", {"database": ["home_{USER}"]}, item("select", delegate=True, groups=["public"]))
    anns, bobs = (policy("p", {"database": [name]}, item("select")) for name in ("home_ann", "home_bob"))
    assert asked([home], anns).allowed and not asked([home], bobs).allowed
    everything = policy("all", {"database": ["*"]}, item("select", delegate=True))
    closed = {**policy("closed", {"database": ["home_{USER}"]}), "denyPolicyItems": [item("select")]}
    assert asked([everything, closed], bobs).allowed and not asked([everything, closed], anns).allowed


def test_a_denial_of_higher_priority_decides_first_and_one_of_lower_priority_last() -> None:
    denied = {**policy("central", SALES), "denyPolicyItems": [item("select")]}
    assert not asked([STEWARD, {**denied, "policyPriority": 1}], ORDERS).allowed
    assert asked([{**STEWARD, "policyPriority": 1}, denied], ORDERS).allowed
    assert asked([{**STEWARD, "policyPriority": 1}, denied], {**ORDERS, "policyPriority": 1}).allowed


def test_a_normal_grant_does_not_delegate_what_speaks_before_it() -> None:
    assert not asked([STEWARD], {**ORDERS, "policyPriority": 1}).allowed


def test_deny_all_else_denies_administration_to_others() -> None:
    closed = policy("closed", SALES, item("select", users=["bob"]), isDenyAllElse=True)
    assert not asked([STEWARD, closed], ORDERS).allowed
    opened = policy("closed", SALES, item("select"), isDenyAllElse=True)
    assert asked([STEWARD, opened], ORDERS).allowed


def test_a_time_without_zone_decides_nothing() -> None:
    with pytest.raises(RequestInvalid, match="time zone"):
        PolicySet.empty().may_administer(ANN, [read(ORDERS)], datetime(2030, 1, 1))


@each_row(("user", "granted"), [("ann", True), ("ann/x", False)])
def test_nothing_is_delegated_to_a_user_named_like_a_path(user: str, granted: bool) -> None:
    everyone = item("read", delegate=True, groups=["public"])
    home = {**policy("home", {}, everyone), "resources": {"url": {"values": ["s3://lake/{USER}"]}}}
    changed = policy("mine", {"url": [f"s3://lake/{user}"]}, item("read", users=["bob"]))
    assert asked([home], changed, principal=Principal(user)).allowed is granted
