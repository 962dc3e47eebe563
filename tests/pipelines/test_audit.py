"""The audit of a lake: planted violations of every kind are found, and nothing in good tables."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from lakewarden import pipelines
from spark_ext.pipelines.audit.pipeline import Audit
from spark_ext.pipelines.items import Item, Outcome, Status
from spark_ext.pipelines.lake import Lake
from tests.support.spark import CATALOG, SparkLake
from tests.support.spark_tables import create_table, master_keys

COLUMNS = "id BIGINT, name STRING, price DECIMAL(9, 2), day DATE, at TIMESTAMP, tags ARRAY<STRING>"
ENVELOPE = {"encryption.mechanism": "envelope"}
ROWS = "SELECT id, concat('n', id), id / 4, DATE'2026-01-01', now(), array('a', 'b') FROM range({}, {})"


class NoSteps:
    """An audit records no steps."""

    def of(self, item: Item) -> dict[str, Any]:
        return {}

    def record(self, item: Item, step: str, data: Any) -> None:
        raise AssertionError


def fill(spark_lake: SparkLake, table: str, *ranges: tuple[int, int]) -> None:
    for first, end in ranges:
        spark_lake.rows(f"INSERT INTO {table} {ROWS.format(first, end)}")


def audit(spark_lake: SparkLake, namespace: str, **options: Any) -> dict[str, Outcome]:
    """Audit a namespace without a record; outcomes by the names of its tables."""
    pipeline = Audit(f"{namespace.removeprefix(f'{CATALOG}.')}.*", **options)
    lake = Lake(spark_lake.spark, CATALOG)
    done = list(pipeline.run(lake, list(pipeline.plan(lake)), NoSteps()))
    return {each.table.rpartition(".")[2]: each for each in done}


def found(outcomes: dict[str, Outcome]) -> set[tuple[str, str]]:
    return {(each.rule, table) for table, outcome in outcomes.items() for each in outcome.findings}


@pytest.fixture(scope="module")
def good(spark_lake: SparkLake) -> Iterator[str]:
    """A namespace with good tables of every kind."""
    namespace = spark_lake.namespace()
    master_keys(spark_lake, "pii")
    keyed = {"encryption.columns": "pii:name,tags"}
    merging = {"write.delete.mode": "merge-on-read"}
    tables = {
        "plain": merging,
        "parts": {},
        "uniform": ENVELOPE | merging,
        "keyed": keyed | {"encryption.footer": "plaintext"},
        "hidden": keyed,
        "digests": ENVELOPE | {"encryption.verify-digest": "always"},
        "orc": {"write.format.default": "orc"},
        "sealed_orc": {"write.format.default": "orc", **ENVELOPE},
        "migrated": {},
        "empty": {},
    }
    for name, properties in tables.items():
        table = f"{namespace}.{name}"
        create_table(spark_lake, table, COLUMNS, properties, "day" if name == "parts" else None)
        if name != "empty":
            fill(spark_lake, table, (0, 5), (5, 8))
    for name in ("plain", "uniform"):
        spark_lake.rows(f"DELETE FROM {namespace}.{name} WHERE id = 3")
    spark_lake.rows(f"ALTER TABLE {namespace}.plain CREATE BRANCH b")
    spark_lake.rows(f"ALTER TABLE {namespace}.plain CREATE TAG t")
    spark_lake.rows(f"ALTER TABLE {namespace}.plain ADD COLUMN more INT")
    spark_lake.rows(f"ALTER TABLE {namespace}.plain RENAME COLUMN name TO title")
    spark_lake.rows(f"INSERT INTO {namespace}.plain SELECT *, 1 FROM ({ROWS.format(20, 22)})")
    spark_lake.rows(
        f"ALTER TABLE {namespace}.migrated SET TBLPROPERTIES ('encryption.mechanism' = 'envelope')"
    )
    fill(spark_lake, f"{namespace}.migrated", (30, 33))
    yield namespace


def test_good_tables_of_every_kind_have_no_findings(spark_lake: SparkLake, good: str) -> None:
    outcomes = audit(spark_lake, good, verify=1.0)
    assert found(outcomes) == set()
    assert {name: (each.status, each.reason) for name, each in outcomes.items()} == dict.fromkeys(
        outcomes, (Status.DONE, None)
    )
    plain = outcomes["plain"].counts
    assert plain["snapshots"] == 4
    assert plain["refs"] == 3
    assert plain["read-refs"] == 3
    assert plain["opened"] >= 4


def test_a_run_is_recorded_and_reported(spark_lake: SparkLake, good: str) -> None:
    tables = f"{good.removeprefix(f'{CATALOG}.')}.*"
    report = pipelines.audit(spark_lake.spark, tables, catalog=CATALOG, show=False)
    assert (report.state, report.findings) == ("complete", ())
