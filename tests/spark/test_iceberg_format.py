"""`format("iceberg")` by name, where Iceberg's own jar is not present."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.spark import SparkLake
from tests.support.spark_refusals import refusal, refused_as

pytestmark = pytest.mark.core


def test_tables_are_read_and_written_by_name(spark_lake: SparkLake, namespace: str) -> None:
    table, spark = f"{namespace}.t", spark_lake.spark
    frame = spark.createDataFrame([(1,)], "id INT")
    frame.write.format("iceberg").save(table)
    assert "path" not in {row.key for row in spark_lake.rows(f"SHOW TBLPROPERTIES {table}")}
    spark_lake.rows(f"ALTER TABLE {table} CREATE BRANCH audit")
    spark_lake.rows(f"ALTER TABLE {table} CREATE TAG first")
    frame.write.format("iceberg").mode("append").save(table)
    frame.write.format("iceberg").option("branch", "audit").mode("append").save(table)
    reader = spark.read.format("iceberg")
    assert [reader.load(f"{table}{each}").count() for each in ("", ".branch_audit", ".tag_first")] == [
        2,
        2,
        1,
    ]
    assert spark.read.format("ICEBERG").option("path", table).option("tag", "first").load().count() == 1
    frame.write.format("iceberg").mode("overwrite").save(table)
    assert spark.read.format("iceberg").load(table).count() == 1


@pytest.mark.nightly
def test_paths_and_other_names_are_refused(spark_lake: SparkLake, tmp_path: Path) -> None:
    spark = spark_lake.spark
    frame = spark.createDataFrame([(1,)], "id INT")
    for name in (str(tmp_path), f"file://{tmp_path}", "spark_catalog.default.t", "a..b"):
        for action in (
            lambda name=name: spark.read.format("iceberg").load(name),
            lambda name=name: frame.write.format("iceberg").mode("append").save(name),
            lambda name=name: frame.write.format("iceberg").save(name),
        ):
            assert "[rule=path]" in str(refusal(action)), name
    assert list(tmp_path.iterdir()) == []


@pytest.mark.nightly
def test_what_a_name_cannot_have_is_refused(spark_lake: SparkLake, namespace: str, tmp_path: Path) -> None:
    table, spark = f"{namespace}.t", spark_lake.spark
    spark_lake.rows(f"CREATE TABLE {table} (id INT)")
    refusal(lambda: spark.read.format("iceberg").schema("id INT").load(table))
    refusal(lambda: spark.read.format("iceberg").option("no-such", "1").load(table).collect())
    refused_as("TABLE_OR_VIEW_NOT_FOUND", spark, f"SELECT * FROM {namespace}.absent")
    frame = spark.table(table)
    error = refusal(lambda: frame.writeTo(table).option("path", str(tmp_path)).append())
    assert "write option path" in str(error)
