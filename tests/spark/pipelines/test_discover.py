"""The pipeline `discover`: what it finds, what it leaves alone, and what it says."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest

from catalog.base.identifiers import TableName
from catalog.rules.encryption_policy import facts_of_table
from lakewarden import pipelines
from policy.encryption_rules import EncryptionRules
from spark_ext.pipelines.discover.pipeline import Discover
from spark_ext.pipelines.discover.proposal import MASKS_FILE, RULES_FILE
from spark_ext.pipelines.items import Outcome
from spark_ext.pipelines.journal import FINDINGS, RUNS
from spark_ext.pipelines.lake import Lake, on_table
from spark_ext.pipelines.report import Report, RunState
from tests.planning.test_plan_restrictions import masking
from tests.support.lake import ALICE, standard_policies
from tests.support.planted import BY_NAME, BY_VALUE, GOOD, Make, email
from tests.support.spark import CATALOG, SparkLake
from tests.support.spark_tables import data_files, local_path

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


@pytest.mark.nightly
def test_jobs_are_described_by_pipeline_after_the_session_s_description(lake: Lake, namespace: str) -> None:
    write(lake, f"{namespace}.described", {"id": lambda rng: rng.random()})
    context = lake.spark.sparkContext
    context.setJobDescription("nightly")
    try:
        discovered(lake, f"{namespace.partition('.')[2]}.described")
        assert context.getLocalProperty("spark.job.description") == "nightly"
    finally:
        context.setJobDescription(cast(str, None))
    context._jsc.sc().listenerBus().waitUntilEmpty()
    jobs = context._jsc.sc().statusStore().jobsList(None)
    described = {
        each.description().get()
        for each in map(jobs.apply, range(jobs.size()))
        if each.description().isDefined()
    }
    assert "nightly: discover" in described


@pytest.mark.nightly
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


@pytest.mark.nightly
def test_good_tables_cause_no_alarm(lake: Lake, namespace: str) -> None:
    write(lake, f"{namespace}.good", dict(GOOD))
    report = discovered(lake, f"{namespace.partition('.')[2]}.*")
    assert kinds(report) == {}
    assert report.counts["examined-columns"] == len(GOOD)


@pytest.mark.nightly
def test_tables_that_change_meanwhile_are_left_and_a_second_run_finishes(
    lake: Lake, spark_lake: SparkLake, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("dropped", "renamed", "unreadable", "written")
    for name in names:
        write(lake, f"{namespace}.{name}", {"c": email})
    file, *_ = data_files(spark_lake, f"{namespace}.unreadable")
    damaged = local_path(file)
    content, look, changed = damaged.read_bytes(), Discover.run, []

    def meanwhile(self: Discover, *args: Any) -> Iterator[Outcome]:
        if not changed:
            changed.append(True)
            damaged.write_bytes(b"PAR1 no more")
            lake.sql(f"DROP TABLE {namespace}.dropped")
            lake.sql(f"ALTER TABLE {namespace}.renamed RENAME TO {namespace.partition('.')[2]}.new_place")
            lake.sql(f"INSERT INTO {namespace}.written VALUES ('a.b@c.example')")
        return look(self, *args)

    monkeypatch.setattr(Discover, "run", meanwhile)
    pattern = f"{namespace.partition('.')[2]}.*"
    report = discovered(lake, pattern)
    assert report.state is RunState.INCOMPLETE
    assert {each.table.partition(".")[2]: str(each.status) for each in report.outcomes} == {
        "dropped": "left",
        "renamed": "left",
        "unreadable": "failed",
        "written": "done",
    }
    assert all(each.reason for each in report.not_done)
    damaged.write_bytes(content)
    again = discovered(lake, pattern)
    assert again.continued and again.state is RunState.COMPLETE
    found = sorted(each.table.partition(".")[2] for each in again.findings)
    assert found == ["new_place", "unreadable", "written"]


def test_columns_that_are_encrypted_or_not_shown_are_not_looked_at(
    lake: Lake, spark_lake: SparkLake, namespace: str, tmp_path: Path
) -> None:
    database = namespace.partition(".")[2]
    create = "encryption.columns' = 'lakewarden:c', 'encryption.mechanism' = 'envelope"
    lake.sql(f"CREATE TABLE {namespace}.t (c STRING, email STRING, d STRING) TBLPROPERTIES ('{create}')")
    lake.sql(f"INSERT INTO {namespace}.t VALUES ('a@b.example', 'a@b.example', 'a@b.example')")
    masks = masking("*", "MASK_NULL", "masked")
    masks["resources"] = {"database": {"values": [database]}, "table": {"values": ["t"]}}
    masks["resources"]["column"] = {"values": ["email"]}
    for item in masks["dataMaskPolicyItems"]:
        item["users"] = [ALICE]
    spark_lake.lake.set_policies([*standard_policies(), masks])
    try:
        report = discovered(lake, f"{database}.*", proposal=tmp_path)
    finally:
        spark_lake.lake.set_policies(standard_policies())
    assert report.state is RunState.COMPLETE
    assert kinds(report) == {"": {"columns-not-examined"}, "email": {"email"}, "d": {"email"}}
    assert report.counts == {"columns": 3, "encrypted-columns": 1, "examined-columns": 1}
    (note,) = [each for each in report.findings if each.rule == "columns-not-examined"]
    assert note.message.endswith(": email.")


@pytest.mark.nightly
def test_the_proposal_asks_for_what_was_found_and_nothing_else(
    lake: Lake, spark_lake: SparkLake, namespace: str, tmp_path: Path
) -> None:
    table, database = f"{namespace}.`odd t`", namespace.partition(".")[2]
    lake.sql(
        f"CREATE TABLE {table} AS SELECT x AS `a.b`, x AS `*`, x AS `{{USER}}`, id, x AS required, "
        "named_struct('p.q', x, 'm', map(x, array(named_struct('k', x)))) AS s "
        "FROM (SELECT id, concat('u', id, '@m.example') AS x FROM range(30))"
    )
    report = discovered(lake, f"{database}.*", proposal=tmp_path)
    found = {"a.b", "*", "{USER}", "required", "s.p.q", "s.m.key", "s.m.value.element.k"}
    assert set(kinds(report)) == found
    texts = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    rules = EncryptionRules.parse({RULES_FILE: texts[RULES_FILE]})
    name = TableName((database,), "odd t")
    facts = facts_of_table(spark_lake.lake.services.access.load(spark_lake.lake.caller(ALICE), name))
    assert {each.column for each in rules.violations(facts)} == found
    spark_lake.lake.set_policies([*standard_policies(), *json.loads(texts[MASKS_FILE])["policies"]])
    try:
        columns = lake.admin("GET", on_table(name, "columns"))["columns"]
    finally:
        spark_lake.lake.set_policies(standard_policies())
    # A map with masked keys is masked as a whole.
    assert {each["name"] for each in columns if not each["shown"]} == found
