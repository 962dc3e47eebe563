"""Kill -9 at every step: what was acknowledged is there, what was not is wholly there or not at all, and the
catalog goes on by itself."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

import pytest

import catalog
from tests.faults.conftest import Shared
from tests.faults.scenarios import LANDING, OTHER_POINTS, SCENARIOS, Scenario, Subject
from tests.support.crash import assert_sound, die_at, points_of, seen
from tests.support.lake import Lake
from tests.support.tables import append_files, fresh, make, name_of, rows

CASES = [
    pytest.param(name, point, id=f"{name}-{point}")
    for name, scenario in SCENARIOS.items()
    for point in scenario.points
]

#: What each database does by itself is shown on these; the rest of an operation is the same code on both.
ON_POSTGRES = [case for case in CASES if case.values[0] in ("write", "rename", "drop", "staged")]


@pytest.mark.parametrize("name", SCENARIOS)
def test_an_operation_passes_exactly_the_points_at_which_it_is_killed(on_sqlite: Shared, name: str) -> None:
    scenario = SCENARIOS[name]
    subject = scenario.before(on_sqlite.lake)
    assert points_of(on_sqlite.lake, scenario.act, subject) == list(scenario.points)


def test_every_point_in_the_source_belongs_to_an_operation_that_is_killed() -> None:
    assert catalog.__file__ is not None
    sources = Path(catalog.__file__).parent.rglob("*.py")
    named = {name for source in sources for name in re.findall(r'faults\.point\("(.+?)"', source.read_text())}
    assert named == OTHER_POINTS.union(*(scenario.points for scenario in SCENARIOS.values()))


@pytest.mark.parametrize(("name", "point"), CASES)
def test_killed_on_sqlite(on_sqlite: Shared, name: str, point: str) -> None:
    _kill_and_look(on_sqlite, SCENARIOS[name], point)


@pytest.mark.parametrize(("name", "point"), ON_POSTGRES)
def test_killed_on_postgres(on_postgres: Shared, name: str, point: str) -> None:
    _kill_and_look(on_postgres, SCENARIOS[name], point)


@pytest.mark.parametrize("point", LANDING)
def test_a_writer_that_is_killed_loses_no_acknowledged_commit(on_sqlite: Shared, point: str) -> None:
    lake = on_sqlite.lake
    name = name_of(make(lake))
    told = lake.root / f"told-{name.name}"
    die_at(lake, on_sqlite.overrides, _append_and_tell, (name, told), point, times=3)
    acknowledged = [int(line) for line in told.read_text().split()]
    assert acknowledged == [0, 10]
    stored = lake.catalog().load_table(str(name)).scan().to_arrow()["id"].to_pylist()
    landed = [20, 21] if LANDING.index(point) >= LANDING.index("pointer-moved") else []
    assert sorted(stored) == [0, 1, 10, 11, *landed]


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
    assert (after != before) == scenario.landed(point)
    with contextlib.suppress(*(scenario.answers if scenario.landed(point) else ())):
        scenario.act(lake, subject)
    _expect_done(lake, scenario, subject, before)
    _goes_on(lake, subject)
    assert_sound(lake)


def _expect_done(lake: Lake, scenario: Scenario, subject: Subject, before: object) -> None:
    """Repeated, the operation is done, and done once where it is one that can be told from another."""
    done = scenario.look(lake, subject)
    assert done != before
    if scenario is SCENARIOS["write"]:
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
