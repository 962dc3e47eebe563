"""Cases reach the items that their answers hang on, and no other ones."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from policy.identifiers import TableName
from policy.principal import Principal
from policy.ranger.parse import parse_documents
from policy.testing import Case, CaseFile, Coverage, Suite, UnderTest
from policy.testing.cases import AccessQuestion, Catalog, Expected
from policy.testing.coverage import PartsOfPolicies
from tests.policy.naive_ranger import allows
from tests.policy.test_explain import lacking
from tests.policy.test_ranger_differential import NOW, ROLES, access_policies, askers, requests
from tests.policy.tested_cases import (
    FILTERED,
    MASKED,
    READ,
    RULES,
    SALES,
    SELECT,
    TABLES,
    reached,
    run,
    sales,
    suite,
)


def test_an_item_is_reached_if_the_answer_hangs_on_it() -> None:
    denying = sales(
        denyPolicyItems=[{"users": ["bob", "eve"], "accesses": SELECT}],
        denyExceptions=[{"users": ["bob"], "accesses": SELECT}],
        allowExceptions=[{"users": ["carol"], "accesses": SELECT}],
    )
    table = "groups: [readers], access: select, resource: table:sales.orders"
    assert reached(run(f"user: bob, {table}, expect: allow", denying)) == [
        "sales denyExceptions[0]",
        "sales policyItems[0]",
    ]
    assert reached(run(f"user: eve, {table}, expect: deny", denying)) == ["sales denyPolicyItems[0]"]
    assert reached(run(f"user: carol, {table}, expect: deny", denying)) == ["sales allowExceptions[0]"]
    assert reached(run(f"user: dan, {table}, expect: allow", denying)) == ["sales policyItems[0]"]


def test_all_else_denied_is_reached_where_it_denies() -> None:
    closed = {"name": "closed", "resources": SALES, "isDenyAllElse": True}
    assert reached(run(f"{READ}, resource: table:sales.orders, expect: deny", sales(), closed)) == [
        "closed isDenyAllElse"
    ]


def test_what_matches_and_changes_nothing_is_not_reached() -> None:
    again = {**sales(), "name": "again"}
    asked = f"{READ}, resource: table:sales.orders, expect: allow"
    assert reached(run(asked, sales(), again)) == ["sales policyItems[0]"]


def test_masks_and_rows_are_reached_by_what_reads_the_column() -> None:
    asked = f"{READ}, resource: column:sales.orders/email, expect:"
    grant, mask, rows = (
        "sales policyItems[0]",
        "masks dataMaskPolicyItems[0]",
        "filters rowFilterPolicyItems[0]",
    )
    assert reached(run(f"{asked} masked", sales(), MASKED)) == [grant, mask]
    assert reached(run(f"{asked} allow", sales(), FILTERED)) == [grant, rows]
    assert reached(run(f"{asked} masked", sales(), MASKED, FILTERED)) == [grant, mask, rows]


def test_statements_reach_the_items_that_grant_what_they_need() -> None:
    storage = {
        "name": "places",
        "resources": {"storage-type": {"values": ["iceberg"]}, "storage-url": {"values": ["s3://lake/x*"]}},
        "policyItems": [{"users": ["olga"], "accesses": [{"type": "rwstorage"}]}],
    }
    known = "tables: {sales.orders: {owner: olga, columns: [id], location: s3://lake/orders}}"
    statement = "ALTER TABLE sales.orders SET TBLPROPERTIES ('read.allowed.data.paths' = 's3://lake/x')"
    found = run(f'user: olga, sql: "{statement}", dialect: spark, expect: allow', sales(), storage, top=known)
    assert reached(found) == ["sales policyItems[1]", "places policyItems[0]"]


def test_disabled_policies_are_no_part_of_what_is_to_be_reached() -> None:
    tested = suite(
        f"  - {{name: it, {READ}, resource: table:sales.orders, expect: allow}}",
        {**sales(), "name": "off", "isEnabled": False},
        sales(isDenyAllElse=True),
        rules=RULES[:1],
    )
    coverage = tested.tested.coverage([tested.run(case) for case in tested.file.cases])
    assert [str(part) for part in coverage.missed] == [
        "p.json: 'sales' isDenyAllElse",
        "p.json: 'sales' policyItems[1]",
        "r.json: 'encrypted'",
    ]
    assert coverage.percent == 25.0
    assert Coverage.of([coverage, coverage]) == coverage
    assert Coverage.of([]).percent == 100.0


def test_policies_of_one_name_in_two_services_are_two() -> None:
    policies = [sales(service="a"), sales(service="b")]
    documents = {"p.json": json.dumps(policies[:1]).encode(), "q.json": json.dumps(policies[1:]).encode()}
    parts = list(PartsOfPolicies(documents, parse_documents(documents)))
    assert len(set(parts)) == 4


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data(), st.sampled_from(["tables", "tables", "url", "storage", "key"]))
def test_an_item_that_turns_the_answer_of_a_plain_reading_is_reached(data: st.DataObject, kind: str) -> None:
    policies = data.draw(st.lists(access_policies(kind), min_size=1, max_size=3), label="policies")
    for number, each in enumerate(policies):
        each["name"] = f"p{number}"
    if not any(each["isEnabled"] for each in policies):
        return
    asker = data.draw(askers(), label="asker")
    resource, access = data.draw(requests(kind), label="request")
    asked = dict(zip(resource.levels, resource.values, strict=True))
    answer = allows(policies, asker, asked, access)
    question = AccessQuestion(Principal(asker.name, asker.groups), access, resource, asker.owner)
    case = Case("it", "f.yaml", 1, NOW, question, Expected("allow" if answer else "deny", None, None, None))
    tables: dict[TableName, Any] = {}
    documents = {"p.json": json.dumps({"policies": policies, "roles": ROLES}).encode()}
    tested = Suite(CaseFile("f.yaml", (), (), Catalog(), tables, (case,)), UnderTest(documents, {}))
    outcome = tested.run(case)
    assert outcome.passed, outcome.problems
    found = {(part.policy, part.item) for part in outcome.reached}
    parts = tested.tested.coverage([outcome]).parts
    assert outcome.reached <= parts
    for part in parts:
        if allows(lacking(policies, part.policy, part.item), asker, asked, access) is not answer:
            assert (part.policy, part.item) in found


def test_of_two_equal_policies_neither_is_needed() -> None:
    asked = f"{READ}, resource: table:sales.orders, expect: allow"
    assert reached(run(asked, sales(service="a"), sales(service="b"))) == []


def test_the_part_that_a_rule_is_has_its_place_among_the_rules() -> None:
    tested = suite("  - {name: made, table: sales.orders, expect: allow}", rules=RULES, top=TABLES).tested
    parts = [tested.rule_parts[rule.name] for rule in tested.rules.rules]
    assert [(part.document, part.position, part.item) for part in parts] == [
        ("r.json", 0, ""),
        ("r.json", 1, ""),
    ]
    assert {part.policy for part in parts} == {"encrypted", "long"}
    assert str(tested.rule_parts["long"]) == "r.json: 'long'"
