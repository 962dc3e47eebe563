"""CALL of Iceberg's procedures on snapshots, by position and by name."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from tests.support.lake import ALICE, BOB, policy, standard_policies, tables
from tests.support.spark import CATALOG, SparkLake
from tests.support.spark_refusals import refused_as
from tests.support.spark_tables import create_table, stock_table
from tests.support.tables import ENCRYPTED

pytestmark = pytest.mark.core


def _call(spark_lake: SparkLake, procedure: str, table: str, *values: object, **named: object) -> Any:
    given = [f"'{table.removeprefix(f'{CATALOG}.')}'", *(repr(each) for each in values)]
    given += [f"{name} => {value!r}" for name, value in named.items()]
    return spark_lake.spark.sql(f"CALL {CATALOG}.system.{procedure}({', '.join(given)})")


def _ids(spark_lake: SparkLake, table: str) -> list[int]:
    return sorted(row[0] for row in spark_lake.rows(f"SELECT id FROM {table}"))


def _snapshots(spark_lake: SparkLake, table: str) -> list[tuple[int, int]]:
    return [(each.snapshot_id, each.timestamp_ms) for each in stock_table(spark_lake, table).snapshots()]


@pytest.fixture
def table(spark_lake: SparkLake, namespace: str) -> str:
    """An encrypted table of three snapshots, with write-audit-publish."""
    name = f"{namespace}.t"
    create_table(spark_lake, name, "id INT", ENCRYPTED | {"write.wap.enabled": "true"})
    for number in (1, 2, 3):
        spark_lake.rows(f"INSERT INTO {name} VALUES ({number})")
    return name


def test_main_is_taken_back_and_forward(spark_lake: SparkLake, table: str) -> None:
    (first, _), (second, second_ms), (third, third_ms) = _snapshots(spark_lake, table)
    spark_lake.rows(f"CACHE TABLE {table}")
    back = _call(spark_lake, "rollback_to_snapshot", table, second)
    assert back.columns == ["previous_snapshot_id", "current_snapshot_id"]
    assert ([tuple(row) for row in back.collect()], _ids(spark_lake, table)) == ([(third, second)], [1, 2])
    assert _call(spark_lake, "set_current_snapshot", table, snapshot_id=third).collect() == [(second, third)]
    spark_lake.rows(f"ALTER TABLE {table} CREATE TAG v1 AS OF VERSION {first}")
    assert _call(spark_lake, "set_current_snapshot", table, ref="v1").collect() == [(third, first)]
    _call(spark_lake, "set_current_snapshot", table, third)
    at = datetime.fromtimestamp(third_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f UTC")
    called = f"CALL {CATALOG}.system.rollback_to_timestamp('{table}', TIMESTAMP '{at}')"
    assert spark_lake.rows(called) == [(third, second)]
    below = _call(spark_lake, "ancestors_of", table)
    assert (below.columns, below.collect()[0]) == (["snapshot_id", "timestamp"], (second, second_ms))
    assert [row[0] for row in _call(spark_lake, "ancestors_of", table, third).collect()] == [
        third,
        second,
        first,
    ]
    assert _ids(spark_lake, table) == [1, 2]


@pytest.mark.nightly
def test_staged_rows_are_published_once(spark_lake: SparkLake, table: str) -> None:
    conf = spark_lake.spark.conf
    for wap_id, number in (("w1", 4), ("w2", 5)):
        conf.set("spark.wap.id", wap_id)
        try:
            spark_lake.rows(f"INSERT INTO {table} VALUES ({number})")
        finally:
            conf.unset("spark.wap.id")
    assert _ids(spark_lake, table) == [1, 2, 3]
    staged = [each for each, _ in _snapshots(spark_lake, table)][3:]
    published = _call(spark_lake, "publish_changes", table, "w1")
    assert published.columns == ["source_snapshot_id", "current_snapshot_id"]
    assert (published.collect(), _ids(spark_lake, table)) == ([(staged[0], staged[0])], [1, 2, 3, 4])
    ((source, current),) = _call(spark_lake, "cherrypick_snapshot", table, snapshot_id=staged[1]).collect()
    assert (source, current not in staged, _ids(spark_lake, table)) == (staged[1], True, [1, 2, 3, 4, 5])
    summary = stock_table(spark_lake, table).current_snapshot().summary
    assert summary["source-snapshot-id"] == str(staged[1]) and summary["published-wap-id"] == "w2"
    for call in (f"publish_changes('{table}', 'w2')", f"publish_changes('{table}', 'absent')"):
        assert "snapshot-move" in refused_as(
            "REQUEST_INVALID", spark_lake.spark, f"CALL {CATALOG}.system.{call}"
        )


@pytest.mark.nightly
def test_audited_branch_is_published_by_fast_forward(spark_lake: SparkLake, table: str) -> None:
    spark_lake.spark.conf.set("spark.wap.branch", "audit")
    try:
        spark_lake.rows(f"INSERT INTO {table} VALUES (4)")
        spark_lake.rows(f"DELETE FROM {table} WHERE id = 1")
    finally:
        spark_lake.spark.conf.unset("spark.wap.branch")
    third = _snapshots(spark_lake, table)[2][0]
    moved = _call(spark_lake, "fast_forward", table, "main", "audit")
    head = _snapshots(spark_lake, table)[-1][0]
    assert moved.columns == ["branch_updated", "previous_ref", "updated_ref"]
    assert (moved.collect(), _ids(spark_lake, table)) == ([("main", third, head)], [2, 3, 4])


@pytest.mark.nightly
def test_who_can_only_update_cannot_take_main_back(spark_lake: SparkLake, table: str) -> None:
    (first, _), *_ = _snapshots(spark_lake, table)
    writes = policy("bob-writes", tables("*"), {BOB: ["update", "select"]})
    spark_lake.rows(f"ALTER TABLE {table} CREATE BRANCH b")
    spark_lake.rows(f"INSERT INTO {table}.branch_b VALUES (4)")
    spark_lake.lake.set_policies([*standard_policies(), writes])
    try:
        for call in (
            f"rollback_to_snapshot('{table}', {first})",
            f"set_current_snapshot('{table}', {first})",
        ):
            refused_as("NOT_AUTHORIZED", spark_lake.session(BOB), f"CALL {CATALOG}.system.{call}")
        spark_lake.rows(f"CALL {CATALOG}.system.fast_forward('{table}', 'main', 'b')", BOB)
    finally:
        spark_lake.lake.set_policies(standard_policies())
    assert _ids(spark_lake, table) == [1, 2, 3, 4]
    refused_as("NOT_AUTHORIZED", spark_lake.session(BOB), f"CALL {CATALOG}.system.ancestors_of('{table}')")
    assert spark_lake.rows(f"CALL {CATALOG}.system.ancestors_of('{table}')", ALICE)
