"""The audit of a lake: planted violations of every kind are found, and nothing in good tables."""

from __future__ import annotations

import shutil
import zlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.conversions import to_bytes
from pyiceberg.types import LongType

from lakewarden import pipelines
from spark_ext.pipelines.audit.catalogs import ThisCatalog
from spark_ext.pipelines.audit.job import audited
from spark_ext.pipelines.audit.options import Looking
from spark_ext.pipelines.audit.pipeline import Audit
from spark_ext.pipelines.audit.rules import RULES
from spark_ext.pipelines.items import Item, Outcome, Status
from spark_ext.pipelines.lake import Lake
from tests.support.attacker import data_file, entry, local
from tests.support.lake import ALICE, policy, standard_policies
from tests.support.planted_lake import (
    PlantedLake,
    copied,
    of_another_algorithm,
    plant,
    replace_by_plaintext,
)
from tests.support.rules import put_rules, rule
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


def audit(spark_lake: SparkLake, namespace: str, user: str = ALICE, **options: Any) -> dict[str, Outcome]:
    """Audit a namespace without a record; outcomes by the names of its tables."""
    pipeline = Audit(f"{namespace.removeprefix(f'{CATALOG}.')}.*", **options)
    lake = Lake(spark_lake.session(user), CATALOG)
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


@pytest.mark.nightly
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


@pytest.mark.nightly
def test_a_run_is_recorded_and_reported(spark_lake: SparkLake, good: str) -> None:
    tables = f"{good.removeprefix(f'{CATALOG}.')}.*"
    report = pipelines.audit(spark_lake.spark, tables, catalog=CATALOG, show=False)
    assert (report.state, report.findings) == ("complete", ())


@pytest.fixture(scope="module")
def planted(spark_lake: SparkLake) -> Iterator[PlantedLake]:
    """A namespace with a planted violation of every kind. No other test meets its damaged files."""
    namespace = spark_lake.namespace()
    made = PlantedLake(spark_lake.lake, namespace.removeprefix(f"{CATALOG}."))
    plant(made)
    plant_encrypted(spark_lake, made)
    yield made
    shutil.rmtree(spark_lake.lake.warehouse / made.namespace)


def plant_encrypted(spark_lake: SparkLake, planted: PlantedLake) -> None:
    """Plant violations in encrypted tables, which Spark writes."""
    master_keys(spark_lake, "pii")
    keyed = {"encryption.columns": "pii:name"}
    tables = {
        "plain_file": (ENVELOPE, ["unsealed-metadata", "wrong-encryption", "plaintext-statistics"]),
        "swapped": (ENVELOPE, ["plaintext-file"]),
        "algorithm": (ENVELOPE, ["wrong-footer"]),
        "footer": (keyed, ["wrong-digest"]),
        "pages": (ENVELOPE, ["unreadable"]),
        "digest": (ENVELOPE | {"encryption.verify-digest": "always"}, ["wrong-digest"]),
        "disabled": (ENVELOPE, ["key-unusable"]),
        "ending": (ENVELOPE, ["key-near-destruction"]),
        "unused": (ENVELOPE, ["key-unused"]),
        "ruled": ({}, ["encryption-policy"]),
    }
    for name, (properties, rules) in tables.items():
        table = f"{CATALOG}.{planted.namespace}.{name}"
        create_table(spark_lake, table, "id BIGINT, name STRING", properties)
        spark_lake.rows(f"INSERT INTO {table} SELECT /*+ COALESCE(1) */ id, 'n' FROM range(9)")
        planted.expect(name, *rules)
    attacker = planted.expect("plain_file")
    bounds = {1: to_bytes(LongType(), 1)}
    path = copied(attacker)
    attacker.commit_behind(*attacker.appending(entry(data_file(path, lower_bounds=bounds))))
    algorithm = planted.expect("algorithm")
    algorithm.edit(algorithm.data_paths()[0], of_another_algorithm)
    replace_by_plaintext(local(planted.expect("swapped").data_paths()[0]))
    for name, place in (("footer", -100), ("pages", 40), ("digest", 40)):
        planted.expect(name).edit(planted.expect(name).data_paths()[0], partial(changed_at, place))
    keys = "WHERE table_id = (SELECT table_id FROM lw_binding WHERE namespace = ? AND name = ?)"
    planted.run(f"UPDATE lw_pek SET state = 'disabled' {keys}", "disabled")
    planted.run(f"UPDATE lw_pek SET state = 'disabled', destroy_after_ms = 4000000000000 {keys}", "ending")
    for _ in range(2):
        spark_lake.rows(f"CALL {CATALOG}.system.rotate_key(table => '{planted.namespace}.unused')")


def changed_at(place: int, data: bytes) -> bytes:
    """The bytes with one of them changed."""
    changed = bytearray(data)
    changed[place] ^= 1
    return bytes(changed)


@pytest.mark.nightly
def test_planted_violations_of_every_kind_are_found_and_no_others(
    spark_lake: SparkLake, planted: PlantedLake
) -> None:
    put_rules(spark_lake.lake, rule("r", databases=[planted.namespace], tables=["ruled"]))
    try:
        outcomes = audit(spark_lake, f"{CATALOG}.{planted.namespace}", verify=1.0)
    finally:
        put_rules(spark_lake.lake)
    assert found(outcomes) == planted.expected
    # Root can open all files. Footers that are too large are in the tests of footers.
    others = {"unopened-file", "unchecked-footer"}
    assert {each.id for each in RULES} - {rule for rule, _ in planted.expected} == others
    assert {name: each.reason for name, each in outcomes.items() if each.status is not Status.DONE} == {}


@pytest.mark.nightly
def test_tables_that_are_spread_over_tasks_are_audited_like_small_ones(
    spark_lake: SparkLake, planted: PlantedLake
) -> None:
    lake, source = Lake(spark_lake.spark, CATALOG), ThisCatalog(f"{planted.namespace}.*")
    facts = list(source.facts(lake, list(source.items(lake))).values())
    small, spread = (
        {(each.rule, each.table, each.path) for part in parts for each in part.findings}
        for parts in (audited(spark_lake.spark, facts, Looking(together=size)) for size in (20_000, 1))
    )
    assert small == spread
    assert {"file-missing", "file-size", "manifest-record"} <= {rule for rule, _, _ in spread}


@pytest.mark.nightly
def test_a_share_reads_the_same_files_each_time_and_no_others(spark_lake: SparkLake) -> None:
    namespace = spark_lake.namespace()
    table = f"{namespace}.sampled"
    create_table(spark_lake, table, COLUMNS, ENVELOPE)
    fill(spark_lake, table, (0, 1), (1, 2))
    attacker = PlantedLake(spark_lake.lake, namespace.removeprefix(f"{CATALOG}.")).expect("sampled")
    first, last = sorted(attacker.data_paths(), key=lambda path: zlib.crc32(path.encode()))
    share = (zlib.crc32(first.encode()) + 1) / 2**32
    attacker.edit(last, partial(changed_at, 40))
    assert found(audit(spark_lake, namespace, verify=share)) == set()
    assert found(audit(spark_lake, namespace, verify=1.0)) == {("unreadable", "sampled")}
    attacker.edit(first, partial(changed_at, 40))
    assert found(audit(spark_lake, namespace, verify=share)) == {("unreadable", "sampled")}


@pytest.mark.nightly
def test_an_auditor_without_select_audits_all_but_what_needs_keys(spark_lake: SparkLake, good: str) -> None:
    lake = spark_lake.lake
    auditor = policy("auditors", {"service": ["*"]}, {"auditor": ["audit"]})
    code = policy("auditors-code", {"engine": ["*"]}, {"auditor": ["code"]})
    lake.set_policies([*standard_policies(), auditor, code])
    try:
        outcomes = audit(spark_lake, good, "auditor", verify=1.0)
    finally:
        lake.set_policies(standard_policies())
    assert found(outcomes) == set()
    assert all(each.status is Status.DONE for each in outcomes.values())
    assert outcomes["uniform"].counts["opened"] == 5
    assert outcomes["uniform"].counts["not-read"] == 1
    assert "read-refs" not in outcomes["uniform"].counts


def test_another_catalog_is_audited_before_its_tables_are_adopted(
    spark_lake: SparkLake, tmp_path: Path
) -> None:
    uri = f"sqlite:///{tmp_path}/catalog.db?password=hunter2"
    stock = SqlCatalog("stock", uri=uri, warehouse=f"file://{tmp_path}/warehouse")
    stock.create_namespace("ns")
    rows = pa.table({"id": pa.array([1, 2], pa.int64())})
    for name in ("fine", "away", "outer"):
        stock.create_table(f"ns.{name}", rows.schema).append(rows)
    outer = stock.load_table("ns.outer").location()
    stock.create_table("ns.inner", rows.schema, f"{outer}/inner").append(rows)
    away = tmp_path / "away.parquet"
    pq.write_table(pa.table(rows.columns, schema=pa.schema([pa.field("id", pa.int64())])), away)
    stock.load_table("ns.away").add_files([f"file://{away}"])
    pipeline = Audit("ns.*", {"name": "stock", "type": "sql", "uri": uri})
    lake = Lake(spark_lake.spark, CATALOG)
    done = list(pipeline.run(lake, list(pipeline.plan(lake)), NoSteps()))
    outcomes = {each.table.removeprefix("ns."): each for each in done}
    assert found(outcomes) == {
        ("foreign-path", "away"),
        ("overlap", "outer"),
        ("overlap", "inner"),
    }
    assert "hunter2" not in str((pipeline.parameters, done, list(pipeline.plan(lake))))
    stock.close()


@pytest.mark.nightly
def test_what_is_dropped_or_cannot_be_read_is_left_and_the_rest_is_audited(spark_lake: SparkLake) -> None:
    namespace = spark_lake.namespace()
    for name in ("kept", "dropped", "denied"):
        create_table(spark_lake, f"{namespace}.{name}", COLUMNS)
        fill(spark_lake, f"{namespace}.{name}", (0, 2))
    lake = Lake(spark_lake.spark, CATALOG)
    pipeline = Audit(f"{namespace.removeprefix(f'{CATALOG}.')}.*")
    items = list(pipeline.plan(lake))
    spark_lake.rows(f"DROP TABLE {namespace}.dropped")
    made = PlantedLake(spark_lake.lake, namespace.removeprefix(f"{CATALOG}."))
    # A directory that is nested too deeply cannot be listed.
    deep = local(made.expect("denied").location).joinpath(*("d" for _ in range(102)))
    deep.mkdir(parents=True)
    done = {each.table.rpartition(".")[2]: each for each in pipeline.run(lake, items, NoSteps())}
    assert {name: each.status for name, each in done.items()} == {
        "kept": Status.DONE,
        "dropped": Status.LEFT,
        "denied": Status.FAILED,
    }
    assert "dropped or renamed" in (done["dropped"].reason or "")
    assert "tree-depth" in (done["denied"].reason or "")
    shutil.rmtree(deep.parents[101])
    assert found(done) == set()
