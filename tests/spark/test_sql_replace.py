"""REPLACE TABLE and CREATE OR REPLACE TABLE: the table as it was, or as the statement makes it."""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkException

from catalog.base.identifiers import table_name
from catalog.reading.loading import LoadedTable
from tests.support.lake import BOB
from tests.support.spark import SparkLake
from tests.support.spark_refusals import refusal, refused_as
from tests.support.spark_tables import stock_table

pytestmark = pytest.mark.core

#: Both ways of encrypting, and both formats.
PROTECTIONS = [
    "'encryption.mechanism' = 'envelope', 'encryption.columns' = 'lakewarden:name'",
    pytest.param(
        "'encryption.mechanism' = 'envelope', 'write.format.default' = 'orc'", marks=pytest.mark.nightly
    ),
]


def _made(spark_lake: SparkLake, namespace: str, protection: str = "") -> str:
    properties = f"TBLPROPERTIES ({protection})" if protection else ""
    spark_lake.rows(f"CREATE TABLE {namespace}.t {properties} AS SELECT 1 AS id, 'old' AS name")
    return f"{namespace}.t"


@pytest.mark.parametrize("protection", PROTECTIONS)
def test_a_query_replaces_the_table_and_its_past_stays(spark_lake: SparkLake, protection: str) -> None:
    table = _made(spark_lake, spark_lake.namespace(), protection)
    old = _loaded(spark_lake, table)
    spark_lake.rows(
        f"CREATE OR REPLACE TABLE {table} USING iceberg TBLPROPERTIES ('a' = 'b') "
        f"AS SELECT name, id + 1 AS next, CAST(id AS BIGINT) AS id FROM {table}"
    )
    new = _loaded(spark_lake, table)
    assert spark_lake.rows(f"SELECT name, next, id FROM {table}") == [("old", 2, 1)]
    assert spark_lake.rows(f"SELECT * FROM {table} VERSION AS OF {old.metadata.current_snapshot_id}") == [
        (1, "old")
    ]
    assert new.record.table_uuid == old.record.table_uuid and new.governed.spec == old.governed.spec
    assert {each.name: each.field_id for each in new.metadata.schema().fields} == {
        "name": 2,
        "next": 3,
        "id": 1,
    }
    spark_lake.rows(f"REPLACE TABLE {table} (name STRING, more INT NOT NULL)")
    assert spark_lake.rows(f"SELECT * FROM {table}") == []
    spark_lake.rows(f"INSERT INTO {table} VALUES ('x', 3)")
    assert spark_lake.rows(f"SELECT * FROM {table}") == [("x", 3)]
    assert _loaded(spark_lake, table).governed.spec == old.governed.spec
    since = f"CALL lake.system.create_changelog_view('{table}', options => map('start-timestamp', '1'))"
    assert "the table was replaced" in refused_as("NO_SUCH_SNAPSHOT", spark_lake.session(), since)
    assert spark_lake.rows(
        f"SELECT next FROM {table} VERSION AS OF {new.metadata.current_snapshot_id} WHERE id = 1"
    ) == [(2,)]


@pytest.mark.nightly
def test_rows_that_were_written_before_lack_a_required_column(
    spark_lake: SparkLake, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = _made(spark_lake, namespace)
    writes = spark_lake.lake.services.writes
    begin = writes.begin

    def begun(*arguments: object) -> object:
        session = begin(*arguments)  # type: ignore[arg-type]
        monkeypatch.undo()
        spark_lake.rows(f"REPLACE TABLE {table} (id INT, more INT NOT NULL)")
        return session

    monkeypatch.setattr(writes, "begin", begun)
    insert = f"INSERT INTO {table} VALUES (2, 'new')"
    assert "requires the column more" in refused_as("CONCURRENT_MODIFICATION", spark_lake.session(), insert)
    assert spark_lake.rows(f"SELECT * FROM {table}") == []


def _loaded(spark_lake: SparkLake, table: str) -> LoadedTable:
    _, database, name = table.split(".")
    return spark_lake.lake.services.loader.load_sealed(table_name([database], name))


@pytest.mark.nightly
def test_data_frames_replace_tables(spark_lake: SparkLake, namespace: str) -> None:
    table = _made(spark_lake, namespace)
    frame = spark_lake.spark.sql("SELECT 7 AS id")
    frame.writeTo(table).using("iceberg").option("snapshot-property.job", "nightly").createOrReplace()
    assert spark_lake.rows(f"SELECT * FROM {table}") == [(7,)]
    summary = stock_table(spark_lake, table).current_snapshot().summary
    assert (
        summary["job"] == "nightly"
        and "snapshot-property.job" not in stock_table(spark_lake, table).properties
    )
    spark_lake.spark.sql("SELECT 8 AS id").writeTo(table).partitionedBy("id").replace()
    spark_lake.spark.sql("SELECT 9 AS id").write.mode("overwrite").saveAsTable(table)
    assert spark_lake.rows(f"SELECT * FROM {table}") == [(9,)]
    spark_lake.spark.sql("SELECT 1 AS id").writeTo(f"{namespace}.u").createOrReplace()
    spark_lake.rows(f"CREATE OR REPLACE TABLE {namespace}.v (id INT) PARTITIONED BY (id)")
    assert len(spark_lake.rows(f"SHOW TABLES IN {namespace}")) == 3
    refused_as("TABLE_OR_VIEW_NOT_FOUND", spark_lake.spark, f"REPLACE TABLE {namespace}.w (id INT)")
    refused_as("TABLE_OR_VIEW_NOT_FOUND", spark_lake.spark, f"REPLACE TABLE {namespace}.w AS SELECT 1 AS id")


@pytest.mark.nightly
def test_a_statement_that_fails_leaves_the_table(spark_lake: SparkLake, namespace: str) -> None:
    table = _made(spark_lake, namespace, "'encryption.mechanism' = 'envelope'")
    before = stock_table(spark_lake, table).metadata_location
    with pytest.raises(PySparkException, match="halfway"):
        spark_lake.rows(
            f"REPLACE TABLE {table} AS SELECT if(id = 9, raise_error('halfway'), 'x') v FROM range(10)"
        )
    plain = "TBLPROPERTIES ('encryption.mechanism' = 'plaintext')"
    refused_as(
        "NOT_AUTHORIZED",
        spark_lake.session(BOB),
        f"CREATE OR REPLACE TABLE {table} {plain} AS SELECT 1 AS id",
    )
    refused_as("NOT_AUTHORIZED", spark_lake.session(BOB), f"REPLACE TABLE {table} (id INT)")
    for option in ("branch", "overwrite-mode", "fan-out", "anything"):
        writer = spark_lake.spark.range(1).writeTo(table).option(option, "x")
        error = refusal(writer.createOrReplace)
        assert error.getCondition() == "LAKEWARDEN.NOT_SUPPORTED_YET" and option in str(error)
    assert stock_table(spark_lake, table).metadata_location == before
    assert spark_lake.rows(f"SELECT * FROM {table}") == [(1, "old")]
