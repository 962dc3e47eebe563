"""Key groups that policies split are told with whom and which columns."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from policy.key_groups import splits
from policy.ranger import PolicySet

NOW = datetime(2026, 1, 1, tzinfo=UTC)
TABLE = ("db", "t")
GROUPS = {"pii": ("ssn", "email", "home", "home.street"), "hr": ("salary",)}


def rule(name: str, columns: list[str], kind: str = "policyItems", **whom: list[str]) -> dict[str, Any]:
    """A policy about columns of the table: an item for whom."""
    item: dict[str, Any] = {**whom, "accesses": [{"type": "select", "isAllowed": True}]}
    more: dict[str, Any] = {}
    if kind == "dataMaskPolicyItems":
        item["dataMaskInfo"] = {"dataMaskType": "MASK_HASH"}
        more["policyType"] = 1
    resources = {"database": ["db"], "table": ["t"], "column": columns}
    values = {level: {"values": each} for level, each in resources.items()}
    return {"name": name, "service": "lake", "resources": values, kind: [item], **more}


def found(*rules: dict[str, Any], owner: str | None = None) -> list[tuple[str, str, tuple[str, ...]]]:
    policies = PolicySet.parse({"p.json": json.dumps({"policies": list(rules)})})
    made = splits(policies, TABLE, GROUPS, NOW, owner=owner)
    return [(each.who, each.key_id, each.may_not) for each in made]


ALL = rule("all", ["*"], groups=["staff"], users=["ann"])


def test_a_group_that_all_may_select_whole_or_not_at_all_is_not_split() -> None:
    assert found() == []
    assert found(ALL) == []
    assert found(rule("some", ["salary", "id"], users=["ann"])) == []


@pytest.mark.parametrize("kind", ["denyPolicyItems", "dataMaskPolicyItems"])
def test_a_denial_or_a_mask_splits_it_for_whom_it_names(kind: str) -> None:
    assert found(ALL, rule("not", ["email"], kind, users=["ann"])) == [("user 'ann'", "pii", ("email",))]
    assert found(ALL, rule("not", ["email"], kind, groups=["staff"])) == [
        ("group 'staff'", "pii", ("email",))
    ]


def test_a_grant_that_leaves_columns_out_splits_it() -> None:
    rest = ("email", "home", "home.street")
    assert found(rule("some", ["ssn"], roles=["clerk"])) == [("role 'clerk'", "pii", rest)]
    assert found(rule("some", ["ssn"], users=["{USER}"])) == [("everybody else", "pii", rest)]


def test_a_nested_field_splits_it_only_if_a_policy_speaks_against_it() -> None:
    wide = rule("wide", ["ssn", "email", "home"], users=["ann"])
    assert found(wide) == []
    assert found(wide, rule("not", ["home.street"], "denyPolicyItems", users=["ann"])) == [
        ("user 'ann'", "pii", ("home.street",))
    ]


def test_the_owner_counts_for_whom_he_is() -> None:
    mine = rule("mine", ["ssn"], users=["{OWNER}"])
    assert found(mine) == []
    assert [who for who, _, _ in found(mine, rule("x", ["id"], users=["ann"]), owner="ann")] == ["user 'ann'"]


def test_a_split_is_told_in_a_sentence() -> None:
    policies = PolicySet.parse({"p.json": json.dumps({"policies": [rule("some", ["ssn"], users=["ann"])]})})
    (split,) = splits(policies, TABLE, GROUPS, NOW)
    assert str(split) == (
        "The key 'pii' is split for user 'ann', who may select 'ssn' and not 'email', 'home', 'home.street': "
        "the key opens both, so neither is read."
    )


def test_a_mask_of_the_owner_splits_it_for_the_owner_alone() -> None:
    masked = rule("not", ["email"], "dataMaskPolicyItems", users=["{OWNER}"])
    assert found(ALL, masked, owner="ann") == [("user 'ann'", "pii", ("email",))]
    assert found(ALL, masked, owner="eve") == [] == found(ALL, masked)


def test_many_columns_are_told_in_part() -> None:
    policies = PolicySet.parse({"p.json": json.dumps({"policies": [rule("some", ["a"], users=["ann"])]})})
    (split,) = splits(policies, TABLE, {"pii": "abcdef"}, NOW)
    assert "may select 'a' and not 'b', 'c', 'd' and 2 more: " in str(split)
