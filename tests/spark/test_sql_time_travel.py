"""Earlier states of a table: VERSION AS OF, TIMESTAMP AS OF."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from tests.support.spark import SparkLake
from tests.support.spark_refusals import refusal, refused_as
from tests.support.spark_tables import stock_table

pytestmark = pytest.mark.core


@pytest.fixture(scope="module")
def table(spark_lake: SparkLake) -> str:
    """A table of two snapshots, whose column got another name between them; a tag stands on the first."""
    name = f"{spark_lake.namespace()}.t"
    spark_lake.rows(f"CREATE TABLE {name} AS SELECT 1 AS id, 'old' AS was")
    first = stock_table(spark_lake, name)
    snapshot = first.metadata.current_snapshot_id
    assert snapshot is not None
    first.manage_snapshots().create_tag(snapshot, "first").commit()
    spark_lake.rows(f"ALTER TABLE {name} RENAME COLUMN was TO now")
    spark_lake.rows(f"ALTER TABLE {name} ADD COLUMN more INT")
    spark_lake.rows(f"INSERT INTO {name} VALUES (2, 'new', 3)")
    return name


def _snapshots(spark_lake: SparkLake, table: str) -> list[tuple[int, int]]:
    return [(each.snapshot_id, each.timestamp_ms) for each in stock_table(spark_lake, table).snapshots()]


def test_snapshot_by_id_has_the_columns_of_its_time(spark_lake: SparkLake, table: str) -> None:
    (first, _), (second, _) = _snapshots(spark_lake, table)
    assert spark_lake.rows(f"SELECT id, was FROM {table} VERSION AS OF {first}") == [(1, "old")]
    assert spark_lake.spark.read.option("versionAsOf", first).table(table).columns == ["id", "was"]
    latest = spark_lake.rows(f"SELECT * FROM {table} VERSION AS OF {second}")
    assert sorted(latest) == [(1, "old", None), (2, "new", 3)]


@pytest.mark.nightly
def test_snapshot_by_tag_and_branch(spark_lake: SparkLake, table: str) -> None:
    assert spark_lake.rows(f"SELECT * FROM {table} VERSION AS OF 'first'") == [(1, "old")]
    assert len(spark_lake.rows(f"SELECT * FROM {table} VERSION AS OF 'main'")) == 2


@pytest.mark.nightly
def test_snapshot_by_time(spark_lake: SparkLake, table: str) -> None:
    (_, first_ms), (_, second_ms) = _snapshots(spark_lake, table)
    spark = spark_lake.spark
    for at_ms, count in ((first_ms, 1), (second_ms - 1, 1), (second_ms, 2)):
        text = datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f UTC")
        assert spark.sql(f"SELECT * FROM {table} TIMESTAMP AS OF '{text}'").count() == count, at_ms
    before = datetime.fromtimestamp(first_ms / 1000 - 1, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    refused_as("NO_SUCH_SNAPSHOT", spark, f"SELECT * FROM {table} TIMESTAMP AS OF '{before}'")


@pytest.mark.nightly
@pytest.mark.parametrize("version", ["12345", "'absent'", "'FIRST'"])
def test_snapshot_that_is_not_there(spark_lake: SparkLake, table: str, version: str) -> None:
    refused_as("NO_SUCH_SNAPSHOT", spark_lake.spark, f"SELECT * FROM {table} VERSION AS OF {version}")


@pytest.mark.nightly
def test_old_and_new_in_one_query(spark_lake: SparkLake, table: str) -> None:
    joined = f"SELECT n.id FROM {table} n LEFT ANTI JOIN {table} VERSION AS OF 'first' o ON n.id = o.id"
    assert spark_lake.rows(joined) == [(2,)]


@pytest.mark.nightly
def test_reader_options_of_other_engines_are_not_passed_over(spark_lake: SparkLake, table: str) -> None:
    """Passed over, `start-snapshot` would read today's rows without a word."""
    (first, _), _ = _snapshots(spark_lake, table)
    assert spark_lake.spark.read.option("snapshot-id", first).table(table).columns == ["id", "was"]
    error = refusal(lambda: spark_lake.spark.read.option("start-snapshot", first).table(table).collect())
    assert "start-snapshot" in str(error)


@pytest.mark.nightly
def test_data_frame_sees_what_was_written_after_it(spark_lake: SparkLake, namespace: str) -> None:
    spark_lake.rows(f"CREATE TABLE {namespace}.t AS SELECT 1 AS id")
    frame = spark_lake.spark.table(f"{namespace}.t")
    assert frame.count() == 1
    spark_lake.rows(f"INSERT INTO {namespace}.t VALUES (2)")
    assert frame.count() == 2
