"""Refusals are counted; the first of each kind, and every grant, is on record before it is answered."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import Engine

from catalog.audit import tallies as audit_tallies
from catalog.audit import trail as audit_trail
from catalog.audit.records import to_columns
from catalog.audit.store import space
from catalog.audit.trail import AuditRecord, AuditTrail, read, verify
from catalog.db.engine import open_database
from policy.decision import Reason
from policy.errors import StateUnavailable
from tests.support.databases import upgrade

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
    monkeypatch.setattr(audit_trail, "_LOOK_S", 0.02)
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
    monkeypatch.setattr(audit_trail, "_LOOK_S", 0.02)
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


def _refusals(engine: Engine, principal: str) -> list[AuditRecord]:
    return [record for record in _stored(engine) if record.principal == principal and not record.allowed]


def test_invented_names_cost_a_bounded_number_of_records_and_none_is_lost(engine: Engine) -> None:
    """Attack: fill the trail with refusals no two of which are equal."""
    trail = AuditTrail(engine)
    for number in range(3_000):
        trail.append([replace(REFUSAL, resource=f"db.t{number}", request_id=f"r{number}")])
    trail.close()
    records = _stored(engine)
    assert len(records) == audit_tallies.DISTINCT + 2
    assert sum(record.decisions for record in records) == 3_000
    assert [record.resource for record in records[:3]] == ["db.t0", "db.t1", "db.t2"]
    begun, counted = records[-2:]
    assert begun.reasons[1].detail == "Further refusals of this action by this rule are counted."
    assert counted.decisions == 3_000 - audit_tallies.DISTINCT - 1
    assert "db.t17, db.t18, db.t19" in counted.reasons[1].detail
    assert verify(engine) == []


def test_varied_actions_rules_and_engines_are_bounded_too(engine: Engine) -> None:
    trail = AuditTrail(engine)
    for number in range(2_000):
        reasons = (Reason(f"rule-{number}", "No."),)
        trail.append([replace(REFUSAL, action=f"a{number}", engine=f"e{number}", reasons=reasons)])
    trail.close()
    records = _stored(engine)
    assert len(records) <= 2 * (audit_tallies.DISTINCT + audit_tallies.KINDS + 1)
    assert sum(record.decisions for record in records) == 2_000


def test_one_users_flood_leaves_every_other_user_records_of_his_own(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Attack: push the refusals of others out of the trail."""
    monkeypatch.setattr(audit_tallies, "ENTRIES", 10)
    trail = AuditTrail(engine)
    _varied(trail, "mallory", 500)
    for user in ("ann", "bob", "carol"):
        _varied(trail, user, 20)
    trail.close()
    for user, number in (("ann", 20), ("bob", 20), ("carol", 20), ("mallory", 500)):
        records = _refusals(engine, user)
        assert records[0].resource == "db.t0"
        assert sum(record.decisions for record in records) == number


def _varied(trail: AuditTrail, principal: str, count: int) -> None:
    for number in range(count):
        trail.append([replace(REFUSAL, principal=principal, resource=f"db.t{number}")])


def test_more_users_than_there_is_memory_for_are_counted_together(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_tallies, "USERS", 2)
    trail = AuditTrail(engine)
    for number in range(10):
        trail.append([replace(REFUSAL, principal=f"user-{number}")])
    trail.close()
    *firsts, together = _stored(engine)
    assert [record.principal for record in firsts] == ["user-0", "user-1"]
    assert (together.principal, together.action, together.decisions) == ("", "audit.counted", 8)
    assert "8 of table.load" in together.reasons[1].detail and "user-2" in together.reasons[1].detail


def test_refusals_use_their_share_of_the_space_and_grants_go_on(engine: Engine) -> None:
    """Attack: fill the disk with refusals of very many users."""
    trail = AuditTrail(engine, refusal_bytes=20_000)
    for number in range(2_000):
        trail.append([replace(REFUSAL, principal=f"user-{number}")])
        if number % 100 == 0:
            trail.append([replace(REFUSAL, allowed=True, request_id=f"grant-{number}")])
    trail.close()
    records = _stored(engine)
    assert sum(record.allowed for record in records) == 20
    assert sum(record.decisions for record in records if not record.allowed) == 2_000
    assert sum(not record.allowed for record in records) < 100
    assert space(engine).refusals < 25_000
    assert verify(engine) == []


def test_the_share_is_that_of_all_processes_together(engine: Engine) -> None:
    first = AuditTrail(engine)
    _varied(first, "mallory", 16)
    first.close()
    used = space(engine).refusals
    second = AuditTrail(engine, refusal_bytes=used)
    second.append([replace(REFUSAL, allowed=True)])
    _until(second._refusals_are_full)
    second.append([replace(REFUSAL, principal="ann")])
    second.close()
    assert _refusals(engine, "ann") == []
    assert _refusals(engine, "")[0].decisions == 1


def test_equal_refusals_at_the_same_moment_wait_for_one_record(engine: Engine) -> None:
    """None of them is answered before that record is durable."""
    trail = AuditTrail(engine)
    other = sqlite3.connect(str(engine.url.database), isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    outcomes: list[str] = []

    def refuse() -> None:
        try:
            trail.append([REFUSAL])
            outcomes.append("answered")
        except StateUnavailable:
            outcomes.append("unavailable")

    threads = [threading.Thread(target=refuse) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    other.execute("ROLLBACK")
    other.close()
    assert outcomes == ["unavailable"] * 8
    trail.append([REFUSAL])
    trail.close()
    assert [record.decisions for record in _stored(engine)] == [1]


def test_counts_are_small_whatever_is_counted() -> None:
    """Attack: fill memory with long names and many reasons."""
    tallies = audit_tallies.Tallies(60.0, lambda: False)
    reasons = tuple(Reason("r", "d" * 1_000) for _ in range(16))
    for number in range(500):
        row = to_columns(replace(REFUSAL, resource=f"{number}" * 500, reasons=reasons))
        found = tallies.admit(row)
        if found is not None and found.leads:
            found.tally.on_record.set_result(None)
    (user,) = tallies._users.values()
    assert len(list(user.counts())) == audit_tallies.DISTINCT + 1
    assert sum(len(str(count.first)) + len(str(count.last)) for count in user.counts()) < 120_000


def test_what_is_counted_and_cannot_be_written_at_the_end_is_told(
    engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    trail = AuditTrail(engine)
    _spam(trail, 8)
    other = sqlite3.connect(str(engine.url.database), isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    trail.close()
    other.execute("ROLLBACK")
    other.close()
    assert "7 counted refusals could not be recorded" in caplog.text
