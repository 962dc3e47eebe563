"""An explanation says nothing that the evaluation would not do, and names what is near."""

from __future__ import annotations

import json
import re
from copy import deepcopy
from datetime import UTC, datetime
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from policy.encryption.specification import EncryptionSpec
from policy.explain import Book, Explanation, explain
from policy.explain.considered import labels_of, without
from policy.known_table import KnownTable
from policy.principal import Principal
from policy.privileges.requests import AccessRequest, Resource, Through
from policy.ranger import PolicySet
from policy.ranger.model import PolicyType
from policy.ranger.parse import parse_documents
from tests.policy.naive_ranger import Asker, allows
from tests.policy.test_ranger_differential import ROLES, access_policies, askers, mask_policies, requests
from tests.support.vectors import each_row

NOW = datetime(2030, 1, 15, 12, tzinfo=UTC)
SELECT = [{"type": "select"}]
ORDERS = Resource.table("sales", "orders")
BOB = Principal("bob")
Json = dict[str, Any]


def policy(name: str = "p", **more: Any) -> Json:
    resources = {"database": {"values": ["sales"]}, "table": {"values": ["orders"]}}
    return {"name": name, "resources": resources, **more}


def grant(**who: list[str]) -> Json:
    return policy(policyItems=[{**(who or {"users": ["bob"]}), "accesses": SELECT}])


def explained(
    *policies: Json, asker: Principal = BOB, access: str = "select", resource: Resource = ORDERS
) -> Explanation:
    book = Book(parse_documents({"p.json": json.dumps({"policies": policies, "roles": ROLES})}))
    return explain(book, book.consider(AccessRequest(asker, resource, access), NOW))


def changes(*policies: Json, **asked: Any) -> dict[str, str]:
    found = explained(*policies, **asked).changes
    return {each.what: each.detail for each in found}


def test_a_grant_names_what_it_hangs_on_and_nothing_that_would_change_it() -> None:
    found = explained(grant())
    assert found.decision.allowed and not found.changes
    (only,) = found.without
    assert (only.policy, only.item, only.decision.allowed) == ("p", "policyItems[0]", False)


def test_a_second_grant_shows_in_what_would_be_without_the_first() -> None:
    found = explained(grant(), {**grant(), "name": "q"})
    assert found.without[0].decision.reasons[0].policy == "q"


def test_without_a_denial_the_answer_may_still_be_a_denial() -> None:
    denial = policy("d", denyPolicyItems=[{"users": ["bob"], "accesses": SELECT}])
    (only,) = explained(denial).without
    assert only.item == "denyPolicyItems[0]" and not only.decision.allowed
    assert "denial" not in changes(denial)
    assert "denyPolicyItems[0] of policy 'd'" in changes(denial, grant())["denial"]


def test_all_else_denied_is_named_as_what_denies() -> None:
    assert "must not set isDenyAllElse" in changes(grant(), policy("q", isDenyAllElse=True))["denial"]


@each_row(
    ("policy", "what", "detail"),
    [
        (grant(groups=["g9"]), "principal", "'bob' must join the group 'g9'."),
        (grant(roles=["r9"]), "principal", "'bob' must have the role 'r9'."),
        (grant(users=["carol"]), "principal", "'bob' must be the user 'carol'."),
        (grant(users=["{OWNER}"]), "owner", "'bob' must own it; no owner was given."),
        (grant() | {"isEnabled": False}, "disabled", "Policy 'p' must be enabled."),
        (
            grant() | {"validitySchedules": [{"endTime": "2029/12/31 23:59:59"}]},
            "time",
            "Policy 'p' must be valid at 2030-01-15T12:00:00+00:00.",
        ),
        (
            grant() | {"allowExceptions": [{"users": ["bob"], "accesses": SELECT}]},
            "exception",
            "allowExceptions[0] of policy 'p' removes the grant. The exception must be removed.",
        ),
        (
            grant() | {"conditions": [{"type": "ip", "values": ["x"]}]},
            "conditions",
            "The conditions of policy 'p' must hold: ip (conditions of this type are not evaluated).",
        ),
        (
            policy(policyItems=[{"users": ["bob"], "accesses": SELECT, "conditions": [{"type": "ip"}]}]),
            "conditions",
            "The conditions of policyItems[0] of policy 'p' must hold: ip (conditions of this type are",
        ),
        (
            policy(policyItems=[{"users": ["bob"], "accesses": [{"type": "update"}]}]),
            "access",
            "policyItems[0] of policy 'p' grants update. It must grant select.",
        ),
        (
            grant() | {"resources": {"database": {"values": ["sales"]}}},
            "resource",
            "Policy 'p' is about a level above the table, and must name it.",
        ),
        (
            grant()
            | {
                "resources": {
                    "database": {"values": ["sales"]},
                    "table": {"values": ["orders"]},
                    "column": {"values": ["id"]},
                }
            },
            "resource",
            "Policy 'p' is about a level below the table, and must name it.",
        ),
    ],
)
def test_what_nearly_grants_is_named_with_what_is_in_its_way(policy: Json, what: str, detail: str) -> None:
    assert changes(policy)[what].startswith(detail)


def test_a_grant_of_a_location_alone_would_have_to_be_recursive() -> None:
    items = [{"users": ["bob"], "accesses": [{"type": "read"}]}]
    alone = {"name": "p", "resources": {"url": {"values": ["s3://lake/a"]}}, "policyItems": items}
    below = {**alone, "resources": {"url": {"values": ["s3://lake/a/b"]}}}
    asked: dict[str, Any] = {"access": "read", "resource": Resource.url("s3://lake/a")}
    told = "Policy 'p' is about the location only, and must be recursive (isRecursive)."
    assert changes(alone, **asked)["resource"] == told
    assert changes(below, **asked)["resource"].startswith("Policy 'p' is about a level below the url")


def test_a_denial_of_a_group_or_role_is_left_by_leaving_it() -> None:
    everyone = grant(groups=["public"])
    asker = Principal("bob", frozenset({"g8"}), frozenset({"r8"}))
    by_group = policy("d", denyPolicyItems=[{"groups": ["g8"], "accesses": SELECT}])
    by_role = policy("d", denyPolicyItems=[{"roles": ["r8"], "accesses": SELECT}])
    assert "leave the group 'g8'" in changes(everyone, by_group, asker=asker)["principal"]
    assert "lose the role 'r8'" in changes(everyone, by_role, asker=asker)["principal"]


def test_two_things_in_the_way_are_no_near_miss() -> None:
    late = grant(groups=["g9"]) | {"validitySchedules": [{"endTime": "2029/12/31 23:59:59"}]}
    assert changes(late) == {}


def test_another_owner_is_named_as_the_one_there_is() -> None:
    book = Book(parse_documents({"p": json.dumps([grant(users=["{OWNER}"])])}))
    request = AccessRequest(Principal("bob"), ORDERS, "select", owner="olga")
    assert "'olga' owns it" in explain(book, book.consider(request, NOW)).changes[0].detail


def test_names_that_nobody_can_have_are_not_proposed() -> None:
    assert changes(grant(groups=["g" * 300])) == {}


def test_the_roles_that_documents_give_are_shown() -> None:
    assert explained(grant(), asker=Principal("ann", roles=frozenset({"own"}))).held == ("own", "r1")


def test_many_near_misses_are_cut() -> None:
    groups = [f"g{number}" for number in range(100, 200)]
    assert len(explained(grant(groups=groups)).changes) == 20


def test_masks_and_row_filters_are_those_of_the_policy_set() -> None:
    resources = {"database": {"values": ["sales"]}, "table": {"values": ["orders"]}}
    hidden = {"dataMaskInfo": {"dataMaskType": "MASK_NULL"}, "users": ["bob"], "accesses": SELECT}
    rows = {"rowFilterInfo": {"filterExpr": "x = 1"}, "users": ["bob"], "accesses": SELECT}
    documents = [
        policy("m", policyType=1, dataMaskPolicyItems=[hidden])
        | {"resources": {**resources, "column": {"values": ["id"]}}},
        policy("f", policyType=2, rowFilterPolicyItems=[rows]),
    ]
    book = Book(parse_documents({"p": json.dumps(documents)}))
    column = Resource.column("sales", "orders", "id")
    bob = book.consider(AccessRequest(Principal("bob"), column, "select"), NOW)
    ann = book.consider(AccessRequest(Principal("ann"), column, "select"), NOW)
    assert bob.mask is not None and (bob.mask.type, bob.mask.policy) == ("MASK_NULL", "m")
    assert ann.mask is None and bob.has_row_filter and not ann.has_row_filter


LATER = {"validitySchedules": [{"startTime": "2031/01/01 00:00:00"}]}


def on(*values: str) -> Json:
    """The resources of a policy, from the database down."""
    return {
        name: {"values": [value]}
        for name, value in zip(("database", "table", "column"), values, strict=False)
    }


def item(**more: Any) -> Json:
    return {"users": ["bob"], "accesses": SELECT, **more}


def access(name: str, *values: str, **more: Any) -> Json:
    return {"name": name, "resources": on(*values), "policyItems": [item()], **more}


def mask(name: str, *values: str, **more: Any) -> Json:
    masked = item(dataMaskInfo={"dataMaskType": "MASK_NULL"})
    return {"name": name, "policyType": 1, "resources": on(*values), "dataMaskPolicyItems": [masked], **more}


def rows(name: str, *values: str, **more: Any) -> Json:
    filtered = item(rowFilterInfo={"filterExpr": "x = 1"})
    return {
        "name": name,
        "policyType": 2,
        "resources": on(*values),
        "rowFilterPolicyItems": [filtered],
        **more,
    }


EVERY_KIND = [
    access("table", "sales", "orders", **LATER),
    access("column", "sales", "orders", "id", **LATER),
    access("above", "sales", **LATER),
    access("always", "sales", "orders", "id"),
    access("other", "sales", "bills", "id", **LATER),
    access("owned", "{OWNER}", "orders", "id", **LATER),
    mask("masked", "sales", "orders", "id", **LATER),
    mask("masked-always", "sales", "orders", "id"),
    mask("masked-other", "sales", "orders", "email", **LATER),
    mask("masked-owned", "{OWNER}", "orders", "id", **LATER),
    rows("filtered", "sales", "orders", **LATER),
    rows("filtered-always", "sales", "orders"),
    rows("filtered-other", "sales", "bills", **LATER),
    rows("filtered-owned", "{OWNER}", "orders", **LATER),
]
ID = Resource.column("sales", "orders", "id")


@each_row(
    ("asked", "owner", "kinds", "names"),
    [
        (ID, None, [PolicyType.ACCESS], {"column", "table"}),
        (ID, "sales", [PolicyType.ACCESS], {"column", "table", "owned"}),
        (ID, "olga", [PolicyType.ACCESS], {"column", "table"}),
        (ID, "sales", [PolicyType.MASK], {"masked", "masked-owned"}),
        (ID, "sales", [PolicyType.ROW_FILTER], {"filtered", "filtered-owned"}),
        (ID, None, iter([PolicyType.MASK, PolicyType.ROW_FILTER]), {"masked", "filtered"}),
        (ORDERS, None, [PolicyType.ROW_FILTER], {"filtered"}),
        (ID, "sales", [], set()),
    ],
)
def test_policies_with_a_schedule_are_those_that_would_be_heard(asked, owner, kinds, names) -> None:
    book = Book(parse_documents({"p": json.dumps(EVERY_KIND)}))
    considered = book.consider(AccessRequest(BOB, asked, "select", owner), NOW)
    assert {policy.name for policy in considered.scheduled(kinds)} == names


@each_row(
    ("asked", "owner", "names"),
    [
        (
            ID,
            "sales",
            {"table", "column", "above", "always", "owned", "masked", "masked-always", "masked-owned",
             "filtered", "filtered-always", "filtered-owned"},
        ),
        (
            ID,
            None,
            {"table", "column", "above", "always", "masked", "masked-always", "filtered", "filtered-always"},
        ),
        (
            Resource.table("sales", "bills"),
            None,
            {"above", "other", "filtered-other"},
        ),
    ],
)  # fmt: skip
def test_policies_are_considered_that_have_to_do_with_what_is_asked(asked, owner, names) -> None:
    book = Book(parse_documents({"p": json.dumps(EVERY_KIND)}))
    considered = book.consider(AccessRequest(BOB, asked, "select", owner), NOW)
    assert {policy.name for policy in considered.policies} == names and considered.disabled == ()


def test_disabled_policies_are_kept_apart() -> None:
    documents = [access("on", "sales", "orders"), access("off", "sales", "orders", isEnabled=False)]
    considered = Book(parse_documents({"p": json.dumps(documents)})).consider(
        AccessRequest(BOB, ORDERS, "select"), NOW
    )
    assert [policy.name for policy in considered.policies] == ["on"]
    assert [policy.name for policy in considered.disabled] == ["off"]


def test_a_policy_without_a_part_keeps_all_others() -> None:
    whole = parse_documents({"p": json.dumps([
        access("a", "sales", "orders", denyPolicyItems=[item()], allowExceptions=[item()],
               denyExceptions=[item()], isDenyAllElse=True),
        mask("m", "sales", "orders", "id"),
        rows("r", "sales", "orders"),
    ])}).policies  # fmt: skip
    for each in whole:
        labels = list(labels_of(each))
        assert without(each, "other[0]") == each
        for label in labels:
            assert list(labels_of(without(each, label))) == [other for other in labels if other != label]
    assert sum(len(list(labels_of(each))) for each in whole) == 7


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data(), st.sampled_from(["tables", "tables", "url", "storage", "key"]))
def test_an_explanation_is_true_of_policies_changed_as_it_says(data: st.DataObject, kind: str) -> None:
    policies = data.draw(st.lists(access_policies(kind), min_size=1, max_size=4), label="policies")
    for number, each in enumerate(policies):
        each["name"] = f"p{number}"
    documents = {"p.json": json.dumps({"policies": policies, "roles": ROLES})}
    book, whole = Book(parse_documents(documents)), PolicySet.parse(documents)
    for _ in range(2):
        asker = data.draw(askers(), label="asker")
        resource, access = data.draw(requests(kind), label="request")
        asked = dict(zip(resource.levels, resource.values, strict=True))
        request = AccessRequest(Principal(asker.name, asker.groups), resource, access, asker.owner)
        found = explain(book, book.consider(request, NOW))
        assert found.decision == whole.decide(request, NOW)
        for each in found.without:
            fewer = lacking(policies, each.policy, each.item)
            assert each.decision.allowed is allows(fewer, asker, asked, access)
        for change in found.changes:
            _check_change(change.what, change.detail, policies, asker, asked, access)


def lacking(policies: list[Json], name: str, label: str) -> list[Json]:
    """The same documents without an item."""
    changed = deepcopy(policies)
    found = next(each for each in changed if each["name"] == name)
    if label == "isDenyAllElse":
        found[label] = False
        return changed
    items, position = re.fullmatch(r"(\w+)\[(\d+)\]", label).groups()  # type: ignore[union-attr]
    del found[items][int(position)]
    return changed


def _check_change(
    what: str, detail: str, policies: list[Json], asker: Asker, asked: dict[str, str], access: str
) -> None:
    """Make the change, and ask the naive reading."""
    named = re.search(r"olicy '(p\d)'", detail)
    label = re.search(r"(\w+\[\d\])", detail)
    if what in ("denial", "exception") and named is not None:
        removed = label[1] if label is not None else "isDenyAllElse"
        assert allows(lacking(policies, named[1], removed), asker, asked, access), detail
    elif what == "disabled" and named is not None:
        enabled = [{**each, "isEnabled": True} if each["name"] == named[1] else each for each in policies]
        assert allows(enabled, asker, asked, access), detail
    elif what == "owner":
        owning = Asker(asker.name, asker.groups, asker.roles, asker.name)
        assert allows(policies, owning, asked, access), detail


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.one_of(access_policies("tables"), mask_policies()), min_size=1, max_size=3))
def test_taking_away_every_part_leaves_a_policy_that_says_nothing(policies: list[Json]) -> None:
    for number, each in enumerate(policies):
        each["name"] = f"p{number}"
    for each in parse_documents({"p": json.dumps(policies)}).policies:
        labels, left = list(labels_of(each)), each
        assert len(set(labels)) == len(labels)
        for label in labels:
            assert label in set(labels_of(left))
            left = without(left, label)
            assert label not in set(labels_of(left))
        assert not list(labels_of(left)) and left.type in PolicyType


@each_row(("granted", "answer"), [(["sales", "orders"], True), (["sales", "orders", "id"], False)])
def test_a_standard_client_needs_select_on_a_table_whose_columns_are_not_known(granted, answer) -> None:
    book = Book(parse_documents({"p": json.dumps([access("it", *granted)])}))
    request = AccessRequest(BOB, ORDERS, "select")
    considered = book.consider(request, NOW, through=Through.STANDARD_CLIENT)
    assert considered.decision.allowed is answer


@each_row(("through", "answer"), [(Through.ENGINE, True), (Through.STANDARD_CLIENT, False)])
def test_every_privilege_on_an_encrypted_table_does_not_open_it_to_a_standard_client(through, answer) -> None:
    owning = {"users": ["bob"], "accesses": [{"type": "all"}]}
    book = Book(parse_documents({"p": json.dumps([policy(policyItems=[owning])])}))
    spec = EncryptionSpec.parse({"encryption.mechanism": "envelope"}, catalog_master_key_id="lake")
    request = AccessRequest(BOB, ORDERS, "all")
    decision = book.consider(request, NOW, table=KnownTable(spec=spec), through=through).decision
    assert decision.allowed is answer
    assert answer or "standard-client" in {reason.rule for reason in decision.reasons}
