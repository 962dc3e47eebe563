"""ORC tables through Spark: true Iceberg files, whose columns are found by field id."""

from __future__ import annotations

from typing import Any

import pyarrow.orc as orc
import pytest
from pyspark.errors import PySparkException

from tests.support.spark import SparkLake
from tests.support.spark_plans import tasks_with_rows
from tests.support.spark_refusals import refused_as
from tests.support.spark_tables import data_files, local_path, master_keys, stock_table

pytestmark = pytest.mark.core

COLUMNS = """id BIGINT NOT NULL, i INT, b BOOLEAN,
    f FLOAT, d DOUBLE, s STRING, bin BINARY, dt DATE, ts TIMESTAMP,
    tn TIMESTAMP_NTZ, d9 DECIMAL(9,2), d30 DECIMAL(30,4), st STRUCT<a: INT, `x.y`: STRING>, arr ARRAY<INT>,
    m MAP<STRING, STRUCT<q: BIGINT>>, aa ARRAY<ARRAY<STRING>>"""
ROWS = """SELECT * FROM VALUES
    (1L, 2, true, 1.5F, 2.5D, 'abc', X'0102', DATE'2020-02-03', TIMESTAMP'2020-01-02 03:04:05.123456Z',
     TIMESTAMP_NTZ'1800-01-02 03:04:05.123456', 12.34BD, 1234567890123456789.1234BD,
     named_struct('a', 1, 'x.y', 'x'), array(1, null, 3),
     map('k', named_struct('q', 7L)), array(array('a'), null)),
    (2L, -5, false, CAST('NaN' AS FLOAT), -0.0D, 'ü😀', X'', DATE'0001-01-01',
     TIMESTAMP'1969-12-31 23:59:58.999999Z', TIMESTAMP_NTZ'1701-01-01 00:00:00.000001', -0.01BD, -0.0001BD,
     named_struct('a', null, 'x.y', null), array(), map(), array()),
    (3L, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null)"""


def made(spark_lake: SparkLake, table: str, columns: str, rows: str, using: str = "orc") -> None:
    spark_lake.rows(f"CREATE TABLE {table} ({columns}) USING {using}")
    spark_lake.rows(f"INSERT INTO {table} {rows}")


def plain(rows: list[Any]) -> list[dict[str, Any]]:
    return [row.asDict(recursive=True) for row in rows]


@pytest.fixture(scope="module")
def typed(spark_lake: SparkLake) -> tuple[str, str]:
    """The same rows as ORC and as Parquet."""
    namespace = spark_lake.namespace()
    made(spark_lake, f"{namespace}.o", COLUMNS, ROWS)
    made(spark_lake, f"{namespace}.p", COLUMNS, ROWS, using="parquet")
    return f"{namespace}.o", f"{namespace}.p"


@pytest.mark.parametrize("compiled", ["true", "false"])
def test_every_type_comes_back_as_from_parquet(
    spark_lake: SparkLake, typed: tuple[str, str], compiled: str
) -> None:
    """In batches, and row by row."""
    spark_lake.spark.conf.set("spark.sql.codegen.wholeStage", compiled)
    try:
        in_orc, in_parquet = (plain(spark_lake.rows(f"SELECT * FROM {table} ORDER BY id")) for table in typed)
    finally:
        spark_lake.spark.conf.unset("spark.sql.codegen.wholeStage")
    assert repr(in_orc) == repr(in_parquet)  # NaN equals nothing
    assert [len(in_orc), in_orc[0]["ts"].microsecond, in_orc[1]["s"]] == [3, 123456, "ü😀"]


@pytest.mark.nightly
def test_the_two_zeros_of_a_batch_differ(spark_lake: SparkLake, namespace: str) -> None:
    rows = "(float('0.0'), -0.0D, array(0.0D, -0.0D)), (float('-0.0'), 0.0D, NULL)"
    zeros = f"SELECT /*+ COALESCE(1) */ * FROM VALUES {rows} AS t(f, d, a)"
    made(spark_lake, f"{namespace}.t", "f FLOAT, d DOUBLE, a ARRAY<DOUBLE>", zeros)
    found = spark_lake.rows(f"SELECT * FROM {namespace}.t")
    assert repr(plain(found)) == repr(plain(spark_lake.rows(zeros)))


@pytest.mark.nightly
def test_stock_readers_see_true_iceberg_files(spark_lake: SparkLake, typed: tuple[str, str]) -> None:
    """Field ids on every level, required columns, and instants in microseconds of UTC."""
    files = data_files(spark_lake, typed[0])
    assert {file["file_format"] for file in files} == {"ORC"}
    schema = orc.ORCFile(str(local_path(files[0]))).schema
    ids = {field.name: field.metadata[b"iceberg.id"] for field in schema}
    assert [ids["id"], ids["aa"]] == [b"1", b"16"]
    assert schema.field("id").metadata[b"iceberg.required"] == b"true"
    assert schema.field("ts").metadata[b"iceberg.timestamp-unit"] == b"MICROS"
    assert b"iceberg.id" in schema.field("m").type.item_field.metadata
    rows = sorted(stock_table(spark_lake, typed[0]).scan().to_arrow().to_pylist(), key=lambda row: row["id"])
    assert [row["d30"] for row in rows] == [
        row["d30"] for row in plain(spark_lake.rows(f"SELECT * FROM {typed[0]} ORDER BY id"))
    ]
    assert rows[1]["ts"].isoformat() == "1969-12-31T23:59:58.999999+00:00"


@pytest.mark.nightly
def test_statistics_are_those_of_the_same_rows_in_parquet(
    spark_lake: SparkLake, typed: tuple[str, str]
) -> None:
    """Timestamps and bytes have no bounds in ORC's statistics."""

    def told(table: str) -> list[dict[str, Any]]:
        metrics = [file["readable_metrics"] for file in data_files(spark_lake, table)]
        names = ("id", "i", "b", "d", "s", "dt", "d9", "d30")
        kept = ("value_count", "null_value_count", "lower_bound", "upper_bound")
        found = [{name: {key: each[name][key] for key in kept} for name in names} for each in metrics]
        return sorted(found, key=repr)

    assert told(typed[0]) == told(typed[1])


@pytest.mark.nightly
def test_made_from_a_query_partitioned_and_from_a_data_frame(spark_lake: SparkLake, namespace: str) -> None:
    """Encrypted beside a partition column in plaintext; odd names of columns."""
    table = f"{namespace}.made"
    master_keys(spark_lake, "pii")
    spark_lake.rows(
        f"CREATE TABLE {table} USING orc PARTITIONED BY (day) "
        "TBLPROPERTIES ('encryption.columns' = 'pii:ssn') AS SELECT * FROM VALUES "
        "(1L, 'a', 's1', true), (2L, 'b', 's2', false), (3L, 'b', NULL, NULL) "
        "AS (id, day, ssn, `we.ird ``col`)"
    )
    files = data_files(spark_lake, table)
    assert {file["partition"]["day"] for file in files} == {"a", "b"}
    assert all(local_path(file).suffix == ".orc" for file in files)
    assert spark_lake.rows(f"SELECT ssn FROM {table} WHERE day = 'b' AND id < 3") == [("s2",)]
    assert spark_lake.rows(f"SELECT id FROM {table} WHERE NOT `we.ird ``col`") == [(2,)]
    assert spark_lake.rows(f"SELECT id FROM {table} WHERE `we.ird ``col` IS NULL OR id IN (1, 7)") != []
    frame = spark_lake.session().table(table)
    frame.writeTo(f"{namespace}.copied").using("orc").create()
    assert sorted(spark_lake.rows(f"SELECT id, ssn FROM {namespace}.copied")) == [
        (1, "s1"),
        (2, "s2"),
        (3, None),
    ]


@pytest.mark.nightly
def test_rows_of_many_stripes_are_read_by_many_tasks_once_each(spark_lake: SparkLake, namespace: str) -> None:
    table = f"{namespace}.t"
    properties = "'write.orc.stripe-size-bytes' = '1000', 'encryption.mechanism' = 'envelope'"
    spark_lake.rows(f"CREATE TABLE {table} (id BIGINT, s STRING) USING orc TBLPROPERTIES ({properties})")
    spark_lake.rows(f"INSERT INTO {table} SELECT id, sha2(string(id), 256) FROM range(0, 30000, 1, 1)")
    (file,) = data_files(spark_lake, table)
    assert len(file["split_offsets"]) > 3
    session = spark_lake.new_session()
    session.conf.set("spark.sql.files.maxPartitionBytes", "150000")
    session.conf.set("spark.sql.files.openCostInBytes", "1")
    read = session.table(table)
    assert tasks_with_rows(read) > 3
    assert read.selectExpr("count(*)", "count(DISTINCT id)", "sum(id)").collect() == [
        (30000, 30000, 449985000)
    ]
    assert read.where("id = 11234").count() == 1 and read.where("id > 29990").count() == 9


@pytest.mark.nightly
def test_what_orc_cannot_hold_is_refused_when_it_is_written(spark_lake: SparkLake, namespace: str) -> None:
    """ORC would give back the first second after 1970 for the last one before."""
    spark_lake.rows(f"CREATE TABLE {namespace}.t (ts TIMESTAMP) USING orc")
    statement = f"INSERT INTO {namespace}.t VALUES (TIMESTAMP'1969-12-31 23:59:59.5Z')"
    with pytest.raises(PySparkException, match="orc-timestamp"):
        spark_lake.rows(statement)
    assert spark_lake.rows(f"SELECT * FROM {namespace}.t") == []


#: A text in a column of its own, and a condition that it meets.
ALTERED = {
    "cast(X'618062' AS string)": "a < 'a\u00e9'",  # bytes that are no text: below the text by Spark
    "cast(X'FF' AS string)": "b >= cast(X'FE' AS string)",
    "concat(repeat('a', 1019), '\U0010ffff', 'b')": "c > concat(repeat('a', 1019), '\uffff')",
}


@pytest.mark.nightly
@pytest.mark.parametrize("encrypted", ["envelope", "plaintext"])
def test_texts_whose_bounds_orc_alters_are_found(
    spark_lake: SparkLake, namespace: str, encrypted: str
) -> None:
    """ORC keeps bounds as text, and shortens long ones."""
    properties = f"TBLPROPERTIES ('encryption.mechanism' = '{encrypted}')"
    spark_lake.rows(f"CREATE TABLE {namespace}.t (a STRING, b STRING, c STRING) USING orc {properties}")
    spark_lake.rows(f"INSERT INTO {namespace}.t SELECT {', '.join(ALTERED)}")
    found = " UNION ALL ".join(
        f"SELECT '{name}' FROM {namespace}.t WHERE {condition}"
        for name, condition in zip("abc", ALTERED.values(), strict=True)
    )
    assert sorted(spark_lake.rows(found)) == [("a",), ("b",), ("c",)]


@pytest.mark.nightly
def test_using_and_the_property_may_not_contradict_each_other(spark_lake: SparkLake, namespace: str) -> None:
    sql = f"CREATE TABLE {namespace}.t (id INT) USING orc TBLPROPERTIES ('write.format.default' = 'parquet')"
    refused_as("PROPERTY_INVALID", spark_lake.spark, sql)
