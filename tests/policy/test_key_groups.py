"""Key groups that policies split are told with whom and which columns."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policy import key_groups
from policy.decision import Decision
from policy.key_groups import Splits, splits
from policy.principal import Principal
from policy.privileges.requests import AccessRequest
from policy.ranger import PolicySet
from tests.support.vectors import each_row

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
    assert made.complete
    return [(each.who, each.key_id, each.withheld) for each in made.found]


ALL = rule("all", ["*"], groups=["staff"], users=["ann"])


def test_a_group_that_all_may_select_whole_or_not_at_all_is_not_split() -> None:
    assert found() == []
    assert found(ALL) == []
    assert found(rule("some", ["salary", "id"], users=["ann"])) == []


@each_row("kind", ["denyPolicyItems", "dataMaskPolicyItems"])
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
    (split,) = splits(policies, TABLE, GROUPS, NOW).found
    assert str(split) == (
        "The key 'pii' is split for user 'ann': SELECT is granted on 'ssn' but not on 'email', 'home', "
        "'home.street'. The key decrypts all of them, so none can be read."
    )


def test_a_mask_of_the_owner_splits_it_for_the_owner_alone() -> None:
    masked = rule("not", ["email"], "dataMaskPolicyItems", users=["{OWNER}"])
    assert found(ALL, masked, owner="ann") == [("user 'ann'", "pii", ("email",))]
    assert found(ALL, masked, owner="eve") == [] == found(ALL, masked)


def test_many_columns_are_told_in_part() -> None:
    policies = PolicySet.parse({"p.json": json.dumps({"policies": [rule("some", ["a"], users=["ann"])]})})
    (split,) = splits(policies, TABLE, {"pii": "abcdef"}, NOW).found
    assert "SELECT is granted on 'a' but not on 'b', 'c', 'd' and 2 more. " in str(split)


# -- asked once for all who are alike, and within bounds


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[AccessRequest]:
    """The questions that are put to the policies."""
    questions: list[AccessRequest] = []
    decide = PolicySet.decide

    def listening(self: PolicySet, request: AccessRequest, now: datetime) -> Decision:
        questions.append(request)
        return decide(self, request, now)

    monkeypatch.setattr(PolicySet, "decide", listening)
    return questions


def of(*rules: dict[str, Any], roles: dict[str, list[str]] | None = None) -> PolicySet:
    members = {name: [{"name": user} for user in users] for name, users in (roles or {}).items()}
    made = [{"name": name, "users": users} for name, users in members.items()]
    documents = {"p.json": json.dumps({"policies": list(rules)}), "r.json": json.dumps({"roles": made})}
    return PolicySet.parse(documents)


def test_columns_that_no_policy_tells_apart_are_not_asked_about(asked: list[AccessRequest]) -> None:
    users = [f"u{number}" for number in range(300)]
    columns = [f"c{number}" for number in range(900)]
    made = splits(of(rule("all", ["*"], users=users)), TABLE, {"pii": columns}, NOW)
    assert made == Splits((), complete=True) and asked == []


def test_people_whom_no_policy_tells_apart_are_asked_about_once(asked: list[AccessRequest]) -> None:
    users = [f"u{number}" for number in range(300)]
    columns = [f"c{number}" for number in range(900)]
    policies = of(rule("all", ["*"], users=users), rule("not", ["c7"], "denyPolicyItems", users=users[:200]))
    (split,) = splits(policies, TABLE, {"pii": columns}, NOW).found
    assert split.who == "user 'u0', user 'u1', user 'u10' and 197 more"
    assert split.withheld == ("c7",) and len(split.may) == 899
    assert len(asked) == 3 * 2


def test_a_role_that_only_one_of_two_holds_tells_them_apart() -> None:
    both = rule("all", ["*"], users=["ann", "bob"])
    policies = of(both, rule("not", ["ssn"], "denyPolicyItems", roles=["clerk"]), roles={"clerk": ["ann"]})
    assert [each.who for each in splits(policies, TABLE, GROUPS, NOW).found] == ["user 'ann'"]


def test_a_macro_in_a_resource_tells_everybody_apart_by_name() -> None:
    policies = of(rule("own", ["{USER}", "ssn"], users=["email", "bob"]))
    found = {each.who: each.may for each in splits(policies, TABLE, GROUPS, NOW).found}
    assert found == {"user 'email'": ("email", "ssn"), "user 'bob'": ("ssn",)}


@pytest.mark.parametrize(
    ("bound", "enough"),
    [("_MOST_COLUMNS", 4), ("_MOST_PEOPLE", 6), ("_MOST_MATCHES", 6 * (6 * 2 + 6 * 4)), ("_MOST_SPLITS", 5)],
)
def test_what_was_not_looked_at_is_said(monkeypatch: pytest.MonkeyPatch, bound: str, enough: int) -> None:
    """Five people and everybody else; two columns, and two nested ones, each asked about twice."""
    groups = {"a": ["c0", "c1"], "b": ["s.c0", "s.c1"]}
    policies = of(
        *(rule(f"p{n}", ["c0"], users=[f"u{n}"]) for n in range(5)), rule("b", ["s.c0"], users=["u0"])
    )
    monkeypatch.setattr(key_groups, bound, enough)
    all_of_it = splits(policies, TABLE, groups, NOW)
    assert all_of_it.complete and len(all_of_it.found) == 5
    assert all_of_it.notes == [str(each) for each in all_of_it.found]
    monkeypatch.setattr(key_groups, bound, enough - 1)
    in_part = splits(policies, TABLE, groups, NOW)
    assert not in_part.complete and set(in_part.found) <= set(all_of_it.found)
    assert in_part.notes[-1].startswith("Not all columns and principals were checked")
    assert len(in_part.notes) == len(in_part.found) + 1


def test_no_more_is_asked_than_the_bound_says(
    monkeypatch: pytest.MonkeyPatch, asked: list[AccessRequest]
) -> None:
    """Each of many people is told apart by a policy of his own about a column of its own."""
    policies = of(*(rule(f"p{n}", [f"c{n}"], users=[f"u{n}"]) for n in range(50)))
    monkeypatch.setattr(key_groups, "_MOST_MATCHES", 50 * 120)
    made = splits(policies, TABLE, {"pii": [f"c{n}" for n in range(50)]}, NOW)
    assert not made.complete and len(asked) == 100


USERS, NAMES = ("ann", "bob", "cid"), ("ssn", "email", "home", "home.street", "salary", "*", "{USER}", "h*")
MEMBERS = st.fixed_dictionaries(
    {
        "users": st.lists(st.sampled_from([*USERS, "{OWNER}", "{USER}"]), unique=True, max_size=2),
        "groups": st.lists(st.sampled_from(["staff", "public"]), unique=True, max_size=1),
        "roles": st.lists(st.just("clerk"), max_size=1),
    }
).filter(lambda members: any(members.values()))
RULES = st.lists(
    st.builds(
        lambda columns, kind, whom: (columns, kind, whom),
        st.lists(st.sampled_from(NAMES), unique=True, min_size=1, max_size=3),
        st.sampled_from(["policyItems", "policyItems", "denyPolicyItems", "dataMaskPolicyItems"]),
        MEMBERS,
    ),
    min_size=1,
    max_size=6,
)


@given(rules=RULES, clerks=st.lists(st.sampled_from(USERS), unique=True))
def test_who_and_what_is_alike_is_answered_as_each_would_be(rules: list[Any], clerks: list[str]) -> None:
    """Against one question for each of them and each column."""
    named = [rule(f"r{n}", columns, kind, **whom) for n, (columns, kind, whom) in enumerate(rules)]
    policies = of(*named, roles={"clerk": clerks} if clerks else None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(key_groups, "_SHOWN", 99)
        made = splits(policies, TABLE, GROUPS, NOW, owner="ann")
    ours = {(who, each.key_id, each.may) for each in made.found for who in each.who.split(", ")}
    users = {user for _, _, whom in rules for user in whom["users"] if "{" not in user}
    people = {f"user {user!r}": Principal(user) for user in users}
    people["everybody else"] = Principal("(anonymous)")
    for kind in ("group", "role"):
        for name in {name for _, _, whom in rules for name in whom[f"{kind}s"]}:
            people[f"{kind} {name!r}"] = Principal("(anonymous)", **{f"{kind}s": frozenset({name})})
    theirs = set()
    for who, principal in people.items():
        for key_id, columns in GROUPS.items():
            may = tuple(
                each
                for each in sorted(columns)
                if key_groups._entitled(policies, principal, TABLE, each, NOW, "ann")
            )
            if 0 < len(may) < len(columns):
                theirs.add((who, key_id, may))
    assert ours == theirs
