"""Incremental reads: the rows that were appended between two snapshots."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.spark import SparkLake
from tests.support.spark_refusals import refusal
from tests.support.spark_tables import create_table, stock_table
from tests.support.tables import ENCRYPTED


@pytest.fixture(scope="module")
def table(spark_lake: SparkLake) -> str:
    """An encrypted table: two appends, an overwrite, and another append after a rename."""
    name = f"{spark_lake.namespace()}.t"
    create_table(spark_lake, name, "id INT, was STRING", ENCRYPTED)
    for statement in (
        "INSERT INTO {} VALUES (1, 'a')",
        "INSERT INTO {} VALUES (2, 'b'), (3, 'c')",
        "INSERT OVERWRITE {} VALUES (9, 'i')",
        "ALTER TABLE {} RENAME COLUMN was TO name",
        "INSERT INTO {} VALUES (4, 'd')",
    ):
        spark_lake.rows(statement.format(name))
    return name


def _ids(spark_lake: SparkLake, table: str) -> list[int]:
    return [each.snapshot_id for each in stock_table(spark_lake, table).snapshots()]


def _read(spark_lake: SparkLake, table: str, **options: Any) -> Any:
    named = {name.replace("_", "-"): str(value) for name, value in options.items()}
    return spark_lake.spark.read.options(**named).table(table)


def test_appended_rows_are_read_by_the_current_schema(spark_lake: SparkLake, table: str) -> None:
    first, second, _, last = _ids(spark_lake, table)
    after = _read(spark_lake, table, start_snapshot_id=first)
    assert sorted(after.collect()) == [(2, "b"), (3, "c"), (4, "d")]
    assert after.count() == 3
    assert after.where("name = 'c'").selectExpr("id", "_file LIKE '%parquet'").collect() == [(3, True)]
    between = _read(spark_lake, table, start_snapshot_id=first, end_snapshot_id=second)
    assert sorted(between.collect()) == [(2, "b"), (3, "c")]
    assert _read(spark_lake, table, start_snapshot_id=last).count() == 0
    assert spark_lake.rows(f"SELECT id FROM {table} WITH (`start-snapshot-id` = {second})") == [(4,)]


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("options", "condition", "message"),
    [
        ({"end_snapshot_id": 1}, "REQUEST_INVALID", "needs start-snapshot-id"),
        ({"start_snapshot_id": 1}, "REQUEST_INVALID", "not an ancestor"),
        ({"start_snapshot_id": "x"}, "REQUEST_INVALID", "'x' is not a value"),
        ({"start_snapshot_id": 1, "versionAsOf": 1}, "NO_SUCH_SNAPSHOT", "snapshot"),
        ({"streaming_max_rows_per_micro_batch": 1}, "NOT_SUPPORTED_YET", "no effect in a batch"),
    ],
    ids=str,
)
def test_read_options_that_do_not_fit_are_refused(
    spark_lake: SparkLake, table: str, options: dict[str, Any], condition: str, message: str
) -> None:
    refused = refusal(lambda: _read(spark_lake, table, **options).collect())
    assert refused.getCondition() == f"LAKEWARDEN.{condition}"
    assert message in str(refused)
