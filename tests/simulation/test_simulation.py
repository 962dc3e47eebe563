"""Interleavings that a seed chooses: each answer is explained by one order of all operations.

A failure prints its seed: ``python -m tests.simulation SEED`` replays it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from sqlalchemy import update

from catalog.db.schema import iceberg_tables
from catalog.state import seals, sql_pointers
from catalog.state.seals import SealState
from tests.simulation.scheduler import Scheduler, Stuck
from tests.simulation.simulation import simulate, sound
from tests.simulation.world import World, simulated

#: The seeds of `make test`, and of `make nightly`.
FEW, MANY = range(20), range(1_000, 1_400)
#: One of these seeds has to find a fault that was put in.
ENOUGH = range(60)


@pytest.fixture
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A catalog whose boundaries a scheduler holds."""
    with simulated(tmp_path_factory.mktemp("simulated")) as opened:
        # What a process reads once (policies, settings) is read before the first schedule that counts.
        simulate(opened, 0)
        yield opened


def run(world: World, seeds: range) -> None:
    """Run schedules; each failure has its seed."""
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
    for _ in range(2):
        simulate(world, 3)
        traces.append(list(world.scheduler.trace))
    assert traces[0] == traces[1] and len(traces[0]) > 50


def _swap_without_comparing(pointers: sql_pointers.SqlPointerStore, connection, move) -> None:
    values = {"metadata_location": move.location}
    connection.execute(update(iceberg_tables).where(*pointers._is(move.name)).values(**values))


def _promote_without_comparing(connection, seal) -> bool:
    before = seals.current(connection, seal.table_id)
    if before is not None:
        seals._set_state(connection, before.id, SealState.SUPERSEDED)
    seals._set_state(connection, seal.id, SealState.CURRENT)
    return True


def test_a_commit_that_compares_nothing_is_found(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the two that compare, the pointer and the seal, each is enough."""
    monkeypatch.setattr(sql_pointers.SqlPointerStore, "_swap", _swap_without_comparing)
    monkeypatch.setattr(seals, "promote", _promote_without_comparing)
    assert any(simulate(world, seed) for seed in ENOUGH)


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
