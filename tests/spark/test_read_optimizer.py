"""Runtime filters, limits, and joins of partitions without a shuffle."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException

from policy.restrictions.predicate import Compare, Comparison, Literal
from tests.support.reads import data_files, refused
from tests.support.restrictions import restricted
from tests.support.spark import SparkLake
from tests.support.spark_tasks import counted

#: Spark filters at run time only by what it broadcasts anyway.
JOINED = "SELECT sum(t.id) FROM {t} t JOIN {d} d ON t.part = d.part WHERE d.name = '{name}'"


@contextmanager
def settings(spark_lake: SparkLake, given: Mapping[str, str]) -> Iterator[None]:
    """Settings of the session, for a while."""
    conf = spark_lake.session().conf
    for name, value in given.items():
        conf.set(name, value)
    try:
        yield
    finally:
        for name in given:
            conf.unset(name)


@pytest.fixture(scope="module")
def parted(spark_lake: SparkLake) -> tuple[str, str]:
    """A table with a file for each of four partitions, without that of `part = 3`; and one of their names."""
    namespace = spark_lake.namespace()
    table, names = f"{namespace}.t", f"{namespace}.d"
    spark_lake.rows(
        f"CREATE TABLE {table} (id BIGINT, part INT) USING iceberg PARTITIONED BY (part) "
        "TBLPROPERTIES ('write.distribution-mode' = 'hash')"
    )
    spark_lake.rows(f"INSERT INTO {table} SELECT id, CAST(id % 4 AS INT) FROM range(40)")
    spark_lake.rows(f"CREATE TABLE {names} (part INT, name STRING) USING iceberg")
    spark_lake.rows(f"INSERT INTO {names} VALUES (1, 'one'), (2, 'two'), (3, 'three'), (NULL, 'none')")
    (gone,) = (
        path for path in data_files(spark_lake, table) if pq.read_table(path)["id"][0].as_py() % 4 == 3
    )
    gone.unlink()
    return table, names


def test_a_join_opens_no_file_of_a_partition_without_a_match(spark_lake, parted):
    table, names = parted
    found = spark_lake.rows(JOINED.format(t=table, d=names, name="two"))
    assert found == [(sum(range(2, 40, 4)),)]
    assert spark_lake.rows(JOINED.format(t=table, d=names, name="none")) == [(None,)]
    refused(spark_lake, JOINED.format(t=table, d=names, name="three"), "DATA_FILE_MISSING", "data-file")


@pytest.mark.nightly
def test_columns_that_swap_their_names_during_a_query_lose_no_rows(spark_lake, namespace):
    table, names = f"{namespace}.t", f"{namespace}.d"
    spark_lake.rows(
        f"CREATE TABLE {table} (id BIGINT, part INT, other INT) USING iceberg "
        "PARTITIONED BY (truncate(10, part))"
    )
    spark_lake.rows(f"INSERT INTO {table} VALUES (1, 20, 80), (2, 30, 70)")
    spark_lake.rows(f"CREATE TABLE {names} (part INT, name STRING) USING iceberg")
    spark_lake.rows(f"INSERT INTO {names} VALUES (20, 'two')")
    query = spark_lake.session().sql(JOINED.format(t=table, d=names, name="two"))
    query._jdf.queryExecution().executedPlan()
    for old, new in (("part", "x"), ("other", "part"), ("x", "other")):
        spark_lake.rows(f"ALTER TABLE {table} RENAME COLUMN {old} TO {new}")
    with pytest.raises(PySparkException, match="TableChanged"):
        query.collect()


@pytest.mark.nightly
def test_a_limit_reads_no_more_files_than_have_its_rows(spark_lake, namespace):
    table = f"{namespace}.t"
    mode = "TBLPROPERTIES ('write.delete.mode' = 'merge-on-read')"
    spark_lake.rows(f"CREATE TABLE {table} (id BIGINT) USING iceberg {mode}")
    for first in (0, 10, 20):
        spark_lake.rows(f"INSERT INTO {table} SELECT /*+ COALESCE(1) */ id FROM range({first}, {first + 10})")

    def read(rows: int) -> int:
        return _files(spark_lake, f"SELECT * FROM {table} LIMIT {rows}")

    one_file_a_task = {"spark.sql.files.maxPartitionBytes": "1", "spark.sql.files.openCostInBytes": "1g"}
    with settings(spark_lake, one_file_a_task):
        assert [read(rows) for rows in (1, 10, 11, 99)] == [1, 1, 2, 3]
        assert spark_lake.rows(f"SELECT * FROM {table} WHERE id > 25 LIMIT 1")
        # It is not known how many rows the deletes leave.
        spark_lake.rows(f"DELETE FROM {table} WHERE id IN (3, 13, 23)")
        assert len(spark_lake.rows(f"SELECT * FROM {table} LIMIT 10")) == 10


@pytest.mark.nightly
def test_tasks_read_about_as_many_files_as_each_other(spark_lake, namespace):
    table = f"{namespace}.t"
    spark_lake.rows(f"CREATE TABLE {table} (id BIGINT) USING iceberg")
    spark_lake.rows(f"INSERT INTO {table} SELECT /*+ REPARTITION_BY_RANGE(7, id) */ id FROM range(700)")
    read = f"SELECT spark_partition_id() AS task, _file, id FROM {table}"
    # A task is full with three of the files.
    full = {
        "spark.sql.files.maxPartitionBytes": "60m",
        "spark.sql.files.openCostInBytes": "25m",
        "spark.sql.files.minPartitionNum": "1",
    }
    with settings(spark_lake, full):
        tasks = spark_lake.rows(f"SELECT count(DISTINCT _file), count(*) FROM ({read}) GROUP BY task")
    assert sorted(files for files, _ in tasks) == [2, 2, 3]
    assert sum(rows for _, rows in tasks) == 700


def _files(spark_lake: SparkLake, query: str) -> int:
    """The number of tasks that read files in the plan of a query."""
    plan = spark_lake.session().sql(query)._jdf.queryExecution().sparkPlan()
    return int(plan.collectLeaves().head().inputRDD().getNumPartitions())


KEPT = {
    "spark.sql.iceberg.planning.preserve-data-grouping": "true",
    "spark.sql.sources.v2.bucketing.enabled": "true",
    "spark.sql.sources.v2.bucketing.pushPartValues.enabled": "true",
    "spark.sql.requireAllClusterKeysForCoPartition": "false",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.adaptive.enabled": "false",
}


@pytest.mark.nightly
def test_tables_that_are_partitioned_alike_are_joined_without_a_shuffle(spark_lake, namespace):
    a, b = tables = [f"{namespace}.a", f"{namespace}.b"]
    for number, table in enumerate(tables):
        spark_lake.rows(
            f"CREATE TABLE {table} (id BIGINT, part STRING, ts TIMESTAMP) USING iceberg "
            "PARTITIONED BY (part, bucket(2, id), days(ts))"
        )
        spark_lake.rows(
            f"INSERT INTO {table} SELECT id, nullif(chr(97 + CAST(id % 3 AS INT)), 'b'), "
            f"timestamp_micros(id * 40000000000) FROM range({number}, 20)"
        )
    query = (
        f"SELECT a.id, a.part, b.ts FROM {a} a JOIN {b} b ON a.id = b.id AND a.part = b.part AND a.ts = b.ts"
    )
    shuffled = sorted(map(str, spark_lake.rows(query)))
    with settings(spark_lake, KEPT):
        joined = spark_lake.session().sql(query)
        plan = joined._jdf.queryExecution().executedPlan().toString()
        assert sorted(map(str, joined.collect())) == shuffled
    assert len(shuffled) == 12
    assert "Exchange" not in plan


@pytest.mark.parametrize("file_format", ["parquet", pytest.param("orc", marks=pytest.mark.nightly)])
def test_tasks_count_the_rows_and_bytes_that_they_read(spark_lake, namespace, file_format):
    """As Spark's own readers do, also where files are verified; where rows are hidden, no bytes."""
    table = f"{namespace}.t"
    properties = f"'encryption.mechanism' = 'envelope', 'write.format.default' = '{file_format}'"
    rows = "SELECT id, uuid() AS v FROM range(0, 1000, 1, 1)"
    spark_lake.rows(f"CREATE TABLE {table} TBLPROPERTIES ({properties}) AS {rows}")
    (size,) = spark_lake.rows(f"SELECT file_size_in_bytes FROM {table}.files")[0]
    records, read = counted(spark_lake, f"SELECT id, v FROM {table}")
    assert records == 1000 and size / 2 < read <= 2 * size, (size, records, read)
    with restricted(Compare(Comparison.LT, 1, Literal("long", 10)), {}):
        assert counted(spark_lake, f"SELECT id, v FROM {table}") == (10, 0)
        spark_lake.rows(f"INSERT INTO {table} SELECT id, 'v' FROM range(0, 5)")
        asked = f"SELECT count(*), max(id) FROM {table}"
        before = counted(spark_lake, asked)
        spark_lake.rows(f"INSERT INTO {table} SELECT id + 10, 'v' FROM range(0, 100)")
        assert before[1] == 0 and counted(spark_lake, asked) == before
