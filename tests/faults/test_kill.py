"""Kill -9 at every step: what was acknowledged is there, what was not is wholly there or not at all, and the
catalog goes on by itself."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy import select, text

import catalog
from catalog.base.errors import NoSuchTable, TableExists
from catalog.base.identifiers import TableName
from catalog.db.engine import read, write
from catalog.db.schema import lw_seal, lw_table
from catalog.service.pyiceberg_catalog import GuardedCatalog
from catalog.service.services import Services
from catalog.state.pointers import PointerStore
from catalog.state.sql_pointers import SqlPointerStore
from tests.faults.conftest import Shared
from tests.faults.scenarios import OTHER_POINTS, PUBLISHING, SCENARIOS, Scenario, Subject
from tests.support.crash import assert_sound, die_at, points_of, seen
from tests.support.lake import ALICE, Lake
from tests.support.tables import append_files, fresh, make, name_of, rows

pytestmark = pytest.mark.nightly

CASES = [
    pytest.param(name, point, id=f"{name}-{point}")
    for name, scenario in SCENARIOS.items()
    for point in scenario.points
]

#: What each database does by itself is shown on these; the rest of an operation is the same code on both.
ON_POSTGRES = [
    case for case in CASES if case.values[0] in ("write", "rename", "drop", "staged", "transaction")
]


@pytest.mark.parametrize("name", SCENARIOS)
def test_an_operation_passes_exactly_the_points_at_which_it_is_killed(on_sqlite: Shared, name: str) -> None:
    scenario = SCENARIOS[name]
    subject = scenario.before(on_sqlite.lake)
    assert points_of(on_sqlite.lake, scenario.act, subject) == list(scenario.points)


def test_every_point_in_the_source_belongs_to_an_operation_that_is_killed() -> None:
    assert catalog.__file__ is not None
    sources = Path(catalog.__file__).parent.rglob("*.py")
    named = {
        name for source in sources for name in re.findall(r'crash_points\.point\("(.+?)"', source.read_text())
    }
    assert named == OTHER_POINTS.union(*(scenario.points for scenario in SCENARIOS.values()))


@pytest.mark.parametrize(("name", "point"), CASES)
def test_killed_on_sqlite(on_sqlite: Shared, name: str, point: str) -> None:
    _kill_and_look(on_sqlite, SCENARIOS[name], point)


@pytest.mark.parametrize(("name", "point"), ON_POSTGRES)
def test_killed_on_postgres(on_postgres: Shared, name: str, point: str) -> None:
    _kill_and_look(on_postgres, SCENARIOS[name], point)


@pytest.mark.parametrize("point", PUBLISHING)
def test_a_writer_that_is_killed_loses_no_acknowledged_commit(on_sqlite: Shared, point: str) -> None:
    lake = on_sqlite.lake
    name = name_of(make(lake))
    told = lake.root / f"told-{name.name}"
    die_at(lake, on_sqlite.overrides, _append_and_tell, (name, told), point, times=3)
    acknowledged = [int(line) for line in told.read_text().split()]
    assert acknowledged == [0, 10]
    stored = lake.catalog().load_table(str(name)).scan().to_arrow()["id"].to_pylist()
    published = [20, 21] if PUBLISHING.index(point) >= PUBLISHING.index("published") else []
    assert sorted(stored) == [0, 1, 10, 11, *published]


@pytest.mark.parametrize("follow", ["create", "drop", "rename"])
def test_the_old_name_of_a_rename_that_was_cut_short_is_free(on_sqlite: Shared, follow: str) -> None:
    """A caller by the old name cannot harm the table under the new one."""
    lake, scenario = on_sqlite.lake, SCENARIOS["rename"]
    subject = scenario.before(lake)
    assert subject.target is not None
    die_at(lake, on_sqlite.overrides, scenario.act, subject, "rename:bound")
    if follow == "create":
        make(lake, subject.name)
    elif follow == "drop":
        with pytest.raises(NoSuchTable):
            lake.catalog().drop_table(str(subject.name))
    else:
        lake.catalog().rename_table(make(lake).name(), str(subject.name))
    assert lake.catalog().load_table(str(subject.target)).scan().to_arrow()["id"].to_pylist() == [1, 2]
    assert_sound(lake)


@pytest.mark.parametrize("follow", ["create", "rename"])
def test_the_name_of_a_drop_that_was_cut_short_is_free(on_sqlite: Shared, follow: str) -> None:
    lake, scenario = on_sqlite.lake, SCENARIOS["drop"]
    subject = scenario.before(lake)
    die_at(lake, on_sqlite.overrides, scenario.act, subject, "drop:buried")
    if follow == "create":
        make(lake, subject.name)
    else:
        lake.catalog().rename_table(make(lake).name(), str(subject.name))
    assert seen(lake, subject.name) is not None
    assert_sound(lake)


def test_a_pointer_that_somebody_else_removed_is_not_taken_for_a_drop(on_sqlite: Shared) -> None:
    lake = on_sqlite.lake
    table = make(lake)
    store = SqlPointerStore(lake.services.engine, lake.settings.catalog.name)
    assert store.delete(name_of(table), table.metadata_location)
    with pytest.raises(TableExists):
        make(lake, name_of(table))
    lake.services.registration.restore(lake.caller(ALICE), name_of(table))
    assert seen(lake, name_of(table)) is not None


def test_many_that_finish_the_same_creation_at_once(on_postgres: Shared) -> None:
    """All of them find it unfinished; one finishes it, and none is told anything but the table."""
    lake, scenario = on_postgres.lake, SCENARIOS["create"]
    subject = scenario.before(lake)
    die_at(lake, on_postgres.overrides, scenario.act, subject, "prepared")
    # Versions that moved the pointer and promoted in two transactions could die in between.
    store = SqlPointerStore(lake.services.engine, lake.settings.catalog.name)
    with read(lake.services.engine) as connection:
        mine = (lw_table.c.name == subject.name.name, lw_seal.c.table_id == lw_table.c.id)
        prepared = connection.scalars(select(lw_seal.c.metadata_location).where(*mine)).one()
    store.create(subject.name, prepared)
    with ThreadPoolExecutor(4) as pool:
        with write(lake.services.engine) as connection:
            connection.execute(select(lw_table).where(lw_table.c.name == subject.name.name).with_for_update())
            loads = [pool.submit(seen, lake, subject.name) for _ in range(4)]
            _wait_for_locks(lake, 4)
        found = [load.result(30) for load in loads]
    assert found[0] is not None
    assert found == [found[0]] * 4
    assert_sound(lake)


def _wait_for_locks(lake: Lake, count: int) -> None:
    waiting = text("SELECT count(*) FROM pg_locks WHERE NOT granted")
    for _ in range(200):
        with read(lake.services.engine) as connection:
            if (connection.scalar(waiting) or 0) >= count:
                return
        time.sleep(0.01)


def test_a_load_that_commits_overtake_finds_the_table_sealed(
    on_sqlite: Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between reading the pointer and its seal, another commit lands: that is no rollback.

    One statement reads the rows of a sealed table. This is about the steps that follow where it finds none.
    """
    lake = on_sqlite.lake
    table = make(lake)
    loader = lake.services.loader
    with Services.open(lake.settings, lake.kms) as elsewhere:
        rival = GuardedCatalog(elsewhere, lake.caller(ALICE)).load_table(table.name())
        overtaken = _Overtaken(loader._pointers, lambda: rival.append(rows(1)), times=3)
        monkeypatch.setattr(loader, "_pointers", overtaken)
        monkeypatch.setattr(loader, "standing", lambda _: None)
        found = loader.load(name_of(table))
    assert found.seal is not None
    assert len(found.metadata.snapshots) == 3


class _Overtaken:
    """A pointer store that is slow to answer: what it says is out of date for the first few times."""

    def __init__(self, real: PointerStore, meanwhile: Callable[[], object], times: int) -> None:
        self._real = real
        self._meanwhile = meanwhile
        self._times = times

    def load(self, name: TableName) -> str | None:
        found = self._real.load(name)
        if self._times > 0:
            self._times -= 1
            self._meanwhile()
        return found

    def __getattr__(self, name: str) -> object:
        return getattr(self._real, name)


def _append_and_tell(lake: Lake, subject: tuple[object, Path]) -> None:
    name, told = subject
    table = lake.catalog().load_table(str(name))
    for first in (0, 10, 20):
        table.append(rows(first))
        with told.open("a") as file:
            file.write(f"{first}\n")


def _kill_and_look(shared: Shared, scenario: Scenario, point: str) -> None:
    lake = shared.lake
    subject = scenario.before(lake)
    before = scenario.look(lake, subject)
    die_at(lake, shared.overrides, scenario.act, subject, point)
    lake.reopen()
    after = scenario.look(lake, subject)
    assert (after != before) == scenario.published(point)
    with contextlib.suppress(*(scenario.answers if scenario.published(point) else ())):
        scenario.act(lake, subject)
    _expect_done(lake, scenario, subject, before)
    assert_sound(lake)
    _goes_on(lake, subject)
    assert_sound(lake)


def _expect_done(lake: Lake, scenario: Scenario, subject: Subject, before: object) -> None:
    """Repeated, the operation is done, and done once where it is one that can be told from another."""
    done = scenario.look(lake, subject)
    assert done != before
    if scenario in (SCENARIOS["write"], SCENARIOS["staged-write"]):
        found = seen(lake, subject.name)
        assert found is not None and len(found.snapshots) == 1


def _goes_on(lake: Lake, subject: Subject) -> None:
    """The names that are in use take commits, those that are free take tables; nobody repairs anything."""
    for name in subject.names:
        found = seen(lake, name)
        if found is None:
            make(lake, name)
        append_files(lake, name)
        assert len(_seen(lake, name)) == (0 if found is None else len(found.snapshots)) + 1
        moved = fresh()
        lake.catalog().rename_table(str(name), str(moved))
        assert seen(lake, name) is None
        lake.catalog().drop_table(str(moved))


def _seen(lake: Lake, name: object) -> tuple[int, ...]:
    found = seen(lake, name)  # type: ignore[arg-type]
    assert found is not None
    return found.snapshots
