"""Interleavings that a seed chooses: each answer is explained by one order of all operations.

A failure prints its seed: ``python -m tests.simulation SEED`` replays it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, update

from catalog.base.identifiers import TableName
from catalog.commits import publish
from catalog.db.schema import iceberg_tables
from catalog.reading import loading
from catalog.state import seals, sql_pointers, standing
from catalog.state.pointers import Move
from catalog.state.seals import Seal, SealState
from policy.errors import StateUnavailable
from tests.simulation.scheduler import Scheduler, Stuck
from tests.simulation.simulation import simulate, sound, warm_up
from tests.simulation.world import DAMAGE, LOST_ANSWER, POWER, World, simulated

#: The seeds of `make test`, and of `make nightly`.
FEW, MANY = range(20), range(1_000, 1_400)
#: One of these seeds has to find a fault that was put in.
ENOUGH = range(60)


@pytest.fixture
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A catalog whose boundaries a scheduler holds."""
    with simulated(tmp_path_factory.mktemp("simulated")) as opened:
        yield opened


def run(world: World, seeds: range) -> None:
    """Run schedules; each failure has its seed."""
    warm_up(world)
    for seed in seeds:
        findings = simulate(world, seed)
        assert not findings, f"python -m tests.simulation {seed}"
    sound(world)


def test_one_order_explains_every_answer(world: World) -> None:
    run(world, FEW)


@pytest.mark.nightly
def test_one_order_explains_every_answer_of_many_schedules(world: World) -> None:
    run(world, MANY)


def test_a_seed_replays_its_interleaving(world: World) -> None:
    traces = []
    warm_up(world)
    for _ in range(2):
        simulate(world, 3)
        traces.append(list(world.scheduler.trace))
    assert traces[0] == traces[1] and len(traces[0]) > 50


def _compares_nothing(patch: pytest.MonkeyPatch) -> None:
    """Of the two that compare, the pointer and the seal, each is enough."""

    def swap(pointers: sql_pointers.SqlPointerStore, connection: Connection, move: Move) -> None:
        values = {"metadata_location": move.location}
        connection.execute(update(iceberg_tables).where(*pointers._is(move.name)).values(**values))

    def promote(connection: Connection, seal: Seal) -> bool:
        before = seals.current(connection, seal.table_id)
        if before is not None:
            seals._set_state(connection, before.id, SealState.SUPERSEDED)
        seals._set_state(connection, seal.id, SealState.CURRENT)
        return True

    patch.setattr(sql_pointers.SqlPointerStore, "_swap", swap)
    patch.setattr(seals, "promote", promote)


def _moves_no_pointer(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(sql_pointers.SqlPointerStore, "_swap", lambda _pointers, _connection, _move: None)


def _promotes_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(loading, "finish", lambda *_given, **_named: True)


def _reads_what_is_not_sealed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(seals, "check_digest", lambda data, *_given, **_named: seals.Digest.of(data))


def _flushes_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(os, "fsync", lambda _descriptor: None)


def _takes_an_unknown_outcome_for_a_failure(patch: pytest.MonkeyPatch) -> None:
    def lost(publisher: publish.Publisher, sealed: Any, problem: Exception) -> None:
        publisher._lost(sealed)
        raise StateUnavailable("Nothing was committed.") from problem

    patch.setattr(publish.Publisher, "_where_they_stand", lost)


def _drops_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(sql_pointers.SqlPointerStore, "delete", lambda *_given: True)


def _reads_an_old_pointer(patch: pytest.MonkeyPatch) -> None:
    """Every other load of an instance gets what the one before got."""
    rows_of, last = standing.rows_of, dict[object, tuple[object, ...] | None]()

    def load(engine: Engine, catalog: str, name: TableName) -> tuple[object, ...] | None:
        key = (id(engine), name)
        if key in last:
            return last.pop(key)
        last[key] = rows_of(engine, catalog, name)
        return last[key]

    patch.setattr(standing, "rows_of", load)


@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize(
    ("fault", "faults"),
    [
        (_compares_nothing, {}),
        (_moves_no_pointer, {}),
        (_promotes_nothing, {}),
        (_reads_what_is_not_sealed, {DAMAGE: 0.3}),
        (_flushes_nothing, {POWER: 0.3}),
        (_takes_an_unknown_outcome_for_a_failure, {LOST_ANSWER: 0.1}),
        (_drops_nothing, {}),
        (_reads_an_old_pointer, {}),
    ],
)
def test_a_fault_that_is_put_in_is_found(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    fault: Callable[[pytest.MonkeyPatch], None],
    faults: Mapping[str, float],
) -> None:
    fault(monkeypatch)
    assert any(simulate(world, seed, faults) for seed in ENOUGH)


def test_the_seed_chooses_who_goes_on() -> None:
    def orders(seed: int) -> list[str]:
        scheduler = Scheduler(seed)

        def act() -> None:
            for _ in range(5):
                scheduler.boundary("step")

        scheduler.run([("a", act), ("b", act)])
        return scheduler.trace

    assert orders(1) == orders(1)
    assert len({tuple(orders(seed)) for seed in range(20)}) > 10


def test_a_task_in_a_transaction_keeps_the_baton() -> None:
    scheduler = Scheduler(1)

    def act() -> None:
        scheduler.enter()
        for _ in range(5):
            scheduler.boundary("inside")
        scheduler.leave()
        scheduler.boundary("after")

    scheduler.run([("a", act), ("b", act)])
    assert sorted(scheduler.trace) == ["a after", "b after"]


def test_a_task_that_waits_for_another_one_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.simulation.scheduler._STUCK_S", 0.1)
    scheduler, never = Scheduler(1), threading.Event()
    with pytest.raises(Stuck, match="c0 does not come to a boundary"):
        scheduler.run([("c0", lambda: never.wait(5) and None)])
    never.set()


def test_an_error_of_a_task_is_raised() -> None:
    def fail() -> None:
        raise KeyError("x")

    with pytest.raises(KeyError):
        Scheduler(1).run([("a", fail)])
