"""Appending: durable before it returns, all or nothing, and one chain a writer whatever fails."""

from __future__ import annotations

import itertools
import sqlite3
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import Engine, event, func, select

from catalog.audit import store as audit_store
from catalog.audit import trail as audit_trail
from catalog.audit.trail import AuditRecord, AuditTrail, read, verify
from catalog.audit.verify import examine
from catalog.db.engine import open_database, write
from catalog.db.engine import read as read_transaction
from catalog.db.schema import lw_audit
from policy.decision import Reason
from policy.errors import CommitStateUnknown, StateUnavailable
from tests.support.databases import upgrade


def _record(principal: str = "ann", at_ms: int = 1, resource: str = "db.t") -> AuditRecord:
    reasons = (Reason("policy-allow", "Policy p grants it.", "p", "policyItems[0]"),)
    return AuditRecord(principal, "spark", "table-load", resource, True, reasons, "request-1", at_ms)


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    engine = open_database(f"sqlite:///{tmp_path}/lakewarden.db", busy_timeout_s=0.2)
    upgrade(engine)
    yield engine
    engine.dispose()


@pytest.fixture
def trail(engine: Engine) -> Iterator[AuditTrail]:
    trail = AuditTrail(engine)
    yield trail
    trail.close()


def _sequences(engine: Engine) -> list[int]:
    with read_transaction(engine) as connection:
        return list(connection.execute(select(lw_audit.c.sequence).order_by(lw_audit.c.sequence)).scalars())


@contextmanager
def _locked(engine: Engine) -> Iterator[None]:
    other = sqlite3.connect(str(engine.url.database), isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    yield
    other.execute("ROLLBACK")
    other.close()


def test_what_was_appended_is_read_back_whole(engine: Engine, trail: AuditTrail) -> None:
    trail.append([_record()])
    (found,) = read(engine)
    assert found.record == _record()
    assert (found.writer, found.sequence) == (trail.writer_id, 1)


def test_an_append_of_nothing_is_a_mistake(trail: AuditTrail) -> None:
    with pytest.raises(ValueError):
        trail.append([])


def test_sixteen_threads_make_one_whole_chain_and_share_transactions(
    engine: Engine, trail: AuditTrail
) -> None:
    commits: list[object] = []
    event.listen(engine, "commit", commits.append)

    def work(name: str) -> None:
        for number in range(25):
            trail.append([_record(name, number), _record(name, number)])

    threads = [threading.Thread(target=work, args=(f"user-{number}",)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert _sequences(engine) == list(range(1, 801))
    assert verify(engine) == []
    assert len(commits) < 400


def test_a_batch_takes_what_waits_and_no_record_twice(engine: Engine, trail: AuditTrail) -> None:
    trail.append([_record(at_ms=number) for number in range(1_200)])
    trail.append([_record()])
    assert _sequences(engine) == list(range(1, 1_202))
    assert verify(engine) == []


def test_a_locked_database_fails_every_waiting_append_and_the_chain_goes_on(
    engine: Engine, trail: AuditTrail
) -> None:
    trail.append([_record()])
    failures: list[StateUnavailable] = []

    def work() -> None:
        try:
            trail.append([_record("waits")])
        except StateUnavailable as error:
            failures.append(error)

    with _locked(engine):
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(failures) == 4
    assert all("could not be recorded in the audit log" in str(error) for error in failures)
    trail.append([_record()])
    assert _sequences(engine) == [1, 2]
    assert verify(engine) == []


@pytest.mark.parametrize("took_effect", [True, False])
def test_a_commit_in_doubt_is_looked_up_before_the_next_record(
    engine: Engine, trail: AuditTrail, monkeypatch: pytest.MonkeyPatch, took_effect: bool
) -> None:
    """The connection is lost while the answer to COMMIT is under way; SQLite cannot be made to do that."""
    trail.append([_record()])
    real = audit_store.write

    @contextmanager
    def doubtful(engine: Engine) -> Iterator[object]:
        try:
            with real(engine) as connection:
                yield connection
                if not took_effect:
                    raise CommitStateUnknown("lost")
        finally:
            monkeypatch.setattr(audit_store, "write", real)
        raise CommitStateUnknown("lost")

    monkeypatch.setattr(audit_store, "write", doubtful)
    with pytest.raises(StateUnavailable):
        trail.append([_record("in doubt"), _record("in doubt")])
    trail.append([_record()])
    assert _sequences(engine) == ([1, 2, 3, 4] if took_effect else [1, 2])
    assert verify(engine) == []


def test_a_writer_id_used_twice_is_refused(engine: Engine, trail: AuditTrail) -> None:
    trail.append([_record()])
    twin = AuditTrail(engine, writer_id=trail.writer_id)
    with pytest.raises(StateUnavailable):
        twin.append([_record("forged")])
    twin.close()
    assert _sequences(engine) == [1]


def test_each_process_writes_a_chain_of_its_own(engine: Engine, trail: AuditTrail) -> None:
    other = AuditTrail(engine)
    trail.append([_record()])
    other.append([_record()])
    other.close()
    assert other.writer_id != trail.writer_id
    assert _sequences(engine) == [1, 1]
    assert verify(engine) == []


def test_close_writes_what_waits_and_refuses_what_comes_later(engine: Engine, trail: AuditTrail) -> None:
    threads = [threading.Thread(target=trail.append, args=([_record()],)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    trail.close()
    assert len(_sequences(engine)) == 8
    with pytest.raises(StateUnavailable, match="closed"):
        trail.append([_record()])


def test_a_full_queue_is_refused_in_bounded_time(
    engine: Engine, trail: AuditTrail, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_trail, "_QUEUE_RECORDS", 1)
    monkeypatch.setattr(audit_trail, "_WAIT_S", 0.05)
    with write(engine):
        outcomes: list[BaseException] = []

        def work() -> None:
            with pytest.raises(StateUnavailable) as refused:
                trail.append([_record()])
            outcomes.append(refused.value)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(outcomes) == 4
    assert any("queue of records is full" in str(error) for error in outcomes)


def test_an_append_inside_a_write_block_is_refused_at_once(engine: Engine, trail: AuditTrail) -> None:
    with write(engine), pytest.raises(RuntimeError):
        trail.append([_record()])


_WRITER = textwrap.dedent(
    """
    import sys
    from catalog.audit.trail import AuditRecord, AuditTrail
    from catalog.audit.checkpoints import Checkpointer
    from catalog.db.engine import open_database
    from policy.decision import Reason
    engine = open_database(sys.argv[1])
    trail = AuditTrail(engine, checkpointer=Checkpointer(engine, None, lambda: 1, 0.01))
    for number in range(1_000_000):
        allowed = number % 2 == 0
        user = "ann" if allowed else f"user-{number}"
        trail.append([AuditRecord(user, None, "load", "db.t", allowed, (Reason("r", "d"),), "q", -number)])
        print(number, flush=True)
    """
)


def test_acknowledged_records_of_two_writers_survive_kill_9(any_engine: Engine, tmp_path: Path) -> None:
    """Killed at any moment, checkpoints under way included, with clocks that go back."""
    url = any_engine.url.render_as_string(hide_password=False)
    outputs = [tmp_path / "first", tmp_path / "second"]
    processes = []
    for output in outputs:
        with output.open("w") as file:
            processes.append(subprocess.Popen([sys.executable, "-c", _WRITER, url], stdout=file))
    while any(output.read_text().count("\n") < 30 for output in outputs):
        assert all(process.poll() is None for process in processes)
        time.sleep(0.01)
    for process in processes:
        process.kill()
        process.wait(30)
    acknowledged = [output.read_text().splitlines() for output in outputs]
    verdict = examine(any_engine)
    assert verdict.problems == []
    assert verdict.chains == 2 and verdict.checkpoints > 0
    with read_transaction(any_engine) as connection:
        per_writer = select(func.count(), func.min(lw_audit.c.at_ms)).group_by(lw_audit.c.writer)
        there = sorted((count, -oldest) for count, oldest in connection.execute(per_writer))
    # Each record once, and at the most the one that was not acknowledged yet besides.
    for numbers, (count, last) in zip(sorted(acknowledged, key=len), there, strict=True):
        assert count == last + 1
        assert len(numbers) <= count <= len(numbers) + 1


@pytest.mark.parametrize("allowed", [True, False])
def test_a_database_that_is_full_or_read_only_stops_grants_and_refusals_and_nothing_is_lost(
    engine: Engine, allowed: bool
) -> None:
    trail = AuditTrail(engine)
    trail.append([_record()])
    record = replace(_record("bob", resource="x" * 1_900), allowed=allowed)
    other = sqlite3.connect(str(engine.url.database), isolation_level=None)
    other.execute("CREATE TRIGGER full BEFORE INSERT ON lw_audit BEGIN SELECT RAISE(ABORT, 'full'); END")
    with pytest.raises(StateUnavailable, match="could not be recorded in the audit log"):
        trail.append([record])
    other.execute("DROP TRIGGER full")
    other.close()
    trail.append([record])
    trail.close()
    assert _sequences(engine) == [1, 2]
    assert verify(engine) == []


def test_a_full_disk_stops_grants_until_there_is_space(engine: Engine) -> None:
    """The database may not grow any more, as on a disk that is full."""

    def limit(pages: int) -> None:
        for _ in range(4):
            with engine.connect() as connection:
                connection.exec_driver_sql(f"PRAGMA max_page_count = {pages}")

    trail = AuditTrail(engine)
    trail.append([_record()])
    limit(1)
    with pytest.raises(StateUnavailable, match="full"):
        for _ in range(200):
            trail.append([_record(resource="x" * 1_900)])
    written = len(_sequences(engine))
    limit(1_000_000)
    trail.append([_record()])
    trail.close()
    assert _sequences(engine) == list(range(1, written + 2))
    assert verify(engine) == []


@pytest.mark.parametrize("effects", list(itertools.product([True, False], repeat=3)))
def test_commits_in_doubt_one_after_the_other(
    engine: Engine, trail: AuditTrail, monkeypatch: pytest.MonkeyPatch, effects: tuple[bool, ...]
) -> None:
    trail.append([_record()])
    writer = trail.writer_id
    real = audit_store.write

    def doubtful(took_effect: bool) -> Callable[[Engine], AbstractContextManager[object]]:
        @contextmanager
        def write(engine: Engine) -> Iterator[object]:
            with real(engine) as connection:
                yield connection
                if not took_effect:
                    raise CommitStateUnknown("lost")
            raise CommitStateUnknown("lost")

        return write

    for effect in effects:
        monkeypatch.setattr(audit_store, "write", doubtful(effect))
        with pytest.raises(StateUnavailable):
            trail.append([_record("in doubt")])
    monkeypatch.setattr(audit_store, "write", real)
    trail.append([_record()])
    assert _sequences(engine) == list(range(1, 3 + sum(effects)))
    assert trail.writer_id == writer
    assert verify(engine) == []
