"""The pipeline `discover`: what it finds, what it leaves alone, and what it says."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakewarden import pipelines
from spark_ext.pipelines.journal import FINDINGS, RUNS
from spark_ext.pipelines.lake import Lake
from spark_ext.pipelines.report import Report, RunState
from tests.support.planted import BY_NAME, BY_VALUE, GOOD, Make
from tests.support.spark import CATALOG, SparkLake

ROWS = 60


@pytest.fixture(scope="module")
def lake(spark_lake: SparkLake) -> Lake:
    return Lake(spark_lake.spark, CATALOG)


def discovered(lake: Lake, tables: str, **options: Any) -> Report:
    return pipelines.discover(lake.spark, tables, catalog=CATALOG, show=False, **options)


def write(lake: Lake, table: str, columns: dict[str, Make], seed: int = 1) -> dict[str, list[object]]:
    rng = random.Random(seed)
    values = {name: [make(rng) for _ in range(ROWS)] for name, make in columns.items()}
    lake.spark.createDataFrame(pa.table(values)).writeTo(table).create()
    return values


def kinds(report: Report) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for each in report.findings:
        found.setdefault(each.column or "", set()).add(each.rule.removeprefix("plaintext-"))
    return found


def test_every_kind_is_found_and_no_value_is_told(
    lake: Lake, namespace: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    planted = BY_VALUE | BY_NAME
    values = write(lake, f"{namespace}.planted", {name: make for name, (_, make) in planted.items()})
    lake.sql(
        f"CREATE TABLE {namespace}.nested AS SELECT struct(c1 AS a) AS s, array(struct(c5 AS b)) AS l, "
        f"map(c1, 1) AS k, map('x', struct(c8 AS p)) AS v FROM {namespace}.planted"
    )
    report = discovered(lake, f"{namespace.partition('.')[2]}.*", proposal=tmp_path)
    assert report.state is RunState.COMPLETE
    expected = {name: {kind} for name, (kind, _) in planted.items()}
    nested = {"s.a": {"email"}, "l.element.b": {"bank-account"}, "k.key": {"email"}, "v.value.p": {"phone"}}
    assert kinds(report) == expected | nested
    recorded = [str(lake.sql(f"SELECT * FROM {lake.name(table)}")) for table in (RUNS, FINDINGS)]
    documents = [each.read_text() for each in tmp_path.iterdir()]
    said = "\n".join(
        [report.to_json(), report.to_html(), report.to_sarif(), *recorded, *documents, *capfd.readouterr()]
    )
    told = [str(value) for each in values.values() for value in each if str(value) in said]
    assert not told


def test_good_tables_cause_no_alarm(lake: Lake, namespace: str) -> None:
    write(lake, f"{namespace}.good", dict(GOOD))
    report = discovered(lake, f"{namespace.partition('.')[2]}.*")
    assert kinds(report) == {}
    assert report.counts["examined-columns"] == len(GOOD)
