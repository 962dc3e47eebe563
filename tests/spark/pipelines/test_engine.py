"""Runs of pipelines: groups, records, continuation, budgets, failures."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest
from pyspark.errors import PySparkException

from policy.errors import LocationInvalid, RequestInvalid, StateUnavailable
from spark_ext.pipelines.audit.pipeline import Audit
from spark_ext.pipelines.budget import Budget
from spark_ext.pipelines.discover.pipeline import Discover
from spark_ext.pipelines.engine import Clock, run
from spark_ext.pipelines.executors import on_executors
from spark_ext.pipelines.failures import reason
from spark_ext.pipelines.items import Item, Outcome, Rule, Severity, Status
from spark_ext.pipelines.journal import FINDINGS, RUNS, Journal
from spark_ext.pipelines.lake import Lake
from spark_ext.pipelines.pipeline import Pipeline, Steps
from spark_ext.pipelines.report import Report, RunState
from spark_ext.pipelines.threads import in_threads
from tests.support.spark import CATALOG, SparkLake

ODD = Rule("odd-number", Severity.WARNING, "The number is odd.", "Add one.")


class Killed(BaseException):
    """The end of the driver."""


@dataclass
class Numbers:
    """A pipeline over numbers: odd ones are findings. A group of two takes three statements of Spark."""

    count: int = 4
    name: str = "numbers"
    rules: Sequence[Rule] = (ODD,)
    changes: bool = False
    at_a_time: int = 2
    namespace: str = "n"
    mark: str = field(default_factory=lambda: uuid4().hex)
    done: list[str] = field(default_factory=list)
    fail: Callable[[str], None] = lambda key: None

    @property
    def parameters(self) -> Mapping[str, Any]:
        return {"mark": self.mark}

    def plan(self, lake: Lake) -> Iterator[Item]:
        return (Item(str(each), f"{self.namespace}.t{each}", files=1, bytes=10) for each in range(self.count))

    def run(self, lake: Lake, group: Sequence[Item], steps: Steps) -> Iterator[Outcome]:
        for item in group:
            self.fail(item.key)
            self.done.append(item.key)
            found = (ODD.found(item.table, f"{item.key} is odd.", path=f"p{item.key}"),) * (int(item.key) % 2)
            yield Outcome.of(item, findings=found, counts={"files": 1})


class Stopped(Clock):
    """A clock that waits for nothing."""

    def __init__(self, hour: int = 12) -> None:
        self.waited: list[float] = []
        self.hour = hour

    def now(self) -> datetime:
        return datetime(2026, 1, 1, self.hour, tzinfo=UTC)

    def sleep(self, seconds: float) -> None:
        self.waited.append(seconds)


@pytest.fixture(scope="module")
def lake(spark_lake: SparkLake) -> Lake:
    return Lake(spark_lake.spark, CATALOG)


def execute(pipeline: Numbers, lake: Lake, clock: Clock | None = None, **options: Any) -> Report:
    return run(pipeline, lake.spark, clock or Stopped(), catalog=CATALOG, show=False, **options)


def recorded(lake: Lake, report: Report) -> list[tuple[str, str]]:
    rows = lake.sql(
        f"SELECT item, status FROM {lake.name(RUNS)} WHERE run_id = :run AND event = 'group'",
        {"run": report.run_id},
    )
    return sorted(tuple(row) for row in rows)


def test_a_run_does_every_item_and_records_findings(lake: Lake) -> None:
    report = execute(Numbers(), lake)
    assert report.state is RunState.COMPLETE
    assert report.items == {"done": 4, "failed": 0, "left": 0}
    assert report.counts == {"files": 4}
    assert report.found == {"odd-number": 2}
    assert sorted(each.path or "" for each in report.findings) == ["p1", "p3"]
    assert recorded(lake, report) == [(str(each), "done") for each in range(4)]


@pytest.mark.nightly
def test_a_run_whose_driver_was_killed_continues_without_repeating_a_group(lake: Lake) -> None:
    numbers = Numbers()

    def kill(key: str) -> None:
        if key == "2":
            raise Killed

    numbers.fail = kill
    with pytest.raises(Killed):
        execute(numbers, lake)
    assert numbers.done == ["0", "1"]
    numbers.fail = lambda key: None
    report = execute(numbers, lake)
    assert report.continued and report.state is RunState.COMPLETE
    assert numbers.done == ["0", "1", "2", "3"]
    assert report.items == {"done": 4, "failed": 0, "left": 0}
    assert report.found == {"odd-number": 2}
    assert recorded(lake, report) == [(str(each), "done") for each in range(4)]
    assert not execute(numbers, lake).continued


@pytest.mark.nightly
def test_findings_of_a_group_that_was_not_recorded_are_not_doubled(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers, append = Numbers(), Journal._append

    def killed(self: Journal, table: Any, schema: Any, rows: Sequence[Mapping[str, Any]]) -> None:
        if table == RUNS and any(row.get("item") == "3" for row in rows):
            raise Killed
        append(self, table, schema, rows)

    monkeypatch.setattr(Journal, "_append", killed)
    with pytest.raises(Killed):
        execute(numbers, lake)
    monkeypatch.undo()
    report = execute(numbers, lake)
    assert report.continued
    assert report.found == {"odd-number": 2}
    assert numbers.done.count("3") == 2 and numbers.done.count("1") == 1


def test_a_second_driver_takes_the_run_over_and_the_first_records_nothing_more(lake: Lake) -> None:
    numbers = Numbers()
    first = Journal(lake, numbers.name, numbers.parameters, fresh=False)
    report = execute(numbers, lake)
    assert report.continued and report.run_id == first.run_id
    with pytest.raises(RequestInvalid, match="Another process"):
        first.group([Outcome("0", "n.t0")], "g")
    assert recorded(lake, report) == [(str(each), "done") for each in range(4)]


@pytest.mark.nightly
def test_what_failed_is_tried_again_by_the_next_run(lake: Lake) -> None:
    numbers = Numbers(count=2)
    item = Item("0", "n.t0")
    journal = Journal(lake, numbers.name, numbers.parameters, fresh=False)
    journal.record(item, "counted", {"rows": 3})
    journal.group([Outcome.of(item, Status.FAILED, "It is broken.", (ODD.found("n.t0"),))], "g")
    journal.end(complete=False, why=None)
    again = Journal(lake, numbers.name, numbers.parameters, fresh=False)
    assert again.of(item) == {"counted": {"rows": 3}}
    assert again.done == {}
    assert again.findings(10) == ([], {})
    assert not Journal(lake, numbers.name, numbers.parameters, fresh=True).continued


@pytest.mark.nightly
def test_a_record_that_no_pipeline_writes_is_refused_until_a_new_run(lake: Lake) -> None:
    numbers = Numbers(count=1)
    for data in ("{", "[1]", '{"step": 1, "data": {}}', '{"step": "s"}'):
        run_id = Journal(lake, numbers.name, numbers.parameters, fresh=True).run_id
        lake.sql(
            f"INSERT INTO {lake.name(RUNS)} (run_id, pipeline, event, at, item, data) "
            "VALUES (:run, 'numbers', 'step', now(), '0', :data)",
            {"run": run_id, "data": data},
        )
        with pytest.raises(RequestInvalid, match="not one that a pipeline writes"):
            Journal(lake, numbers.name, numbers.parameters, fresh=False)
    assert execute(numbers, lake, fresh=True).state is RunState.COMPLETE


@pytest.mark.nightly
def test_a_budget_leaves_the_rest_to_the_next_run(lake: Lake) -> None:
    numbers = Numbers()
    report = execute(numbers, lake, budget=Budget(items=3, pause_s=7))
    assert report.items == {"done": 3, "failed": 0, "left": 1}
    assert report.reason == "The budget of 3 items is used up."
    assert {each.reason for each in report.not_done} == {report.reason}
    closed = execute(numbers, lake, Stopped(hour=12), budget=Budget(window="22:00-06:00"))
    assert closed.reason == "The time window 22:00-06:00 is closed."
    assert closed.items == {"done": 3, "failed": 0, "left": 1}
    sized = execute(Numbers(), lake, budget=Budget(bytes=35, items_at_a_time=4))
    assert sized.items == {"done": 3, "failed": 0, "left": 1}
    assert sized.reason == "The budget of 35 bytes is used up."
    last = execute(numbers, lake, Stopped(hour=23), budget=Budget(window="22:00-06:00"))
    assert last.state is RunState.COMPLETE
    assert sorted(numbers.done) == [str(each) for each in range(4)]


@pytest.mark.nightly
def test_tables_that_were_just_written_are_left_where_a_quiet_time_is_set(spark_lake: SparkLake) -> None:
    lake, namespace = Lake(spark_lake.spark, CATALOG), spark_lake.namespace()
    spark_lake.rows(f"CREATE TABLE {namespace}.t0 AS SELECT 1 AS id")
    numbers = Numbers(count=2, changes=True, namespace=namespace.removeprefix(f"{CATALOG}."))
    report = run(numbers, lake.spark, catalog=CATALOG, show=False, budget=Budget(quiet_s=3600))
    (left,) = report.not_done
    assert (left.item, left.status, numbers.done) == ("0", Status.LEFT, ["1"])
    assert "must rest for 3600 seconds" in (left.reason or "")


@pytest.mark.nightly
@pytest.mark.parametrize("pipeline", [Audit(), Discover(), Numbers()])
@pytest.mark.parametrize("dry_run", [False, True])
def test_a_quiet_time_is_refused_where_no_table_is_changed(
    lake: Lake, pipeline: Pipeline, dry_run: bool
) -> None:
    with pytest.raises(RequestInvalid, match="has no effect"):
        run(pipeline, lake.spark, catalog=CATALOG, budget=Budget(quiet_s=1), dry_run=dry_run)


@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize(
    "expression",
    ["CAST(concat('hunter', id) AS INT)", "CAST(concat('hunter', id) AS TIMESTAMP)"],
)
@pytest.mark.parametrize("rows", ["range(2)", "(SELECT id FROM range(0, 2, 1, 2) DISTRIBUTE BY id)"])
def test_an_error_that_a_value_makes_is_told_without_it(lake: Lake, expression: str, rows: str) -> None:
    with pytest.raises(PySparkException) as caught:
        lake.sql(f"SELECT max({expression}) FROM {rows}")
    assert "hunter" in str(caught.value)
    assert "hunter" not in reason(caught.value)
    assert str(caught.value.getCondition()) in reason(caught.value)


@pytest.mark.nightly
def test_a_group_waits_while_the_catalog_is_away(lake: Lake) -> None:
    numbers, clock, failures = Numbers(), Stopped(), ["3", "3", "3"]

    def fail(key: str) -> None:
        if key in failures:
            failures.remove(key)
            raise StateUnavailable("The database does not answer.")

    numbers.fail = fail
    report = execute(numbers, lake, clock)
    assert report.state is RunState.COMPLETE
    assert numbers.done == [str(each) for each in range(4)]
    assert [each for each in clock.waited if each] == [1, 2, 4]


@pytest.mark.nightly
def test_a_catalog_that_stays_away_ends_the_run_with_the_reason(lake: Lake) -> None:
    numbers = Numbers()

    def fail(key: str) -> None:
        if key == "3":
            raise StateUnavailable("The database does not answer.")

    numbers.fail = fail
    report = execute(numbers, lake)
    assert report.state is RunState.INCOMPLETE
    assert report.items == {"done": 3, "failed": 0, "left": 1}
    assert report.reason is not None and "does not answer" in report.reason


@pytest.mark.nightly
def test_a_catalog_that_is_away_for_records_too_ends_the_run_with_the_reason(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers, append = Numbers(), Journal._append
    away: list[bool] = []

    def fail(self: Journal, table: Any, schema: Any, rows: Sequence[Mapping[str, Any]]) -> None:
        if away or any(row.get("item") == "3" for row in rows):
            away.append(True)
            raise StateUnavailable("The database does not answer.")
        append(self, table, schema, rows)

    monkeypatch.setattr(Journal, "_append", fail)
    report = execute(numbers, lake)
    monkeypatch.undo()
    assert report.items == {"done": 2, "failed": 0, "left": 2}
    assert report.reason is not None and "does not answer" in report.reason
    again = execute(numbers, lake)
    assert again.continued and again.state is RunState.COMPLETE
    assert again.found == {"odd-number": 2}
    assert recorded(lake, again) == [(str(each), "done") for each in range(4)]


@pytest.mark.nightly
def test_a_group_whose_record_was_not_confirmed_is_recorded_once(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    append, lost = Journal._append, {RUNS: 1, FINDINGS: 1}

    def unconfirmed(self: Journal, table: Any, schema: Any, rows: Sequence[Mapping[str, Any]]) -> None:
        append(self, table, schema, rows)
        if any(row.get("item") == "3" for row in rows) and lost[table]:
            lost[table] -= 1
            raise StateUnavailable("The connection broke.")

    monkeypatch.setattr(Journal, "_append", unconfirmed)
    report = execute(Numbers(), lake)
    assert lost == {RUNS: 0, FINDINGS: 0}
    assert report.state is RunState.COMPLETE
    assert report.found == {"odd-number": 2}
    assert recorded(lake, report) == [(str(each), "done") for each in range(4)]


@pytest.mark.nightly
def test_a_dry_run_records_and_does_nothing(lake: Lake) -> None:
    numbers = Numbers()
    report = execute(numbers, lake, dry_run=True)
    assert report.state is RunState.PLANNED and numbers.done == []
    assert report.items == {"planned": 4} and report.counts == {"bytes": 40, "files": 4}
    rows = lake.sql(
        f"SELECT * FROM {lake.name(RUNS)} WHERE parameters LIKE :mark", {"mark": f"%{numbers.mark}%"}
    )
    assert rows == []


@pytest.mark.nightly
def test_executors_do_items_and_a_failing_one_fails_alone(lake: Lake) -> None:
    def refuse_odd(item: Item) -> Outcome:
        if int(item.key) % 2:
            raise LocationInvalid(f"{item.key} is odd.")
        return Outcome.of(item, counts={"files": 1})

    items = [Item(str(each), "t", files=each) for each in range(4)]
    done = {each.item: each for each in on_executors(lake.spark, items, refuse_odd)}
    assert {key: str(each.status) for key, each in done.items()} == {
        "0": "done",
        "1": "failed",
        "2": "done",
        "3": "failed",
    }
    assert done["1"].reason == "1 is odd."


def test_an_item_that_breaks_its_task_fails_alone_and_shows_no_value(lake: Lake) -> None:
    def end_the_task(item: Item) -> Outcome:
        if item.key == "2":
            raise ZeroDivisionError("the value 4711")
        return Outcome.of(item)

    items = [Item(str(each), "t") for each in range(3)]
    done = {each.item: each for each in on_executors(lake.spark, items, end_the_task)}
    assert {key for key, each in done.items() if each.status is Status.FAILED} == {"2"}
    assert "4711" not in str(done["2"].reason)


@pytest.mark.nightly
def test_threads_end_when_an_error_concerns_all(lake: Lake) -> None:
    items = [Item(str(each), "t") for each in range(20)]

    def away(item: Item) -> Outcome:
        if item.key == "3":
            raise StateUnavailable("The database does not answer.")
        return Outcome.of(item)

    done = []
    with pytest.raises(StateUnavailable):
        for each in in_threads(lake.spark, items, away, at_a_time=1):
            done.append(each.item)
    assert "2" in done and "19" not in done


@pytest.mark.nightly
def test_the_tables_of_runs_are_guarded_iceberg_tables(lake: Lake) -> None:
    Journal(lake, "numbers", {}, fresh=True)
    for table in (RUNS, FINDINGS):
        properties = {row["key"]: row["value"] for row in lake.sql(f"SHOW TBLPROPERTIES {lake.name(table)}")}
        assert "read.allowed.data.paths" in properties
