"""Metadata tables in Spark: names, time travel, queries, and what is refused."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any

import pytest

from catalog.base.identifiers import table_name
from catalog.metadata_tables.kinds import MetadataTable
from tests.support.lake import CAROL, policy, standard_policies
from tests.support.spark import SparkLake
from tests.support.spark_refusals import refused_as
from tests.support.vectors import each_row

KINDS = sorted(MetadataTable)


@pytest.fixture(scope="module")
def table(spark_lake: SparkLake) -> str:
    """A partitioned, encrypted table with a tag on its first snapshot."""
    name = f"{spark_lake.namespace('inspected')}.t"
    spark_lake.rows(
        f"CREATE TABLE {name} (id BIGINT, part STRING, price DECIMAL(9,2), x DOUBLE, at TIMESTAMP, day DATE)"
        " USING iceberg PARTITIONED BY (part, days(day))"
        " TBLPROPERTIES ('encryption.columns' = 'lakewarden:id,price,x,at',"
        " 'write.delete.mode' = 'merge-on-read')"
    )
    one = "1.50BD, double('NaN'), TIMESTAMP '2020-01-01 00:00:00Z', DATE '2020-01-01'"
    spark_lake.rows(f"INSERT INTO {name} VALUES (1, 'a', {one}), (2, 'a', {one})")
    spark_lake.rows(f"ALTER TABLE {name} CREATE TAG first")
    spark_lake.rows(f"ALTER TABLE {name} CREATE BRANCH early")
    spark_lake.rows(f"INSERT INTO {name} VALUES (3, NULL, NULL, 2.5, NULL, NULL)")
    spark_lake.rows(f"DELETE FROM {name} WHERE id = 1")
    return name


@pytest.mark.nightly
def test_rows_of_metadata_tables(spark_lake: SparkLake, table: str) -> None:
    found: dict[str, list[Any]] = {kind: spark_lake.rows(f"SELECT * FROM {table}.{kind}") for kind in KINDS}
    assert [each.operation for each in found["snapshots"]] == ["append", "append", "delete"]
    assert [each.is_current_ancestor for each in found["history"]] == [True] * 3
    assert {each.name: each.type for each in found["refs"]} == {
        "main": "BRANCH",
        "first": "TAG",
        "early": "BRANCH",
    }
    assert len(found["metadata_log_entries"]) == 6
    assert [each.content for each in found["files"]].count(1) == 1
    assert (len(found["data_files"]), len(found["delete_files"]), len(found["all_files"])) == (2, 1, 3)
    (two,) = (each for each in found["data_files"] if each.record_count == 2)
    assert tuple(two.partition) == ("a", date(2020, 1, 1))
    metrics = two.readable_metrics
    assert (metrics.id.lower_bound, metrics.id.upper_bound, metrics.id.value_count) == (1, 2, 2)
    assert (metrics.price.upper_bound, metrics.x.value_count, metrics.x.lower_bound) == (
        Decimal("1.50"),
        2,
        None,
    )
    assert metrics["at"].lower_bound.timestamp() == 1577836800
    assert two.key_metadata is None and two.value_counts[1] == 2
    assert {each.spec_id for each in found["partitions"]} == {0}
    (deleted,) = found["position_deletes"]
    assert (deleted.file_path, deleted.row, deleted.spec_id) == (two.file_path, None, 0)
    assert (deleted.partition, deleted.delete_file_path) == (
        two.partition,
        found["delete_files"][0].file_path,
    )
    assert spark_lake.rows(f"SELECT count(*), max(pos) FROM {table}.position_deletes") == [(1, deleted.pos)]
    assert len(found["manifests"]) == len({each.path for each in found["all_manifests"]})


@pytest.mark.nightly
def test_queries_on_metadata_tables(spark_lake: SparkLake, table: str) -> None:
    first = spark_lake.rows(f"SELECT record_count FROM {table}.files VERSION AS OF 'first'")
    assert first == [(2,)]
    assert spark_lake.spark.read.option("tag", "first").table(f"{table}.entries").count() == 1
    assert spark_lake.rows(f"SELECT count(*) FROM {table}.branch_main.files") == [(3,)]
    joined = spark_lake.rows(
        f"SELECT s.operation, count(*), sum(e.data_file.record_count) FROM {table}.entries e"
        f" JOIN {table}.SNAPSHOTS s ON e.snapshot_id = s.snapshot_id WHERE e.status < 2 GROUP BY 1 ORDER BY 1"
    )
    assert joined == [("append", 2, 3), ("delete", 1, 1)]
    assert spark_lake.rows(f"SELECT count(*) FROM {table}.all_entries") == [(3,)]
    frame = (
        spark_lake.spark.table(f"{table}.files")
        .where("content = 0")
        .select("partition.part", "readable_metrics.id")
    )
    assert sorted((each.part or "", each.id.upper_bound) for each in frame.collect()) == [("", 3), ("a", 2)]
    assert spark_lake.rows(f"SELECT file_format FROM {table}.files LIMIT 1") == [("PARQUET",)]
    described = {each.col_name: each.data_type for each in spark_lake.rows(f"DESCRIBE {table}.partitions")}
    assert described["partition"] == "struct<part:string,day_day:date>"
    assert spark_lake.spark.catalog.tableExists(f"{table}.refs")
    assert not spark_lake.spark.catalog.tableExists(f"{table}.nothing")


@pytest.mark.nightly
def test_states_of_metadata_tables_by_options(spark_lake: SparkLake, table: str) -> None:
    """Those that Iceberg's have of one snapshot: the same as by VERSION AS OF."""
    first = spark_lake.lake.services.loader.load(table_name(table.split(".")[1:-1], "t")).metadata.snapshots[
        0
    ]

    def counts(name: str, value: object) -> list[int]:
        read = spark_lake.spark.read.option(name, str(value))
        return [read.table(f"{table}.{kind}").count() for kind in ("files", "position_deletes")]

    assert counts("branch", "main") == [3, 1]
    assert counts("branch", "early") == counts("snapshot-id", first.snapshot_id) == [1, 0]
    assert counts("as-of-timestamp", first.timestamp_ms) == [1, 0]
    by_sql = " UNION ALL ".join(
        f"SELECT count(*) FROM {table}.{kind} VERSION AS OF 'early'"
        for kind in ("entries", "data_files", "delete_files", "manifests", "partitions")
    )
    assert spark_lake.rows(by_sql) == [(1,), (1,), (0,), (1,), (1,)]


@pytest.mark.nightly
def test_show_partitions(spark_lake: SparkLake, table: str) -> None:
    assert sorted(spark_lake.rows(f"SHOW PARTITIONS {table}")) == [
        ("part=a/day_day=2020-01-01",),
        ("part=null/day_day=null",),
    ]
    assert spark_lake.rows(f"SHOW PARTITIONS {table} PARTITION (part = 'a')") == [
        ("part=a/day_day=2020-01-01",)
    ]


@each_row(
    "statement",
    [
        "INSERT INTO {}.files SELECT * FROM {}.files",
        "INSERT OVERWRITE {}.refs SELECT * FROM {}.refs",
        "DELETE FROM {}.files WHERE content = 0",
        "DELETE FROM {}.files",
        "UPDATE {}.files SET content = 1",
        "TRUNCATE TABLE {}.snapshots",
        "ALTER TABLE {}.files ADD COLUMN x INT",
        "ALTER TABLE {}.files SET TBLPROPERTIES ('a' = 'b')",
        "DROP TABLE {}.files",
        "SELECT * FROM {}.snapshots VERSION AS OF 'first'",
        "SELECT * FROM {}.all_files VERSION AS OF 'first'",
        "ALTER TABLE {} ADD PARTITION (part = 'b', day_day = DATE '2020-01-01')",
        "ALTER TABLE {} DROP PARTITION (part = 'a', day_day = DATE '2020-01-01')",
        "SELECT * FROM {}.snapshots WITH ('branch' = 'main')",
        "SELECT * FROM {}.files WITH ('split-size' = '7')",
        "SELECT * FROM {}.position_deletes WITH ('start-snapshot-id' = '7')",
    ],
)
def test_what_metadata_tables_and_partitions_refuse(
    spark_lake: SparkLake, table: str, statement: str
) -> None:
    refused_as("NOT_SUPPORTED_YET", spark_lake.spark, statement.replace("{}", table))


@pytest.mark.nightly
def test_what_a_user_of_some_columns_sees(spark_lake: SparkLake, table: str) -> None:
    namespace = table.split(".")[1]
    resources = {"database": [namespace], "table": ["t"], "column": ["id"]}
    spark_lake.lake.set_policies([*standard_policies(), policy("carol", resources, {CAROL: ["select"]})])
    try:
        (row,) = spark_lake.rows(f"SELECT * FROM {table}.data_files WHERE record_count = 2", CAROL)
        assert (row.file_path, tuple(row.partition)) == (None, (None, None))
        assert (row.readable_metrics.id.upper_bound, row.readable_metrics.x.value_count) == (2, None)
        refused_as("NOT_AUTHORIZED", spark_lake.session(CAROL), f"SHOW PARTITIONS {table}")
    finally:
        spark_lake.lake.set_policies(standard_policies())
