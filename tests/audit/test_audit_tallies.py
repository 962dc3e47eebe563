"""Equal refusals are counted; the first of them, and every grant, is on record before it is answered."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import Engine

from catalog import audit as audit_module
from catalog.audit import AuditRecord, AuditTrail, read, verify
from catalog.db.engine import open_database
from catalog.db.migrate import upgrade
from policy.decision import Reason
from policy.errors import StateUnavailable

REFUSAL = AuditRecord(
    "bob", "spark", "table.load", "db.t", False, (Reason("policy-no-match", "No."),), "r0", 1
)


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    engine = open_database(f"sqlite:///{tmp_path}/lakewarden.db", busy_timeout_s=0.2)
    upgrade(engine)
    yield engine
    engine.dispose()


def _stored(engine: Engine) -> list[AuditRecord]:
    return [each.record for each in sorted(read(engine, limit=10_000), key=lambda each: each.sequence)]


def _spam(trail: AuditTrail, count: int, record: AuditRecord = REFUSAL) -> None:
    for number in range(count):
        trail.append([replace(record, request_id=f"r{number}", at_ms=number)])


def _until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_spam_of_equal_refusals_makes_two_records(engine: Engine) -> None:
    """Attack: fill the trail, and slow down everybody's grants, with one's own refusals."""
    trail = AuditTrail(engine)
    _spam(trail, 300)
    assert len(_stored(engine)) == 1
    trail.close()
    first, repeated = _stored(engine)
    assert first == replace(REFUSAL, request_id="r0", at_ms=0)
    assert (repeated.request_id, repeated.at_ms, repeated.allowed) == ("r299", 299, False)
    assert repeated.reasons[0] == REFUSAL.reasons[0]
    assert repeated.reasons[1].rule == "repeated"
    assert "299 more times since the record of request r0" in repeated.reasons[1].detail
    assert verify(engine) == []


def test_the_first_refusal_is_on_record_before_it_is_answered(engine: Engine) -> None:
    trail = AuditTrail(engine)
    other = sqlite3.connect(str(engine.url.database), isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    for _ in range(2):
        with pytest.raises(StateUnavailable):
            trail.append([REFUSAL])
    other.execute("ROLLBACK")
    other.close()
    trail.append([REFUSAL])
    assert _stored(engine) == [REFUSAL]
    trail.close()


def test_grants_are_never_counted(engine: Engine) -> None:
    trail = AuditTrail(engine)
    trail.append([REFUSAL])
    _spam(trail, 5, replace(REFUSAL, allowed=True))
    trail.close()
    assert [record.allowed for record in _stored(engine)] == [False, *[True] * 5]


@pytest.mark.parametrize(
    "change",
    [
        {"principal": "carol"},
        {"engine": None},
        {"action": "table.plan"},
        {"resource": "db.u"},
        {"reasons": (Reason("policy-deny", "No."),)},
    ],
)
def test_a_refusal_that_differs_is_a_record_of_its_own(engine: Engine, change: dict[str, object]) -> None:
    trail = AuditTrail(engine)
    trail.append([REFUSAL])
    trail.append([replace(REFUSAL, **change)])
    assert len(_stored(engine)) == 2
    trail.close()
    assert len(_stored(engine)) == 2


def test_a_count_is_written_when_its_window_ends_and_the_next_refusal_is_a_first_one(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_module, "_LOOK_S", 0.02)
    trail = AuditTrail(engine)
    _spam(trail, 3)
    _end_windows(trail)
    _until(lambda: len(_stored(engine)) == 2)
    trail.append([replace(REFUSAL, request_id="later")])
    assert _stored(engine)[-1].request_id == "later"
    assert len(_stored(engine)[-1].reasons) == 1
    trail.close()
    assert verify(engine) == []


def test_a_count_that_could_not_be_written_is_kept(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_module, "_LOOK_S", 0.02)
    trail = AuditTrail(engine)
    trail.append([REFUSAL])
    other = sqlite3.connect(str(engine.url.database), isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    trail.append([REFUSAL])
    _end_windows(trail)
    _until(lambda: bool(trail._counted))
    other.execute("ROLLBACK")
    other.close()
    _until(lambda: len(_stored(engine)) == 2)
    trail.close()
    first, repeated = _stored(engine)
    assert first == REFUSAL and "Refused 1 more" in repeated.reasons[-1].detail
    assert verify(engine) == []


def _end_windows(trail: AuditTrail) -> None:
    for user in list(trail._tallies._users.values()):
        user.end_s = 0.0


def test_refusals_of_many_threads_are_all_counted(engine: Engine) -> None:
    trail = AuditTrail(engine)
    trail.append([REFUSAL])
    threads = [threading.Thread(target=_spam, args=(trail, 50)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    trail.close()
    assert "400 more times" in _stored(engine)[-1].reasons[-1].detail
    assert [record.decisions for record in _stored(engine)] == [1, 400]


def test_a_closed_trail_refuses_repetitions_too(engine: Engine) -> None:
    trail = AuditTrail(engine)
    trail.append([REFUSAL])
    trail.close()
    with pytest.raises(StateUnavailable):
        trail.append([REFUSAL])
