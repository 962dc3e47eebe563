"""Views in SQL."""

from __future__ import annotations

import json

import pyspark
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, StringType

from catalog.base.identifiers import TableName
from catalog.tables.views import ViewDefinition
from tests.support.lake import BOB, policy, standard_policies, tables
from tests.support.spark import CATALOG, SparkLake
from tests.support.spark_refusals import refusal, refused_as

SINCE_4_3 = pyspark.__version__ >= "4.3"
views = pytest.mark.skipif(not SINCE_4_3, reason="Spark has views of such catalogs since 4.3")


def _made(spark_lake: SparkLake, table: str) -> str:
    spark_lake.rows(f"CREATE TABLE {table} AS SELECT id, id * 10 AS value FROM range(4)")
    return table


@pytest.mark.nightly
@views
def test_view_from_making_to_dropping(spark_lake: SparkLake, namespace: str) -> None:
    rows, name = spark_lake.rows, f"{namespace}.v"
    _made(spark_lake, f"{namespace}.t")
    rows(
        f"CREATE VIEW {name} (n COMMENT 'number', total) COMMENT 'of t' TBLPROPERTIES ('team' = 'a') "
        f"AS SELECT id, value + 1 AS total FROM {namespace}.t WHERE id > 1"
    )
    assert sorted(rows(f"SELECT * FROM {name}")) == [(2, 21), (3, 31)]
    database = namespace.removeprefix(f"{CATALOG}.")
    assert rows(f"SHOW VIEWS IN {namespace}") == [(database, "v", False)]
    assert rows(f"SHOW TABLES IN {namespace}") == [(database, "t", False), (database, "v", False)]
    described = {row[0]: row[1] for row in rows(f"DESCRIBE EXTENDED {name}")}
    assert (described["Owner"], described["Comment"], described["Type"]) == ("alice", "of t", "VIEW")
    made_again = rows(f"SHOW CREATE TABLE {name}")[0][0]
    rows(f"ALTER VIEW {name} SET TBLPROPERTIES ('team' = 'b', 'more' = 'c')")
    rows(f"ALTER VIEW {name} UNSET TBLPROPERTIES ('more')")
    assert rows(f"SHOW TBLPROPERTIES {name}") == [("team", "b")]
    rows(f"ALTER VIEW {name} AS SELECT id FROM {namespace}.t WHERE id = 0")
    assert rows(f"SELECT * FROM {name}") == [(0,)]
    rows(f"ALTER VIEW {name} RENAME TO {database}.w")
    assert rows(f"SELECT * FROM {namespace}.w") == [(0,)]
    refused_as("TABLE_OR_VIEW_NOT_FOUND", spark_lake.spark, f"SELECT * FROM {name}")
    rows(made_again)
    assert sorted(rows(f"SELECT * FROM {name}")) == [(2, 21), (3, 31)]
    rows(f"CREATE OR REPLACE VIEW {name} AS SELECT 1 AS one")
    rows(f"CREATE OR REPLACE VIEW {namespace}.x AS SELECT 2 AS two")
    rows(f"CREATE VIEW IF NOT EXISTS {name} AS SELECT 3 AS three")
    assert rows(f"SELECT * FROM {name}, {namespace}.x") == [(1, 2)]
    for each in ("v", "w", "x"):
        rows(f"DROP VIEW {namespace}.{each}")
    rows(f"DROP VIEW IF EXISTS {name}")
    assert rows(f"SHOW VIEWS IN {namespace}") == []


@views
def test_a_view_is_no_table_and_a_table_no_view(spark_lake: SparkLake, namespace: str) -> None:
    table, view, alice = _made(spark_lake, f"{namespace}.t"), f"{namespace}.v", spark_lake.spark
    spark_lake.rows(f"CREATE VIEW {view} AS SELECT id FROM {table}")
    refused_as("TABLE_OR_VIEW_ALREADY_EXISTS", alice, f"CREATE TABLE {view} (id INT)")
    refused_as("TABLE_OR_VIEW_NOT_FOUND", alice, f"INSERT INTO {view} VALUES (1)")
    for statement in (
        f"CREATE VIEW {table} AS SELECT 1 AS id",
        f"CREATE OR REPLACE VIEW {table} AS SELECT 1 AS id",
        f"DROP VIEW {table}",
        f"DROP TABLE {view}",
        f"ALTER VIEW {view} RENAME TO {table.removeprefix(f'{CATALOG}.')}",
        f"CREATE VIEW {namespace}.w TBLPROPERTIES ('view.sqlConfig.a' = 'x') AS SELECT 1 AS i",
        f"CREATE VIEW {namespace}.w AS SELECT INTERVAL 1 DAY AS i",
        f"CREATE VIEW {CATALOG}.w AS SELECT 1 AS id",
        f"CREATE VIEW {namespace}.w WITH SCHEMA EVOLUTION AS SELECT 1 AS id",
        f"ALTER VIEW {view} WITH SCHEMA TYPE EVOLUTION",
    ):
        assert refusal(lambda statement=statement: alice.sql(statement).collect()), statement
    assert sorted(spark_lake.rows(f"SELECT * FROM {view}")) == [(0,), (1,), (2,), (3,)]
    assert len(spark_lake.rows(f"SHOW TABLES IN {namespace}")) == 2


@pytest.mark.nightly
@views
def test_a_view_has_the_catalog_namespace_and_settings_that_it_was_made_with(
    spark_lake: SparkLake, namespace: str
) -> None:
    _made(spark_lake, f"{namespace}.t")
    session = spark_lake.new_session()
    session.sql(f"USE {namespace}")
    session.conf.set("spark.sql.ansi.enabled", "false")
    session.sql("CREATE VIEW v AS SELECT count(*) AS n, CAST('x' AS INT) AS i FROM t")
    assert spark_lake.rows(f"SELECT * FROM {namespace}.v") == [(4, None)]


@views
def test_who_reads_a_view_needs_rights_on_it_and_on_its_tables(spark_lake: SparkLake, namespace: str) -> None:
    database, bob = namespace.removeprefix(f"{CATALOG}."), spark_lake.session(BOB)
    table, view = _made(spark_lake, f"{namespace}.t"), f"{namespace}.v"
    spark_lake.rows(f"CREATE VIEW {view} AS SELECT id FROM {table}")
    message = refused_as("NOT_AUTHORIZED", bob, f"SELECT * FROM {view}")
    assert "view.load" in message or "table.load" in message
    on_view = policy("view", tables(database) | {"table": ["v"]}, {BOB: ["select"]})
    on_both = policy("both", tables(database), {BOB: ["select"]})
    try:
        spark_lake.lake.set_policies([*standard_policies(), on_view])
        assert database in refused_as("NOT_AUTHORIZED", bob, f"SELECT * FROM {view}")
        refused_as("NOT_AUTHORIZED", bob, f"DROP VIEW {view}")
        refused_as("NOT_AUTHORIZED", bob, f"ALTER VIEW {view} AS SELECT 1 AS id")
        spark_lake.lake.set_policies([*standard_policies(), on_both])
        assert len(bob.sql(f"SELECT * FROM {view}").collect()) == 4
    finally:
        spark_lake.lake.set_policies(standard_policies())


@pytest.mark.nightly
@views
def test_the_text_of_a_view_is_read_by_the_settings_of_the_engine(
    spark_lake: SparkLake, namespace: str
) -> None:
    """Who stores a view past Spark chooses neither settings that no session can have, nor defaults."""
    services, alice = spark_lake.lake.services, spark_lake.lake.caller("alice")
    database, text = namespace.removeprefix(f"{CATALOG}."), "${env:PATH}"
    schema = Schema(NestedField(1, "v", StringType()))
    stored = {"spark.sql.variable.substitute": "true", "spark.sql.extensions": "absent.Class"}
    for number, summary in enumerate(({}, {"spark.sql-configs": json.dumps(stored)})):
        name = TableName((database,), f"v{number}")
        query = f"SELECT '{text}' AS v"
        services.views.create(alice, ViewDefinition(name, schema, query, None, (), summary, {}))
        assert spark_lake.rows(f"SELECT * FROM {namespace}.v{number}") == [(text,)]
    for number, query in enumerate(("DROP TABLE lake.db.t", f"INSERT INTO {namespace}.t VALUES (1)")):
        name = TableName((database,), f"w{number}")
        services.views.create(alice, ViewDefinition(name, schema, query, None, (), {}, {}))
        refused_as("PARSE_SYNTAX_ERROR", spark_lake.spark, f"SELECT * FROM {namespace}.w{number}")


@pytest.mark.nightly
@views
@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("spark.sql-configs", "{"),
        ("spark.sql-configs", "[]"),
        ("spark.sql-configs", '{"spark.sql.ansi.enabled": {}}'),
        ("spark.schema-mode", "EVOLUTION"),
        ("spark.query-column-names", "[1]"),
        ("spark.query-column-names", '["v", "w"]'),
    ],
)
def test_what_spark_cannot_use_of_a_stored_view_is_refused(
    spark_lake: SparkLake, namespace: str, key: str, text: str
) -> None:
    services, alice = spark_lake.lake.services, spark_lake.lake.caller("alice")
    name = TableName((namespace.removeprefix(f"{CATALOG}."),), "x")
    schema = Schema(NestedField(1, "v", StringType()))
    stored = ViewDefinition(name, schema, "SELECT '1' AS v", None, (), {key: text}, {})
    services.views.create(alice, stored)
    assert key in refused_as("METADATA_INVALID", spark_lake.spark, f"SELECT * FROM {namespace}.x")


@views
def test_code_in_a_view_takes_the_permission_of_its_reader(spark_lake: SparkLake) -> None:
    services, bob = spark_lake.lake.services, spark_lake.lake.caller(BOB)
    spark_lake.rows(f"CREATE NAMESPACE IF NOT EXISTS {CATALOG}.bobs")
    schema = Schema(NestedField(1, "v", StringType()))
    queries = ("SELECT reflect('absent.Class', 'm') AS v", "SELECT value AS v FROM text.`/absent`")
    for number, query in enumerate(queries):
        name = TableName(("bobs",), f"code{number}")
        services.views.create(bob, ViewDefinition(name, schema, query, None, (), {}, {}))
        message = refused_as("NOT_AUTHORIZED", spark_lake.session(BOB), f"SELECT * FROM {CATALOG}.{name}")
        assert "engine-code" in message
        services.views.drop(bob, name)


@pytest.mark.nightly
@pytest.mark.core
@pytest.mark.skipif(SINCE_4_3, reason="Spark has views of such catalogs since 4.3")
def test_an_older_spark_refuses_views(spark_lake: SparkLake, namespace: str) -> None:
    """One that another client stored is neither read nor changed, and no table takes its name."""
    database, alice = namespace.removeprefix(f"{CATALOG}."), spark_lake.lake.caller("alice")
    name, schema = TableName((database,), "v"), Schema(NestedField(1, "v", StringType()))
    views_of, session = spark_lake.lake.services.views, spark_lake.spark
    views_of.create(alice, ViewDefinition(name, schema, "SELECT 'x' AS v", None, (), {}, {}))
    for statement in (
        f"CREATE VIEW {namespace}.w AS SELECT 1 AS one",
        f"CREATE OR REPLACE VIEW {namespace}.v AS SELECT 1 AS one",
        f"ALTER VIEW {namespace}.v AS SELECT 1 AS one",
        f"ALTER VIEW {namespace}.v SET TBLPROPERTIES ('a' = 'b')",
        f"DROP VIEW {namespace}.v",
        f"SHOW VIEWS IN {namespace}",
    ):
        error = refusal(lambda statement=statement: session.sql(statement).collect())
        assert "does not support views" in str(error), f"{statement}: {error}"
    refused_as("TABLE_OR_VIEW_NOT_FOUND", session, f"SELECT * FROM {namespace}.v")
    refused_as("TABLE_OR_VIEW_ALREADY_EXISTS", session, f"CREATE TABLE {namespace}.v (id INT)")
    refusal(lambda: session.sql(f"DROP TABLE {namespace}.v").collect())
    assert views_of.list(alice, (database,)) == [name]
