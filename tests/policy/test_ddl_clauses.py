"""Each clause of the grammar: with it a statement is understood, and without its end, or twice, it is not."""

from __future__ import annotations

import pytest
from sqlglot import exp

from policy.sql_lint import Dialect
from policy.sql_lint.columns import MAX_COLUMNS
from policy.sql_lint.cursor import MAX_NAME_PARTS
from tests.support.ddl import ANN, context, needs, rule, the_answer
from tests.support.vectors import each_row


@each_row(
    ("sql", "needed"),
    [
        ("CREATE TABLE s.t (a DOUBLE PRECISION, b DECIMAL(10, 2), c VARCHAR(3))", ["create table s.t"]),
        ("CREATE TABLE s.t (a STRUCT<b: INT COMMENT 'x', c STRING NOT NULL>)", ["create table s.t"]),
        ("CREATE TABLE s.t (a INT) PARTITIONED BY (b STRING COMMENT 'x')", ["create table s.t"]),
        ("CREATE TABLE s.t (a INT) TBLPROPERTIES ('sort-order' = 'a')", ["create table s.t"]),
        ("ALTER TABLE s.t ADD COLUMN a INT, b INT FIRST", ["alter table s.t"]),
        ("ALTER TABLE s.t DROP COLUMNS a, b.c", ["alter table s.t"]),
        ("ALTER TABLE s.t ALTER COLUMN a FIRST", ["alter table s.t"]),
        ("ALTER TABLE s.t ALTER COLUMN a AFTER b", ["alter table s.t"]),
        ("ALTER TABLE s.t ALTER COLUMN a DROP NOT NULL", ["alter table s.t"]),
        ("ALTER TABLE s.t ADD PARTITION FIELD bucket(16, a) AS b", ["alter table s.t"]),
        ("ALTER TABLE s.t DROP PARTITION FIELD days(a)", ["alter table s.t"]),
        ("ALTER TABLE s.t REPLACE PARTITION FIELD a WITH truncate(4, b.c) AS d", ["alter table s.t"]),
        ("ALTER TABLE s.t WRITE ORDERED BY a, bucket(4, b) DESC NULLS LAST", ["alter table s.t"]),
        ("ALTER TABLE s.t WRITE LOCALLY ORDERED BY (a ASC) DISTRIBUTED BY PARTITION", ["alter table s.t"]),
        ("ALTER TABLE s.t WRITE UNORDERED", ["alter table s.t"]),
        ("ALTER TABLE s.t SET IDENTIFIER FIELDS a, b.c", ["alter table s.t"]),
        ("ALTER TABLE s.t DROP IDENTIFIER FIELDS a", ["alter table s.t"]),
        ("ALTER TABLE s.t CREATE BRANCH IF NOT EXISTS b AS OF VERSION 7 RETAIN 2 DAYS", ["update table s.t"]),
        (
            "ALTER TABLE s.t CREATE OR REPLACE BRANCH b WITH SNAPSHOT RETENTION 2 SNAPSHOTS 3 HOURS",
            ["update table s.t", "alter table s.t"],
        ),
        ("ALTER TABLE s.t CREATE BRANCH b WITH SNAPSHOT RETENTION 3 MINUTES", ["update table s.t"]),
        ("ALTER TABLE s.t CREATE BRANCH b WITH SNAPSHOT RETENTION 2 SNAPSHOTS", ["update table s.t"]),
        ("ALTER TABLE s.t REPLACE TAG v RETAIN 2 DAYS", ["update table s.t"]),
        ("ALTER TABLE s.t DROP BRANCH IF EXISTS b", ["update table s.t", "alter table s.t"]),
        ("ALTER TABLE s.t DROP TAG v", ["update table s.t"]),
        ("COMMENT ON TABLE s.t IS NULL", ["alter table s.t"]),
        ("COMMENT ON SCHEMA s IS NULL", ["alter database s"]),
        ("DROP NAMESPACE s RESTRICT", ["drop database s"]),
        ("SHOW TBLPROPERTIES s.t ('a')", ["select table s.t"]),
        ("SHOW CREATE TABLE s.t", ["select table s.t"]),
        ("SHOW COLUMNS FROM s.t", ["select table s.t"]),
        ("SHOW TABLES IN s LIKE 'a*'", ["_any database s"]),
        ("SHOW TABLES", ["_any database db"]),
        ("SHOW DATABASES LIKE 'a*'", []),
        ("SHOW NAMESPACES IN lake.s", ["_any database s"]),
        ("SHOW NAMESPACES IN lake", []),
        ("DESC TABLE EXTENDED s.t a.b", ["select table s.t"]),
        ("DESCRIBE DATABASE EXTENDED s", ["_any database s"]),
        ("REFRESH s.t", ["select table s.t"]),
        ("CREATE TEMPORARY VIEW v COMMENT 'x' AS SELECT 1 AS a", []),
        ("INSERT INTO s.t BY NAME SELECT 1 AS a", ["update table s.t"]),
        ("INSERT INTO s.t (SELECT 1 AS a)", ["update table s.t"]),
        ("INSERT INTO s.t PARTITION (a = 'x', b) SELECT 1 AS c", ["update table s.t"]),
        ("INSERT INTO s.t WITH ('branch' = 'b') (a) SELECT 1", ["update table s.t"]),
        (
            "INSERT WITH SCHEMA EVOLUTION INTO s.t BY NAME SELECT 1 AS a",
            ["update table s.t", "alter table s.t"],
        ),
        ("INSERT WITH SCHEMA EVOLUTION OVERWRITE s.t VALUES (1)", ["update table s.t", "alter table s.t"]),
        ("INSERT OVERWRITE s.t WITH ('isolation-level' = 'snapshot') SELECT 1", ["update table s.t"]),
        ("REPLACE TABLE s.t (a INT) USING iceberg", ["alter table s.t", "update table s.t"]),
        (
            "CREATE OR REPLACE TABLE s.t COMMENT 'x' AS SELECT 1 AS a",
            ["alter table s.t", "update table s.t", "create table s.t"],
        ),
        (
            "SELECT a FROM s.t.changes WITH ('start-timestamp' = 5, 'end-timestamp' = 7)",
            ["select table s.t.changes", "select column s.t.changes.a"],
        ),
        (
            "SELECT x.a FROM s.t VERSION AS OF 7 WITH ('split-size' = 5, 'Locality' = 'FALSE') AS x",
            ["select table s.t", "select column s.t.a"],
        ),
        (
            "SELECT x.a FROM s.t FOR TIMESTAMP AS OF '2026-01-01' WITH ('split-size' = 5) AS x",
            ["select table s.t", "select column s.t.a"],
        ),
        ("SET spark.sql.iceberg.compression-codec = zstd", []),
        ("SET spark.sql.iceberg.vectorization.enabled = TRUE", []),
        ("SET spark.sql.iceberg.snapshot-property.team = a b", []),
        ("RESET spark.sql.iceberg.unknown", []),
        ("SET TIME ZONE LOCAL", []),
        ("SET TIME ZONE 'UTC'", []),
        ("SET spark.sql.adaptive.enabled = true", []),
        ("SELECT a | b FROM s.t", ["select table s.t", "select column s.t.a", "select column s.t.b"]),
        ("SELECT lake.s.t.a FROM lake.s.t", ["select table s.t", "select column s.t.a"]),
        ("SELECT s.t.a FROM lake.s.t", ["select table s.t", "select column s.t.a"]),
        (
            "SELECT a.b.c.d.e FROM s.t",
            ["select table s.t"]
            + [f"select column s.t.{each}" for each in ("a", "a.b", "a.b.c", "a.b.c.d", "a.b.c.d.e")],
        ),
        ("SELECT (a).b, c[0].d FROM s.t", ["select table s.t", "select column s.t.a", "select column s.t.c"]),
        ("SELECT transform(a, x -> X) FROM s.t", ["select table s.t", "select column s.t.a"]),
        ("SELECT x.a FROM s.t y JOIN s.u x", None),
        ("WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n FROM r) SELECT n FROM r", []),
        ("WITH q AS (SELECT a FROM s.t) SELECT q.a, b.x FROM q JOIN s.u b", None),
        ("SELECT b.*, c.d FROM s.t b JOIN s.u c", None),
    ],
)
def test_what_is_understood(sql: str, needed: list[str] | None) -> None:
    answer = the_answer(sql)
    if needed is None:
        told = answer.decision.allowed or rule(answer) == "columns-unknown"
        assert told
    else:
        assert answer.decision.allowed, answer.decision.explanation
        assert needs(answer) == needed


@each_row(
    ("sql", "expected"),
    [
        ("CREATE TABLE s.t (a DECIMAL(x))", "syntax"),
        ("CREATE TABLE s.t (a INT", "syntax"),
        ("CREATE TABLE s.t a INT)", "syntax"),
        ("CREATE TABLE s.t", "columns"),
        ("CREATE TABLE s.t (a INT) AS SELECT 1 AS a", "columns"),
        ("CREATE TABLE s.t (a.b INT)", "columns"),
        ("CREATE TABLE s.t (a INT) PARTITIONED BY (cube(a))", "partition-transform"),
        ("CREATE TABLE s.t (a INT) PARTITIONED BY (bucket(a, a))", "partition-transform"),
        ("CREATE TABLE s.t (a INT) STORED AS ORC", "table-format"),
        ("CREATE TABLE s.t (a INT) USING csv", "table-format"),
        ("CREATE TABLE s.t (a INT) USING orc OPTIONS ('write.format.default'='parquet')", "table-format"),
        ("CREATE TABLE s.t (a INT) TBLPROPERTIES (a=-1)", "syntax"),
        ("CREATE TABLE s.t (a INT) LOCATION s3", "syntax"),
        ("CREATE TABLE s.t (a INT) AS x", "syntax"),
        ("CREATE TABLE s.t AS DROP", "syntax"),
        ("CREATE OR REPLACE DATABASE s", "syntax"),
        ("CREATE TEMPORARY TABLE s.t (a INT)", "syntax"),
        ("CREATE NAMESPACE s COMMENT 'a' COMMENT 'b'", "syntax"),
        ("CREATE NAMESPACE s WITH OPTIONS ('a'='b')", "syntax"),
        ("CREATE NAMESPACE lake", "namespace"),
        ("ALTER NAMESPACE s UNSET OPTIONS ('a')", "syntax"),
        ("ALTER TABLE s.t ALTER COLUMN a SET NOT NULL", "syntax"),
        ("ALTER TABLE s.t ALTER COLUMN a", "syntax"),
        ("ALTER TABLE s.t ADD PARTITION FIELD zorder(a)", "partition-transform"),
        ("ALTER TABLE s.t ADD PARTITION FIELD a b", "syntax"),
        ("ALTER TABLE s.t REPLACE PARTITION FIELD a", "syntax"),
        ("ALTER TABLE s.t WRITE", "syntax"),
        ("ALTER TABLE s.t WRITE UNORDERED ORDERED BY a", "syntax"),
        ("ALTER TABLE s.t WRITE LOCALLY UNORDERED", "syntax"),
        ("ALTER TABLE s.t CREATE TAG v WITH SNAPSHOT RETENTION 2 SNAPSHOTS", "syntax"),
        ("ALTER TABLE s.t CREATE OR REPLACE TAG IF NOT EXISTS v", "syntax"),
        ("ALTER TABLE s.t CREATE TAG v AS OF VERSION a", "syntax"),
        ("ALTER TABLE s.t CREATE TAG v RETAIN 1.5 DAYS", "syntax"),
        ("ALTER TABLE s.t DROP BRANCH", "syntax"),
        ("INSERT INTO s.t PARTITION (a = x) SELECT 1", "syntax"),
        ("INSERT INTO s.t", "syntax"),
        ("INSERT INTO s.t PARTITION (a =", "syntax"),
        ("SHOW COLUMNS s.t", "syntax"),
        ("SHOW FUNCTIONS", "syntax"),
        ("COMMENT ON COLUMN s.t.a IS 'x'", "syntax"),
        ("COMMENT ON TABLE s.t IS", "syntax"),
        ("ADD CONSTRAINT x", "syntax"),
        ("SET TIME ZONE x", "syntax"),
        ("SET spark.sql.iceberg.unknown = 1", "setting"),
        ("SET spark.sql.iceberg.vectorization.enabled = false", "setting"),
        ("SET spark.wap.other = 1", "setting"),
        ("SET Spark.wap.id = 1", "setting"),
        ("SELECT a FROM s.t WITH ('lookback' = '5')", "option"),
        ("SELECT a FROM s.t WITH ('locality' = 'true')", "option"),
        ("SELECT a FROM s.t WITH ('path' = 'x')", "option"),
        ("SELECT a, with(branch = 'x') FROM s.t", "option"),
        ("SELECT coalesce(a, with(branch = 'x')) FROM s.t", "option"),
        ("SELECT DISTINCT with(branch = 'x') FROM s.t", "option"),
        ("SELECT a FROM s.t ORDER BY a, with(branch = 'x')", "option"),
        ("SELECT a FROM s.t, with(branch = 'x')", "option"),
        ("SELECT a FROM STREAM with(branch = 'x')", "option"),
        ("VALUES (1, with(branch = 'x'))", "option"),
        ("UPDATE s.t SET a = with(branch = 'x')", "option"),
        ("SELECT a, `with`(branch = 'x') FROM s.t", "code"),
        ("SELECT a FROM s.t WITH ('Tag' = 'x', 'branch' = 'y')", "option"),
        ("SELECT a FROM s.t WITH ('tag' = 'x', 'TAG' = 'y')", "option"),
        ("SELECT a FROM s.t WITH ('start-timestamp' = 1)", "option"),
        ("SELECT a FROM s.t.changes WITH ('start-timestamp' = 1, 'start-snapshot-id' = 1)", "option"),
        ("SELECT a FROM s.t WITH ('tag')", "syntax"),
        ("INSERT INTO s.t WITH ('overwrite-mode' = 'dynamic') SELECT 1", "syntax"),
        ("INSERT INTO s.t WITH ('tag' = 'x') SELECT 1", "option"),
        ("INSERT WITH SCHEMA EVOLUTION DIRECTORY 'x' SELECT 1", "syntax"),
        ("EXPLAIN INSERT WITH SCHEMA EVOLUTION INTO s.t SELECT 1", "explain-evolution"),
        ("REPLACE TABLE IF NOT EXISTS s.t (a INT)", "syntax"),
        ("REPLACE TABLE s.t LIKE s.u", "syntax"),
        ("REPLACE TABLE s.t", "columns"),
        ("REPLACE VIEW s.t", "not-supported-yet"),
        ("CREATE TABLE s.t LIKE s.u COMMENT 'x'", "syntax"),
        ("CREATE TABLE s.t LIKE s.u", "state-unknown"),
        ("SET spark.sql.adaptive.enabled", "setting"),
        ("SET spark.sql.adaptive.customCostEvaluatorClass = a.B", "setting"),
        ("SET `spark`.sql.adaptive.optimizer.ExcludedRules = a.B", "setting"),
        ("DROP FUNCTION f", "not-supported-yet"),
        ("DROP TABLE " + ".".join("a" * (MAX_NAME_PARTS + 1)), "name"),
        ("SELECT :a FROM s.t", "query"),
        ("SELECT ? FROM s.t", "query"),
        ("SELECT a FROM s.t QUALIFY b > 1", "query"),
        ("SELECT a.b.c.d.f(1) FROM s.t", "code"),
        ("SELECT a.b.c.d.* FROM s.t", "columns-unknown"),
        ("MAP a USING 'x' AS b FROM s.t", "code"),
    ],
)
def test_what_is_not_understood_or_not_carried_out(sql: str, expected: str) -> None:
    assert rule(the_answer(sql)) == expected


@each_row(
    ("sql", "expected"),
    [
        ("CREATE TABLE s.t (a INT) STORED BY 'com.x.Handler'", "table-format"),
        ("CREATE TABLE s.t (a INT) STORED BY ICEBERG STORED AS TEXTFILE", "table-format"),
        ("CREATE TABLE s.t (a INT) STORED BY ICEBERG TBLPROPERTIES ('a' b)", "syntax"),
        ("CREATE TABLE s.t (a LONG) STORED BY ICEBERG", "column-type"),
        ("USE a.b", "name"),
        ("ALTER TABLE s.t CREATE BRANCH b", "syntax"),
        ("ALTER TABLE s.t WRITE UNORDERED", "syntax"),
    ],
)
def test_what_hive_does_not_do(sql: str, expected: str) -> None:
    assert rule(the_answer(sql, dialect="hive")) == expected


def test_a_table_has_not_too_many_columns() -> None:
    columns = ", ".join(f"c{number} INT" for number in range(MAX_COLUMNS + 1))
    assert rule(the_answer(f"CREATE TABLE s.t ({columns})")) == "columns"


def test_rows_that_a_policy_filters() -> None:
    filtered = {
        "name": "f",
        "service": "lake",
        "policyType": 2,
        "resources": {"database": {"values": ["s"]}, "table": {"values": ["t"]}},
        "rowFilterPolicyItems": [
            {
                "users": [ANN],
                "accesses": [{"type": "select", "isAllowed": True}],
                "rowFilterInfo": {"filterExpr": "a = 1"},
            }
        ],
    }
    read = the_answer("SELECT a FROM s.t", context(ANN, filtered))
    assert read.decision.allowed and "Policy 'f' filters the rows of s.t: a = 1" in read.notes
    assert (
        rule(the_answer("INSERT INTO s.t REPLACE WHERE a = 1 SELECT 1", context(ANN, filtered)))
        == "row-filter"
    )


@pytest.mark.parametrize("dialect", ["spark", "hive"])
@pytest.mark.parametrize("written", ["SELECT 1", "SELECT a FROM t WHERE b = 'y'", "SELECT 'open"])
def test_a_query_that_its_parser_does_not_keep_is_denied(
    monkeypatch: pytest.MonkeyPatch, dialect: Dialect, written: str
) -> None:
    sql = "SELECT a FROM t WHERE b = 'x'"
    assert the_answer(sql, dialect=dialect).decision.allowed
    monkeypatch.setattr(exp.Select, "sql", lambda *_, **__: written)
    assert rule(the_answer(sql, dialect=dialect)) == "query"
