"""Statements WITH SCHEMA EVOLUTION, and CREATE TABLE LIKE."""

from __future__ import annotations

import re

import pyspark
import pytest

from catalog.base.identifiers import TableName, table_name
from tests.support.lake import BOB, policy, standard_policies, tables
from tests.support.spark import SparkLake
from tests.support.spark_refusals import refusal, refused_as
from tests.support.spark_tables import stock_table

pytestmark = pytest.mark.core

#: Spark 4.1 has no INSERT WITH SCHEMA EVOLUTION, and narrows a column to the type of its source.
SINCE_4_2 = pyspark.__version__ >= "4.2"
KEYED = "'encryption.mechanism' = 'envelope', 'encryption.plaintext-columns' = 'id'"


def test_rows_bring_new_columns_and_wider_types(spark_lake: SparkLake, namespace: str) -> None:
    """A column that comes is encrypted as the table says of columns that it does not name."""
    table = f"{namespace}.t"
    spark_lake.rows(f"CREATE TABLE {table} (id INT, big BIGINT, s STRUCT<a: INT>) TBLPROPERTIES ({KEYED})")
    spark_lake.rows(f"INSERT INTO {table} VALUES (1, 10, named_struct('a', 1)), (2, 20, NULL)")
    seven = "7" if SINCE_4_2 else "7L"
    source = (
        f"SELECT CAST(id AS BIGINT) AS id, {seven} AS big, named_struct('a', 1L, 'b', 'x') AS s, 'n' AS new"
    )
    spark_lake.rows(
        f"MERGE WITH SCHEMA EVOLUTION INTO {table} t USING ({source} FROM range(2, 4)) u ON t.id = u.id "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )
    assert sorted(spark_lake.rows(f"SELECT id, big, s.a, s.b, new FROM {table}")) == [
        (1, 10, 1, None, None),
        (2, 7, 1, "x", "n"),
        (3, 7, 1, "x", "n"),
    ]
    schema = spark_lake.spark.table(table).schema
    assert [schema[name].dataType.simpleString() for name in ("id", "big", "new")] == [
        "bigint",
        "bigint",
        "string",
    ]
    if SINCE_4_2:
        _insert_new_columns(spark_lake, table)
    epoch = spark_lake.lake.services.loader.load_sealed(_name(table)).governed.epochs.current
    hidden = {field_id for group in epoch.columns for field_id in group.field_ids}
    columns = stock_table(spark_lake, table).schema()
    brought = ("big", "new", "s.b", "more") if SINCE_4_2 else ("big", "new", "s.b")
    assert {columns.find_field(name).field_id for name in brought} <= hidden
    assert columns.find_field("id").field_id not in hidden


def _insert_new_columns(spark_lake: SparkLake, table: str) -> None:
    spark_lake.rows(f"INSERT WITH SCHEMA EVOLUTION INTO {table} BY NAME SELECT 4 AS id, 'm' AS more")
    assert spark_lake.rows(f"SELECT id, more FROM {table} WHERE more IS NOT NULL") == [(4, "m")]


@pytest.mark.nightly
def test_explain_adds_no_columns(spark_lake: SparkLake, namespace: str) -> None:
    """Spark would add them, since it alters the table when it analyzes the statement."""
    table = f"{namespace}.t"
    spark_lake.rows(f"CREATE TABLE {table} AS SELECT 1 AS id")
    before = stock_table(spark_lake, table).metadata_location
    statements = [
        "EXPLAIN MERGE WITH SCHEMA EVOLUTION INTO {} t USING (SELECT 1 AS id, 2 AS b) u ON t.id = u.id "
        "WHEN MATCHED THEN UPDATE SET *"
    ]
    if SINCE_4_2:
        insert = "INSERT WITH SCHEMA EVOLUTION INTO {} BY NAME SELECT * FROM u"
        statements.append("EXPLAIN EXTENDED WITH u AS (SELECT 1 AS id, 2 AS b) " + insert)
    for statement in statements:
        assert "it would add the columns" in refused_as(
            "NOT_SUPPORTED_YET", spark_lake.spark, statement.format(table)
        )
    assert stock_table(spark_lake, table).metadata_location == before
    assert (
        "MergeIntoTable"
        in spark_lake.rows(
            "EXPLAIN EXTENDED "
            + statements[0].removeprefix("EXPLAIN ").replace(" WITH SCHEMA EVOLUTION", "").format(table)
        )[0][0]
    )


@pytest.mark.nightly
@pytest.mark.skipif(not SINCE_4_2, reason="Spark 4.1 adds no columns in writes of DataFrames")
def test_data_frames_bring_columns_with_merge_schema(spark_lake: SparkLake, namespace: str) -> None:
    """The table is altered and the rows are written by name."""
    table = f"{namespace}.t"
    spark_lake.rows(f"CREATE TABLE {table} (id INT, a STRING) TBLPROPERTIES ({KEYED})")
    rows = spark_lake.spark.sql("SELECT 7 AS new, 1L AS id, 'x' AS a")
    rows.writeTo(table).option("mergeSchema", "true").append()
    more = spark_lake.spark.sql("SELECT 2L AS id, 'y' AS b")
    more.write.option("merge-schema", "TRUE").mode("append").saveAsTable(table)
    assert sorted(spark_lake.rows(f"SELECT id, a, new, b FROM {table}")) == [
        (1, "x", 7, None),
        (2, None, None, "y"),
    ]
    rows.withColumn("c", rows.new).writeTo(table).option("mergeSchema", "true").overwritePartitions()
    assert spark_lake.rows(f"SELECT id, c FROM {table}") == [(1, 7)]
    before = stock_table(spark_lake, table).metadata_location
    error = refusal(
        lambda: rows.withColumn("z", rows.new).writeTo(table).option("mergeSchema", "no").append()
    )
    assert "EXTRA_COLUMNS" in str(error.getCondition())
    assert stock_table(spark_lake, table).metadata_location == before


@pytest.mark.nightly
def test_other_writes_refuse_merge_schema(spark_lake: SparkLake, namespace: str) -> None:
    table = f"{namespace}.t"
    spark_lake.rows(f"CREATE TABLE {table} AS SELECT 1 AS id")
    before = stock_table(spark_lake, table).metadata_location
    fits = spark_lake.spark.table(table)
    writes = [
        lambda: fits.write.option("mergeSchema", "true").insertInto(table),
        lambda: fits.writeTo(f"{table}2").option("mergeSchema", "true").create(),
        lambda: spark_lake.rows(f"INSERT INTO {table} WITH ('mergeSchema' = 'true') SELECT * FROM {table}"),
    ]
    if not SINCE_4_2:
        writes.append(lambda: fits.writeTo(table).option("mergeSchema", "true").append())
        writes.append(lambda: fits.write.option("merge-schema", "true").mode("append").saveAsTable(table))
    for write in writes:
        assert re.search("merge-?schema is 'true'", str(refusal(write)), re.IGNORECASE)
    assert stock_table(spark_lake, table).metadata_location == before


@pytest.mark.nightly
def test_evolution_takes_alter(spark_lake: SparkLake, namespace: str) -> None:
    table = f"{namespace}.t"
    spark_lake.rows(f"CREATE TABLE {table} AS SELECT 1 AS id")
    before = stock_table(spark_lake, table).metadata_location
    mine = policy("bob-writes", tables(namespace.partition(".")[2]), {BOB: ["select", "update"]})
    spark_lake.lake.set_policies([*standard_policies(), mine])
    merge = (
        "MERGE WITH SCHEMA EVOLUTION INTO {} t USING (SELECT 1 AS id, 2 AS b) u ON t.id = u.id "
        "WHEN MATCHED THEN UPDATE SET *"
    )
    insert = "INSERT WITH SCHEMA EVOLUTION INTO {} BY NAME SELECT 1 AS id, 2 AS b"
    try:
        for statement in (merge, insert) if SINCE_4_2 else (merge,):
            error = refusal(lambda s=statement: spark_lake.rows(s.format(table), BOB))
            assert "alter" in str(error) and "not authorized" in str(error)
        assert stock_table(spark_lake, table).metadata_location == before
        if SINCE_4_2:
            spark_lake.rows(f"INSERT WITH SCHEMA EVOLUTION INTO {table} SELECT 2 AS id", BOB)
    finally:
        spark_lake.lake.set_policies(standard_policies())
    error = refusal(lambda: spark_lake.rows(f"INSERT INTO {table} BY NAME SELECT 1 AS id, 2 AS b"))
    assert "TOO_MANY_DATA_COLUMNS" in str(error.getCondition())


@pytest.mark.nightly
@pytest.mark.skipif(not SINCE_4_2, reason="Spark 4.1 has no INSERT WITH SCHEMA EVOLUTION")
def test_columns_that_spark_cannot_tell_apart_are_not_added(spark_lake: SparkLake, namespace: str) -> None:
    """Spark compares names of new columns in ALTER TABLE alone; it reads no table that has both."""
    table = f"{namespace}.t"
    spark_lake.rows(f"CREATE TABLE {table} AS SELECT 1 AS id")
    before = stock_table(spark_lake, table).metadata_location
    both = f"INSERT WITH SCHEMA EVOLUTION INTO {table} BY NAME SELECT 1 AS id, 2 AS new, 3 AS NEW"
    assert refusal(lambda: spark_lake.rows(both)).getCondition()
    assert stock_table(spark_lake, table).metadata_location == before


def _name(table: str) -> TableName:
    _, database, name = table.split(".")
    return table_name([database], name)


@pytest.mark.nightly
@pytest.mark.skipif(not SINCE_4_2, reason="Spark 4.1 makes such tables in its own catalog alone")
def test_a_table_like_another_is_protected_as_it_is(spark_lake: SparkLake, namespace: str) -> None:
    source = f"{namespace}.source"
    spark_lake.rows(
        f"CREATE TABLE {source} (id INT COMMENT 'key', part STRING, s STRUCT<a: INT>) PARTITIONED BY (id) "
        f"TBLPROPERTIES ({KEYED}, 'owner.team' = 'sales', 'write.parquet.page-row-limit' = '7')"
    )
    spark_lake.rows(f"INSERT INTO {source} VALUES (1, 'a', NULL)")
    spark_lake.rows(f"CREATE TABLE {namespace}.made LIKE {source} TBLPROPERTIES ('owner.team' = 'ops')")
    spark_lake.rows(f"CREATE TABLE IF NOT EXISTS {namespace}.made LIKE {source}")
    assert spark_lake.rows(f"SELECT * FROM {namespace}.made") == []
    loaded = spark_lake.lake.services.loader.load_sealed
    old, new = loaded(_name(source)), loaded(_name(f"{namespace}.made"))
    assert new.governed.spec == old.governed.spec and new.record.table_uuid != old.record.table_uuid
    assert new.governed.allowed.to_property() == new.record.location.canonical
    assert new.governed.epochs.current.peks != old.governed.epochs.current.peks
    assert new.metadata.properties == {"owner.team": "ops", "write.parquet.page-row-limit": "7"}
    assert new.metadata.schema().fields == old.metadata.schema().fields
    assert [each.name for each in new.metadata.spec().fields] == ["id"]
    weaker = f"CREATE TABLE {namespace}.weak LIKE {source} TBLPROPERTIES "
    for said in ("'encryption.mechanism' = 'plaintext'", "'Encryption.footer' = 'plaintext'"):
        refused_as("PROPERTY_INVALID", spark_lake.spark, f"{weaker} ({said})")
    assert len(spark_lake.rows(f"SHOW TABLES IN {namespace}")) == 2
