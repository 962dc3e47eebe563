"""Namespaces in SQL."""

from __future__ import annotations

from uuid import uuid4

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from tests.support.lake import BOB, CAROL
from tests.support.spark import CATALOG, SparkLake
from tests.support.spark_refusals import refused_as


def _described(spark_lake: SparkLake, namespace: str) -> dict[str, str]:
    return {row[0]: row[1] for row in spark_lake.rows(f"DESCRIBE NAMESPACE EXTENDED {namespace}")}


def test_namespace_from_making_to_dropping(spark_lake: SparkLake) -> None:
    name = f"n{uuid4().hex[:10]}"
    namespace = f"{CATALOG}.{name}"
    spark_lake.rows(f"CREATE NAMESPACE {namespace} COMMENT 'sales' WITH PROPERTIES (team = 'a')")
    assert (name,) in spark_lake.rows(f"SHOW NAMESPACES IN {CATALOG}")
    assert _described(spark_lake, namespace)["Comment"] == "sales"
    spark_lake.rows(f"ALTER NAMESPACE {namespace} SET PROPERTIES (team = 'b', more = 'c')")
    spark_lake.rows(f"ALTER NAMESPACE {namespace} UNSET PROPERTIES (more)")
    assert _described(spark_lake, namespace)["Properties"] == "((team,b))"
    spark_lake.rows(f"DROP NAMESPACE {namespace}")
    assert (name,) not in spark_lake.rows(f"SHOW NAMESPACES IN {CATALOG}")


@pytest.mark.nightly
def test_namespaces_in_namespaces(spark_lake: SparkLake, namespace: str) -> None:
    spark_lake.rows(f"CREATE NAMESPACE {namespace}.inner")
    spark_lake.rows(f"CREATE TABLE {namespace}.inner.t AS SELECT 1 AS id")
    outer = namespace.removeprefix(f"{CATALOG}.")
    assert spark_lake.rows(f"SHOW NAMESPACES IN {namespace}") == [(f"{outer}.inner",)]
    assert spark_lake.rows(f"SHOW TABLES IN {namespace}") == []
    assert spark_lake.rows(f"SELECT * FROM {namespace}.inner.t") == [(1,)]


@pytest.mark.nightly
def test_namespace_that_is_there_or_is_not(spark_lake: SparkLake, namespace: str) -> None:
    alice = spark_lake.spark
    refused_as("SCHEMA_ALREADY_EXISTS", alice, f"CREATE NAMESPACE {namespace}")
    spark_lake.rows(f"CREATE NAMESPACE IF NOT EXISTS {namespace}")
    refused_as("SCHEMA_NOT_FOUND", alice, f"DESCRIBE NAMESPACE {namespace}_2")
    refused_as("SCHEMA_NOT_FOUND", alice, f"SHOW TABLES IN {namespace}_2")
    refused_as("SCHEMA_NOT_FOUND", alice, f"DROP NAMESPACE {namespace}_2")
    spark_lake.rows(f"DROP NAMESPACE IF EXISTS {namespace}_2")
    refused_as("SCHEMA_NOT_FOUND", alice, f"CREATE TABLE {namespace}_2.t (id INT)")


@pytest.mark.nightly
def test_namespace_with_tables_is_not_dropped(spark_lake: SparkLake, namespace: str) -> None:
    spark_lake.rows(f"CREATE TABLE {namespace}.t (id INT)")
    refused_as("SCHEMA_NOT_EMPTY", spark_lake.spark, f"DROP NAMESPACE {namespace}")
    refused_as("NOT_SUPPORTED_YET", spark_lake.spark, f"DROP NAMESPACE {namespace} CASCADE")
    assert len(spark_lake.rows(f"SHOW TABLES IN {namespace}")) == 1


@pytest.mark.nightly
def test_directly_below_the_catalog_there_are_no_tables(spark_lake: SparkLake) -> None:
    assert spark_lake.rows(f"SHOW TABLES IN {CATALOG}") == []
    refused_as("SCHEMA_NOT_FOUND", spark_lake.spark, f"CREATE TABLE {CATALOG}.t (id INT)")


@pytest.mark.nightly
def test_names_below_the_current_namespace(spark_lake: SparkLake, namespace: str) -> None:
    session = spark_lake.new_session()
    session.sql(f"USE {namespace}")
    session.sql("CREATE TABLE t AS SELECT 1 AS id, system.bucket(4, 7) AS b")
    assert session.sql("SELECT id FROM t").collect() == [(1,)]
    assert [row[1] for row in session.sql("SHOW TABLE EXTENDED LIKE '*'").collect()] == ["t"]
    session.sql("DROP TABLE t")
    assert session.catalog.listTables() == []


@pytest.mark.nightly
def test_namespace_of_others(spark_lake: SparkLake, namespace: str) -> None:
    bob = spark_lake.session(BOB)
    for statement in (
        f"SHOW TABLES IN {namespace}",
        f"DESCRIBE NAMESPACE {namespace}",
        f"DROP NAMESPACE {namespace}",
        f"DROP NAMESPACE IF EXISTS {namespace}_2",
        f"ALTER NAMESPACE {namespace} SET PROPERTIES (a = 'b')",
        f"CREATE NAMESPACE {namespace}_3",
    ):
        refused_as("NOT_AUTHORIZED", bob, statement)
    name = namespace.removeprefix(f"{CATALOG}.")
    assert (name,) not in spark_lake.rows(f"SHOW NAMESPACES IN {CATALOG}", BOB)


@pytest.mark.nightly
def test_namespace_is_not_placed_where_one_may_not_write(spark_lake: SparkLake) -> None:
    spark_lake.rows(f"CREATE NAMESPACE IF NOT EXISTS {CATALOG}.bobs")
    elsewhere = f"file://{spark_lake.lake.root}/elsewhere"
    bob = spark_lake.session(BOB)
    refused_as("NOT_AUTHORIZED", bob, f"ALTER NAMESPACE {CATALOG}.bobs SET LOCATION '{elsewhere}'")
    refused_as("NOT_AUTHORIZED", spark_lake.session(CAROL), f"CREATE NAMESPACE {CATALOG}.carols")


@pytest.mark.nightly
@pytest.mark.core
def test_a_table_that_is_refused_does_not_hide_the_others_in_a_list(
    spark_lake: SparkLake, namespace: str
) -> None:
    for name in ("a", "b"):
        spark_lake.rows(f"CREATE TABLE {namespace}.{name} AS SELECT 1 AS id")
    settings, database = spark_lake.lake.settings, namespace.removeprefix(f"{CATALOG}.")
    pointers = SqlCatalog(settings.catalog.name, uri=settings.database.url.get_secret_value())
    pointers.load_table(f"{database}.a").transaction().set_properties(x="y").commit_transaction()
    pointers.close()
    refused_as("METADATA_UNSEALED", spark_lake.spark, f"SELECT * FROM {namespace}.a")
    listed = spark_lake.rows(f"SHOW TABLES IN {namespace}")
    assert sorted(row["tableName"] for row in listed) == ["a", "b"]
