"""Sixteen committers at once: every acknowledged append is there, once, and one truth is left."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import select

from catalog.base.errors import CommitConflict
from catalog.base.identifiers import TableName
from catalog.db.engine import read
from catalog.db.schema import lw_seal
from catalog.planning.request import ScanRequest
from catalog.writes.new_files import FileCommit
from policy.errors import StateUnavailable
from tests.faults.conftest import Shared
from tests.support.crash import PATIENCE_S, Act, assert_sound, start
from tests.support.lake import ALICE, Lake
from tests.support.tables import Engine, append_files, make, name_of, rows

pytestmark = pytest.mark.nightly

COMMITTERS = 16
#: Errors that promise that nothing was changed.
NOTHING_CHANGED = (CommitConflict, StateUnavailable)
RETRIES = {
    "commit.retry.num-retries": "200",
    "commit.retry.min-wait-ms": "5",
    "commit.retry.max-wait-ms": "100",
}


def append_rows(lake: Lake, order: tuple[TableName, int]) -> None:
    """A standard writer, which bases its append anew after a conflict."""
    name, number = order
    table = lake.catalog().load_table(str(name))
    _until_told(lambda: table.append(rows(number * 10)))


def append_by_engine(lake: Lake, order: tuple[TableName, int]) -> None:
    """An engine's write; its record count says whose it is. It is committed twice, as one commit."""
    name, number = order
    engine = Engine.begin(lake, name)
    files = FileCommit("append", (engine.file(record_count=number + 1),))
    _until_told(lambda: engine.commit(files))
    _until_told(lambda: engine.commit(files))


def _until_told(commit: Callable[[], Any]) -> None:
    while True:
        try:
            commit()
        except NOTHING_CHANGED:
            continue
        return


def by_threads(shared: Shared, act: Act, name: TableName) -> None:
    """Sixteen threads of this process."""
    failures: list[BaseException] = []

    def run(number: int) -> None:
        try:
            act(shared.lake, (name, number))
        except BaseException as failure:  # noqa: BLE001 - told by the main thread
            failures.append(failure)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(COMMITTERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert not failures, failures
    assert not any(thread.is_alive() for thread in threads)


def by_processes(shared: Shared, act: Act, name: TableName) -> None:
    """Sixteen processes, each with the catalog opened for itself."""
    children = [start(shared.lake, shared.overrides, act, (name, number)) for number in range(COMMITTERS)]
    for child in children:
        child.join(PATIENCE_S)
    assert [child.exitcode for child in children] == [0] * COMMITTERS


@pytest.mark.slow
@pytest.mark.parametrize(("database", "at_once"), [("sqlite", by_processes), ("postgres", by_threads)])
def test_appends_of_sixteen_stock_writers(
    request: pytest.FixtureRequest, database: str, at_once: Callable[[Shared, Act, TableName], None]
) -> None:
    shared: Shared = request.getfixturevalue(f"on_{database}")
    lake = shared.lake
    name = name_of(make(lake, properties=RETRIES))
    at_once(shared, append_rows, name)
    found = lake.catalog().load_table(str(name)).scan().to_arrow()["id"].to_pylist()
    wanted = [number * 10 + row for number in range(COMMITTERS) for row in range(2)]
    assert Counter(found) == Counter(wanted)
    _expect_one_truth(lake, name)


@pytest.mark.slow
@pytest.mark.parametrize(("database", "at_once"), [("sqlite", by_threads), ("postgres", by_processes)])
def test_writes_of_sixteen_engines(
    request: pytest.FixtureRequest, database: str, at_once: Callable[[Shared, Act, TableName], None]
) -> None:
    shared: Shared = request.getfixturevalue(f"on_{database}")
    lake = shared.lake
    name = name_of(make(lake, properties={"encryption.mechanism": "envelope"}))
    at_once(shared, append_by_engine, name)
    plan = lake.services.planner.plan(lake.caller(ALICE), name, ScanRequest())
    assert sorted(plan.files["record_count"].to_pylist()) == list(range(1, COMMITTERS + 1))
    _expect_one_truth(lake, name)


def _expect_one_truth(lake: Lake, name: TableName) -> None:
    table = lake.services.loader.load_sealed(name)
    numbers = sorted(snapshot.sequence_number or 0 for snapshot in table.metadata.snapshots)
    assert numbers == list(range(1, COMMITTERS + 1))
    with read(lake.services.engine) as connection:
        states = connection.scalars(select(lw_seal.c.state).where(lw_seal.c.table_id == table.record.id))
        counted = Counter(states)
    assert counted["current"] == 1
    assert counted["superseded"] == COMMITTERS
    assert counted["prepared"] == 0
    assert_sound(lake)
    append_files(lake, name)
