"""What lint says of a statement is what becomes of it in Spark.

Each statement is linted against what the catalog knows at that moment, and then run. Statements that make or
change something are run by those who may not first.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from policy.location.location import Location
from policy.sql_lint import lint
from tests.support.ddl import context_of
from tests.support.lake import ALICE, BOB, CAROL, MASTER_KEY, policy, standard_policies
from tests.support.spark import CATALOG, SparkLake

#: In the namespace `lint`, Bob may load tables and read some columns, one of them by a right on nothing else,
#: make tables of some names, alter one table and write another.
GRANTS: Final = [
    policy("reads", {"database": ["lint"], "table": ["t"]}, {BOB: ["select"]}),
    policy("columns", {"database": ["lint"], "table": ["t"], "column": ["id", "person"]}, {BOB: ["select"]}),
    policy(
        "ssn",
        {"database": ["lint"], "table": ["t"], "column": ["person.ssn"]},
        {},
        denyPolicyItems=[{"users": [BOB], "accesses": [{"type": "select", "isAllowed": True}]}],
    ),
    policy("one", {"database": ["lint"], "table": ["c"], "column": ["id"]}, {BOB: ["select"]}),
    policy("creates", {"database": ["lint"], "table": ["new*"], "column": ["*"]}, {BOB: ["create"]}),
    policy("writes", {"database": ["lint"], "table": ["w"], "column": ["*"]}, {BOB: ["update"]}),
    policy("alters", {"database": ["lint"], "table": ["a"], "column": ["*"]}, {BOB: ["alter"]}),
    policy("rows", {"database": ["lint"], "table": ["p"]}, {CAROL: ["update"]}),
    policy(
        "now", {"database": ["lint"], "table": ["p"], "column": ["id", "old", "secret"]}, {CAROL: ["select"]}
    ),
    policy("namespaces", {"database": ["lintbob*"]}, {BOB: ["create", "alter", "drop"]}),
]
#: By whom, and what; ``{}`` stands for a directory outside of the warehouse.
STATEMENTS: Final = f"""
bob      CREATE TABLE lint.n1 (id INT)
bob      CREATE TABLE bobs.n1 (id INT, s STRING) COMMENT 'it''s' OPTIONS (a.b 'c', d = true)
bob      CREATE TABLE bobs.n2 (id INT) TBLPROPERTIES ('encryption.mechanism'='envelope')
bob      CREATE TABLE bobs.n3 (id INT) OPTIONS ('PaTh'='{{}}/n3')
alice    CREATE TABLE bobs.n3 (id INT) OPTIONS ('PaTh'='{{}}/n3')
bob      CREATE TABLE bobs.n4 (id INT) TBLPROPERTIES ('read.allowed.data.paths'='{{}}/n4')
bob      CREATE TABLE bobs.n4 (id INT) TBLPROPERTIES ('option.write.data.path'='{{}}/n4')
alice    CREATE TABLE bobs.n4 (id INT) TBLPROPERTIES ('read.allowed.data.paths'='{{}}/n4')
alice    CREATE TABLE bobs.x (id INT) OPTIONS (a='b') TBLPROPERTIES (a='c')
alice    CREATE TABLE bobs.x (id INT) TBLPROPERTIES ('option.a'='b', 'a'='c')
alice    CREATE TABLE bobs.x (id INT) TBLPROPERTIES ('a'='b', 'a'='b')
alice    CREATE TABLE bobs.x (id INT) TBLPROPERTIES ('Encryption.mechanism'='envelope')
alice    CREATE TABLE bobs.keyed (id INT, s STRING) TBLPROPERTIES ('encryption.columns'='{MASTER_KEY}:id')
alice    CREATE TABLE bobs.x (id INT) TBLPROPERTIES ('encryption.columns'='{MASTER_KEY}:absent')
alice    CREATE TABLE bobs.x (i INT) PARTITIONED BY (i) TBLPROPERTIES ('encryption.columns'='{MASTER_KEY}:i')
alice    ALTER TABLE bobs.keyed SET TBLPROPERTIES ('encryption.columns'='{MASTER_KEY}:s,absent')
bob      ALTER TABLE bobs.keyed SET TBLPROPERTIES ('encryption.columns'='{MASTER_KEY}:s')
alice    ALTER TABLE bobs.keyed SET TBLPROPERTIES ('encryption.columns'='{MASTER_KEY}:s')
alice    ALTER TABLE bobs.keyed RENAME COLUMN S TO T
alice    ALTER TABLE bobs.keyed SET TBLPROPERTIES ('encryption.columns'='{MASTER_KEY}:t,id')
alice    ALTER TABLE bobs.keyed SET TBLPROPERTIES ('encryption.columns'='{MASTER_KEY}:T,id')
alice    CREATE TABLE bobs.x (person STRUCT<name: STRING, Name: STRING>)
alice    CREATE TABLE bobs.x AS SELECT 1 AS n, 2 AS N
alice    CREATE TABLE bobs.x (id INT) TBLPROPERTIES ('format-version'='3')
alice    CREATE TABLE bobs.x (id INT) TBLPROPERTIES ('Location'='x')
alice    CREATE TABLE bobs.x (id INT) PARTITIONED BY (id) TBLPROPERTIES ('encryption.mechanism'='envelope')
alice    CREATE TABLE bobs.x (id INT) LOCATION '{{}}/x' LOCATION '{{}}/y'
alice    CREATE TABLE bobs.x (id INT DEFAULT 3)
alice    CREATE TABLE bobs.x (id INT) USING parquet
alice    CREATE TABLE bobs.`x.y` (id INT)
alice    CREATE TABLE LAKE.bobs.x (id INT)
alice    CREATE TABLE lake.x (id INT)
alice    CREATE TABLE bobs.p (id INT, at TIMESTAMP) PARTITIONED BY (days(at), bucket(4, ID), truncate(2, id))
bob      CREATE TABLE bobs.c1 AS SELECT id FROM lint.t
bob      CREATE TABLE bobs.c2 AS SELECT * FROM lint.t
alice    CREATE TABLE bobs.c3 TBLPROPERTIES ('read.allowed.data.paths'='{{}}/c3') AS SELECT 1 AS id
alice    CREATE TABLE bobs.c3 PARTITIONED BY (id) OPTIONS (encryption.mechanism='envelope') AS SELECT 1 AS id
bob      SELECT id FROM lint.t
bob      SELECT x.ID, person.name FROM lint.t AS x WHERE x.id > 0
bob      SELECT person.ssn FROM lint.t
bob      SELECT * FROM lint.t
bob      SELECT count(*) FROM lint.t WHERE id = 1
bob      SELECT id FROM lint.t WHERE secret = 'x'
bob      SELECT id AS secret FROM lint.t ORDER BY secret
bob      WITH t AS (SELECT id, secret FROM lint.t) SELECT id, secret FROM t
bob      SELECT (SELECT max(secret) FROM lint.t)
bob      SELECT a.id FROM lint.t a JOIN lint.w b ON a.id = b.id
alice    SELECT nosuchfunction(id) FROM lint.t
alice    SELECT lake.system.bucket(4, id), upper(secret) FROM lint.t
bob      SELECT id FROM lint.c
bob      SELECT secret FROM lint.c
bob      SELECT count(*) FROM lint.c
bob      DESCRIBE lint.c
carol    SELECT id FROM lint.c
bob      INSERT INTO lint.c VALUES (1, 'x')
bob      CREATE TABLE lint.new1 (id INT)
bob      INSERT INTO lint.new1 VALUES (1)
bob      INSERT INTO lint.w VALUES (1, 'x')
bob      INSERT INTO lint.w SELECT id, secret FROM lint.t
alice    INSERT OVERWRITE lint.w VALUES (1, 'x')
bob      ALTER TABLE lint.w SET TBLPROPERTIES ('a'='b')
bob      ALTER TABLE lint.a SET TBLPROPERTIES ('a'='b')
bob      ALTER TABLE lint.a SET TBLPROPERTIES ('read.allowed.data.paths'='{{}}/a')
bob      ALTER TABLE lint.a SET TBLPROPERTIES ('encryption.mechanism'='envelope')
bob      ALTER TABLE lint.a SET TBLPROPERTIES ('encryption.mechanim'='envelope')
bob      ALTER TABLE lint.a UNSET TBLPROPERTIES ('read.allowed.data.paths')
alice    ALTER TABLE lint.a SET TBLPROPERTIES ('encryption.mechanism'='envelope')
bob      ALTER TABLE lint.a SET TBLPROPERTIES ('encryption.mechanism'='plaintext')
alice    ALTER TABLE lint.a SET LOCATION '{{}}/a'
bob      ALTER TABLE lint.a ADD COLUMNS (c INT, d STRING COMMENT 'x' FIRST)
bob      ALTER TABLE lint.a RENAME COLUMN c TO e
bob      ALTER TABLE lint.a ALTER COLUMN id TYPE BIGINT
bob      ALTER TABLE lint.a DROP COLUMN d
bob      ALTER TABLE lint.a RENAME TO lint.b
bob      ALTER TABLE lint.a RENAME TO bobs.b
alice    ALTER TABLE lint.a RENAME TO bobs.b
bob      ALTER TABLE bobs.b RENAME TO c
alice    ALTER TABLE bobs.c RENAME TO lake.lint.a
bob      ALTER TABLE lint.w CREATE TAG v1
bob      ALTER TABLE lint.w REPLACE TAG v1
bob      ALTER TABLE lint.w CREATE BRANCH b
bob      ALTER TABLE lint.w DROP BRANCH b
alice    ALTER TABLE lint.w DROP BRANCH b
bob      ALTER TABLE lint.w DROP TAG v1
bob      ALTER TABLE lint.w WRITE ORDERED BY id
alice    ALTER TABLE lint.w WRITE ORDERED BY id
alice    ALTER TABLE lint.w ADD PARTITION FIELD bucket(4, id)
alice    ALTER TABLE lint.w REPLACE PARTITION FIELD bucket(4, id) WITH bucket(8, id) AS b
alice    ALTER TABLE lint.w DROP PARTITION FIELD b
bob      ALTER TABLE bobs.keyed WRITE ORDERED BY id
alice    ALTER TABLE bobs.keyed WRITE ORDERED BY id
bob      COMMENT ON TABLE lint.w IS 'x'
bob      DESCRIBE lint.t
carol    DESCRIBE lint.t
bob      DROP TABLE lint.w
bob      DROP TABLE bobs.n1
bob      CREATE NAMESPACE lintbob LOCATION '{{}}/ns'
bob      CREATE NAMESPACE lintbob COMMENT 'x'
bob      ALTER NAMESPACE lintbob SET PROPERTIES ('a'='b')
bob      ALTER NAMESPACE lintbob SET LOCATION '{{}}/ns'
alice    ALTER NAMESPACE lintbob SET PROPERTIES ('location'='{{}}/ns')
bob      ALTER NAMESPACE lintbob SET PROPERTIES ('lakewarden.unsealed'='allow')
bob      ALTER NAMESPACE lintbob SET PROPERTIES ('encryption.mechanism'='envelope')
bob      DROP NAMESPACE lintbob CASCADE
alice    CREATE OR REPLACE TABLE lint.more AS SELECT 2 AS id, 4 AS n
bob      REPLACE TABLE lint.w (id INT, secret STRING)
bob      REPLACE TABLE lint.a (id INT, v STRING)
bob      CREATE OR REPLACE TABLE bobs.n2 (id INT, s STRING) PARTITIONED BY (id)
alice    CREATE OR REPLACE TABLE bobs.n2 (id INT, s STRING) TBLPROPERTIES ('encryption.mechanism'='plaintext')
bob      CREATE OR REPLACE TABLE bobs.n5 AS SELECT id FROM lint.t
bob      CREATE OR REPLACE TABLE bobs.n5 AS SELECT secret FROM lint.t
bob      REPLACE TABLE bobs.n5 (id INT) LOCATION '{{}}/n5'
alice    REPLACE TABLE bobs.n5 (id INT) TBLPROPERTIES ('encryption.mechanism'='envelope')
bob      REPLACE TABLE bobs.n5 (id INT) TBLPROPERTIES ('encryption.mechanism'='plaintext')
alice    REPLACE TABLE bobs.keyed (other INT)
alice    REPLACE TABLE bobs.keyed (ID INT, id2 INT, t STRING)
alice    CREATE TABLE bobs.like1 LIKE bobs.n5 USING iceberg TBLPROPERTIES ('owner.a'='b')
bob      CREATE TABLE bobs.like2 LIKE bobs.n5
bob      CREATE TABLE bobs.like2 LIKE bobs.n5 LOCATION '{{}}/like2'
bob      CREATE TABLE bobs.like3 LIKE lint.c
carol    CREATE TABLE bobs.like4 LIKE lint.c
alice    CREATE TABLE bobs.like5 LIKE bobs.n5 TBLPROPERTIES ('encryption.mechanism'='plaintext')
alice    CREATE TABLE bobs.like5 LIKE bobs.n5 COMMENT 'x'
bob      INSERT WITH SCHEMA EVOLUTION INTO lint.w BY NAME SELECT 2 AS id, 3 AS more
alice    INSERT WITH SCHEMA EVOLUTION INTO lint.w BY NAME SELECT 2 AS id, 3 AS more
alice    EXPLAIN INSERT WITH SCHEMA EVOLUTION INTO lint.w BY NAME SELECT 2 AS id, 3 AS yet_more
alice    MERGE WITH SCHEMA EVOLUTION INTO lint.w t USING lint.more s ON t.id=s.id WHEN MATCHED THEN DELETE
bob      SELECT id FROM lint.t WITH ('split-size' = '1024')
bob      SELECT id FROM lint.t WITH ('split-size' = '1024', 'lookback' = '3')
bob      SELECT secret FROM lint.t WITH ('split-size' = '1024')
bob      SELECT id FROM lint.t WITH ('vectorization-enabled' = 'false')
bob      SELECT id FROM lint.t VERSION AS OF 'main' WITH ('batch-size' = 7) AS x
bob      INSERT INTO lint.w WITH ('compression-codec' = 'gzip') VALUES (1, 'x', 2)
bob      INSERT INTO lint.w WITH ('overwrite-mode' = 'dynamic') VALUES (1, 'x', 2)
bob      INSERT INTO lint.w WITH ('output-spec-id' = '0') VALUES (1, 'x', 2)
alice    CREATE TABLE lint.p (id INT, part STRING, secret STRING) PARTITIONED BY (part)
alice    INSERT INTO lint.p VALUES (1, 'a', 's'), (2, 'a', 's')
alice    ALTER TABLE lint.p DROP PARTITION FIELD part
alice    ALTER TABLE lint.p RENAME COLUMN part TO old
alice    ALTER TABLE lint.p SET TBLPROPERTIES ('write.delete.mode'='merge-on-read')
bob      DELETE FROM lint.p WHERE id = 1
carol    DELETE FROM lint.p WHERE id = 1
alice    DELETE FROM lint.p WHERE id = 1
alice    CALL lake.system.rewrite_data_files('x')
alice    SET spark.sql.shuffle.partitions=2
alice    SET spark.sql.catalog.lake.uri=x
"""
USERS: Final = {"alice": ALICE, "bob": BOB, "carol": CAROL}


@pytest.fixture
def lake(spark_lake: SparkLake) -> Iterator[SparkLake]:
    """The tables that the statements are about, under their policies."""
    spark_lake.lake.set_policies([*standard_policies(), *GRANTS])
    for statement in (
        "CREATE NAMESPACE lake.lint",
        "CREATE NAMESPACE IF NOT EXISTS lake.bobs",
        "CREATE TABLE lake.lint.t (id INT, secret STRING, person STRUCT<name: STRING, ssn: STRING>)",
        "CREATE TABLE lake.lint.w (id INT, secret STRING)",
        "CREATE TABLE lake.lint.c (id INT, secret STRING)",
        "CREATE TABLE lake.lint.a (id INT, v STRING)",
        "INSERT INTO lake.lint.t VALUES (1, 'a', named_struct('name', 'n', 'ssn', 's'))",
        "INSERT INTO lake.lint.w VALUES (1, 'a')",
    ):
        spark_lake.rows(statement)
    yield spark_lake
    spark_lake.lake.set_policies(standard_policies())


@pytest.mark.nightly
def test_lint_and_spark_agree(lake: SparkLake) -> None:
    differ = []
    for line in STATEMENTS.strip().splitlines():
        user, statement = line.split(maxsplit=1)
        sql = _in_full(statement.replace("{}", f"file://{lake.lake.root}/elsewhere"))
        said, happened = _linted(lake, USERS[user], sql), _run(lake, USERS[user], sql)
        if (said is None) != (happened is None):
            differ.append(f"{user}: {sql}: lint: {said}; Spark: {happened}")
    assert not differ, "\n".join(differ)


def _in_full(statement: str) -> str:
    """With the catalog before each namespace that the tests made; a new name goes without."""
    head, mark, target = statement.partition(" RENAME TO ")
    for namespace in ("lint", "bobs", "lintbob", "lint2"):
        for before in (" ", "("):
            head = head.replace(f"{before}{namespace}.", f"{before}lake.{namespace}.")
        head = head.replace(f"NAMESPACE {namespace} ", f"NAMESPACE lake.{namespace} ")
        if head.endswith((f"NAMESPACE {namespace}", f"TABLES IN {namespace}")):
            head = f"{head.removesuffix(namespace)}lake.{namespace}"
    return f"{head}{mark}{target}"


def _linted(lake: SparkLake, user: str, sql: str) -> str | None:
    """Why lint denies a statement, or None."""
    services = lake.lake.services
    warehouse = Location.parse(services.settings.warehouse)
    context = context_of(services, user, catalog=CATALOG, master_key_id=MASTER_KEY, warehouse=warehouse)
    (answer,) = lint(sql, "spark", context)
    return None if answer.decision.allowed else answer.decision.explanation


def _run(lake: SparkLake, user: str, sql: str) -> str | None:
    """Why Spark refuses a statement, or None."""
    try:
        lake.rows(sql, user)
    except (PySparkException, Py4JJavaError) as refused:
        return str(refused).splitlines()[0]
    return None
