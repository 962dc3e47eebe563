"""Files of cases are read whole or refused with the place and field of what is wrong."""

from __future__ import annotations

from datetime import datetime

import pytest

from policy.encryption.file_formats import FileFormat
from policy.encryption.specification import EncryptionSpec
from policy.errors import PropertyInvalid, RequestInvalid
from policy.identifiers import TableName
from policy.location.allow_list import AllowList
from policy.location.location import Location
from policy.principal import Principal
from policy.privileges.requests import Resource
from policy.resource_names import table_named
from policy.sql_lint.context import TableFacts
from policy.testing import parse_cases
from policy.testing.cases import (
    AccessQuestion,
    CaseFile,
    ExpectedMask,
    ExpectedReason,
    StatementQuestion,
    TableQuestion,
)
from policy.testing.fixtures import FixtureTable
from policy.testing.parse import MAX_CASES
from tests.support.vectors import each_row

ASK = "name: it, user: bob, access: select, expect: deny"
RUN = "name: it, user: bob, dialect: spark, expect: deny"


def read(text: str) -> CaseFile:
    return parse_cases("f.yaml", text.encode())


def one(case: str, top: str = "") -> CaseFile:
    return read(f"{top}\ncases:\n  - {{{case}}}\n")


def refused(text: str) -> str:
    with pytest.raises(RequestInvalid) as caught:
        read(text)
    assert caught.value.rule == "policy-test"
    return str(caught.value)


def refused_case(case: str, top: str = "") -> str:
    return refused(f"{top}\ncases:\n  - {{{case}}}\n")


WHOLE = """
description: All that a file can say.
policies: [a.json, ../b]
encryption_rules: [c.json]
catalog: {name: lake, master_key: k0, engine: spark}
tables:
  sales.eu.orders:
    owner: olga
    location: s3://lake/orders
    columns: [id, customer.email, customer.address.city]
    properties: {encryption.key-id: k1, read.allowed.data.paths: "s3://lake/orders,s3://x/y"}
  sales.bare: {owner: olga}
  sales.placed: {location: s3://lake/placed}
cases:
  - name: a request
    description: Why it matters.
    user: bob
    groups: [g1, g2]
    roles: [r1]
    at: "2030-01-31T12:00:00+01:00"
    access: select
    resource: column:sales.eu.orders/customer.email
    expect: allow
    because: {rule: policy-allow, policy: p, item: "policyItems[0]", detail: grants}
    mask: {type: show-last-4, policy: m}
    rows: filtered
  - {name: a statement, user: bob, sql: DROP TABLE t, dialect: hive, database: sales.eu,
     owner: own, expect: deny}
  - {name: a table, table: sales.eu.orders, expect: allow}
"""


def test_a_file_is_read_as_it_says() -> None:
    found = read(WHOLE)
    assert (found.policies, found.encryption_rules) == (("a.json", "../b"), ("c.json",))
    assert (found.catalog.name, found.catalog.master_key, found.catalog.engine) == ("lake", "k0", "spark")
    request, statement, table = found.cases
    bob = Principal("bob", frozenset({"g1", "g2"}), frozenset({"r1"}))
    column = Resource.column("sales.eu", "orders", "customer.email")
    known = found.tables[table_named("sales.eu.orders")].for_statements().known
    assert request.question == AccessQuestion(bob, "select", column, "olga", known)
    assert (request.name, request.line) == ("a request", 15)
    assert request.at == datetime.fromisoformat("2030-01-31T12:00:00+01:00")
    assert request.expected.because == ExpectedReason("policy-allow", "p", "policyItems[0]", "grants")
    assert request.expected.mask == ExpectedMask("show-last-4", "m")
    assert request.expected.answer == "allow" and request.expected.filtered is True
    assert statement.question == StatementQuestion(
        Principal("bob"), "DROP TABLE t", "hive", "sales.eu", "own"
    )
    assert (
        statement.at is None and statement.expected.answer == "deny" and statement.expected.filtered is None
    )
    assert table.question == TableQuestion(TableName(("sales", "eu"), "orders"))


def test_tables_are_known_as_the_catalog_would_know_them() -> None:
    tables = read(WHOLE).tables
    orders = tables[TableName(("sales", "eu"), "orders")].for_statements()
    assert (orders.owner, orders.columns) == ("olga", ("id", "customer"))
    assert orders.nested == ("customer.email", "customer.address", "customer.address.city")
    assert orders.leaves is not None and [each.name for each in orders.leaves][1] == "customer.email"
    assert orders.spec is not None and orders.spec.master_key_id == "k1"
    assert orders.allowed is not None and len(orders.allowed.entries) == 2
    bare = tables[TableName(("sales",), "bare")].for_statements()
    assert (bare.columns, bare.leaves, bare.allowed, bare.location) == (None, None, None, None)
    placed = tables[TableName(("sales",), "placed")].for_statements()
    assert placed.location == Location.parse("s3://lake/placed")
    assert placed.allowed is not None and placed.allowed.entries == (placed.location,)


def test_an_owner_of_its_own_comes_before_that_of_the_table() -> None:
    tables = "tables: {s.t: {owner: olga}}"
    asked = [
        one(f"{ASK}, resource: {resource}{owner}", tables).cases[0].question
        for resource, owner in (
            ("table:s.t", ""),
            ("column:s.t/c", ""),
            ("table:s.t", ", owner: bob"),
            ("table:s.u", ""),
            ("database:s", ""),
        )
    ]
    assert [each.owner for each in asked if isinstance(each, AccessQuestion)] == [
        "olga",
        "olga",
        "bob",
        None,
        None,
    ]


@each_row(
    ("text", "what"),
    [
        ("description: x", "line 1, column 1: the file has no cases"),
        ("cases: []", "line 1, column 1, cases: the list is empty"),
        ("cases: {a: b}", "cases: expected a list"),
        ("- a", "expected an object, got a list"),
        ("cases: [a]", "line 1, column 9, cases[0]: expected an object"),
        ("case: [a]", "line 1, column 1, case: unknown field"),
        ("policies: a.json\ncases: [x]", "policies: expected a list"),
        ("policies: [a, a]\ncases: [x]", "policies[1]: 'a' is listed twice"),
        ("policies: [/a]\ncases: [x]", "policies[0]: the path must be relative"),
        ("catalog: {key: k}\ncases: [x]", "catalog.key: unknown field"),
        ("tables: {t: {owner: o}}\ncases: [x]", "tables.t: The table name has no namespace"),
        ("tables: {s.t: {owner: ' '}}\ncases: [x]", "tables.s.t.owner: the string is empty"),
        ("tables: {s.t: {location: lake}}\ncases: [x]", "line 1, column 10, tables.s.t: "),
        (
            "tables: {s.t: {properties: {comment: c}}}\ncases: [x]",
            "'comment' is not a governed table property",
        ),
        ("tables: {s.t: {properties: {encryption.mechanism: rot13}}}\ncases: [x]", "tables.s.t: "),
        ("tables: {s.t: {properties: {encryption.footer: 'encrypted'}}}\ncases: [x]", "tables.s.t: "),
    ],
)  # fmt: skip
def test_a_file_with_a_mistake_is_refused(text: str, what: str) -> None:
    assert what in refused(text)


@each_row(
    ("case", "what"),
    [
        (
            "name: it, expect: deny",
            "line 3, column 5, cases[0]: a case must have exactly one of access, sql and table",
        ),
        (f"{ASK}, resource: table:s.t, sql: x", "a case must have exactly one of access, sql and table"),
        (f"{ASK}", "resource is missing"),
        ("name: it, access: select, resource: table:s.t, expect: deny", "user is missing"),
        ("user: u, access: select, resource: table:s.t, expect: deny", "name is missing"),
        ("name: it, user: u, access: select, resource: table:s.t", "expect is missing"),
        (f"{ASK}, resource: table:s.t, acces: x", "cases[0].acces: unknown field"),
        (
            f"{ASK}, resource: table:s.t, dialect: spark",
            "cases[0].dialect: this field has no effect together with access",
        ),
        (f"{RUN}, sql: x, mask: {{type: none}}", "cases[0].mask: this field has no effect together with sql"),
        (
            "name: it, table: s.t, expect: deny, user: u",
            "cases[0].user: this field has no effect together with table",
        ),
        ("name: it, table: s.t, expect: deny", "cases[0].table: the table is not defined in the file"),
        (f"{ASK}, resource: orders", "cases[0].resource: The resource is not in the form KIND:NAME"),
        (f"{ASK}, resource: tabel:s.t", "cases[0].resource: "),
        (f"{ASK}, resource: column:s.t", "cases[0].resource: The column name has no table"),
        (f"{ASK}, resource: storage:lake", "cases[0].resource: "),
        (f"{ASK}, resource: key:k", "cases[0].access: A key has no access type 'select'"),
        (f"{ASK}, resource: table:s.t, groups: g", "cases[0].groups: expected a list"),
        (f"{ASK}, resource: table:s.t, groups: []", "cases[0].groups: the list is empty"),
        (
            f"{ASK}, resource: table:s.t, mask: {{type: none}}",
            "cases[0].mask: mask requires access: select",
        ),
        (f"{ASK}, resource: column:s.t/c, mask: {{type: HASH}}", "cases[0].mask.type: 'HASH' is not one of"),
        (f"{ASK}, resource: column:s.t/c, mask: {{type: MASK_NONE}}", "'MASK_NONE' is not one of"),
        (
            f"{ASK}, resource: column:s.t/c, mask: {{type: none, policy: p}}",
            "policy is not allowed",
        ),
        (f"{ASK}, resource: database:s, rows: all", "cases[0].rows: rows requires access: select"),
        (
            f"{ASK}, resource: database:s, through: process",
            "cases[0].through: only tables and columns are read through something",
        ),
        (f"{ASK}, resource: table:s.t, because: {{}}", "cases[0].because: the object is empty"),
        (
            f"{ASK}, resource: table:s.t, because: {{reason: x}}",
            "cases[0].because.reason: unknown field",
        ),
        (f"{ASK}, resource: table:s.t, at: tomorrow", "cases[0].at: the value is not a time"),
        (f"{ASK}, resource: table:s.t, at: '0001-01-02T00:00+14:00'", "cases[0].at: the value is not a time"),
        (f"{ASK}, resource: table:s.t, at: '9999-12-30T23:59-14:00'", "cases[0].at: the value is not a time"),
        (f"{ASK}, resource: table:s.t, at: '2030-01-31T12:00'", "cases[0].at: the time has no time zone"),
        (f"{RUN}, sql: x, database: s..t", "cases[0].database: "),
        (f"{RUN.replace('spark', 'trino')}, sql: x", "cases[0].dialect: 'trino' is not one of spark, hive"),
        (f"{RUN.replace('deny', 'refuse')}, sql: x", "cases[0].expect: 'refuse' is not one of allow, deny"),
        (f"{ASK.replace('bob', 'b' * 300)}, resource: table:s.t", "cases[0].user: "),
        (
            f"{ASK.replace('it,', 'a::b,')}, resource: table:s.t",
            "cases[0].name: the name contains two colons",
        ),
        (f"{ASK.replace('deny', 'no')}, resource: table:s.t", "cases[0].expect: 'no' is not a string"),
    ],
)
def test_a_case_with_a_mistake_is_refused(case: str, what: str) -> None:
    assert what in refused_case(case)


def test_a_table_without_columns_cannot_be_checked_against_rules() -> None:
    found = refused_case("name: it, table: s.t, expect: deny", "tables: {s.t: {owner: o}}")
    assert "the columns of the table are unknown" in found


def test_names_of_cases_are_unique_and_their_number_is_bounded() -> None:
    case = f"  - {{{ASK}, resource: table:s.t}}\n"
    assert "line 3, column 5, cases[1]: another case has the name 'it'" in refused(f"cases:\n{case}{case}")
    many = "cases:\n" + "  - a\n" * (MAX_CASES + 1)
    assert f"but at most {MAX_CASES} are allowed" in refused(many)


def test_questions_and_reasons_are_shown_in_words() -> None:
    request, statement, table = (each.question for each in read(WHOLE).cases)
    assert str(request) == (
        "'bob' (groups g1, g2; roles r1) requests select on column sales.eu.orders.customer.email, "
        "owned by 'olga'"
    )
    assert str(statement) == "'bob' runs hive SQL: DROP TABLE t"
    assert str(table) == "create table sales.eu.orders"
    assert str(ExpectedReason(None, "p", None, "x")) == "policy 'p', detail 'x'"


def test_what_is_expected_of_a_reason_is_shown_part_by_part() -> None:
    whole = ExpectedReason("policy-allow", "p", "policyItems[0]", "grants")
    assert str(whole) == "rule 'policy-allow', policy 'p', item 'policyItems[0]', detail 'grants'"
    assert str(ExpectedReason(None, "p", None, None)) == "policy 'p'"


def test_a_table_is_told_to_statements_whole() -> None:
    tables = read(WHOLE).tables
    orders, bare, placed = (tables[TableName(space, name)] for space, name in (
        (("sales", "eu"), "orders"), (("sales",), "bare"), (("sales",), "placed")))  # fmt: skip
    assert orders.for_statements() == TableFacts(
        owner="olga",
        columns=("id", "customer"),
        nested=("customer.email", "customer.address", "customer.address.city"),
        leaves=orders.for_rules().columns,
        allowed=AllowList.parse("s3://lake/orders,s3://x/y"),
        spec=EncryptionSpec.parse({"encryption.key-id": "k1"}, catalog_master_key_id="k0"),
        file_format=FileFormat.PARQUET,
        location=Location.parse("s3://lake/orders"),
    )
    plain = EncryptionSpec.parse({}, catalog_master_key_id="k0")
    assert bare.for_statements() == TableFacts("olga", spec=plain)
    here = Location.parse("s3://lake/placed")
    assert placed.for_statements() == TableFacts(
        None, allowed=AllowList.of([here]), spec=plain, location=here
    )
    rules = orders.for_rules()
    assert (rules.database, rules.table, rules.spec) == ("sales.eu", "orders", orders.spec)
    assert [each.name for each in rules.columns] == ["id", "customer.email", "customer.address.city"]
    assert bare.for_rules().columns == ()


def test_a_property_that_governs_no_table_is_refused() -> None:
    name = TableName(("s",), "t")
    with pytest.raises(PropertyInvalid) as caught:
        FixtureTable.of(
            name, owner=None, columns=None, location=None, properties={"o" * 81: ""}, master_key=None
        )
    assert str(caught.value) == (
        f"The property {'o' * 80!r} is not a governed table property."
        " [rule=governed-property] Omit the property."
    )
