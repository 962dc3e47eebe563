"""What lint does not know is not taken as given; what a script does is known to what follows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from policy.encryption.specification import EncryptionSpec
from policy.errors import RequestInvalid
from policy.identifiers import TableName
from policy.location.allow_list import AllowList
from policy.location.location import Location
from policy.sql_lint import LintContext, TableFacts
from policy.sql_lint.functions import BUILT_IN
from tests.support.ddl import ANN, BOB, KEY, answers, context, needs, rule, the_answer
from tests.support.lake import policy, tables
from tests.support.vectors import each_row

PLAIN = EncryptionSpec.parse({}, catalog_master_key_id=KEY)
ENCRYPTED = EncryptionSpec.parse({"encryption.mechanism": "envelope"}, catalog_master_key_id=KEY)
HOME = Location.parse("s3://lake/s/t-1")


def _knowing(facts: TableFacts, user: str = ANN) -> LintContext:
    """A context in which there is one table, `s.t`."""
    there = TableName(("s",), "t")
    return context(user, known=lambda name: facts if name == there else None)


#: Ann is denied what a policy is about.
_DENY: Final = {"denyPolicyItems": [{"users": [ANN], "accesses": [{"type": "rwstorage"}]}]}


def _facts(spec: EncryptionSpec = PLAIN) -> TableFacts:
    return TableFacts(
        owner=ANN,
        columns=("id", "person"),
        nested=("person.name", "person.ssn"),
        allowed=AllowList.of([HOME]),
        spec=spec,
        location=HOME,
        default_location=True,
    )


# Owners


def test_an_unknown_owner_might_be_anybody() -> None:
    assert rule(the_answer("DROP TABLE lake.s.t", context(BOB))) == "policy-no-match"
    assert the_answer("DROP TABLE lake.s.t", context(BOB, owner=BOB)).decision.allowed
    assert not the_answer("DROP TABLE lake.s.t", context(BOB, owner=ANN)).decision.allowed


def test_a_policy_that_denies_owners_counts_where_the_owner_is_unknown() -> None:
    item = [{"users": ["{OWNER}"], "accesses": [{"type": "drop", "isAllowed": True}]}]
    denied = policy("keep", tables("bobs"), {}, denyPolicyItems=item)
    assert rule(the_answer("DROP TABLE lake.bobs.t", context(BOB, denied))) == "policy-deny"
    assert the_answer("DROP TABLE lake.bobs.t", context(BOB, denied, owner=ANN)).decision.allowed


def test_locations_are_those_of_the_tables_owner() -> None:
    denied = policy("homes", {"storage-type": ["*"], "storage-url": ["s3://homes/{OWNER}*"]}, {}, **_DENY)
    create = "CREATE TABLE db.t (id INT) LOCATION 's3://homes/{}/t'"
    alter = "ALTER TABLE db.t SET TBLPROPERTIES ('read.allowed.data.paths' = 's3://homes/{}/t')"
    assert rule(the_answer(create.format(ANN), context(ANN, denied))) == "policy-deny"
    assert the_answer(create.format(BOB), context(ANN, denied)).decision.allowed
    for owner, decided in ((BOB, False), (ANN, True), (None, True)):
        facts = replace(_facts(), owner=owner)
        judged_by = context(ANN, denied, known=lambda _, facts=facts: facts)
        assert the_answer(alter.format(BOB), judged_by).decision.allowed is decided
    assert rule(the_answer(alter.format(ANN), context(ANN, denied))) == "policy-deny"


def test_who_makes_a_table_owns_it() -> None:
    made, altered, dropped = answers(
        "CREATE TABLE lake.shared.t (id INT); ALTER TABLE lake.shared.t SET TBLPROPERTIES ('a'='b');"
        "DROP TABLE lake.shared.t",
        context(BOB),
    )
    assert made.decision.allowed and altered.decision.allowed and dropped.decision.allowed


@each_row(
    "first",
    [
        "EXPLAIN CREATE TABLE lake.shared.t (id INT)",
        "CREATE TABLE IF NOT EXISTS lake.shared.t (id INT)",
        "CREATE TABLE lake.shared.t (id INT) LOCATION 's3://elsewhere/t'",
        "CREATE TABLE lake.shared.t (id INT); DROP TABLE lake.shared.t",
        "CREATE TABLE lake.shared.t (id INT); ALTER TABLE lake.shared.t RENAME TO bobs.t",
    ],
)
def test_a_table_that_may_be_another_ones_is_not_owned(first: str) -> None:
    assert not answers(f"{first}; DROP TABLE lake.shared.t", context(BOB))[-1].decision.allowed


def test_a_renamed_table_keeps_its_owner() -> None:
    *_, dropped = answers(
        "CREATE TABLE lake.shared.t (id INT); ALTER TABLE lake.shared.t RENAME TO u;DROP TABLE lake.shared.u",
        context(BOB),
    )
    assert dropped.decision.allowed


def test_a_table_that_is_known_to_exist_is_not_made() -> None:
    known = _knowing(_facts())
    assert rule(the_answer("CREATE TABLE lake.s.t (id INT)", known)) == "table-exists"
    dropped, made = answers("DROP TABLE lake.s.t; CREATE TABLE lake.s.t (id INT)", known)
    assert dropped.decision.allowed and made.decision.allowed


# Names


def test_the_current_namespace_is_that_of_the_last_use() -> None:
    sql = (
        "DROP TABLE t; USE lake.a; DROP TABLE t; USE b.c; DROP TABLE t; "
        "DROP TABLE lake.d.t; USE lake; DROP TABLE t"
    )
    told = [needs(each) for each in answers(sql) if each.decision.allowed]
    assert told[0::2] == [["drop table db.t"], ["drop table a.t"], ["drop table b.c.t"], []]
    assert rule(answers(sql)[-1]) == "namespace"


@each_row("use", ["USE", "USE lake.a b", "USE spark_catalog", "SET CATALOG x"])
def test_after_a_use_that_is_denied_the_current_namespace_is_unknown(use: str) -> None:
    _, bare, short, full, again = answers(
        f"{use}; DROP TABLE t; DROP TABLE s.t; DROP TABLE lake.s.t; USE lake.s; DROP TABLE t"
    )[:5]
    assert rule(bare) == rule(short) == "current-unknown"
    assert full.decision.allowed and again.decision.allowed
    assert answers(f"{use}; USE lake.s; DROP TABLE t")[-1].decision.allowed


def test_what_carries_other_statements_may_have_changed_the_namespace_and_made_views() -> None:
    _, bare, short, full = answers(
        "EXECUTE IMMEDIATE 'USE x'; DROP TABLE t; DROP TABLE s.t; DROP TABLE lake.s.t"
    )
    assert (rule(bare), rule(short)) == ("view-unknown", "current-unknown")
    assert full.decision.allowed


@each_row(
    "view",
    [
        "CREATE TEMPORARY VIEW t USING parquet OPTIONS (path 's3://lake/x')",
        "CREATE OR REPLACE TEMP VIEW t AS SELECT a FROM spark_catalog.db.t",
        "CREATE TEMP VIEW t AS SELECT a FROM s.x; ALTER VIEW t AS SELECT a FROM s.y",
        "CACHE TABLE t AS SELECT a FROM s.x; USE lake.db",
        "EXECUTE IMMEDIATE 'CREATE TEMP VIEW t AS SELECT a FROM s.x'; USE lake.db",
        "BEGIN CREATE TEMP VIEW t AS SELECT a FROM s.x; END; USE lake.db",
        "EXECUTE IMMEDIATE 'CREATE TEMP VIEW t AS SELECT a FROM s.x'; USE spark_catalog; USE lake.db",
    ],
)
def test_after_a_denied_view_a_bare_name_is_not_taken_for_a_table(view: str) -> None:
    *_, bare, full = answers("; ".join([view, "SELECT a FROM t", "SELECT a FROM lake.db.t"]))
    assert rule(bare) == "view-unknown"
    assert full.decision.allowed


def test_a_temporary_view_is_not_dropped_like_a_table() -> None:
    answer = answers("CREATE TEMP VIEW t AS SELECT a FROM s.x; DROP TABLE T; DROP TABLE db.t")
    assert rule(answer[1]) == "view"
    assert answer[2].decision.allowed


def test_without_a_current_namespace_a_bare_name_is_denied() -> None:
    assert rule(the_answer("DROP TABLE t", context(database=None))) == "no-database"
    with pytest.raises(RequestInvalid):
        answers("DROP TABLE t", context(database="a..b"))


@each_row(
    ("name", "expected"),
    [
        ("LAKE.s.t", "catalog-name"),
        ("spark_catalog.s.t", "other-catalog"),
        ("Spark_Catalog.s.t", "other-catalog"),
        ("global_temp.t", "other-catalog"),
        ("lake.t", "namespace"),
        ("parquet.`s3://lake/f`", "by-path"),
        ("CSV.f", "by-path"),
        ("`lake.s.t`", "identifier"),
    ],
)
def test_names_that_lead_elsewhere(name: str, expected: str) -> None:
    for statement in ("DROP TABLE NAME", "INSERT INTO NAME VALUES (1)", "SELECT a FROM NAME"):
        assert rule(the_answer(statement.replace("NAME", name))) == expected


def test_hive_folds_names() -> None:
    assert needs(the_answer("DROP TABLE Sales.Orders", dialect="hive")) == ["drop table sales.orders"]
    assert rule(the_answer("DROP TABLE lake.sales.orders", dialect="hive")) == "name"


def test_new_names_are_below_the_catalog() -> None:
    sql = "ALTER TABLE lake.a.t RENAME TO {}"
    assert needs(the_answer(sql.format("u")))[1] == "create table a.u"
    assert needs(the_answer(sql.format("b.u")))[1] == "create table b.u"
    assert needs(the_answer(sql.format("lake.u")))[1] == "create table lake.u"
    assert rule(the_answer(sql.format("lake.b.u"))) == "identifier"


# Columns


def test_all_columns_are_read_where_they_are_known() -> None:
    assert rule(the_answer("SELECT * FROM lake.s.t")) == "columns-unknown"
    answer = the_answer("SELECT * FROM lake.s.t", _knowing(_facts()))
    assert needs(answer)[1:] == [
        "select column s.t.id",
        "select column s.t.person",
        "select column s.t.person.name",
        "select column s.t.person.ssn",
    ]
    *_, made = answers("CREATE TABLE lake.s.u (a INT, b STRING); SELECT count(*) FROM lake.s.u")
    assert needs(made)[1:] == ["select column s.u.a", "select column s.u.b"]
    *_, altered = answers(
        "CREATE TABLE lake.s.u AS SELECT 1 AS a; ALTER TABLE lake.s.u ADD COLUMN b INT;SELECT * FROM lake.s.u"
    )
    assert needs(altered)[1:] == ["select column s.u.a", "select column s.u.b"]


def test_a_column_without_a_table_is_asked_for_where_it_may_be() -> None:
    sql = "SELECT x FROM lake.s.t JOIN lake.s.u ON t.id = u.id"
    assert {"select column s.t.x", "select column s.u.x"} <= set(needs(the_answer(sql)))
    assert "select column s.t.x" not in needs(the_answer(sql, _knowing(_facts())))
    assert rule(the_answer("SELECT x FROM lake.s.t", _knowing(_facts()))) == "column"


def test_a_field_may_not_be_denied_and_needs_no_grant_of_its_own() -> None:
    granted = policy("p", {"database": ["s"], "table": ["t"], "column": ["person"]}, {BOB: ["select"]})
    loads = policy("l", {"database": ["s"], "table": ["t"]}, {BOB: ["select"]})
    item = [{"users": [BOB], "accesses": [{"type": "select", "isAllowed": True}]}]
    path = {"database": ["s"], "table": ["t"], "column": ["person.ssn"]}
    denied = policy("d", path, {}, denyPolicyItems=item)
    sql = "SELECT person.ssn FROM lake.s.t"
    assert the_answer(sql, context(BOB, granted, loads)).decision.allowed
    assert rule(the_answer(sql, context(BOB, granted, loads, denied))) == "policy-deny"


def test_a_mask_is_noted_and_in_the_way_of_changes() -> None:
    mask = {
        "name": "m",
        "service": "lake",
        "policyType": 1,
        "resources": {n: {"values": [v]} for n, v in (("database", "s"), ("table", "t"), ("column", "id"))},
        "dataMaskPolicyItems": [
            {
                "users": [ANN],
                "accesses": [{"type": "select", "isAllowed": True}],
                "dataMaskInfo": {"dataMaskType": "MASK_NULL"},
            }
        ],
    }
    told = "Policy 'm' masks the column 'id': MASK_NULL."
    masked = the_answer("SELECT id FROM lake.s.t", context(ANN, mask))
    other = the_answer("SELECT other FROM lake.s.t", context(ANN, mask))
    assert masked.decision.allowed and told in masked.notes
    assert other.decision.allowed and told not in other.notes
    assert rule(the_answer("SELECT id FROM s.t", context(ANN, mask), "hive")) == "mask"
    known = context(ANN, mask, known=lambda _: TableFacts(ANN, columns=("id", "other")))
    assert rule(the_answer("CALL lake.system.create_changelog_view('s.t', 'w')", known)) == "mask"


def test_temporary_views_read_what_their_query_reads() -> None:
    made, read, dropped, gone = answers(
        "CREATE OR REPLACE TEMP VIEW v AS SELECT secret FROM t; SELECT x FROM v; DROP VIEW v; SELECT x FROM v"
    )
    assert needs(made) == needs(read) == ["select table db.t", "select column db.t.secret"]
    assert dropped.decision.allowed
    assert needs(gone) == ["select table db.v", "select column db.v.x"]
    moved = answers("CREATE TEMP VIEW v AS SELECT a FROM t; USE lake.other; SELECT a FROM v")[-1]
    assert needs(moved) == ["select table db.t", "select column db.t.a"]


def test_permanent_views_read_what_their_query_reads() -> None:
    made, read, changed, again, renamed, both, dropped, gone = answers(
        "CREATE VIEW s.v AS SELECT secret FROM t; SELECT x FROM s.v; "
        "ALTER VIEW s.v AS SELECT a FROM u; SELECT x FROM lake.s.v; ALTER VIEW s.v RENAME TO w; "
        "SELECT x FROM s.w; DROP VIEW IF EXISTS s.w; SELECT x FROM s.w"
    )
    own = ["select table s.v", "select column s.v.x"]
    assert needs(made) == ["create table s.v", "select table db.t", "select column db.t.secret"]
    assert needs(read) == [*own, "select table db.t", "select column db.t.secret"]
    assert needs(changed) == ["alter table s.v", "select table db.u", "select column db.u.a"]
    assert needs(again) == [*own, "select table db.u", "select column db.u.a"]
    assert needs(renamed) == ["alter table s.v", "select table s.v", "create table s.w"]
    assert needs(both)[2:] == ["select table db.u", "select column db.u.a"]
    assert needs(dropped) == ["drop table s.w"]
    assert needs(gone) == ["select table s.w", "select column s.w.x"]


def test_a_view_that_may_exist_stays_its_owners() -> None:
    """BOB owns what he makes, and can do anything with that."""
    altering = policy("altering", tables("shared"), {BOB: ["alter"]})
    judged_by = context(BOB, altering)
    for create in ("CREATE OR REPLACE VIEW", "CREATE VIEW IF NOT EXISTS"):
        dropped = answers(f"{create} lake.shared.v AS SELECT 1 AS a; DROP VIEW lake.shared.v", judged_by)[-1]
        assert rule(dropped) == "policy-no-match", create
    made = "CREATE VIEW lake.shared.v AS SELECT 1 AS a; DROP VIEW lake.shared.v"
    again = made.replace("CREATE", "CREATE OR REPLACE")
    assert all(each.decision.allowed for each in answers(f"{made}; {again}", judged_by))
    assert answers(made, judged_by)[0].assumed == ("view shared.v does not exist",)


@each_row(
    ("statement", "needed"),
    [
        (
            "CREATE OR REPLACE VIEW v (a COMMENT 'x') COMMENT 'y' WITH SCHEMA TYPE EVOLUTION AS SELECT 1",
            "create alter",
        ),
        ("ALTER VIEW s.v SET TBLPROPERTIES ('a' = 'b')", "alter"),
        ("ALTER VIEW s.v UNSET TBLPROPERTIES IF EXISTS ('a')", "alter"),
        ("ALTER VIEW s.v WITH SCHEMA BINDING", "alter"),
        ("DROP VIEW v", "drop"),
    ],
)
def test_changes_of_views_are_changes_of_what_has_their_name(statement: str, needed: str) -> None:
    assert [each.split()[0] for each in needs(the_answer(statement))] == needed.split()


@each_row(
    ("statement", "denied"),
    [
        ("CREATE VIEW s.v TBLPROPERTIES ('View.x' = '1') AS SELECT 1 AS a", "view-property"),
        ("CREATE VIEW s.v COMMENT 'a' COMMENT 'b' AS SELECT 1 AS a", "syntax"),
        ("CREATE VIEW s.v DEFAULT COLLATION UNICODE AS SELECT 1 AS a", "syntax"),
        ("CREATE VIEW spark_catalog.s.v AS SELECT 1 AS a", "other-catalog"),
        ("CREATE TEMP VIEW v AS SELECT 1 AS a; ALTER VIEW v AS SELECT 2 AS a", "view"),
        ("CREATE VIEW s.v AS SELECT a FROM t; SELECT * FROM s.v", "columns-unknown"),
    ],
)
def test_views_that_lint_denies(statement: str, denied: str) -> None:
    assert rule(answers(statement)[-1]) == denied


# What governs


def test_dropping_protection_is_asked_for_where_it_may_be_there() -> None:
    sql = "ALTER TABLE lake.s.t SET TBLPROPERTIES ('encryption.mechanism'='plaintext')"
    assert needs(the_answer(sql)) == ["alter table s.t", "unprotect table s.t"]
    assert needs(the_answer(sql, _knowing(_facts(ENCRYPTED)))) == ["alter table s.t", "unprotect table s.t"]
    assert needs(the_answer(sql, _knowing(_facts()))) == ["alter table s.t"]


def test_what_is_allowed_already_is_not_asked_for_again() -> None:
    sql = f"ALTER TABLE lake.s.t SET TBLPROPERTIES ('read.allowed.data.paths'='{HOME}/data,s3://lake/other')"
    both = ["alter table s.t", "rwstorage storage-url s3://lake/other", f"rwstorage storage-url {HOME}/data"]
    assert needs(the_answer(sql)) == both
    assert needs(the_answer(sql, _knowing(_facts()))) == both[:2]


def test_the_list_goes_back_to_a_place_that_has_to_be_known() -> None:
    sql = "ALTER TABLE lake.s.t UNSET TBLPROPERTIES ('read.allowed.data.paths')"
    assert rule(the_answer(sql)) == "state-unknown"
    assert needs(the_answer(sql, _knowing(_facts()))) == ["alter table s.t"]
    elsewhere = replace(_facts(), allowed=AllowList.of([]), default_location=False)
    assert needs(the_answer(sql, _knowing(elsewhere))) == ["alter table s.t", f"rwstorage storage-url {HOME}"]


def test_rows_that_come_with_a_table_have_to_be_readable() -> None:
    sql = "CREATE TABLE lake.s.n TBLPROPERTIES ('read.allowed.data.paths'='{}') AS SELECT 1 AS a"
    judged_by = context(warehouse=Location.parse("s3://lake"))
    assert rule(the_answer(sql.format("s3://lake/other"), judged_by)) == "allowed-paths"
    assert the_answer(sql.format("s3://lake/s"), judged_by).decision.allowed
    assert "the location that the catalog chooses" in " ".join(the_answer(sql.format("s3://lake/s")).assumed)
    placed = sql.replace(" TBL", " LOCATION 's3://lake/n' TBL")
    assert rule(the_answer(placed.format("s3://lake/other"))) == "allowed-paths"


# Code


def test_code_is_asked_of_the_engine() -> None:
    grant = policy("code", {"engine": ["hub"]}, {ANN: ["code"]})
    for sql in (
        "ADD JAR s3://lake/x.jar",
        "CREATE TEMPORARY FUNCTION f AS 'com.X'",
        "ADD FILE x.py",
        "ADD ARCHIVE x.zip",
        "CREATE FUNCTION s.f AS 'com.X' USING JAR 's3://lake/x.jar'",
        "SELECT reflect('java.lang.System', 'exit', 1)",
        "SELECT java_method('java.lang.System', 'exit', 1)",
        "SELECT id FROM lake.s.t WHERE id IN (SELECT try_reflect('java.lang.System', 'exit', 1))",
        "SELECT from_avro(id, '\"int\"') FROM lake.s.t",
        "SELECT from_xml('<a/>', 'a INT', map('rowValidationXSDPath', 's3://lake/x.xsd'))",
        "SELECT xpath_string('<a/>', 'a')",
        "SELECT f(1)",
        "SELECT db.upper('a')",
        "SELECT TRANSFORM(a) USING 'cat' AS (b STRING) FROM lake.s.t",
    ):
        assert rule(the_answer(sql)) == "code"
        assert rule(the_answer(sql, context(engine="hub"))) == "policy-no-match"
        assert "code engine hub" in needs(the_answer(sql, context(ANN, grant, engine="hub")))
    for sql in ("SELECT upper('a')", "SELECT lake.system.bucket(2, 1)", "SELECT transform(array(1), x -> x)"):
        assert the_answer(sql).decision.allowed


def test_no_function_that_an_engine_refuses_counts_as_built_in() -> None:
    refused = Path(__file__).parents[1] / "vectors" / "engine-code" / "functions.txt"
    assert BUILT_IN.isdisjoint(refused.read_text().splitlines())
