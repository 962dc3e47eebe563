"""What an answer hangs on beside the statement: owners, policies, names, what came before; and its words."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from sqlglot import exp
from sqlglot.errors import ParseError, SqlglotError

from policy.decision import Reason
from policy.encryption.specification import EncryptionSpec
from policy.identifiers import TableName
from policy.location.allow_list import AllowList
from policy.location.location import Location
from policy.ranger import PolicySet
from policy.sql_lint import Dialect, LintContext, TableFacts, lexer, queries
from policy.sql_lint.denials import Refusal
from policy.sql_lint.problems import Problem
from policy.sql_lint.queries import MAX_PARENTHESES, MAX_TOKENS
from policy.sql_lint.query_nodes import is_known
from tests.support.ddl import ANN, BOB, answers, context, needs, rule, the_answer
from tests.support.lake import policy, tables
from tests.support.vectors import each_row

HOME = Location.parse("s3://lake/s/t-1")
FACTS = TableFacts(
    owner=ANN,
    columns=("id", "person"),
    nested=("person.name", "person.ssn"),
    allowed=AllowList.of([HOME]),
    spec=EncryptionSpec.parse({}, catalog_master_key_id=None),
    location=HOME,
    default_location=True,
)
ASK = "Ask an administrator for a policy that grants it."


def knowing(facts: TableFacts, user: str, *policies: dict[str, Any]) -> LintContext:
    """A context in which there is one table, `s.t`, and no policies but these, if there are any."""
    there = TableName(("s",), "t")
    known = context(user, known=lambda name: facts if name == there else None)
    if not policies:
        return known
    return replace(known, policies=PolicySet.parse({"p.json": json.dumps({"policies": policies})}))


def on_column(users: str, access: str = "select") -> dict[str, Any]:
    resources = {"database": ["s"], "table": ["t"], "column": ["id"]}
    return policy("column", resources, {users: [access]})


def test_a_denial_by_policies_says_whom_to_ask() -> None:
    denied = the_answer("DROP TABLE lake.s.t", context(BOB, owner=ANN))
    assert (rule(denied), denied.hint) == ("policy-no-match", ASK)
    granted = the_answer("DROP TABLE lake.s.t", context(BOB, owner=BOB))
    assert granted.decision.allowed and granted.hint is None and needs(granted) == ["drop table s.t"]


def test_a_statement_that_asks_for_nothing_is_allowed() -> None:
    answer = the_answer("SELECT 1 AS a")
    assert answer.decision.reasons == (Reason("nothing-asked", "The statement requires no privilege."),)
    assert (answer.needed, answer.hint) == ((), None)


@each_row(("user", "allowed"), [(ANN, True), (BOB, False)])
def test_a_column_may_be_granted_to_the_owner_of_its_table(user: str, allowed: bool) -> None:
    for sql in ("SELECT id FROM lake.s.t", "DESCRIBE TABLE lake.s.t"):
        answer = the_answer(sql, knowing(FACTS, user, on_column("{OWNER}")))
        assert answer.decision.allowed is allowed, sql


@each_row("sql", ["DESCRIBE TABLE lake.s.t", "REFRESH TABLE lake.s.t"])
def test_who_owns_a_table_that_is_looked_at_counts(sql: str) -> None:
    denied = {"denyPolicyItems": [{"users": ["{OWNER}"], "accesses": [{"type": "all"}]}]}
    for_all = policy("all", tables("*"), {BOB: ["all"]})
    others = policy("others", tables("*"), {}, **denied)
    unknown, other, own = (context(BOB, owner=owner) for owner in (None, ANN, BOB))
    assert [the_answer(sql, each).decision.allowed for each in (unknown, other, own)] == [False, False, True]
    told = [context(BOB, for_all, others, owner=owner) for owner in (None, ANN, BOB)]
    assert [the_answer(sql, each).decision.allowed for each in told] == [False, True, False]


def test_a_mask_and_a_row_filter_may_be_the_owners() -> None:
    shown = {"users": ["{OWNER}"], "accesses": [{"type": "select", "isAllowed": True}]}
    mask = {
        **on_column("nobody"),
        "policyType": 1,
        "policyItems": [],
        "dataMaskPolicyItems": [{**shown, "dataMaskInfo": {"dataMaskType": "MASK_NULL"}}],
    }
    rows = {
        **policy("rows", {"database": ["s"], "table": ["t"]}, {}),
        "policyType": 2,
        "rowFilterPolicyItems": [{**shown, "rowFilterInfo": {"filterExpr": "id = 1"}}],
    }
    granted = policy("granted", tables("*"), {ANN: ["all"], BOB: ["all"]})
    for made, told in (
        (mask, "Policy 'column' masks the column 'id': MASK_NULL."),
        (rows, "Policy 'rows' filters the rows of s.t: id = 1"),
    ):
        read, changed = "SELECT id FROM lake.s.t", "UPDATE lake.s.t SET id = 2 WHERE id = 1"
        owners = the_answer(read, knowing(FACTS, ANN, granted, made))
        assert owners.decision.allowed and told in owners.notes
        assert not the_answer(changed, knowing(FACTS, ANN, granted, made)).decision.allowed
        for statement in (read, changed):
            others = the_answer(statement, knowing(FACTS, BOB, granted, made))
            assert others.decision.allowed and told not in others.notes


def test_a_nested_field_needs_no_policy_of_its_own() -> None:
    answer = the_answer("SELECT person.ssn FROM lake.s.t", knowing(FACTS, BOB, policy(
        "person", {"database": ["s"], "table": ["t"], "column": ["person"]}, {BOB: ["select"]})))  # fmt: skip
    assert answer.decision.allowed
    assert Reason("nested-field", "No policy denies the field.") in answer.decision.reasons


def test_what_lies_in_the_tables_own_location_needs_no_right() -> None:
    inside, outside = (
        the_answer(
            f"ALTER TABLE lake.s.t SET TBLPROPERTIES ('write.data.path'='{path}')", knowing(FACTS, ANN)
        )
        for path in ("s3://lake/s/t-1/data", "s3://lake/s/t-10")
    )
    assert needs(inside) == ["alter table s.t"]
    assert needs(outside) == ["alter table s.t", "rwstorage storage-url s3://lake/s/t-10"]


NO_DATABASE = (
    "no-database",
    "The name has no namespace, and the current namespace is unknown.",
    "Add the namespace, pass --database, or begin the script with USE.",
)


@each_row(
    ("sql", "database", "told"),
    [
        ("DROP TABLE t", None, NO_DATABASE),
        ("SHOW TABLES", None, NO_DATABASE),
        ("DROP TABLE t", "a.b", "drop table a.b.t"),
        ("DROP TABLE lake.c.t", None, "drop table c.t"),
        ("ALTER TABLE lake.c.d.t RENAME TO u", None, "alter table c.d.t"),
        ("USE lake; DROP TABLE t", "a", (
            "namespace", "A table must be in a namespace.", "Add the namespace.")),
        ("DROP TABLE global_temp", "a", "drop table a.global_temp"),
        ("DROP TABLE lake", "a", (
            "catalog-name", "'lake' differs in letter case from the catalog's name.", "Write lake.")),
        ("USE global_temp", "a", (
            "other-catalog",
            "'global_temp' is outside of the catalog lake, which lint cannot check.",
            "Begin the name with lake.",
        )),
    ],
)  # fmt: skip
def test_names_are_those_of_the_current_namespace(
    sql: str, database: str | None, told: str | tuple[str, str, str]
) -> None:
    answer = answers(sql, context(database=database))[-1]
    if isinstance(told, str):
        assert answer.decision.allowed and needs(answer)[0] == told
    else:
        assert (rule(answer), answer.decision.explanation, answer.hint) == told


def test_a_new_name_has_the_namespaces_that_it_says() -> None:
    for target, made in (("u", "a.b.u"), ("c.u", "c.u"), ("c.d.e.u", "c.d.e.u")):
        renamed = answers(f"ALTER TABLE lake.a.b.t RENAME TO {target}; DROP TABLE lake.{made}")
        assert [each.decision.allowed for each in renamed] == [True, True]
        assert f"create table {made}" in needs(renamed[0]), needs(renamed[0])
    other = answers("ALTER TABLE lake.s.t RENAME TO u; CREATE TABLE lake.s.t (a INT)", knowing(FACTS, ANN))
    assert [each.decision.allowed for each in other] == [True, True]


def test_a_namespace_that_is_made_is_not_the_current_one() -> None:
    made = answers("CREATE NAMESPACE lake.x; DROP TABLE t; USE lake.x; DROP TABLE t")
    assert [needs(each) for each in made[1::2]] == [["drop table db.t"], ["drop table x.t"]]


def test_a_schema_and_a_hint_of_a_join_have_one_place() -> None:
    for kind, around in ((exp.Schema, exp.QueryTransform), (exp.JoinHint, exp.Hint)):
        there, elsewhere = kind(), kind()
        around(expressions=[there])
        exp.Tuple(expressions=[elsewhere])
        assert is_known(there) and not is_known(elsewhere) and not is_known(kind())
    assert not is_known(exp.Command()) and is_known(exp.Add())


SIMPLER = "Simplify the query, or ask an administrator to review it."
NESTED = "The query is too long, or nested too deeply."


@each_row(
    ("sql", "told"),
    [
        ("SELECT @a FROM s.t", "The operator @ is not supported in a query."),
        ("SELECT ? FROM s.t", "The operator ? is not supported in a query."),
        ("FROM s.t |> SELECT a", "The operator | is not supported in a query."),
        (f"SELECT {'(' * (MAX_PARENTHESES + 1)}1{')' * (MAX_PARENTHESES + 1)} AS a", NESTED),
        (f"SELECT {'1, ' * (MAX_TOKENS // 2)}1", NESTED),
        ("SELECT a FROM s.t WHERE", None),
    ],
)
def test_a_query_that_is_not_understood_says_why(sql: str, told: str | None) -> None:
    answer = the_answer(sql)
    assert rule(answer) == "query" and answer.hint == SIMPLER
    assert told is None or answer.decision.explanation == told


def test_a_query_may_be_as_deep_and_as_long_as_the_bounds() -> None:
    for inside in (f"{'(' * MAX_PARENTHESES}1{')' * MAX_PARENTHESES}", f"{'1, ' * (MAX_TOKENS // 2 - 1)}1"):
        assert NESTED not in the_answer(f"SELECT {inside}").decision.explanation


@pytest.mark.parametrize(
    ("written", "lost"),
    [
        ("SELECT 'x'", "a"),
        ("SELECT a FROM t WHERE b = 'y'", "x"),
        ("SELECT a FROM t", "b"),
        ("SELECT 1", "a"),
    ],
)
def test_what_the_parser_of_queries_passes_over_is_told(
    monkeypatch: pytest.MonkeyPatch, written: str, lost: str
) -> None:
    monkeypatch.setattr(exp.Select, "sql", lambda *_, **__: written)
    answer = the_answer("SELECT a FROM t WHERE b = 'x'")
    assert (rule(answer), answer.hint) == ("query", SIMPLER)
    assert answer.decision.explanation == f"The query parser ignores {lost!r}."


@pytest.mark.parametrize(
    ("written", "why"),
    [
        ("SELECT a FROM t WHERE b = 'x' OR b = 'x'", "The query parser ignores 'a'."),
        ("SELECT a, a FROM t WHERE b = 'x' OR b", "The query parser ignores 'x'."),
        ("SELECT 'x", "The query cannot be parsed: The string is not closed."),
    ],
)
def test_each_name_and_string_counts_as_often_as_it_stands_there(
    monkeypatch: pytest.MonkeyPatch, written: str, why: str
) -> None:
    monkeypatch.setattr(exp.Select, "sql", lambda *_, **__: written)
    answer = the_answer("SELECT a, a FROM t WHERE b = 'x' OR b = 'x'")
    assert (rule(answer), answer.decision.explanation, answer.hint) == ("query", why, SIMPLER)


def test_what_is_told_of_a_query_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exp.Select, "sql", lambda *_, **__: "SELECT 1")
    told = the_answer(f"SELECT {'a' * 90}").decision.explanation
    assert told == f"The query parser ignores '{'a' * 60}'."


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (SqlglotError("x"), "The query cannot be parsed: unknown syntax."),
        (
            ParseError("x", errors=[{"highlight": "y" * 90}]),
            f"The query cannot be parsed: at '{'y' * 60}'.",
        ),
        (RecursionError("x"), "The query is nested too deeply."),
    ],
)
def test_where_the_parser_of_queries_stops_is_told(
    monkeypatch: pytest.MonkeyPatch, error: Exception, why: str
) -> None:
    def stops(*_: object, **__: object) -> str:
        raise error

    monkeypatch.setattr(exp.Select, "sql", stops)
    answer = the_answer("SELECT a FROM t")
    assert (rule(answer), answer.decision.explanation, answer.hint) == ("query", why, SIMPLER)


def test_brackets_that_are_closed_do_not_nest() -> None:
    many = MAX_PARENTHESES + 1
    for one in ("(1)", "f[1]", "f[(1)]"):
        told = the_answer(f"SELECT {', '.join([one] * many)}").decision.explanation
        assert NESTED not in told
    for begin, end in (("(", ")"), ("f[", "]")):
        assert the_answer(f"SELECT {begin * many}1{end * many}").decision.explanation == NESTED


def test_operators_in_a_row_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queries, "MAX_LEVELS", 20)
    for terms, deep in ((12, False), (30, True)):
        answer = the_answer(f"SELECT {' + '.join(['1'] * terms)} AS a")
        assert answer.decision.allowed is not deep
    assert (answer.decision.explanation, answer.hint) == ("The query is nested too deeply.", SIMPLER)


@each_row("dialect", ["spark", "hive"])
@each_row("number", ["1", "1L", "2S", "1.5", "2E5", "1BD", "3D"])
def test_a_number_is_no_name(dialect: Dialect, number: str) -> None:
    assert the_answer("SELECT a FROM s.t WHERE b > 0".replace("0", number), dialect=dialect).decision.allowed


def test_a_script_has_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lexer, "MAX_CHARACTERS", 20)
    monkeypatch.setattr(lexer, "MAX_TOKENS", 4)
    assert answers(" " * 20) == [] and answers("SELECT 1 AS a")[0].decision.allowed
    for text, place, told in (
        (" " * 21, (1, 1), "The script has more than 20 characters."),
        ("SELECT 1,\n2,3", (2, 2), "The script has more than 4 tokens."),
    ):
        answer = answers(text)[-1]
        assert (rule(answer), answer.decision.explanation, answer.hint) == (
            "too-long",
            told,
            "Split the script.",
        )
        assert (answer.line, answer.column) == place


def test_a_refusal_and_a_problem_are_what_they_say() -> None:
    problem, refusal = Problem(3, "rule", "It is wrong.", "Mend it."), Refusal("rule", "No.", "Ask.")
    assert (str(problem), problem.at, problem.rule, problem.hint) == ("It is wrong.", 3, "rule", "Mend it.")
    assert (str(refusal), refusal.rule, refusal.message, refusal.hint) == ("No.", "rule", "No.", "Ask.")


@each_row(
    ("sql", "asked"),
    [
        ("SELECT PERSON.SSN FROM lake.s.t", {"PERSON", "PERSON.SSN", "person.ssn"}),
        ("SELECT person FROM lake.s.t", {"person", "person.name", "person.ssn"}),
        ("SELECT person.name FROM lake.s.t", {"person", "person.name"}),
        ("SELECT person.other FROM lake.s.t", {"person", "person.other", "person.name", "person.ssn"}),
        ("SELECT id FROM lake.s.t", {"id"}),
        ("SELECT ID FROM lake.s.t", {"ID"}),
    ],
)
def test_what_is_read_with_a_column(sql: str, asked: set[str]) -> None:
    mixed = replace(FACTS, nested=("Person.Name", "person.SSN"), columns=("Id", "Person"))
    for facts in (FACTS, mixed):
        found = needs(the_answer(sql, knowing(facts, ANN)))
        assert found[0] == "select table s.t"
        assert {each.lower() for each in found[1:]} == {f"select column s.t.{each}".lower() for each in asked}


@each_row(
    "sql",
    [
        "INSERT INTO lake.s.t SELECT 1 AS a",
        "ALTER TABLE lake.s.t ADD COLUMN more INT",
        "ALTER TABLE lake.s.t SET TBLPROPERTIES ('encryption.mechanism'='plaintext', 'a'='b')",
        "CALL lake.system.rewrap_keys('s.t')",
    ],
)
def test_whose_table_it_is_counts_for_a_change(sql: str) -> None:
    """Bob may do with what he owns what he likes."""
    keys = policy("bobs keys", {"key": ["*"]}, {BOB: ["use", "rotate"]})
    spec = EncryptionSpec.parse({"encryption.mechanism": "envelope"}, catalog_master_key_id="k")
    for owner, allowed in ((BOB, True), (ANN, False)):
        facts = replace(FACTS, owner=owner, spec=spec)
        judged_by = context(BOB, keys, known=lambda _, facts=facts: facts)
        assert the_answer(sql, judged_by).decision.allowed is allowed


def test_a_property_that_only_a_new_table_may_not_have() -> None:
    changed = the_answer("ALTER TABLE lake.s.t SET TBLPROPERTIES ('format-version'='3')")
    assert needs(changed) == ["alter table s.t"]
    made = the_answer(f"CREATE TABLE lake.s.n (a INT) TBLPROPERTIES ('format-version'='{'3' * 30}')")
    assert made.decision.explanation == f"Format version '{'3' * 20}' is not supported."
    assert the_answer("CREATE TABLE lake.s.n (a INT) TBLPROPERTIES ('format-version'='1')").decision.allowed
    filled = the_answer("CREATE TABLE lake.s.n TBLPROPERTIES ('format-version'='1') AS SELECT 1 AS a")
    assert filled.decision.explanation == "Format version '1' is not supported."


def test_columns_with_keys_outlive_a_change_of_columns() -> None:
    spec = EncryptionSpec.parse({"encryption.columns": "k:id"}, catalog_master_key_id="main")
    judged_by = knowing(replace(FACTS, spec=spec), ANN)
    assumed = "the columns and their types allow the change"
    assert the_answer("ALTER TABLE lake.s.t ADD COLUMN a INT", judged_by).assumed == (assumed,)
    replaced = the_answer("ALTER TABLE lake.s.t REPLACE COLUMNS (id INT)", judged_by)
    assert replaced.assumed == (assumed, "at least one encrypted column remains")


@each_row(
    ("sql", "code"),
    [
        ("SELECT `count`(id) AS a FROM lake.s.t", None),
        ("SELECT `my f`(id) AS a FROM lake.s.t", "my f"),
        ("SELECT s.`f``g`(id) AS a FROM lake.s.t", "s.f`g"),
    ],
)
def test_a_function_in_backticks_is_the_one_without(sql: str, code: str | None) -> None:
    answer = the_answer(sql)
    if code is None:
        assert answer.decision.allowed
    else:
        told = f"{code} runs code in the engine, and the engine's name is unknown."
        assert answer.decision.explanation == told


@each_row("user", [ANN, BOB])
def test_whose_column_is_read_counts_only_where_it_is_known(user: str) -> None:
    """A policy for owners grants where the user owns the table, not where the owner is unknown."""
    owners = on_column("{OWNER}")
    nobodys = replace(FACTS, owner=None)
    for facts, allowed in ((replace(FACTS, owner=user), True), (nobodys, False)):
        answer = the_answer("SELECT id FROM lake.s.t", knowing(facts, user, owners))
        assert answer.decision.allowed is allowed
