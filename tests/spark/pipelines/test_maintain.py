"""The pipeline `maintain`: its policy, what is due, and what tasks do and do not touch."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from lakewarden import pipelines
from policy.errors import RequestInvalid
from spark_ext.pipelines.budget import Budget
from spark_ext.pipelines.engine import Clock, run
from spark_ext.pipelines.items import Item, Outcome, Status
from spark_ext.pipelines.lake import Lake
from spark_ext.pipelines.maintain.document import Kind, parse_policy
from spark_ext.pipelines.maintain.pipeline import Maintain
from spark_ext.pipelines.maintain.schedule import due
from spark_ext.pipelines.report import Report, RunState
from tests.faults.garbage import aged
from tests.support.pipeline_steps import MemorySteps
from tests.support.spark import CATALOG, SparkLake
from tests.support.spark_tables import data_files, local_path, stock_table

NOW = datetime(2026, 1, 10, 12, tzinfo=UTC)
POLICY = b"""
tables:
  - match: 'sales.*,!sales.tmp_*'
    window: '22:00-06:00'
    compact: {every: '1d', target-size: '512MiB', delete-ratio: '0.2', where: day > 7}
    expire: {every: '12h', age: '30d', keep: '10'}
  - match: '*'
    manifests: {every: '4w'}
    orphans: {every: '7d', age: '7d'}
"""


@pytest.fixture(scope="module")
def lake(spark_lake: SparkLake) -> Lake:
    return Lake(spark_lake.spark, CATALOG)


def test_the_first_entry_that_matches_a_table_applies_alone() -> None:
    policy = parse_policy("maintenance.yaml", POLICY)
    sales, others = policy.entry("sales.orders"), policy.entry("sales.tmp_1")
    assert sales is not None and others is not None and others == policy.entry("hr.people")
    assert [task.kind for task in sales.tasks] == [Kind.COMPACT, Kind.EXPIRE]
    compact, expire = sales.tasks
    assert compact.settings == {"target-size": str(2**29), "delete-ratio": "0.2", "where": "day > 7"}
    assert (expire.every, expire.settings) == (43_200, {"age": "2592000", "keep": "10"})
    assert [task.kind for task in others.tasks] == [Kind.MANIFESTS, Kind.ORPHANS]


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        ("{match: a.b, compact: {every: '1d', location: s3_other}}", "unknown field 'location'"),
        ("{match: a.b, compact: {every: '1d', files: x}}", "unknown field 'files'"),
        ("{match: a.b, vacuum: {every: '1d'}}", "unknown field 'vacuum'"),
        ("{match: a.b, expire: {age: '1d'}}", "the field every is missing"),
        ("{compact: {every: '1d'}}", "the field match is missing"),
        ("{match: a.b}", "the entry has no task"),
        ("{match: '!a.b', compact: {every: '1d'}}", "choose no table"),
        ("{match: a.b, compact: {every: daily}}", "is not a duration"),
        ("{match: a.b, compact: {every: '0d'}}", "is not a duration"),
        ("{match: a.b, compact: {every: '1d', target-size: '512MB'}}", "is not a size"),
        ("{match: a.b, compact: {every: '1d', min-input-files: '0'}}", "is not a whole number"),
        ("{match: a.b, compact: {every: '1d', delete-ratio: '2'}}", "is not a number above 0"),
        ("{match: a.b, compact: {every: '1d', sort-order: id}}", "does not sort"),
        ("{match: a.b, compact: {every: '1d', strategy: shuffle}}", "is not one of binpack, sort"),
        ("{match: a.b, orphans: {every: '7d', age: '2d'}}", "younger files can be in use"),
        ("{match: a.b, compact: {every: '1d', target-size: '8388608TiB'}}", "is too large"),
        ("{match: a.b, compact: {every: '1d', delete-ratio: '0.00'}}", "is not a number above 0"),
        ("{match: a.b, expire: {every: '1d', age: '999999w'}}", "is too long"),
        ("{match: a.b, window: '22:00-06:00 Europe', compact: {every: '1d'}}", "is not a time window"),
        ("{match: a.b, window: nights, compact: {every: '1d'}}", "is not a time window"),
    ],
)
def test_a_policy_with_a_mistake_is_refused_with_its_place(entry: str, told: str) -> None:
    with pytest.raises(RequestInvalid) as refusal:
        Maintain("m.yaml", f"tables:\n  - {entry}\n".encode())
    assert told in str(refusal.value)
    assert "m.yaml, line 2" in str(refusal.value)
    assert refusal.value.rule == "maintenance-policy"


def test_a_task_is_due_when_it_was_not_done_for_its_time() -> None:
    policy = parse_policy("maintenance.yaml", POLICY)
    sales, others = policy.entry("sales.orders"), policy.entry("hr.people")
    assert sales is not None and others is not None

    def kinds(entry: Any, at: datetime = NOW, empty: bool = False, **done: timedelta) -> list[str]:
        last = {Kind(kind): NOW - ago for kind, ago in done.items()}
        properties = {"gc.enabled": "no"} if at.minute else {}
        return [str(each.task.kind) for each in due(entry, last, properties, at, empty=empty)]

    assert kinds(sales) == [], "The window is closed."
    night = NOW.replace(hour=23)
    assert kinds(sales, night) == ["compact", "expire"]
    assert kinds(sales, night.replace(minute=1)) == ["compact"], "The table forbids to delete files."
    assert kinds(others, manifests=timedelta(days=1), orphans=timedelta(days=6)) == []
    assert kinds(others, manifests=timedelta(days=1), orphans=timedelta(days=6, hours=22)) == ["orphans"]
    assert kinds(others, empty=True) == ["orphans"]


def maintained(lake: Lake, file: Path, tables: str, **options: Any) -> Report:
    return pipelines.maintain(lake.spark, file, tables, catalog=CATALOG, show=False, **options)


def test_tasks_are_done_when_they_are_due_and_stay_inside_of_the_table(
    spark_lake: SparkLake, lake: Lake, namespace: str, tmp_path: Path
) -> None:
    """A table that reads another one's files rewrites and deletes none of them."""
    database, other, table = namespace.removeprefix(f"{CATALOG}."), f"{namespace}.other", f"{namespace}.t"
    for each in (other, table):
        spark_lake.rows(f"CREATE TABLE {each} (id INT)")
        spark_lake.rows(f"INSERT INTO {each} SELECT CAST(id AS INT) FROM range(0, 3, 1, 3)")
    places = [stock_table(spark_lake, each).location().removeprefix("file://") for each in (table, other)]
    before = {each: each.read_bytes() for each in Path(places[1]).rglob("*") if each.is_file()}
    strays = [aged(_stray(Path(place))) for place in places]
    lake.admin(
        "PATCH",
        ("tables", database, "t"),
        {"set": {"read.allowed.data.paths": json.dumps([f"file://{each}" for each in places])}, "unset": []},
    )
    file = tmp_path / "maintenance.yaml"
    file.write_text(
        f"tables:\n  - match: {database}.t\n"
        "    compact: {every: '1d', min-input-files: '2'}\n    position-deletes: {every: '1d'}\n"
        "    manifests: {every: '1d'}\n    expire: {every: '1d', age: '1s', keep: '1'}\n"
        "    orphans: {every: '1d', age: '3d'}\n"
    )
    planned = maintained(lake, file, f"{database}.*", dry_run=True).planned
    assert [each.key.split(" ")[0] for each in planned] == [str(each) for each in Kind]
    assert {(each.table, each.files, each.why) for each in planned} == {
        (f"{database}.t", 3, "It was never done.")
    }
    assert len(data_files(spark_lake, table)) == 3, "A dry run changes nothing."
    done = maintained(lake, file, f"{database}.*")
    assert done.state is RunState.COMPLETE, done.not_done
    assert (done.counts["rewritten-files"], done.counts["added-files"]) == (3, 1)
    assert done.counts["removed-orphan-files"] == 1
    assert [each.exists() for each in strays] == [False, True]
    assert {each: each.read_bytes() for each in before} == before
    assert sorted(row[0] for row in spark_lake.rows(f"SELECT id FROM {table}")) == [0, 1, 2]
    again = maintained(lake, file, f"{database}.*")
    assert (again.outcomes, again.state) == ((), RunState.COMPLETE)


def _stray(place: Path) -> Path:
    file = place / "data" / "stray.parquet"
    file.write_bytes(b"x")
    return file


class _InAnHour(Clock):
    """Stands still an hour after it was made."""

    def __init__(self) -> None:
        self._now = datetime.now(UTC) + timedelta(hours=1)

    def now(self) -> datetime:
        return self._now


@pytest.mark.nightly
def test_commits_of_the_run_itself_are_not_those_of_writers(
    spark_lake: SparkLake, lake: Lake, namespace: str
) -> None:
    database, table = namespace.removeprefix(f"{CATALOG}."), f"{namespace}.t"
    spark_lake.rows(f"CREATE TABLE {table} AS SELECT CAST(id AS INT) FROM range(0, 3, 1, 3)")
    pipeline, clock = _pipeline(database, "compact: {every: '1d', min-input-files: '2'}"), _InAnHour()
    pipeline = Maintain(
        "m.yaml",
        pipeline.document + b"    manifests: {every: '1d'}\n",
        f"{database}.*",
    )
    budget = Budget(items_at_a_time=1, quiet_s=3600)
    done = run(pipeline, lake.spark, clock, catalog=CATALOG, show=False, budget=budget)
    assert [each.status for each in done.outcomes] == [Status.DONE] * 2, done.not_done
    assert done.counts["rewritten-files"] == 3
    late = Maintain("m.yaml", pipeline.document + b" ", f"{database}.*", now=_in_two_days)
    written = run(late, lake.spark, clock, catalog=CATALOG, show=False, budget=budget)
    assert [each.status for each in written.outcomes] == [Status.LEFT] * 2


def _in_two_days() -> datetime:
    return datetime.now(UTC) + timedelta(days=2)


def test_a_group_has_tasks_of_as_many_tables_as_are_worked_on_at_the_same_time() -> None:
    items = [Item(f"{kind} {table}", table) for table in "abcde" for kind in Kind]
    first = next(Budget().groups(items, Maintain("m.yaml", POLICY).at_a_time))
    assert {each.table for each in first} == set("abcd")


@pytest.mark.nightly
def test_files_outside_of_the_table_are_kept_and_told(
    spark_lake: SparkLake, lake: Lake, namespace: str
) -> None:
    """An expired snapshot lists a file that lies elsewhere."""
    database, table = namespace.removeprefix(f"{CATALOG}."), f"{namespace}.t"
    spark_lake.rows(f"CREATE TABLE {table} (id INT)")
    elsewhere = spark_lake.lake.root / f"elsewhere-{database}"
    elsewhere.mkdir()
    location = stock_table(spark_lake, table).location()
    allowed = json.dumps([location, f"file://{elsewhere}"])
    changed = {"read.allowed.data.paths": allowed, "write.data.path": f"file://{elsewhere}"}
    lake.admin("PATCH", ("tables", database, "t"), {"set": changed, "unset": []})
    spark_lake.rows(f"INSERT INTO {table} VALUES (1)")
    foreign = local_path(data_files(spark_lake, table)[0])
    assert foreign.is_relative_to(elsewhere)
    spark_lake.rows(f"DELETE FROM {table}")
    outcome = only(lake, database, "expire: {every: '1d', age: '1s', keep: '1'}")
    assert (outcome.status, [each.rule for each in outcome.findings]) == (Status.DONE, ["files-kept"])
    assert foreign.exists()


@pytest.mark.nightly
def test_what_cannot_be_done_is_told(spark_lake: SparkLake, lake: Lake, namespace: str) -> None:
    database, table = namespace.removeprefix(f"{CATALOG}."), f"{namespace}.t"
    spark_lake.rows(f"CREATE TABLE {table} AS SELECT CAST(id AS INT) FROM range(0, 4, 1, 4)")
    task = "compact: {every: '1d', min-input-files: '2'}"
    file = local_path(data_files(spark_lake, table)[0])
    whole = file.read_bytes()
    file.write_bytes(b"PAR1 no more")
    failed = only(lake, database, task)
    assert failed.status is Status.FAILED
    assert file.name in (failed.reason or "")
    assert [each.rule for each in failed.findings] == ["files-not-compacted"]
    assert failed.counts["rewritten-files"] == 3
    file.write_bytes(whole)
    pipeline = _pipeline(database, task)
    (item,) = pipeline.plan(lake)
    spark_lake.rows(f"DROP TABLE {table}")
    (dropped,) = pipeline.run(lake, [item], MemorySteps())
    assert (dropped.status, "dropped or renamed" in (dropped.reason or "")) == (Status.LEFT, True)


def _pipeline(database: str, task: str) -> Maintain:
    document = f"tables:\n  - match: {database}.t\n    {task}\n"
    return Maintain(
        "m.yaml", document.encode(), f"{database}.*", now=lambda: datetime.now(UTC) + timedelta(1)
    )


def only(lake: Lake, database: str, task: str) -> Outcome:
    pipeline = _pipeline(database, task)
    (found,) = pipeline.run(lake, list(pipeline.plan(lake)), MemorySteps())
    return found
