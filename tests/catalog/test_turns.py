"""Commits to one table take turns in the order in which they came; a turn is waited for in bounded time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial

import pytest

from catalog.commits.turns import Turns
from catalog.writes import written_files
from catalog.writes.new_files import FileCommit
from policy.errors import StateUnavailable
from tests.support.lake import Lake
from tests.support.tables import Engine, append_files, make, name_of

LONG = 60.0


def started(act: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=act, daemon=True)
    thread.start()
    return thread


def until(condition: Callable[[], bool]) -> None:
    for _ in range(6000):
        if condition():
            return
        threading.Event().wait(0.005)
    raise AssertionError("it never came to that")


def test_turns_are_taken_in_the_order_of_arrival() -> None:
    turns, order, threads = Turns(LONG), list[int](), list[threading.Thread]()

    def act(number: int) -> None:
        with turns.taken("t"):
            order.append(number)

    with turns.taken("t"):
        for number in range(5):
            threads.append(started(partial(act, number)))
            until(partial(_waits, turns, number + 2))
        assert order == []
    for thread in threads:
        thread.join(LONG)
    assert order == [0, 1, 2, 3, 4]
    assert turns.waiting("t") == 0


def _waits(turns: Turns, count: int) -> bool:
    return turns.waiting("t") == count


def test_another_table_is_not_waited_for() -> None:
    turns, done = Turns(LONG), threading.Event()

    def act() -> None:
        with turns.taken("other"):
            done.set()

    with turns.taken("t"):
        started(act)
        assert done.wait(LONG)


def test_a_turn_that_does_not_come_is_not_waited_for_longer() -> None:
    turns, done = Turns(0.01), threading.Event()

    def act() -> None:
        with turns.taken("t"):
            done.set()

    with turns.taken("t"):
        started(act).join(LONG)
        assert done.is_set()
        assert turns.waiting("t") == 1
    assert turns.waiting("t") == 0


def test_a_wait_ends_although_the_queue_moves_on() -> None:
    """Of those that wait for too long, the next in the queue goes ahead, and the others end."""
    turns, refused, ahead = Turns(0.5), list[int](), list[int]()
    done = threading.Event()

    def act(number: int) -> None:
        try:
            with turns.taken("t"):
                ahead.append(number)
                done.wait(LONG)
        except StateUnavailable as error:
            assert error.rule == "commit-turn"
            refused.append(number)

    with turns.taken("t"):
        threads = []
        for number in range(4):
            threads.append(started(partial(act, number)))
            until(partial(_waits, turns, number + 2))
        until(lambda: len(refused) == 3)
        assert ahead == [0]
        done.set()
    for thread in threads:
        thread.join(LONG)
    assert turns.waiting("t") == 0


def test_a_commit_that_waited_for_too_long_is_published_by_a_repetition(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = name_of(make(lake))
    turns = lake.services.writes._tables._turns
    engine = Engine.begin(lake, name)
    files = FileCommit("append", (engine.file(),))
    key = engine.session.table.record.id
    monkeypatch.setattr(turns, "_longest_wait_s", 0.01)
    release = threading.Event()

    def hold() -> None:
        with turns.taken(key):
            release.wait(LONG)

    holders = [started(hold) for _ in range(2)]
    until(lambda: turns.waiting(key) == 2)
    with pytest.raises(StateUnavailable, match="Nothing was committed"):
        engine.commit(files)
    assert not lake.catalog().load_table(str(name)).snapshots()
    release.set()
    for each in holders:
        each.join(LONG)
    engine.commit(files)
    assert len(lake.catalog().load_table(str(name)).snapshots()) == 1


def test_a_thread_with_a_turn_does_not_wait_for_itself() -> None:
    turns = Turns(LONG)
    with turns.taken("t"), turns.taken("t"), turns.taken("other"):
        assert turns.waiting("t") == 1


def test_the_turn_passes_on_after_an_error() -> None:
    turns = Turns(LONG)
    with pytest.raises(ValueError, match="failed"), turns.taken("t"):
        raise ValueError("failed")
    assert turns.waiting("t") == 0


@pytest.mark.nightly
def test_appends_at_once_are_each_built_once(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one process, writers do not overtake each other."""
    name, built = name_of(make(lake)), list[object]()
    real = written_files.make_snapshot

    def counted(*given: object) -> object:
        built.append(given)
        return real(*given)  # type: ignore[arg-type]

    monkeypatch.setattr("catalog.writes.table_writes.make_snapshot", counted)
    monkeypatch.setattr(lake.services.writes._tables._turns, "_longest_wait_s", LONG)
    threads = [started(lambda: append_files(lake, name)) for _ in range(8)]
    for thread in threads:
        thread.join(LONG)
    assert len(lake.catalog().load_table(str(name)).snapshots()) == 8
    assert len(built) == 8
