"""The audit trail: what was decided, for whom, and why.

- `append` returns only when its records are durable. Without a record there is no grant.
- A refusal that repeats one on record is counted, and the count is written later (`catalog.audit_repeats`).
- One thread writes; it takes whatever waits into one transaction, so that concurrent requests share a flush
  to disk. Queue and waits are bounded.
- If the database fails, every append that waits fails, and the chain goes on from the last durable record. A
  record whose commit was in doubt is looked up before the next one is written.
- Each process is a writer with an id and a hash chain of its own: sequence numbers 1, 2, 3, …; `hash` is the
  SHA-256 of a canonical JSON of all other fields of the record, the previous record's hash among them. The
  first record's previous hash is 64 zeros (`GENESIS`).
- The chain shows what was edited, deleted from the middle or reordered. It cannot show that a chain's last
  records, or a whole chain, are missing, nor that somebody who may write the database computed it anew: heads
  have to be kept elsewhere for that.
- Values are bounded, tokens and passwords in them are masked, and control characters, line breaks among them,
  are stored as JSON escapes, so that a record is one line wherever it is shown.
"""

from __future__ import annotations

import os
import threading
import time
import uuid
from collections import deque
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection, Engine, insert, select
from sqlalchemy.exc import SQLAlchemyError

from catalog.audit_reading import AuditProblem, StoredRecord, read, verify
from catalog.audit_records import GENESIS, AuditRecord, Row, chained, to_columns
from catalog.audit_repeats import Repeats
from catalog.db.engine import is_writing, write
from catalog.db.schema import lw_audit
from policy.errors import CommitStateUnknown, LakewardenError, StateUnavailable

__all__ = ["AuditProblem", "AuditRecord", "AuditTrail", "StoredRecord", "read", "verify"]

_BATCH_RECORDS: Final = 500
_QUEUE_RECORDS: Final = 10_000

#: How long an append waits, for a place in the queue and for the disk together.
_WAIT_S: Final = 10.0

#: How long equal refusals are counted, and how often the thread looks whether that time is over.
_REPEATS_S: Final = 60.0
_LOOK_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class _Waiting:
    """One append: its records are written together or not at all."""

    rows: tuple[Row, ...]
    done: Future[None]


class AuditTrail:
    """Appends decisions to the trail of this process. Safe for use by many threads.

    Args:
        engine: the catalog's database, upgraded.
        writer_id: the id of this writer, a UUID; a new one by default. An id is never used a second time.
    """

    def __init__(self, engine: Engine, writer_id: str | None = None) -> None:
        self._engine = engine
        self._writer = writer_id or str(uuid.uuid4())
        self._process = os.getpid()
        self._sequence = 0
        self._hash = GENESIS
        self._in_doubt: Row | None = None
        self._queue: deque[_Waiting] = deque()
        self._queued = 0
        self._closed = False
        self._repeats = Repeats(_REPEATS_S)
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="lakewarden-audit", daemon=True)
        self._thread.start()

    @property
    def writer_id(self) -> str:
        """The id under which this process writes."""
        return self._writer

    def append(self, records: Iterable[AuditRecord]) -> None:
        """Write records, all or none, and wait until they are durable.

        A refusal alone that repeats one on record is counted, and not waited for.

        Must not be called inside a `catalog.db.engine.write` block: the two would wait for each other.

        Raises:
            StateUnavailable: the records are not known to be durable after ten seconds at the most; what they
                would have allowed must not happen.
            ValueError: there are no records.
            RuntimeError: called inside a write transaction.
        """
        rows = tuple(to_columns(record) for record in records)
        if not rows:
            raise ValueError("an append needs a record")
        if is_writing(self._engine):
            raise RuntimeError("append() inside write() would wait for itself")
        if len(rows) == 1 and self._takes_records() and self._repeats.counted(rows[0]):
            return
        self._write_and_wait(rows)
        if len(rows) == 1:
            self._repeats.begin(rows[0])

    def _write_and_wait(self, rows: tuple[Row, ...]) -> None:
        deadline = time.monotonic() + _WAIT_S
        waiting = _Waiting(rows, Future())
        self._enqueue(waiting, deadline)
        try:
            waiting.done.result(max(0.0, deadline - time.monotonic()))
        except FutureTimeout:
            waiting.done.cancel()
            raise _no_record("it was not written in time") from None

    def close(self) -> None:
        """Write what waits and what was counted, then stop. Later appends are refused."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join(_WAIT_S)

    def _enqueue(self, waiting: _Waiting, deadline: float) -> None:
        size = len(waiting.rows)
        with self._changed:
            self._changed.wait_for(
                lambda: not self._takes_records() or self._has_room(size), deadline - time.monotonic()
            )
            if not self._takes_records():
                raise _no_record("the trail is closed")
            if not self._has_room(size):
                raise _no_record("too many records wait already")
            self._queue.append(waiting)
            self._queued += size
            self._changed.notify_all()

    def _has_room(self, size: int) -> bool:
        return self._queued == 0 or self._queued + size <= _QUEUE_RECORDS

    def _takes_records(self) -> bool:
        return not self._closed and self._thread.is_alive() and self._process == os.getpid()

    def _run(self) -> None:
        batch: list[_Waiting] | None = []
        try:
            while (batch := self._next_batch()) is not None:
                self._write_batch(batch)
                self._write_repeats(everything=False)
            self._write_repeats(everything=True)
        finally:
            self._abandon(batch or [])

    def _next_batch(self) -> list[_Waiting] | None:
        """What waits, up to a bound; None once the trail is closed and nothing waits."""
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._closed, _LOOK_S)
            if self._closed and not self._queue:
                return None
            batch: list[_Waiting] = []
            size = 0
            while self._queue and (not batch or size + len(self._queue[0].rows) <= _BATCH_RECORDS):
                waiting = self._queue.popleft()
                size += len(waiting.rows)
                batch.append(waiting)
            self._queued -= size
            self._changed.notify_all()
        return batch

    def _write_batch(self, batch: Sequence[_Waiting]) -> None:
        wanted = [waiting for waiting in batch if waiting.done.set_running_or_notify_cancel()]
        if not wanted:
            return
        try:
            self._write_rows([row for waiting in wanted for row in waiting.rows])
        except (LakewardenError, SQLAlchemyError) as error:
            for waiting in wanted:
                waiting.done.set_exception(_not_durable(error))
        else:
            for waiting in wanted:
                waiting.done.set_result(None)

    def _write_repeats(self, *, everything: bool) -> None:
        windows = self._repeats.take(everything=everything)
        if not windows:
            return
        try:
            self._write_rows([window.row() for window in windows])
        except (LakewardenError, SQLAlchemyError):
            self._repeats.put_back(windows)

    def _write_rows(self, rows: Sequence[Row]) -> None:
        chain: list[Row] = []
        try:
            with write(self._engine) as connection:
                self._resolve_doubt(connection)
                chain = chained(rows, self._writer, self._sequence, self._hash)
                connection.execute(insert(lw_audit), chain)
        except CommitStateUnknown:
            self._in_doubt = chain[-1]
            raise
        self._advance(chain[-1])

    def _resolve_doubt(self, connection: Connection) -> None:
        """Find out whether the transaction whose commit was in doubt has taken effect."""
        if self._in_doubt is None:
            return
        last = self._in_doubt
        found = connection.execute(
            select(lw_audit.c.hash).where(
                lw_audit.c.writer == self._writer, lw_audit.c.sequence == last["sequence"]
            )
        ).scalar_one_or_none()
        if found == last["hash"]:
            self._advance(last)
        self._in_doubt = None

    def _advance(self, last: Row) -> None:
        self._sequence = int(str(last["sequence"]))
        self._hash = str(last["hash"])

    def _abandon(self, batch: Sequence[_Waiting]) -> None:
        """Fail whoever still waits when the thread ends."""
        with self._changed:
            self._closed = True
            left = [*batch, *self._queue]
            self._queue.clear()
            self._queued = 0
            self._changed.notify_all()
        for waiting in left:
            if not waiting.done.done():
                waiting.done.set_exception(_no_record("the trail stopped"))


def _not_durable(error: Exception) -> StateUnavailable:
    refusal = _no_record(error.message if isinstance(error, LakewardenError) else "the database refused it")
    refusal.__cause__ = error
    return refusal


def _no_record(why: str) -> StateUnavailable:
    return StateUnavailable(
        f"The decision is not on record, and without a record there is no grant: {why.rstrip('.')}.",
        rule="audit",
        hint="Bring the catalog's database back, then try again.",
    )
