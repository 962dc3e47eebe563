"""How often keys encrypt is counted before they do, by every replica, and never more often than they may."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import pytest
from sqlalchemy import Engine, event

from catalog.db.engine import open_database, read
from catalog.state import invocations
from catalog.state.invocations import Invocations
from policy.encryption.epochs import PekRef
from policy.errors import CommitStateUnknown, KeyNotUsable, StateUnavailable


@pytest.fixture
def ref() -> PekRef:
    return PekRef(uuid4(), 1, "lake")


def counted(engine: Engine, ref: PekRef) -> int:
    with read(engine) as connection:
        return invocations.counted(connection, [ref.pek_id]).get((ref.pek_id, ref.version), 0)


def spent(counts: Invocations, ref: PekRef, times: int) -> int:
    """How often a key was used of so many attempts; the rest were refused."""
    done = 0
    for _ in range(times):
        try:
            counts.of(ref)()
        except KeyNotUsable as refusal:
            assert refusal.rule == "key-invocations" and "rotate" in str(refusal)
        else:
            done += 1
    return done


def test_a_use_is_counted_before_it_and_what_a_process_leaves_counts_as_used(
    engine: Engine, ref: PekRef
) -> None:
    Invocations(engine).of(ref)()
    assert counted(engine, ref) == 1_024
    assert spent(Invocations(engine), ref, 1_024) == 1_024
    assert counted(engine, ref) == 2_048


def test_versions_and_keys_are_counted_apart(engine: Engine, ref: PekRef) -> None:
    later, other = PekRef(ref.pek_id, 2, "lake"), PekRef(uuid4(), 1, "lake")
    counts = Invocations(engine, most=3)
    assert [spent(counts, each, 5) for each in (ref, later, other)] == [3, 3, 3]


def test_no_key_encrypts_more_often_than_it_may_in_any_process(engine: Engine, ref: PekRef) -> None:
    first, second = Invocations(engine, most=1_500), Invocations(engine, most=1_500)
    assert spent(first, ref, 1_000) == 1_000
    assert spent(second, ref, 1_000) == 1_500 - 1_024
    assert spent(first, ref, 100) == 24
    assert counted(engine, ref) == 1_500
    assert spent(Invocations(engine, most=1_500), ref, 1) == 0


def test_replicas_that_count_at_once_lose_no_use(engine: Engine, url: str, ref: PekRef) -> None:
    """Two of them begin with a key that nobody has counted yet."""
    engines = [open_database(url) for _ in range(2)]
    replicas = [Invocations(each, most=100_000) for each in engines]
    with ThreadPoolExecutor(8) as threads:
        done = list(threads.map(lambda n: spent(replicas[n % 2], ref, 1_500), range(8)))
    for each in engines:
        each.dispose()
    assert sum(done) == 12_000
    assert 12_000 <= counted(engine, ref) <= 100_000


def test_a_large_commit_asks_the_database_seldom(sqlite_engine: Engine, ref: PekRef) -> None:
    begun = []
    event.listen(sqlite_engine, "commit", begun.append)
    assert spent(Invocations(sqlite_engine), ref, 60_000) == 60_000
    assert len(begun) <= 6


def test_a_count_that_may_be_lost_encrypts_nothing(
    sqlite_engine: Engine, ref: PekRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(*_: object) -> None:
        raise CommitStateUnknown("The connection broke.")

    counts = Invocations(sqlite_engine)
    monkeypatch.setattr(counts, "_counted", lost)
    with pytest.raises(StateUnavailable):
        counts.of(ref)()


def test_half_of_it_used_up_is_said_in_the_log(
    sqlite_engine: Engine, ref: PekRef, caplog: pytest.LogCaptureFixture
) -> None:
    counts = Invocations(sqlite_engine, most=4_096)
    with caplog.at_level(logging.WARNING, "catalog.state.invocations"):
        spent(counts, ref, 1_024)
        assert not caplog.records
        spent(counts, ref, 1_024)
    (said,) = caplog.messages
    assert str(ref.pek_id) in said and "rotate" in said
    assert (counts.needs_rotation(2_047), counts.needs_rotation(2_048)) == (False, True)
