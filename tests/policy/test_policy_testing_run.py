"""Cases pass or fail as the policies answer, whatever the day."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from policy.errors import PolicyInvalid, RequestInvalid
from policy.explain import Book
from policy.principal import Principal
from policy.privileges.requests import AccessRequest, Resource
from policy.ranger import PolicySet
from policy.ranger.parse import parse_documents
from policy.testing import Outcome
from policy.testing.report import failure_lines
from tests.policy.test_ranger_differential import LITERALS, NOW, ROLES, askers, mask_policies
from tests.policy.tested_cases import (
    FILTERED,
    MASKED,
    READ,
    READERS,
    RULES,
    SALES,
    SELECT,
    TABLES,
    Json,
    reached,
    run,
    sales,
    suite,
)
from tests.support.vectors import each_row


def test_a_grant_and_a_denial_pass_where_they_are_expected_and_fail_where_not() -> None:
    asked = f"{READ}, resource: table:sales.orders"
    assert run(f"{asked}, expect: allow", sales()).passed
    failed = run(f"{asked}, expect: deny", sales())
    assert failed.problems == ("expected deny, got allow.",) and not failed.reached
    assert failed.decision is not None and failed.decision.allowed
    assert run("user: eve, access: select, resource: table:sales.orders, expect: deny", sales()).passed


@each_row(
    ("because", "passes"),
    [
        ("policy: sales", True),
        ("policy: sale", False),
        ("item: 'policyItems[0]', rule: policy-allow", True),
        ("item: 'policyItems[1]'", False),
        ("rule: policy-deny", False),
        ("detail: grants select on", True),
        ("detail: Grants", False),
    ],
)
def test_one_reason_has_to_say_all_that_is_expected(because: str, passes: bool) -> None:
    case = f"{READ}, resource: table:sales.orders, expect: allow, because: {{{because}}}"
    assert run(case, sales()).passed is passes


@each_row(
    ("mask", "problem"),
    [
        ("type: MASK", None),
        ("type: MASK, policy: masks", None),
        ("type: MASK, policy: other", "the mask of policy 'other', got that of 'masks'"),
        ("type: MASK_HASH", "expected the mask MASK_HASH, got MASK"),
        ("type: none", "expected the mask none, got MASK"),
    ],
)
def test_a_mask_is_the_expected_one_in_all_that_is_said_of_it(mask: str, problem: str | None) -> None:
    case = f"{READ}, resource: column:sales.orders/email, expect: masked, mask: {{{mask}}}"
    problems = run(case, sales(), MASKED).problems
    assert (problem is None and not problems) or (problem is not None and problem in problems[0])


def test_a_mask_that_nobody_has_is_none() -> None:
    asked = f"{READ}, resource: column:sales.orders/id, expect: allow"
    assert run(f"{asked}, mask: {{type: none}}", sales(), MASKED).passed
    assert run(f"{asked}, mask: {{type: MASK}}", sales(), MASKED).problems == (
        "expected the mask MASK, got none.",
    )


def test_rows_are_all_or_filtered() -> None:
    asked = f"{READ}, resource: table:sales.orders, expect: allow"
    assert run(f"{asked}, rows: filtered", sales(), FILTERED).passed
    assert run(f"{asked}, rows: all", sales(), FILTERED).problems == (
        "expected all rows, got filtered rows.",
    )
    column = f"{READ}, resource: column:sales.orders/id, expect: allow"
    assert run(f"{column}, rows: filtered", sales()).problems == ("expected filtered rows, got all rows.",)


SCHEDULED = [{"startTime": "2030/01/01 00:00:00", "endTime": "2030/12/31 00:00:00"}]


@each_row(
    "case",
    [
        f"{READ}, resource: table:sales.orders, expect: allow",
        f"{READ}, resource: table:sales.orders, expect: deny",
        "user: bob, sql: DROP TABLE sales.orders, dialect: spark, expect: deny",
    ],
)
def test_a_case_that_depends_on_the_time_has_to_say_the_time(case: str) -> None:
    outcome = run(case, sales(validitySchedules=SCHEDULED))
    assert "Policy 'sales' is not always valid" in outcome.problems[0] and outcome.decision is None
    other = {**sales(), "name": "other", "resources": {"database": {"values": ["hr"]}}}
    assert "not always" not in "".join(run(case, sales(), {**other, "validitySchedules": SCHEDULED}).problems)


def test_the_time_that_a_case_says_decides() -> None:
    policy = sales(validitySchedules=SCHEDULED)
    asked = f"{READ}, resource: table:sales.orders"
    assert run(f'{asked}, expect: allow, at: "2030-06-01T12:00Z"', policy).passed
    assert run(f'{asked}, expect: deny, at: "2031-06-01T12:00Z"', policy).passed
    drop = "user: olga, owner: olga, sql: DROP TABLE sales.orders, dialect: spark"
    assert run(f'{drop}, expect: allow, at: "2030-06-01T12:00Z"', policy).passed
    assert run(f'{drop}, expect: deny, at: "2031-06-01T12:00Z"', policy).passed


def test_times_of_masks_and_rows_matter_to_what_is_read() -> None:
    late = {"validitySchedules": SCHEDULED}
    asked = "resource: column:sales.orders/email, expect: allow"
    masked, filtered = {**MASKED, **late}, {**FILTERED, **late}
    assert "Policy 'masks'" in run(f"{READ}, {asked}", sales(), masked).problems[0]
    assert "Policy 'filters'" in run(f"{READ}, {asked}", sales(), filtered).problems[0]
    assert run(f"user: olga, access: alter, owner: olga, {asked}", sales(), masked, filtered).passed


def test_a_policy_on_a_table_that_is_not_always_valid_does_not_matter_to_its_database() -> None:
    above = {**sales(), "name": "above", "resources": {"database": {"values": ["sales"]}}}
    asked = f"{READ}, resource: table:sales.orders, expect: allow"
    assert run(asked, sales(), {**above, "validitySchedules": SCHEDULED}).passed


def test_a_statement_is_decided_for_its_user_in_its_namespace() -> None:
    known = "tables: {sales.orders: {owner: olga, columns: [id]}}"
    alter = "sql: ALTER TABLE orders ADD COLUMN more INT, dialect: spark, database: sales"
    assert run(f"user: olga, {alter}, expect: allow", sales(), top=known).passed
    assert run(f"user: bob, {alter}, expect: deny", sales(), top=known).passed
    assert run(f"user: bob, owner: bob, {alter}, expect: deny", sales(), top=known).passed
    assert run(f"user: bob, owner: bob, {alter}, expect: allow", sales()).passed


def test_a_statement_that_cannot_be_read_is_a_denial() -> None:
    case = "user: olga, sql: ALTER TABLE sales.orders FROBNICATE, dialect: spark, expect: deny"
    assert run(case, sales()).passed


@each_row("sql", ["'-- nothing'", "DROP TABLE sales.a; DROP TABLE sales.b"])
def test_a_case_has_one_statement(sql: str) -> None:
    outcome = run(f"user: olga, sql: {sql}, dialect: spark, expect: deny", sales())
    assert not outcome.passed and "A case must have exactly one" in outcome.problems[0]


def test_tables_are_checked_against_encryption_rules() -> None:
    for table, answer in (("orders", "allow"), ("clear", "allow"), ("short", "deny")):
        assert run(f"table: sales.{table}, expect: {answer}", rules=RULES, top=TABLES).passed
    failed = run("table: sales.short, expect: allow", rules=RULES, top=TABLES)
    assert failed.problems == ("expected allow, got deny.",) and not failed.reached
    case = "table: sales.short, expect: deny, because: {rule: data-key-length, policy: long}"
    assert reached(run(case, rules=RULES, top=TABLES)) == ["long"]


def test_statements_are_checked_against_encryption_rules() -> None:
    create = "user: olga, sql: CREATE TABLE sales.orders (id INT), dialect: spark"
    creators = sales(policyItems=[{"users": ["olga"], "accesses": [{"type": "all"}]}])
    denied = run(f"{create}, expect: deny, because: {{detail: must be encrypted}}", creators, rules=RULES)
    assert reached(denied) == ["encrypted"]
    assert run(f"{create}, expect: allow", creators, rules=RULES[1:]).passed


def test_a_user_reads_what_the_service_would_show() -> None:
    top = """
catalog: {master_key: lakewarden}
tables:
  sales.orders:
    columns: [id, email, phone, salary]
    properties:
      encryption.columns: "pii:email,phone;hr:salary"
      encryption.masks: "nullify:salary"
"""
    denied = {"users": ["bob"], "accesses": SELECT}

    def asked(denied_column: str, column: str, expect: str, more: str = "") -> Outcome:
        resources = {**SALES, "column": {"values": [denied_column]}}
        denials = {"name": "denials", "resources": resources, "denyPolicyItems": [denied]}
        case = f"{READ}, resource: column:sales.orders/{column}, expect: {expect}{more}"
        return run(case, sales(), denials, top=top)

    assert asked("phone", "id", "allow").passed
    assert asked("phone", "email", "deny", ", because: {rule: key-group, detail: phone}").passed
    assert asked("phone", "phone", "deny", ", because: {rule: policy-deny, policy: denials}").passed
    assert asked("salary", "salary", "masked", ", because: {rule: column-mask, policy: denials}").passed
    assert asked("salary", "salary", "deny").problems == ("expected deny, got masked.",)
    assert asked("salary", "salary", "allow").problems == ("expected allow, got masked.",)
    process = ", through: process, because: {detail: release on key lakewarden}"
    assert asked("phone", "id", "deny", process).passed
    client = ", through: standard-client, because: {rule: standard-client}"
    assert asked("phone", "id", "deny", client).passed


def test_without_anything_to_test_no_case_passes() -> None:
    denied = "  - {name: it, user: bob, access: select, resource: table:s.t, expect: deny}"
    for policies in ((), ({**sales(), "isEnabled": False},)):
        with pytest.raises(RequestInvalid, match=r"f\.yaml: no policies to test"):
            suite(denied, *policies, rules=RULES)
    with pytest.raises(RequestInvalid, match="no encryption_rules to test"):
        suite("  - {name: it, table: sales.orders, expect: allow}", sales(), top=TABLES)
    with pytest.raises(PolicyInvalid, match=r"p\.json, line 1"):
        suite(denied, {**sales(), "polcyItems": []})


def test_a_failure_shows_all_that_decided_and_what_would_change_it() -> None:
    at = 'at: "2030-06-01T12:00Z", '
    failed = run(f"{at}user: bob, access: select, resource: table:sales.orders, expect: allow", sales())
    lines = list(failure_lines(failed))
    assert lines[:4] == [
        "expected allow, got deny.",
        "request: 'bob' requests select on table sales.orders",
        "at: 2030-06-01T12:00:00+00:00",
        "decision: deny",
    ]
    assert "  policy-no-match: No policy grants select on table sales.orders to 'bob'." in lines
    assert "to allow it: 'bob' must join the group 'readers'." in lines
    masked = f"{READ}, resource: column:sales.orders/email, expect: masked, mask: {{type: none}}"
    lines = list(failure_lines(run(masked, sales(), MASKED)))
    assert "mask: MASK [masks]" in lines
    said = "  mask [masks dataMaskPolicyItems[0]]: Policy 'masks' masks the column 'email': MASK."
    assert said in lines
    granted = list(failure_lines(run(f"{READ}, resource: table:sales.orders, expect: deny", sales())))
    assert any(line.startswith("  policy-allow [sales policyItems[0]]: ") for line in granted)
    assert any(line.startswith("without policyItems[0] of 'sales': No policy grants") for line in granted)
    statement = run("user: bob, sql: DROP TABLE sales.t, dialect: spark, expect: allow", sales())
    assert any("policy-no-match" in line for line in failure_lines(statement))
    untimed = run(f"{READ}, resource: table:sales.t, expect: deny", sales(validitySchedules=SCHEDULED))
    assert len(list(failure_lines(untimed))) == 2


def test_a_mask_that_a_required_column_cannot_have_denies() -> None:
    item = {**READERS, "dataMaskInfo": {"dataMaskType": "MASK_NULL"}}
    nulled = {**MASKED, "dataMaskPolicyItems": [item]}
    for kind, expected in (("string", "masked"), ("string not null", "deny")):
        top = f"tables: {{sales.t: {{columns: {{email: {kind}}}}}}}"
        asked = f"{READ}, resource: column:sales.t/email, expect: {expected}"
        assert run(asked, sales(), nulled, top=top).passed, kind


def test_one_case_is_enough_for_what_it_tests_to_be_needed() -> None:
    asked = f"  - {{name: ask, {READ}, resource: table:sales.orders, expect: deny}}\n"
    both = asked + "  - {name: made, table: sales.orders, expect: allow}"
    with pytest.raises(RequestInvalid, match="no policies to test"):
        suite(both, rules=RULES, top=TABLES)
    with pytest.raises(RequestInvalid, match="no encryption_rules to test"):
        suite(both, sales(), top=TABLES)
    assert suite(both, sales(), rules=RULES, top=TABLES).file.cases[1].name == "made"


@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data(), st.lists(mask_policies(), min_size=1, max_size=3))
def test_masks_are_those_of_the_whole_set(data: st.DataObject, policies: list[Json]) -> None:
    for number, each in enumerate(policies):
        each["name"] = f"p{number}"
    documents = {"p.json": json.dumps({"policies": policies, "roles": ROLES})}
    book, whole = Book(parse_documents(documents)), PolicySet.parse(documents)
    asker = data.draw(askers())
    names = [data.draw(LITERALS) for _ in range(3)]
    principal = Principal(asker.name, asker.groups)
    request = AccessRequest(principal, Resource.column(*names), "select", asker.owner)
    found = book.consider(request, NOW).mask
    assert found == whole.mask_for(principal, names[0], names[1], names[2], NOW, owner=asker.owner)


def test_an_outcome_holds_its_case_and_all_that_was_answered() -> None:
    tested = suite(
        f"  - {{name: it, {READ}, resource: column:sales.orders/email, expect: masked, mask: {{type: MASK}},"
        " rows: filtered}\n"
        f"  - {{name: wrong, {READ}, resource: column:sales.orders/email, expect: allow,"
        " mask: {type: MASK}, rows: all}\n",
        sales(),
        MASKED,
        FILTERED,
    )
    right, wrong = map(tested.run, tested.file.cases)
    for outcome, case in zip((right, wrong), tested.file.cases, strict=True):
        assert outcome.case is case and outcome.filtered is True
        assert outcome.decision is not None and outcome.decision.allowed
        assert outcome.mask is not None and outcome.mask.policy == "masks"
    assert (right.problems, right.explanation) == ((), None)
    assert wrong.problems == ("expected allow, got masked.", "expected all rows, got filtered rows.")
    assert not wrong.reached and wrong.explanation is not None


def test_a_failed_case_is_reported_in_these_words() -> None:
    asked = f'{READ}, resource: table:sales.orders, at: "2030-01-15T12:00Z", expect: deny'
    first, *rest = failure_lines(run(asked, sales()))
    assert first == "expected deny, got allow."
    assert rest[:3] == [
        "request: 'bob' (groups readers) requests select on table sales.orders",
        "at: 2030-01-15T12:00:00+00:00",
        "decision: allow",
    ]
    denied = run("user: eve, sql: DROP TABLE sales.t, dialect: spark, expect: allow", sales())
    lines = list(failure_lines(denied))
    assert lines[:2] == ["expected allow, got deny.", "request: 'eve' runs spark SQL: DROP TABLE sales.t"]
    assert "decision: deny" in lines


@each_row(
    ("case", "what"),
    [(f"{READ}, resource: table:sales.t", "policies"), ("table: sales.orders", "encryption_rules")],
)
def test_what_there_is_nothing_to_test_with_is_told(case: str, what: str) -> None:
    with pytest.raises(RequestInvalid) as caught:
        suite(f"  - {{name: it, {case}, expect: deny}}", top=TABLES)
    assert str(caught.value) == (
        f"f.yaml: no {what} to test. [rule=policy-test]"
        f" List documents under {what}, or pass them on the command line."
    )


def test_a_statement_that_fails_its_case_says_how() -> None:
    statement = "user: bob, groups: [readers], sql: SELECT id FROM sales.orders, dialect: spark"
    assert run(f"{statement}, expect: deny", sales()).problems == ("expected deny, got allow.",)
    because = run(f"{statement}, expect: allow, because: {{policy: other}}", sales())
    assert because.problems == ("no reason matches policy 'other'.",)
    two = run("user: bob, sql: 'SELECT 1; SELECT 2', dialect: spark, expect: allow", sales())
    assert two.problems == ("sql has 2 statements. A case must have exactly one.",) and two.decision is None


def test_a_statement_is_judged_in_the_engine_that_the_file_names() -> None:
    engine = {
        "name": "engine",
        "resources": {"engine": {"values": ["spark"]}},
        "policyItems": [{"users": ["bob"], "accesses": [{"type": "code"}]}],
    }
    statement = "user: bob, sql: \"ADD JAR 's3://b/x.jar'\", dialect: spark"
    assert run(f"{statement}, expect: allow", engine, top="catalog: {engine: spark}").passed
    assert run(f"{statement}, expect: deny", engine, top="catalog: {engine: trino}").passed
    assert run(f"{statement}, expect: deny", engine).passed
