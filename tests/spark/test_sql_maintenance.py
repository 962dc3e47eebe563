"""CALL of procedures that the catalog carries out by itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.garbage import aged
from tests.support.spark import CATALOG, SparkLake
from tests.support.spark_refusals import refused_as
from tests.support.spark_tables import create_table, stock_table

pytestmark = pytest.mark.core


def test_what_the_catalog_maintains(spark_lake: SparkLake, namespace: str) -> None:
    table, below = f"{namespace}.t", f"{namespace}.t".removeprefix(f"{CATALOG}.")
    create_table(spark_lake, table, "id INT", {"encryption.mechanism": "envelope"})

    def call(procedure: str, arguments: str = "") -> list[tuple[object, ...]]:
        sql = f"CALL {CATALOG}.system.{procedure}('{below}'{arguments})"
        return [tuple(row) for row in spark_lake.rows(sql)]

    for number in range(3):
        spark_lake.rows(f"INSERT INTO {table} VALUES ({number})")
    assert call("rewrite_manifests") == [(3, 1)]
    spark_lake.rows(f"DELETE FROM {table} WHERE id = 0")
    stock = stock_table(spark_lake, table)
    lost = Path(stock.location().removeprefix("file://")) / "data" / "lost.parquet"
    lost.write_bytes(b"x")
    aged(lost)
    old = stock.snapshots()[0].snapshot_id
    ((data, *_, lists, _, _),) = call("expire_snapshots", f", snapshot_ids => array({old})")
    assert (data, lists) == (0, 1)
    ((data, positions, equal, manifests, lists, statistics, problem),) = call(
        "expire_snapshots", ", TIMESTAMP '2100-01-01', 1"
    )
    assert (data, positions, equal, lists, statistics) == (1, 0, 0, 3, 0) and manifests > 0
    assert problem is None
    assert sorted(spark_lake.rows(f"SELECT id FROM {table}")) == [(1,), (2,)]
    assert call("remove_orphan_files", ", dry_run => true") == [(f"file://{lost}",)]
    assert lost.exists()
    assert call("remove_orphan_files") == [(f"file://{lost}",)]
    assert not lost.exists() and len(spark_lake.rows(f"SELECT id FROM {table}")) == 2
    refused_as(
        "REQUEST_INVALID",
        spark_lake.spark,
        f"CALL {CATALOG}.system.remove_orphan_files('{below}', older_than => TIMESTAMP '2100-01-01')",
    )
    for procedure, arguments in (
        ("expire_snapshots", ", stream_results => true"),
        ("rewrite_manifests", ", use_caching => true"),
        ("compute_partition_stats", ""),
    ):
        sql = f"CALL {CATALOG}.system.{procedure}('{below}'{arguments})"
        refused_as("NOT_SUPPORTED_YET", spark_lake.spark, sql)


@pytest.mark.nightly
def test_a_table_is_registered(spark_lake: SparkLake, namespace: str) -> None:
    table = f"{namespace}.t"
    create_table(spark_lake, table, "id INT")
    spark_lake.rows(f"INSERT INTO {table} VALUES (1), (2)")
    stock = stock_table(spark_lake, table)
    spark_lake.rows(f"DROP TABLE {table}")
    named = f"table => '{table}', metadata_file => '{stock.metadata_location}'"
    ((snapshot, records, files),) = spark_lake.rows(f"CALL {CATALOG}.system.register_table({named})")
    assert (snapshot, records) == (stock.metadata.current_snapshot_id, 2) and files > 0
    assert len(spark_lake.rows(f"SELECT * FROM {table}")) == 2
