"""CREATE TABLE AS SELECT: the table with its rows, or nothing."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql.functions import udf

from tests.support.lake import ALICE, BOB, CAROL
from tests.support.spark import CATALOG, SparkLake
from tests.support.spark_refusals import refused_as
from tests.support.spark_tables import stock_table

pytestmark = pytest.mark.core


def _files(spark_lake: SparkLake, namespace: str) -> list[Path]:
    """Whatever lies in the directories of a namespace."""
    directory = spark_lake.lake.warehouse / namespace.removeprefix(f"{CATALOG}.")
    return [each for each in directory.rglob("*") if each.is_file()]


def test_table_appears_with_its_rows(spark_lake: SparkLake, namespace: str) -> None:
    spark_lake.rows(
        f"CREATE TABLE {namespace}.t USING iceberg PARTITIONED BY (part) COMMENT 'made' "
        "TBLPROPERTIES ('a' = 'b') AS SELECT id, id % 2 AS part FROM range(4)"
    )
    assert sorted(spark_lake.rows(f"SELECT * FROM {namespace}.t")) == [(0, 0), (1, 1), (2, 0), (3, 1)]
    table = stock_table(spark_lake, f"{namespace}.t")
    assert len(table.snapshots()) == 1
    assert [each.name for each in table.spec().fields] == ["part"]
    assert table.properties["a"] == "b"


@pytest.mark.nightly
def test_encrypted_table_appears_with_its_rows(spark_lake: SparkLake, namespace: str) -> None:
    spark_lake.rows(
        f"CREATE TABLE {namespace}.t TBLPROPERTIES ('encryption.mechanism' = 'envelope') "
        "AS SELECT id, 'needle in the hay' AS name FROM range(2)"
    )
    assert len(spark_lake.rows(f"SELECT * FROM {namespace}.t WHERE name LIKE 'needle%'")) == 2
    data = [each for each in _files(spark_lake, namespace) if each.suffix == ".parquet"]
    assert data
    for each in data:
        content = each.read_bytes()
        assert content[-4:] == b"PARE"
        assert b"needle" not in content


@pytest.mark.nightly
def test_table_of_no_rows(spark_lake: SparkLake, namespace: str) -> None:
    spark_lake.rows(f"CREATE TABLE {namespace}.t AS SELECT id FROM range(3) WHERE id > 10")
    assert spark_lake.rows(f"SELECT count(*), max(id) FROM {namespace}.t") == [(0, None)]


@pytest.mark.nightly
def test_columns_of_a_query_are_nullable(spark_lake: SparkLake, namespace: str) -> None:
    spark_lake.rows(f"CREATE TABLE {namespace}.t AS SELECT 1 AS id")
    assert spark_lake.spark.table(f"{namespace}.t").schema["id"].nullable


def test_query_that_fails_leaves_no_table_and_no_file(spark_lake: SparkLake, namespace: str) -> None:
    query = "SELECT id, if(id = 9, raise_error('halfway'), 'x') AS v FROM range(10)"
    with pytest.raises(PySparkException, match="halfway"):
        spark_lake.rows(f"CREATE TABLE {namespace}.t AS {query}")
    assert spark_lake.rows(f"SHOW TABLES IN {namespace}") == []
    assert _files(spark_lake, namespace) == []


@pytest.mark.nightly
def test_name_is_free_again_after_a_failure(spark_lake: SparkLake, namespace: str) -> None:
    with pytest.raises(PySparkException, match="halfway"):
        spark_lake.rows(
            f"CREATE TABLE {namespace}.t AS SELECT if(id = 1, raise_error('halfway'), 'x') v FROM range(2)"
        )
    spark_lake.rows(f"CREATE TABLE {namespace}.t AS SELECT 'y' AS v")
    assert spark_lake.rows(f"SELECT * FROM {namespace}.t") == [("y",)]


@pytest.mark.nightly
def test_nothing_is_seen_while_the_rows_are_written(
    spark_lake: SparkLake, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The query itself asks the catalog which tables there are."""
    monkeypatch.setattr(spark_lake.spark.sparkContext, "pythonExec", sys.executable)
    service = spark_lake.service
    address = f"{service.url}{service.prefix}/namespaces/{namespace.removeprefix(f'{CATALOG}.')}/tables"
    headers = {"Authorization": f"Bearer {service.token(ALICE)}"}

    @udf("string")
    def look(_):  # without hints of types, which Spark takes for a choice of its own
        from urllib.request import Request, urlopen

        with urlopen(Request(address, headers=headers)) as answer:
            return str(answer.read(), "utf-8")

    frame = spark_lake.spark.range(1).select(look("id").alias("seen"))
    frame.writeTo(f"{namespace}.t").using("iceberg").create()
    [seen] = spark_lake.rows(f"SELECT seen FROM {namespace}.t")
    assert json.loads(seen[0])["identifiers"] == []


@pytest.mark.nightly
def test_table_that_is_there_stays(spark_lake: SparkLake, namespace: str) -> None:
    spark_lake.rows(f"CREATE TABLE {namespace}.t AS SELECT 1 AS id")
    refused_as(
        "TABLE_OR_VIEW_ALREADY_EXISTS", spark_lake.spark, f"CREATE TABLE {namespace}.t AS SELECT 2 AS id"
    )
    spark_lake.rows(f"CREATE TABLE IF NOT EXISTS {namespace}.t AS SELECT 2 AS id")
    assert spark_lake.rows(f"SELECT * FROM {namespace}.t") == [(1,)]


@pytest.mark.nightly
def test_rights_on_both_sides(spark_lake: SparkLake, namespace: str) -> None:
    spark_lake.rows(f"CREATE NAMESPACE IF NOT EXISTS {CATALOG}.bobs")
    spark_lake.rows(f"CREATE TABLE {namespace}.secret AS SELECT 42 AS id")
    steal = f"CREATE TABLE {CATALOG}.bobs.stolen AS SELECT * FROM {namespace}.secret"
    refused_as("NOT_AUTHORIZED", spark_lake.session(BOB), steal)
    refused_as("NOT_AUTHORIZED", spark_lake.session(CAROL), f"CREATE TABLE {CATALOG}.db.t AS SELECT 1 AS id")
    allowed = f"file://{spark_lake.lake.warehouse}/{namespace.removeprefix(f'{CATALOG}.')}"
    widened = f"TBLPROPERTIES ('read.allowed.data.paths' = '{allowed}')"
    refused_as(
        "NOT_AUTHORIZED",
        spark_lake.session(BOB),
        f"CREATE TABLE {CATALOG}.bobs.t {widened} AS SELECT 1 AS id",
    )
    assert "stolen" not in str(spark_lake.rows(f"SHOW TABLES IN {CATALOG}.bobs", BOB))


@pytest.mark.nightly
def test_data_frames_make_tables(spark_lake: SparkLake, namespace: str) -> None:
    frame = spark_lake.spark.sql("SELECT 1 AS id, 'a' AS name")
    frame.writeTo(f"{namespace}.t").partitionedBy("name").tableProperty("a", "b").create()
    assert spark_lake.rows(f"SELECT * FROM {namespace}.t") == [(1, "a")]
    assert stock_table(spark_lake, f"{namespace}.t").properties["a"] == "b"
