"""Old records go, and what stays can still be checked."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from sqlalchemy import Engine, delete, func, select, text, update

from catalog.audit import prune as audit_prune
from catalog.audit.checkpoints import Checkpointer, Signer
from catalog.audit.formats import record_line
from catalog.audit.prune import prune
from catalog.audit.store import space
from catalog.audit.stream import checkpoint_line, last_checkpoint_row
from catalog.audit.trail import AuditRecord, AuditTrail, read
from catalog.audit.verify import examine
from catalog.db.engine import read as read_transaction
from catalog.db.engine import write
from catalog.db.schema import lw_audit, lw_audit_chain, lw_audit_checkpoint
from catalog.kms.root_key import KeyFile
from catalog.service.audit_retention import prune_as
from policy.decision import Reason
from policy.errors import NotAuthorized, RequestInvalid
from tests.support.lake import ALICE, BOB, Lake, open_lake

DAY_MS = 24 * 3600 * 1000


def _record(at_ms: int, allowed: bool = True) -> AuditRecord:
    """Refusals of one user would be counted."""
    user = "ann" if allowed else f"user-{at_ms}"
    return AuditRecord(user, "spark", "table.load", "db.t", allowed, (Reason("r", "d"),), "q", at_ms)


def _trail(engine: Engine, signer: Signer, times: Iterator[int] | range) -> AuditTrail:
    trail = AuditTrail(engine, checkpointer=Checkpointer(engine, signer, lambda: 1, 3600))
    for at_ms in times:
        trail.append([_record(at_ms, allowed=at_ms % 3 != 0)])
    return trail


def _times(engine: Engine) -> list[int]:
    return sorted(found.record.at_ms for found in read(engine, limit=10_000))


def _problems(engine: Engine, signer: Signer, *evidence: str) -> list[str]:
    found = examine(engine, public_keys=frozenset({signer.public_key}), evidence=evidence)
    return [f"{problem.kind} {problem.detail}" for problem in found.problems]


def _lines(engine: Engine) -> list[str]:
    with read_transaction(engine) as connection:
        records = [record_line(row) for row in connection.execute(select(lw_audit)).mappings()]
        checkpoints = connection.execute(select(lw_audit_checkpoint)).mappings()
        return records + [checkpoint_line(row) for row in checkpoints]


@pytest.mark.nightly
def test_old_records_go_and_the_rest_holds(any_engine: Engine, signer: Signer) -> None:
    _trail(any_engine, signer, range(0, 50)).close()
    running = _trail(any_engine, signer, range(20, 120))
    copies = _lines(any_engine)
    assert prune(any_engine, 60, signer, "w", 1_000) == 50 + 40
    assert _times(any_engine) == list(range(60, 120))
    running.append([_record(121)])
    assert _problems(any_engine, signer, *copies) == []
    assert prune(any_engine, 100, signer, "w", 1_000) == 40
    running.close()
    assert _problems(any_engine, signer, *copies) == []
    assert prune(any_engine, 10_000, signer, "w", 1_000) == 21
    assert _times(any_engine) == []
    assert _problems(any_engine, signer, *copies) == []
    assert space(any_engine).refusals == space(any_engine).others == 0


@pytest.mark.nightly
def test_chains_that_ended_leave_nothing_behind(any_engine: Engine, signer: Signer) -> None:
    for number in range(5):
        _trail(any_engine, signer, range(number, number + 1)).close()
    copies = _lines(any_engine)
    prune(any_engine, 3, signer, "w", 1_000)
    prune(any_engine, 4, signer, "w", 1_000)
    with read_transaction(any_engine) as connection:
        assert connection.execute(select(func.count()).select_from(lw_audit_chain)).scalar() == 1
        assert connection.execute(select(func.count()).select_from(lw_audit_checkpoint)).scalar() == 1
    assert _problems(any_engine, signer, *copies) == []


@pytest.mark.nightly
def test_what_is_removed_by_hand_is_not_taken_for_pruned(any_engine: Engine, signer: Signer) -> None:
    """Attack: remove more of a chain's beginning than was pruned."""
    _trail(any_engine, signer, range(100)).close()
    prune(any_engine, 10, signer, "w", 1_000)
    with write(any_engine) as connection:
        connection.execute(delete(lw_audit).where(lw_audit.c.at_ms < 20))
    assert [each.split()[0] for each in _problems(any_engine, signer)] == ["missing"]


@pytest.mark.nightly
def test_an_end_that_is_removed_is_not_taken_for_pruned(any_engine: Engine, signer: Signer) -> None:
    """Attack: remove the end of a chain whose beginning was pruned."""
    _trail(any_engine, signer, range(100)).close()
    prune(any_engine, 10, signer, "w", 1_000)
    with write(any_engine) as connection:
        connection.execute(delete(lw_audit).where(lw_audit.c.at_ms > 90))
    assert {each.split()[0] for each in _problems(any_engine, signer)} == {"truncated"}


@pytest.mark.nightly
def test_a_pruning_that_was_made_up_is_not_signed(any_engine: Engine, signer: Signer) -> None:
    """Attack: remove records, and write a checkpoint that says they were pruned."""
    _trail(any_engine, signer, range(100)).close()
    prune(any_engine, 50, None, "eve", 1_000)
    assert {each.split()[0] for each in _problems(any_engine, signer)} == {"checkpoint"}


def test_records_in_the_middle_never_go(any_engine: Engine, signer: Signer) -> None:
    """A clock that went back leaves old times behind young ones; they stay."""
    _trail(any_engine, signer, iter([1, 50, 2, 3, 60])).close()
    assert prune(any_engine, 40, signer, "w", 1_000) == 1
    assert _times(any_engine) == [2, 3, 50, 60]
    assert _problems(any_engine, signer) == []


@pytest.mark.nightly
def test_an_interrupted_pruning_holds_and_is_finished_by_the_next(
    any_engine: Engine, signer: Signer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed between the checkpoint and the records, and between two batches."""
    monkeypatch.setattr(audit_prune, "_BATCH", 10)
    _trail(any_engine, signer, range(100)).close()
    real, done = audit_prune._remove, []

    def killed(engine: Engine, batch: list[object]) -> int:
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(batch)
        return real(engine, batch)  # type: ignore[arg-type]

    monkeypatch.setattr(audit_prune, "_remove", killed)
    with pytest.raises(KeyboardInterrupt):
        prune(any_engine, 60, signer, "w", 1_000)
    assert len(_times(any_engine)) == 80
    assert _problems(any_engine, signer) == []
    monkeypatch.setattr(audit_prune, "_remove", real)
    assert prune(any_engine, 60, signer, "w", 1_000) == 40
    assert _times(any_engine) == list(range(60, 100))
    assert _problems(any_engine, signer) == []


def test_a_running_process_does_not_take_pruned_checkpoints_for_lost(
    any_engine: Engine, signer: Signer
) -> None:
    checkpointer = Checkpointer(any_engine, signer, lambda: 1, 3600)
    trail = _trail(any_engine, signer, range(10))
    checkpointer.make("w")
    prune(any_engine, 5, signer, "w", 1_000)
    trail.append([_record(11)])
    assert checkpointer.make("w") is not None
    trail.close()
    assert _problems(any_engine, signer) == []


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    KeyFile.create(tmp_path / "audit.key")
    with open_lake(tmp_path, AUDIT__KEY_FILE=tmp_path / "audit.key", AUDIT__KEEP_DAYS=7) as lake:
        yield lake


def _now_ms() -> int:
    return int(datetime.now(UTC).timestamp() * 1000)


def _old(lake: Lake) -> None:
    """Records of long ago, by a writer that has ended."""
    trail = AuditTrail(lake.services.engine)
    trail.append([_record(number) for number in range(10)])
    trail.close()


def test_who_may_administer_prunes_and_that_is_on_record(lake: Lake) -> None:
    _old(lake)
    assert prune_as(lake.services, lake.caller(ALICE), _now_ms() - 8 * DAY_MS, force=False) == 10
    latest = read(lake.services.engine, principal=ALICE)[0].record
    assert (latest.action, latest.allowed) == ("audit.prune", True)
    assert latest.resource.startswith("records before 20")
    signer = lake.services.audit_signer
    assert signer is not None and _problems(lake.services.engine, signer) == []


def test_others_do_not_prune_and_that_is_on_record(lake: Lake) -> None:
    _old(lake)
    with pytest.raises(NotAuthorized):
        prune_as(lake.services, lake.caller(BOB), _now_ms() - 8 * DAY_MS, force=True)
    assert len(read(lake.services.engine, principal="ann")) == 10
    assert [found.record.allowed for found in read(lake.services.engine, principal=BOB)] == [False]


@pytest.mark.parametrize("before_ms", [DAY_MS, 0, -100 * DAY_MS])
def test_young_records_stay_whoever_asks(lake: Lake, before_ms: int) -> None:
    """Attack: an administrator removes the traces of their last change."""
    with pytest.raises(RequestInvalid, match="last 7 days"):
        prune_as(lake.services, lake.caller(ALICE), _now_ms() - before_ms, force=True)


def test_a_trail_that_does_not_hold_is_pruned_by_force_alone(lake: Lake) -> None:
    """Attack: edit a record, and have it removed and signed away before an auditor looks."""
    _old(lake)
    with write(lake.services.engine) as connection:
        connection.execute(update(lw_audit).where(lw_audit.c.at_ms == 5).values(principal="x"))
    before = _now_ms() - 8 * DAY_MS
    with pytest.raises(RequestInvalid, match="1 problems"):
        prune_as(lake.services, lake.caller(ALICE), before, force=False)
    with read_transaction(lake.services.engine) as connection:
        assert connection.execute(text("SELECT count(*) FROM lw_audit WHERE at_ms < 10")).scalar() == 10
    assert prune_as(lake.services, lake.caller(ALICE), before, force=True) == 10
    assert "has 1 problems" in read(lake.services.engine, principal=ALICE)[0].record.resource


def test_the_last_checkpoint_is_the_one_that_starts_after_a_pruning(lake: Lake) -> None:
    _old(lake)
    prune_as(lake.services, lake.caller(ALICE), _now_ms() - 8 * DAY_MS, force=False)
    assert '"start":true' in str(last_checkpoint_row(lake.services.engine)["content"])
