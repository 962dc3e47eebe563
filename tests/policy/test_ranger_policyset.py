"""Questions to a policy set: reasons, all or nothing, time, and an index that changes no answer."""

from __future__ import annotations

import gc
import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policy.decision import Decision
from policy.errors import RequestInvalid
from policy.principal import Principal
from policy.privileges.requests import AccessRequest, Resource
from policy.ranger import MaskRule, PolicySet
from policy.ranger.index import PolicyIndex
from policy.ranger.matching import Match, Target
from policy.ranger.parse import parse_documents
from tests.support.vectors import each_row

NOW = datetime(2030, 1, 15, 12, tzinfo=UTC)
ANN = Principal("ann")


def policy(name: str, resources: dict[str, list[str]], **more: Any) -> dict[str, Any]:
    values = {level: {"values": names} for level, names in resources.items()}
    return {"name": name, "resources": values, **more}


def item(*accesses: str, **who: list[str]) -> dict[str, Any]:
    return {"accesses": [{"type": access} for access in accesses], **(who or {"users": ["ann"]})}


def policies(*documents: dict[str, Any]) -> PolicySet:
    return PolicySet.parse({"policies.json": json.dumps(documents)})


def select(table: str, column: str) -> AccessRequest:
    return AccessRequest(ANN, Resource.column("a", table, column), "select")


COLUMNS = policy(
    "cols", {"database": ["a"], "table": ["t"], "column": ["c1", "c2"]}, policyItems=[item("select")]
)


def test_all_or_nothing_over_columns() -> None:
    found = policies({**COLUMNS, "id": 7})
    both, one_too_many = (
        Decision.all_of(found.decide(select("t", column), NOW) for column in columns)
        for columns in (["c1", "c2"], ["c1", "c3", "c2"])
    )
    assert both.allowed
    assert [reason.detail for reason in one_too_many.reasons] == [
        "No policy grants select on column a.t.c3 to 'ann'."
    ]


CONDITIONS = [{"type": "time", "values": ["x"]}]
UNKNOWN = "condition of the type 'time' is unknown: conditions of this type are not evaluated"


def test_reasons_are_sentences_that_name_policy_id_and_item() -> None:
    found = policies({**COLUMNS, "id": 7})
    assert found.decide(select("t", "c1"), NOW).explanation == (
        "Policy 'cols' (id 7) grants select on column a.t.c1 to 'ann' by policyItems[0]."
    )
    granting = [{**item("select"), "conditions": CONDITIONS}]
    doubted = policies({**COLUMNS, "conditions": CONDITIONS, "policyItems": granting})
    assert [reason.detail for reason in doubted.decide(select("t", "c1"), NOW).reasons] == [
        "No policy grants select on column a.t.c1 to 'ann'.",
        f"Policy 'cols' does not grant it by policyItems[0]: its {UNKNOWN}, and the item's {UNKNOWN}.",
    ]
    denying = policies(
        {**COLUMNS, "zoneName": "z", "policyItems": [], "denyPolicyItems": [item("select")]},
    )
    assert denying.decide(select("t", "c1"), NOW).explanation == (
        "Policy 'cols' denies select on column a.t.c1 to 'ann' by denyPolicyItems[0]; no document defines "
        "its security zone 'z', so the denial holds."
    )


@each_row(
    ("more", "conditions", "because"),
    [
        ({}, [], ""),
        ({}, CONDITIONS, f"; the item's {UNKNOWN}, so the denial holds"),
        ({"conditions": CONDITIONS}, [], f"; its {UNKNOWN}, so the denial holds"),
        (
            {"zoneName": "z"},
            CONDITIONS,
            f"; no document defines its security zone 'z', and the item's {UNKNOWN}, so the denial holds",
        ),
    ],
)
def test_a_denial_says_what_may_not_hold(
    more: dict[str, Any], conditions: list[dict[str, Any]], because: str
) -> None:
    denied = {**COLUMNS, **more, "policyItems": []}
    denied["denyPolicyItems"] = [{**item("select"), "conditions": conditions}]
    decision = policies(denied).decide(select("t", "c1"), NOW)
    assert decision.explanation == (
        f"Policy 'cols' denies select on column a.t.c1 to 'ann' by denyPolicyItems[0]{because}."
    )
    assert decision.reasons[0].item == "denyPolicyItems[0]"


def test_what_may_not_hold_is_named_with_its_item() -> None:
    doubted = {**COLUMNS, "policyItems": [item("update"), {**item("select"), "conditions": CONDITIONS}]}
    reason = policies(doubted).decide(select("t", "c1"), NOW).reasons[1]
    assert (reason.rule, reason.policy, reason.item) == ("policy-unevaluable", "cols", "policyItems[1]")


def test_all_names_what_is_missing() -> None:
    most = policy(
        "most", {"database": ["a"]}, policyItems=[item("select", "update", "create", "drop", "alter")]
    )
    refused = policies(most).decide(AccessRequest(ANN, Resource.database("a"), "all"), NOW)
    assert [reason.detail for reason in refused.reasons] == [
        "No policy grants unprotect on database a to 'ann'."
    ]


def test_a_time_without_zone_decides_nothing() -> None:
    found, naive = policies(COLUMNS), datetime(2030, 1, 1)
    with pytest.raises(RequestInvalid, match="time zone") as refusal:
        found.decide(select("t", "c1"), naive)
    assert (refusal.value.message, refusal.value.rule) == (
        "The time has no time zone.",
        "now",
    )
    with pytest.raises(RequestInvalid, match="time zone"):
        found.mask_for(ANN, "a", "t", "c", naive)
    with pytest.raises(RequestInvalid, match="time zone"):
        found.row_filters_for(ANN, "a", "t", naive)


def test_the_mask_rule_is_a_value() -> None:
    mask = policy(
        "m",
        {"database": ["a"], "table": ["t"], "column": ["c"]},
        policyType=1,
        dataMaskPolicyItems=[{**item("select"), "dataMaskInfo": {"dataMaskType": "MASK_HASH"}}],
    )
    assert policies(mask).mask_for(ANN, "a", "t", "c", NOW) == MaskRule(
        "MASK_HASH", "m", "dataMaskPolicyItems[0]"
    )


@each_row(
    ("values", "user", "owner", "filtered"),
    [
        ({"users": ["{OWNER}"]}, "ann", "ann", True),
        ({"users": ["{OWNER}"]}, "ann", "bob", False),
        ({"users": ["{OWNER}"]}, "ann", None, False),
        ({"users": ["ann"]}, "ann", None, True),
        ({"users": ["ann"]}, "bob", None, False),
    ],
)
def test_row_filters_are_for_whom_they_name(
    values: dict[str, Any], user: str, owner: str | None, filtered: bool
) -> None:
    said = {**item("select", **values), "rowFilterInfo": {"filterExpr": "x > 1"}}
    found = policies(
        policy("f", {"database": ["a"], "table": ["{OWNER}", "t"]}, policyType=2, rowFilterPolicyItems=[said])
    )
    assert bool(found.row_filters_for(Principal(user), "a", "t", NOW, owner=owner)) is filtered
    if owner is not None:
        assert bool(found.row_filters_for(Principal(user), "a", owner, NOW, owner=owner)) is filtered


NAMES = st.sampled_from(["a", "b", "A", "*", "a*", "?", "{USER}", "ann"])
RESOURCES = st.one_of(
    st.fixed_dictionaries({"database": st.lists(NAMES, min_size=1, max_size=3)}),
    st.fixed_dictionaries(
        {level: st.lists(NAMES, min_size=1, max_size=3) for level in ("database", "table")}
    ),
    st.fixed_dictionaries(
        {level: st.lists(NAMES, min_size=1, max_size=2) for level in ("database", "table", "column")}
    ),
    st.fixed_dictionaries({"key": st.lists(NAMES, min_size=1, max_size=3)}),
)
LITERALS = st.sampled_from(["a", "b", "ann", "ab", "*"])
ASKED = st.one_of(
    st.builds(Resource.database, LITERALS),
    st.builds(Resource.table, LITERALS, LITERALS),
    st.builds(Resource.column, LITERALS, LITERALS, LITERALS),
    st.builds(Resource.key, LITERALS),
)


@settings(deadline=None)
@given(st.lists(st.tuples(RESOURCES, st.integers(0, 1), st.booleans()), max_size=6), ASKED)
def test_the_index_changes_no_answer(
    drawn: list[tuple[dict[str, list[str]], int, bool]], asked: Resource
) -> None:
    documents = [
        policy(str(number), resources, policyPriority=priority)
        for number, (resources, priority, _) in enumerate(drawn)
    ]
    for document, (_, _, excludes) in zip(documents, drawn, strict=True):
        if "database" in document["resources"]:
            document["resources"]["database"]["isExcludes"] = excludes
    parsed = parse_documents({"p": json.dumps(documents)}).policies
    target = Target.of(asked)

    def matching(candidates: Any) -> list[str]:
        return [
            p.name for p in candidates if p.resources[0].match(target, "ann") not in (Match.NONE, Match.ABOVE)
        ]

    everything = sorted(parsed, key=lambda p: -p.priority)
    assert matching(PolicyIndex(parsed).candidates(target)) == matching(everything)


def test_a_policy_with_very_many_names_is_found() -> None:
    names = [f"n{number}" for number in range(300)]
    wide = policy("wide", {"database": names, "table": names}, policyItems=[item("select")])
    found = policies(wide)
    assert found.decide(AccessRequest(ANN, Resource.table("n7", "N299"), "select"), NOW).allowed
    assert not found.decide(AccessRequest(ANN, Resource.table("n7", "n300"), "select"), NOW).allowed


@each_row("also", [[], [{"database": {"values": ["other"]}}]])
def test_the_owner_in_a_resource_is_that_of_the_request(also: list[dict[str, Any]]) -> None:
    own = policy(
        "own", {"database": ["{OWNER}"], "table": ["*"]}, policyItems=[item("select")], additionalResources=[]
    )
    if also:
        own["additionalResources"] = [{**also[0], "table": {"values": ["*"]}}]
    found = policies(own)

    def reads(owner: str | None) -> bool:
        return found.decide(AccessRequest(ANN, Resource.table("bob", "t"), "select", owner), NOW).allowed

    assert reads("bob") and not reads("ann") and not reads(None)


def masking(name: str, kind: str, **more: Any) -> dict[str, Any]:
    said = {**item("select"), "dataMaskInfo": {"dataMaskType": kind}}
    levels = {"database": ["{OWNER}", "a"], "table": ["t"], "column": ["c"]}
    return policy(name, levels, policyType=1, dataMaskPolicyItems=[said], **more)


def test_a_mask_in_the_database_of_its_owner() -> None:
    found = policies(masking("m", "MASK_HASH"))
    assert found.mask_for(ANN, "bob", "t", "c", NOW, owner="bob") is not None
    assert found.mask_for(ANN, "bob", "t", "c", NOW, owner="ann") is None


@each_row(
    ("above", "below", "expected"),
    [
        ("MASK_HASH", "MASK_NULL", "MASK_HASH"),
        ("MASK_NONE", "MASK_NULL", None),
        ("MASK_NONE", "MASK_HASH", None),
        ("MASK_NULL", "MASK_NONE", "MASK_NULL"),
    ],
)
def test_the_mask_of_higher_priority_counts(above: str, below: str, expected: str | None) -> None:
    for documents in (
        [masking("z", above, policyPriority=1), masking("a", below)],
        [masking("z", below), masking("a", above, policyPriority=1)],
    ):
        rule = policies(*documents).mask_for(ANN, "a", "t", "c", NOW)
        assert (None if rule is None else rule.type) == expected


@each_row(
    ("first", "second", "expected"),
    [
        ("show-last-4", "replace-with-null", "replace-with-null"),
        ("MASK", "MASK_NULL", "MASK_NULL"),
        ("MASK_NONE", "replace-with-null", "replace-with-null"),
        ("show-last-4", "MASK", "show-last-4"),
    ],
)
def test_at_equal_priority_null_comes_first(first: str, second: str, expected: str) -> None:
    rule = policies(masking("a", first), masking("b", second)).mask_for(ANN, "a", "t", "c", NOW)
    assert rule is not None and rule.type == expected


def test_a_row_filter_of_higher_priority_counts() -> None:
    def filtering(name: str, expression: str, **more: Any) -> dict[str, Any]:
        said = {**item("select"), "rowFilterInfo": {"filterExpr": expression}}
        levels = {"database": ["a"], "table": ["t"]}
        return policy(name, levels, policyType=2, rowFilterPolicyItems=[said], **more)

    lifted = policies(filtering("z", "", policyPriority=1), filtering("a", "x > 1"))
    assert not lifted.row_filters_for(ANN, "a", "t", NOW)
    assert policies(filtering("z", ""), filtering("a", "x > 1")).row_filters_for(ANN, "a", "t", NOW)


def test_a_mask_for_the_owner_applies_to_the_owner():
    document = {
        "name": "owner-mask",
        "service": "lake",
        "policyType": 1,
        "resources": {
            "database": {"values": ["db"]},
            "table": {"values": ["t"]},
            "column": {"values": ["c"]},
        },
        "dataMaskPolicyItems": [
            {
                "users": ["{OWNER}"],
                "accesses": [{"type": "select", "isAllowed": True}],
                "dataMaskInfo": {"dataMaskType": "MASK_NULL"},
            }
        ],
    }
    policies = PolicySet.parse({"mask.json": json.dumps([document])})
    assert policies.mask_for(ANN, "db", "t", "c", NOW, owner="ann") is not None
    assert policies.mask_for(ANN, "db", "t", "c", NOW, owner="bea") is None


def home(*values: str, **more: Any) -> dict[str, Any]:
    patterns = {"values": list(values), "isRecursive": True}
    return {**policy("home", {}, **more), "resources": {"url": patterns}}


def read(user: str, location: str, owner: str | None = None) -> AccessRequest:
    return AccessRequest(Principal(user), Resource.url(location), "read", owner=owner)


@each_row(
    ("user", "granted"), [("ann", True), ("a*", True), ("a=b@c", True), ("ann/x", False), ("ann%2Fx", False)]
)
def test_a_user_named_like_a_path_has_no_part_of_what_is_others(user: str, granted: bool) -> None:
    found = policies(home("s3://lake/home/{USER}", policyItems=[item("read", groups=["public"])]))
    decision = found.decide(read(user, f"s3://lake/home/{user}"), NOW)
    assert decision.allowed is granted
    if not granted:
        why = f"{user!r} is not a single path segment."
        assert decision.reasons[1].detail == f"Policy 'home' does not grant it by policyItems[0]: {why}"


def test_a_user_named_like_a_path_is_denied_all_the_same() -> None:
    found = policies(
        policy("all", {"url": ["*"]}, policyItems=[item("read", groups=["public"])]),
        home("s3://lake/home/{USER}", denyPolicyItems=[item("read", groups=["public"])]),
    )
    assert found.decide(read("ann/x", "s3://lake/home/ann"), NOW).reasons[0].rule == "policy-deny"
    assert found.decide(read("ann/x", "s3://lake/home/bob"), NOW).allowed


def test_an_owner_named_like_a_path_grants_nothing() -> None:
    found = policies(home("s3://lake/home/{OWNER}", policyItems=[item("read", groups=["public"])]))
    assert found.decide(read("ann", "s3://lake/home/bob", "bob"), NOW).allowed
    assert not found.decide(read("ann", "s3://lake/home/bob/x", "bob/x"), NOW).allowed


def test_a_name_like_a_path_counts_where_no_macro_stands_for_it() -> None:
    found = policies(home("s3://lake/home", policyItems=[item("read", users=["ann/x"])]))
    assert found.decide(read("ann/x", "s3://lake/home/ann"), NOW).allowed
    tables = policies(policy("t", {"database": ["d_{USER}"]}, policyItems=[item("select", users=["ann/x"])]))
    request = AccessRequest(Principal("ann/x"), Resource.database("d_ann/x"), "select")
    assert tables.decide(request, NOW).allowed


def test_a_grant_of_a_location_alone_grants_nothing_below_it() -> None:
    """A location in an allowed list, or of a table, stands for everything below it."""
    granting = policy("lake", {"url": ["s3://lake"]}, policyItems=[item("read")])
    decision = policies(granting).decide(read("ann", "s3://lake"), NOW)
    assert not decision.allowed
    assert decision.reasons[1].rule == "policy-not-recursive"
    assert decision.reasons[1].detail == (
        "Policy 'lake' does not grant it by policyItems[0]: it covers the location only, not what is "
        "below it. Set isRecursive."
    )
    for resource in (
        {"values": ["s3://lake"], "isRecursive": True},
        {"values": ["s3://lake", "s3://lake/*"]},
    ):
        assert (
            policies({**granting, "resources": {"url": resource}})
            .decide(read("ann", "s3://lake"), NOW)
            .allowed
        )


def test_a_denial_of_a_location_alone_counts() -> None:
    found = policies(
        home("s3://lake", policyItems=[item("read")]),
        policy("not", {"url": ["s3://lake/a"]}, denyPolicyItems=[item("read")]),
    )
    assert found.decide(read("ann", "s3://lake/a"), NOW).reasons[0].rule == "policy-deny"
    assert found.decide(read("ann", "s3://lake/a/b"), NOW).allowed


@each_row("macro", ["{USER}", "{OWNER}"])
@each_row("name", ["Alice", "al\u0131ce", "ALICE", "\u017fvc"])
def test_names_that_differ_in_case_share_no_macro(macro: str, name: str) -> None:
    """Databases are compared without letter case, users are not."""
    everyone = item("select", groups=["public"])
    granting = policy("home", {"database": [f"home_{macro}"]}, policyItems=[everyone])
    denying = policy("not", {"database": [f"home_{macro}"]}, denyPolicyItems=[everyone])
    others = policy("rest", {"database": [f"home_{macro}"]}, policyItems=[everyone])
    others["resources"]["database"]["isExcludes"] = True
    keeping_out = {**others, "name": "out", "policyItems": [], "denyPolicyItems": [everyone]}
    plain = "svc" if name.endswith("vc") else "alice"

    def reads(*documents: dict[str, Any], user: str = name, database: str = f"home_{plain}") -> bool:
        owner = user if macro == "{OWNER}" else None
        request = AccessRequest(Principal(user), Resource.database(database), "select", owner=owner)
        return policies(*documents).decide(request, NOW).allowed

    every = policy("all", {"database": ["*"]}, policyItems=[everyone])
    assert reads(granting, user=plain)
    assert not reads(granting)
    assert not reads(every, denying)
    assert not reads(others, database="elsewhere")
    assert reads(others, user=plain, database="elsewhere")
    assert not reads(every, keeping_out)
    assert reads(every, keeping_out, user=plain)


def test_keys_mind_letter_case() -> None:
    """As the names in key management services do, and in Ranger's service for them."""
    found = policies(
        policy("k", {"key": ["pii_{USER}", "Pay"]}, policyItems=[item("use", groups=["public"])])
    )

    def uses(key: str, user: str = "ann") -> bool:
        return found.decide(AccessRequest(Principal(user), Resource.key(key), "use"), NOW).allowed

    assert uses("Pay") and uses("pii_ann") and uses("pii_Ann", "Ann")
    assert not uses("pay") and not uses("PAY") and not uses("pii_ann", "Ann") and not uses("pii_Ann")


def test_what_was_answered_to_one_is_answered_to_nobody_else() -> None:
    """Questions that differ in one thing alone, asked one after the other of the same policies."""
    owners = {**item("select"), "users": ["{OWNER}"]}
    documents = [
        {**COLUMNS, "policyItems": [item("select", groups=["readers"]), item("select", roles=["r"]), owners]},
        masking("nulls", "MASK_NULL"),
    ]
    askers = [
        Principal(name, frozenset(groups), frozenset(roles))
        for name in ("ann", "bob")
        for groups in ((), ("readers",))
        for roles in ((), ("r",))
    ]
    asked = [
        AccessRequest(asker, resource, access, owner=owner)
        for asker in askers
        for resource in (Resource.column("a", "t", "c1"), Resource.column("a", "u", "c1"))
        for access in ("select", "update")
        for owner in (None, "ann", "bob")
    ]
    found = policies(*documents)
    for request in [*asked, *reversed(asked)]:
        fresh = policies(*documents)
        assert found.decide(request, NOW) == fresh.decide(request, NOW)
        place = request.resource.values
        masks = [
            each.mask_for(request.principal, *place, NOW, owner=request.owner) for each in (found, fresh)
        ]
        assert masks[0] == masks[1]


def test_time_counts_although_the_same_was_asked_before() -> None:
    january = {"startTime": "2030/01/01 00:00:00", "endTime": "2030/01/31 00:00:00", "timeZone": "UTC"}
    found = policies({**COLUMNS, "validitySchedules": [january]}, policy("other", {"key": ["k"]}))
    times = [NOW.replace(month=month) for month in (1, 2, 1, 3)]
    assert [found.decide(select("t", "c1"), each).allowed for each in times] == [True, False, True, False]
    with pytest.raises(RequestInvalid):
        found.decide(select("t", "c1"), NOW.replace(tzinfo=None))
    without = policies(COLUMNS)
    assert without.decide(select("t", "c1"), NOW).allowed
    with pytest.raises(RequestInvalid):
        without.decide(select("t", "c1"), NOW.replace(tzinfo=None))


def test_policies_that_are_not_in_force_any_more_are_freed_without_the_collector_of_cycles() -> None:
    def indexes() -> int:
        return sum(isinstance(each, PolicyIndex) for each in gc.get_objects())

    gc.collect()
    gc.disable()
    try:
        before = indexes()
        found = PolicySet.empty()
        found.decide(AccessRequest(Principal("ann"), Resource.table("a", "b"), "select"), datetime.now(UTC))
        found.tables_with_privileges(Principal("ann"), "a")
        assert indexes() > before
        del found
        assert indexes() == before
    finally:
        gc.enable()
