"""A migration whose driver is killed again and again beside writers and readers; the last run ends it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pytest

import lakewarden
from catalog.base import crash_points
from catalog.base.identifiers import table_name
from catalog.client.connection import Table
from policy.errors import CommitStateUnknown, LakewardenError, StateUnavailable
from tests.support.crash import assert_sound
from tests.support.lake import ALICE
from tests.support.leftovers import clean_up_expired, strays
from tests.support.service import Service, open_service
from tests.support.spark_process import SparkProcess, spark_process

pytestmark = pytest.mark.nightly

PATIENCE_S = 600
TABLES = ("a", "b")
ROWS = 4
#: Of each process: at which of its commits it is killed, and whether this one is carried out.
KILLS = ((4, False), (8, True))

MAKE = f"""
spark.sql("CREATE NAMESPACE lake.n")
for name in {TABLES}:
    spark.sql(f"CREATE TABLE lake.n.{{name}} (id BIGINT)")
    spark.sql(f"INSERT INTO lake.n.{{name}} SELECT id FROM range(0, {ROWS}, 1, {ROWS})")
answer("made")
"""
MIGRATE = """
from lakewarden import pipelines
from spark_ext.spark_errors import install

install()
report = pipelines.migrate(
    spark, "n.*", {"encryption.mechanism": "envelope"}, history="expire", max_group_bytes=1, at_a_time=2,
    catalog="lake", show=False)
answer({"state": report.state, "not done": [each.reason for each in report.not_done],
        "findings": [each.rule for each in report.findings]})
"""


@dataclass
class Commits:
    """Holds one of the commits of a process until the process is dead.

    Attributes:
        others: set while commits are not counted, since the writer makes one.
        held: set when the process waits for the catalog.
        dead: set when it is dead.
    """

    others: threading.Event = field(default_factory=threading.Event)
    held: threading.Event = field(default_factory=threading.Event)
    dead: threading.Event = field(default_factory=threading.Event)
    _left: int = 0
    _reaches: bool = True

    def expect(self, number: int, *, reaches: bool) -> None:
        """Hold a later commit; `reaches`: whether it is carried out then."""
        self.held, self.dead = threading.Event(), threading.Event()
        self._left, self._reaches = number, reaches

    def at(self, point: str) -> None:
        """See `crash_points.hooked`."""
        if point != "write:committing" or self._left == 0 or self.others.is_set():
            return
        self._left -= 1
        if self._left == 0:
            self.held.set()
            assert self.dead.wait(PATIENCE_S)
            if not self._reaches:
                raise StateUnavailable("The request did not come.")


@dataclass
class Writer:
    """Appends rows to all tables, and reads them, as long as the migration goes on.

    Attributes:
        written: the rows of each table.
        refused: how many appends were refused, because the encryption has changed since they began.
        wrong: what readers saw instead of the rows.
    """

    service: Service
    commits: Commits
    written: dict[str, list[int]] = field(default_factory=lambda: {name: [] for name in TABLES})
    refused: int = 0
    wrong: list[str] = field(default_factory=list)
    stop: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Append and read until told to stop."""
        mine = lakewarden.connect(self.service.url, self.service.token(ALICE))
        number = 1000
        while not self.stop.wait(1.0):
            for name in TABLES:
                number += 1
                self._append(mine.table(f"n.{name}"), name, number)
                found = sorted(mine.table(f"n.{name}").scan().to_arrow()["id"].to_pylist())
                if found != [*range(ROWS), *self.written[name]]:
                    self.wrong.append(f"{name}: {found}")

    def _append(self, table: Table, name: str, number: int) -> None:
        self.commits.others.set()
        try:
            table.append(pa.table({"id": [number]}))
            self.written[name].append(number)
        except CommitStateUnknown:
            raise
        except LakewardenError:
            self.refused += 1
        finally:
            self.commits.others.clear()


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with open_service(tmp_path) as opened:
        yield opened


def killed(service: Service, commits: Commits, number: int, reaches: bool, script: str = MIGRATE) -> bool:
    """Run a pipeline in a process that is killed at a commit; whether it came so far."""
    commits.expect(number, reaches=reaches)
    with spark_process(service, script) as process:
        finished = threading.Event()
        watch = threading.Thread(target=_await_end, args=(process, finished, commits))
        watch.start()
        assert commits.held.wait(PATIENCE_S)
        ended = finished.is_set()
        if not ended:
            process.kill()
        commits.dead.set()
        watch.join()
    return not ended


def _await_end(process: SparkProcess, finished: threading.Event, commits: Commits) -> None:
    try:
        process.answer()
    except AssertionError:
        return  # It was killed.
    finished.set()
    commits.held.set()


def test_kills_anywhere_lose_and_double_nothing(service: Service) -> None:
    with spark_process(service, MAKE) as process:
        assert process.answer() == "made"
    commits = Commits()
    writer = Writer(service, commits)
    thread = threading.Thread(target=writer.run)
    thread.start()
    try:
        with crash_points.hooked(commits.at):
            kills = [killed(service, commits, *each) for each in KILLS]
        writer.stop.set()
        thread.join()
        with spark_process(service, MIGRATE) as process:
            answer = process.answer()
    finally:
        writer.stop.set()
        thread.join()
    assert any(kills), "No process was killed."
    assert answer == {"state": "complete", "not done": [], "findings": []}
    assert writer.wrong == []
    mine = lakewarden.connect(service.url, service.token(ALICE))
    for name in TABLES:
        assert sorted(mine.table(f"n.{name}").scan().to_arrow()["id"].to_pylist()) == [
            *range(ROWS),
            *writer.written[name],
        ]
        report = service.lake.services.old_epochs.report(service.lake.caller(ALICE), table_name(["n"], name))
        assert report.forbidden, name
    assert len(writer.written["a"]) > 5
    clean_up_expired(service)
    assert strays(service.lake) == []
    assert_sound(service.lake)
