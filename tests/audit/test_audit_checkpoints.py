"""The end of a chain or a whole chain removed, an older trail put back: checkpoints and copies show it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import Engine, delete, insert, select, update

from catalog.audit.checkpoints import Checkpointer, Signer, checkpoint_hash
from catalog.audit.formats import record_line
from catalog.audit.records import chained
from catalog.audit.stream import checkpoint_line, last_checkpoint_row
from catalog.audit.trail import AuditRecord, AuditTrail
from catalog.audit.trail import read as read_trail
from catalog.audit.verdict import AuditProblem
from catalog.audit.verify import examine, verify
from catalog.db.engine import open_database, read, write
from catalog.db.schema import lw_audit, lw_audit_chain, lw_audit_checkpoint
from catalog.kms.root_key import KeyFile
from policy.decision import Reason
from policy.errors import StateUnavailable
from tests.support.databases import upgrade


def _record(at_ms: int = 1, principal: str = "ann") -> AuditRecord:
    return AuditRecord(principal, None, "table.load", "db.t", True, (Reason("r", "d"),), "q", at_ms)


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    engine = open_database(f"sqlite:///{tmp_path}/lakewarden.db", busy_timeout_s=0.2)
    upgrade(engine)
    yield engine
    engine.dispose()


def _chain(engine: Engine, signer: Signer | None, records: int = 10) -> str:
    """A chain of a process that has ended; the id of its writer."""
    trail = AuditTrail(engine, checkpointer=Checkpointer(engine, signer, lambda: 5_000, 3600))
    trail.append([_record(number) for number in range(records)])
    trail.close()
    return trail.writer_id


def _kinds(problems: list[AuditProblem]) -> set[str]:
    return {problem.kind for problem in problems}


def _keys(signer: Signer) -> frozenset[str]:
    return frozenset({signer.public_key})


def _cut(engine: Engine, writer: str, keep: int) -> None:
    """Remove a chain's last records, and note the new end, as one who knows the tables would."""
    with write(engine) as connection:
        chain = lw_audit.c.writer == writer
        connection.execute(delete(lw_audit).where(chain, lw_audit.c.sequence > keep))
        last = connection.execute(select(lw_audit).where(chain, lw_audit.c.sequence == keep)).mappings().one()
        here = update(lw_audit_chain).where(lw_audit_chain.c.writer == writer)
        connection.execute(here.values(sequence=keep, hash=last["hash"], checkpointed=0))


def test_a_whole_trail_holds(any_engine: Engine, signer: Signer) -> None:
    for _ in range(3):
        _chain(any_engine, signer)
    verdict = examine(any_engine, public_keys=_keys(signer))
    assert verdict.problems == []
    assert (verdict.chains, verdict.records, verdict.checkpoints) == (3, 30, 3)
    assert (verdict.signed_from, verdict.checkpointed_ms) == (1, 5_000)


def test_the_end_of_a_chain_removed(any_engine: Engine) -> None:
    writer = _chain(any_engine, None)
    _cut(any_engine, writer, 7)
    (problem,) = verify(any_engine)
    assert (problem.writer, problem.sequence, problem.kind) == (writer, 10, "truncated")


def test_the_end_of_a_chain_removed_without_noting_the_new_end(engine: Engine) -> None:
    trail = AuditTrail(engine)
    trail.append([_record(number) for number in range(10)])
    trail.close()
    with write(engine) as connection:
        connection.execute(delete(lw_audit).where(lw_audit.c.sequence > 7))
    assert _kinds(verify(engine)) == {"truncated"}


def test_a_whole_chain_removed(engine: Engine) -> None:
    gone, _ = _chain(engine, None), _chain(engine, None)
    with write(engine) as connection:
        for table in (lw_audit, lw_audit_chain):
            connection.execute(delete(table).where(table.c.writer == gone))
    assert [(problem.writer, problem.kind) for problem in verify(engine)] == [(gone, "truncated")]


def test_a_chain_computed_again(engine: Engine) -> None:
    """Attack: change a record, and compute all hashes behind it and the noted end anew."""
    writer = _chain(engine, None)
    with write(engine) as connection:
        rows = [
            dict(row) for row in connection.execute(select(lw_audit).order_by(lw_audit.c.sequence)).mappings()
        ]
        rows[4]["principal"] = "another user"
        forged = chained(rows, writer, 0, "0" * 64)
        connection.execute(delete(lw_audit))
        connection.execute(insert(lw_audit), forged)
        connection.execute(update(lw_audit_chain).values(hash=forged[-1]["hash"]))
    assert _kinds(verify(engine)) == {"truncated"}


def test_an_ended_chain_that_is_extended_is_still_held_by_the_checkpoint(engine: Engine) -> None:
    """Attack: change a record, compute all anew and add one, so that the next checkpoint names that end."""
    writer = _chain(engine, None)
    with write(engine) as connection:
        rows = [
            dict(row) for row in connection.execute(select(lw_audit).order_by(lw_audit.c.sequence)).mappings()
        ]
        forged = chained([*rows, {**rows[-1], "principal": "eve"}], writer, 0, "0" * 64)
        forged[4]["allowed"] = False
        forged = chained(forged, writer, 0, "0" * 64)
        connection.execute(delete(lw_audit))
        connection.execute(insert(lw_audit), forged)
        connection.execute(update(lw_audit_chain).values(sequence=11, hash=forged[-1]["hash"]))
    _chain(engine, None)
    assert (writer, 10, "truncated") in {(each.writer, each.sequence, each.kind) for each in verify(engine)}


def test_checkpoints_computed_again_by_one_without_the_key(engine: Engine, signer: Signer) -> None:
    """Attack: remove records, and make the checkpoints fit."""
    writer = _chain(engine, signer)
    _cut(engine, writer, 7)
    other = Checkpointer(engine, None, lambda: 5_000, 3600)
    with write(engine) as connection:
        connection.execute(delete(lw_audit_checkpoint))
    other.make("eve")
    assert verify(engine) == []
    verdict = examine(engine, public_keys=_keys(signer))
    assert _kinds(verdict.problems) == {"checkpoint"}
    assert verdict.signed_from is None


def test_checkpoints_signed_with_another_key(engine: Engine, signer: Signer, tmp_path: Path) -> None:
    KeyFile.create(tmp_path / "eve.key")
    _chain(engine, Signer(tmp_path / "eve.key"))
    assert _kinds(examine(engine, public_keys=_keys(signer)).problems) == {"checkpoint"}
    assert examine(engine, public_keys=_keys(Signer(tmp_path / "eve.key"))).problems == []


@pytest.mark.parametrize("change", ["signature", "public_key", "content", "at_ms", "previous_hash", "hash"])
def test_a_checkpoint_that_was_edited(engine: Engine, signer: Signer, change: str) -> None:
    _chain(engine, signer)
    _chain(engine, signer)
    old = str(last_checkpoint_row(engine)[change])
    value = 7 if change == "at_ms" else old[:-2] + ("}}" if old[-2] == "0" else "00")
    with write(engine) as connection:
        first = lw_audit_checkpoint.c.number == 1
        connection.execute(update(lw_audit_checkpoint).where(first).values(**{change: value}))
    assert "checkpoint" in _kinds(examine(engine, public_keys=_keys(signer)).problems)


def test_a_checkpoint_replaced_by_one_with_a_right_hash_of_its_own(engine: Engine) -> None:
    _chain(engine, None)
    _chain(engine, None)
    with write(engine) as connection:
        first = lw_audit_checkpoint.c.number == 1
        row = connection.execute(select(lw_audit_checkpoint).where(first)).mappings().one()
        forged = {**row, "at_ms": 1}
        new = update(lw_audit_checkpoint).where(first).values(at_ms=1, hash=checkpoint_hash(forged))
        connection.execute(new)
    assert [(each.sequence, each.kind) for each in verify(engine)] == [(2, "checkpoint")]


def test_a_signature_taken_away_is_seen_when_the_next_checkpoint_is_signed(
    engine: Engine, signer: Signer
) -> None:
    for _ in range(3):
        _chain(engine, signer)
    with write(engine) as connection:
        second = lw_audit_checkpoint.c.number == 2
        connection.execute(update(lw_audit_checkpoint).where(second).values(signature=None))
    found = examine(engine, public_keys=_keys(signer)).problems
    assert [(each.sequence, each.kind) for each in found] == [(2, "checkpoint")]


def test_checkpoints_before_there_was_a_key_are_no_fault(engine: Engine, signer: Signer) -> None:
    _chain(engine, None)
    _chain(engine, signer)
    verdict = examine(engine, public_keys=_keys(signer))
    assert (verdict.problems, verdict.signed_from) == ([], 2)


@pytest.mark.parametrize("which", [1, 2, 3])
def test_a_checkpoint_removed(engine: Engine, signer: Signer, which: int) -> None:
    """The last one is not missed without a copy elsewhere; its records are."""
    for _ in range(3):
        _chain(engine, signer)
    copy = checkpoint_line(last_checkpoint_row(engine))
    with write(engine) as connection:
        connection.execute(delete(lw_audit_checkpoint).where(lw_audit_checkpoint.c.number == which))
    found = examine(engine, public_keys=_keys(signer)).problems
    assert _kinds(found) == (set() if which == 3 else {"checkpoint"})
    if which == 3:
        found = examine(engine, public_keys=_keys(signer), evidence=[copy]).problems
        assert [(each.sequence, each.kind) for each in found] == [(3, "rollback")]


def test_no_checkpoint_at_all_is_a_fault_where_there_is_a_key(engine: Engine, signer: Signer) -> None:
    _chain(engine, signer)
    with write(engine) as connection:
        connection.execute(delete(lw_audit_checkpoint))
    assert _kinds(examine(engine, public_keys=_keys(signer)).problems) == {"checkpoint"}


def _copy_database(source: Path, target: Path) -> None:
    with closing(sqlite3.connect(source)) as old, closing(sqlite3.connect(target)) as new:
        old.backup(new)


def test_an_older_copy_of_the_database_put_back(engine: Engine, signer: Signer, tmp_path: Path) -> None:
    """Attack: replace the database by an older copy. Only what was copied elsewhere shows it."""
    _chain(engine, signer)
    _copy_database(tmp_path / "lakewarden.db", tmp_path / "older.db")
    writer = _chain(engine, signer)
    checkpoint = checkpoint_line(last_checkpoint_row(engine))
    with read(engine) as connection:
        row = connection.execute(select(lw_audit).where(lw_audit.c.writer == writer)).mappings().first()
    assert row is not None
    _copy_database(tmp_path / "older.db", tmp_path / "lakewarden.db")
    assert examine(engine, public_keys=_keys(signer)).problems == []
    found = examine(engine, public_keys=_keys(signer), evidence=[checkpoint, "torn{", record_line(dict(row))])
    assert _kinds(found.problems) == {"rollback", "truncated"}
    assert (found.evidence, found.unreadable) == (2, 1)


def test_a_copy_that_was_edited(engine: Engine, signer: Signer) -> None:
    _chain(engine, signer)
    line = checkpoint_line(last_checkpoint_row(engine))
    assert examine(engine, public_keys=_keys(signer), evidence=[line]).problems == []
    edited = line.replace('"at_ms":5000', '"at_ms":6000')
    assert edited != line
    assert _kinds(examine(engine, public_keys=_keys(signer), evidence=[edited]).problems) == {"checkpoint"}


@pytest.mark.parametrize(
    "line", ["", "{}", "[]", "nonsense", '{"content": 1}', "[" * 100_000, '{"writer": 1}']
)
def test_a_line_that_says_nothing_is_counted(engine: Engine, line: str) -> None:
    _chain(engine, None)
    verdict = examine(engine, evidence=[line])
    assert (verdict.problems, verdict.evidence, verdict.unreadable) == ([], 0, 1)


def test_a_running_process_says_that_its_chain_was_cut(any_engine: Engine) -> None:
    """Attack: remove the newest records of a process that runs, and note the new end."""
    trail = AuditTrail(any_engine)
    trail.append([_record(number) for number in range(10)])
    writer = trail.writer_id
    _cut(any_engine, writer, 7)
    trail.append([_record(11, "bob")])
    trail.close()
    assert trail.writer_id != writer
    with read(any_engine) as connection:
        own = select(lw_audit).where(lw_audit.c.writer == trail.writer_id).order_by(lw_audit.c.sequence)
        lost, grant = connection.execute(own).mappings().all()
    assert (lost["action"], lost["resource"], lost["allowed"]) == ("audit.chain-lost", writer, False)
    assert "ended with record 10" in lost["reasons"]
    assert grant["principal"] == "bob"


def test_a_running_process_says_that_the_end_of_its_chain_was_edited(engine: Engine) -> None:
    """Attack: change its last record, compute the hash anew, and note it as the end."""
    trail = AuditTrail(engine)
    trail.append([_record(number) for number in range(3)])
    writer = trail.writer_id
    with write(engine) as connection:
        rows = connection.execute(select(lw_audit).order_by(lw_audit.c.sequence)).mappings().all()
        (forged,) = chained([{**rows[2], "principal": "eve"}], writer, 2, rows[1]["hash"])
        connection.execute(update(lw_audit).where(lw_audit.c.sequence == 3).values(**forged))
        connection.execute(update(lw_audit_chain).values(hash=forged["hash"]))
    trail.append([_record(4)])
    trail.close()
    assert trail.writer_id != writer
    lost = [found.record for found in read_trail(engine) if found.record.action == "audit.chain-lost"]
    assert rows[2]["hash"] in lost[0].reasons[0].detail


def test_a_running_process_says_that_its_last_checkpoint_is_gone(engine: Engine) -> None:
    checkpointer = Checkpointer(engine, None, lambda: 1, 3600)
    trail = AuditTrail(engine)
    trail.append([_record()])
    assert checkpointer.make("w") == 1
    with write(engine) as connection:
        connection.execute(delete(lw_audit_checkpoint))
    assert checkpointer.make("w") == 1
    trail.close()
    (problem,) = verify(engine)
    assert problem.kind == "checkpoint" and "was lost before" in problem.detail


def test_two_processes_make_one_chain_of_checkpoints(any_engine: Engine, signer: Signer) -> None:
    checkpointers = [Checkpointer(any_engine, signer, lambda: 1, 3600) for _ in range(2)]
    trail = AuditTrail(any_engine)
    for number in range(6):
        trail.append([_record(number)])
        assert checkpointers[number % 2].make(f"w{number}") == number + 1
        assert checkpointers[(number + 1) % 2].make(f"w{number}") is None
    trail.close()
    assert examine(any_engine, public_keys=_keys(signer)).problems == []


def test_more_chains_than_a_checkpoint_names_are_named_by_the_next(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("catalog.audit.checkpoints.MAX_HEADS", 2)
    for _ in range(5):
        trail = AuditTrail(engine)
        trail.append([_record()])
        trail.close()
    checkpointer = Checkpointer(engine, None, lambda: 1, 3600)
    assert [checkpointer.make("w") for _ in range(4)] == [1, 2, 3, None]
    assert verify(engine) == []


def test_a_missing_or_open_key_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StateUnavailable, match="key of the audit log"):
        Signer(tmp_path / "missing.key")
    KeyFile.create(tmp_path / "open.key")
    (tmp_path / "open.key").chmod(0o644)
    with pytest.raises(StateUnavailable, match="key of the audit log"):
        Signer(tmp_path / "open.key")


def test_the_key_is_in_no_text_of_the_signer(tmp_path: Path, signer: Signer) -> None:
    secret = (tmp_path / "audit.key").read_text().strip()
    assert secret not in repr(signer) + repr(vars(signer)) and signer.public_key != secret


def test_the_hash_of_a_checkpoint_is_that_of_the_documented_form() -> None:
    row = {
        "number": 1,
        "at_ms": 2,
        "writer": "w",
        "content": '{"before_ms":null,"heads":{},"lost":null,"pruned":{},"start":false}',
        "previous_hash": "0" * 64,
        "public_key": None,
        "hash": "not part of it",
        "signature": "not part of it",
    }
    assert checkpoint_hash(row) == "528ac22b28dba11fe40b633a335587b2e8000f11082006ae98290fed6de46204"
