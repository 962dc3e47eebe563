"""Appends to the audit log: decisions, users, and reasons.

- `append` returns only when its records are durable; so does the function that `submit` returns. Without a
  record there is no grant.
- Repeated or frequent refusals are counted, and the counts are written later (`catalog.audit.tallies`).
  Refusals have a limited share of the space. Once it is used up, they are only counted.
- One thread writes. It takes all waiting records into one transaction, so that concurrent requests share a
  flush to disk. Queue and waits are bounded.
- If the database fails, every waiting append fails, and the chain continues after the last durable record
  (`catalog.audit.store`).
- Each process is a writer with its own id and hash chain: sequence numbers 1, 2, 3, …; `hash` is the SHA-256
  of a canonical JSON of all other fields of the record, including the previous record's hash. The first
  record's previous hash is 64 zeros (`GENESIS`).
- The chain shows whether records were edited, reordered, or deleted from the middle. Checkpoints
  (`catalog.audit.checkpoints`) show whether the end of a chain or a whole chain is missing or was computed
  again.
- Values are bounded, and tokens and passwords in them are masked. Control characters, including line breaks,
  are stored as JSON escapes, so that a record is always one line.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import CancelledError, Future
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from catalog.audit.checkpoints import Checkpointer
from catalog.audit.reading import StoredRecord, read
from catalog.audit.records import AuditRecord, Row, is_refusal, size_of, to_columns
from catalog.audit.store import ChainWriter, space
from catalog.audit.tallies import Tallies
from catalog.audit.verdict import AuditProblem
from catalog.audit.verify import verify
from catalog.db.engine import is_writing
from policy.errors import LakewardenError, StateUnavailable

__all__ = ["AuditProblem", "AuditRecord", "AuditTrail", "StoredRecord", "read", "verify"]

_BATCH_RECORDS: Final = 500
_QUEUE_RECORDS: Final = 10_000

#: The maximum time of an append: the wait for the queue and the disk together.
_WAIT_S: Final = 5.0

#: How long refusals are counted, and how often the thread checks for due work.
_REPEATS_S: Final = 60.0
_LOOK_S: Final = 5.0

#: The default limit for the space of refusals in the database, in bytes.
REFUSAL_BYTES: Final = 1024**3

_log: Final = logging.getLogger("lakewarden.audit")


@dataclass(frozen=True, slots=True)
class _Waiting:
    """One append; its records are written all or none."""

    rows: tuple[Row, ...]
    done: Future[None]


class AuditTrail:
    """Appends the decisions of this process to the audit log; thread-safe.

    Args:
        engine: the catalog's database, upgraded.
        writer_id: the id of this writer, a UUID; a new one by default. An id is used only once.
        checkpointer: makes checkpoints from time to time; without it, this process makes none.
        refusal_bytes: maximum space for refusals of all processes in the database, in bytes; beyond it,
            refusals are only counted.
    """

    def __init__(
        self,
        engine: Engine,
        writer_id: str | None = None,
        *,
        checkpointer: Checkpointer | None = None,
        refusal_bytes: int = REFUSAL_BYTES,
    ) -> None:
        self._engine = engine
        self._chain = ChainWriter(engine, writer_id or str(uuid.uuid4()))
        self._checkpointer = checkpointer
        self._process = os.getpid()
        self._queue: deque[_Waiting] = deque()
        self._queued = 0
        self._closed = False
        self._refusal_bytes = refusal_bytes
        self._refusals_used = 0
        self._looked_at: float | None = None
        self._tallies = Tallies(_REPEATS_S, self._refusals_are_full)
        self._counted: list[Row] = []
        self._has_more_counts = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="lakewarden-audit", daemon=True)
        self._thread.start()

    @property
    def writer_id(self) -> str:
        """Return the id under which this process writes."""
        return self._chain.end.writer

    @property
    def queued(self) -> int:
        """Return how many records wait to be written."""
        return self._queued

    def append(self, records: Iterable[AuditRecord]) -> None:
        """Write records, all or none, and wait until they are durable; see `submit`."""
        self.submit(records)()

    def submit(self, records: Iterable[AuditRecord]) -> Callable[[], None]:
        """Begin to write records, all or none.

        A single refusal can be counted instead, under a durable record; see `catalog.audit.tallies`. Then
        this function waits for that record.

        Must not be called inside a `catalog.db.engine.write` block: that would deadlock.

        Returns:
            a function that waits until the records are durable, and raises if they are not. An effect that
            they allow must not happen before it has returned.

        Raises:
            StateUnavailable: after at most five seconds, the records are not known to be durable; an effect
                that they would allow must not happen.
            ValueError: there are no records.
            RuntimeError: called inside a write transaction.
        """
        rows = tuple(to_columns(record) for record in records)
        if not rows:
            raise ValueError("an append needs at least one record")
        if is_writing(self._engine):
            raise RuntimeError("append() inside write() would deadlock")
        if len(rows) == 1 and is_refusal(rows[0]):
            self._refuse(rows[0])
            return _nothing_to_wait_for
        return self._begun(_Waiting(rows, Future()))

    def _refuse(self, row: Row) -> None:
        """Write a refusal, or count it."""
        if not self._takes_records():
            raise _no_record("the audit log is closed")
        found = self._tallies.admit(row)
        if found is None:
            if self._tallies.is_closed:
                raise _no_record("the audit log is closed")
        elif found.leads:
            self._begun(_Waiting((found.tally.first,), found.tally.on_record))()
        else:
            _wait_for(found.tally.on_record, _WAIT_S)

    def _begun(self, waiting: _Waiting) -> Callable[[], None]:
        deadline = time.monotonic() + _WAIT_S
        try:
            self._enqueue(waiting, deadline)
        except StateUnavailable as refusal:
            waiting.done.set_exception(refusal)
            raise

        def wait() -> None:
            try:
                _wait_for(waiting.done, deadline - time.monotonic())
            finally:
                waiting.done.cancel()

        return wait

    def close(self) -> None:
        """Write queued and counted records, then stop. Later appends are refused."""
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
                raise _no_record("the audit log is closed")
            if not self._has_room(size):
                raise _no_record("the queue of records is full")
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
                self._look(closing=False)
            self._look(closing=True)
        finally:
            self._abandon(batch or [])

    def _next_batch(self) -> list[_Waiting] | None:
        """Return the next batch of the queue; None once the log is closed and the queue is empty."""
        with self._changed:
            wait_s = 0.0 if self._has_more_counts else _LOOK_S
            self._changed.wait_for(lambda: self._queue or self._closed, wait_s)
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

    def _write_rows(self, rows: Sequence[Row]) -> None:
        self._chain.write(rows)
        self._refusals_used += sum(size_of(row) for row in rows if is_refusal(row))
        if self._checkpointer is not None:
            self._checkpointer.written(len(rows))

    def _look(self, *, closing: bool) -> None:
        """Do due work besides appends. No request waits for it, and failed work is retried."""
        try:
            self._write_counts(closing=closing)
            self._measure_space()
            if self._checkpointer is not None and (closing or self._checkpointer.is_due()):
                self._checkpointer.make(self.writer_id)
            if closing:
                self._chain.close()
        except (LakewardenError, SQLAlchemyError) as error:
            # The message of another library's error can contain the record.
            _log.warning("maintenance of the audit log failed: %s", type(error).__name__)
        if closing and self._counted:
            left = sum(int(str(row["decisions"])) for row in self._counted)
            _log.error("%d counted refusals could not be recorded", left)

    def _write_counts(self, *, closing: bool) -> None:
        """Write the counts of windows that are over, in batches, so that grants are written in between.

        Until all are written, no other window ends.
        """
        self._has_more_counts = False
        if closing:
            self._counted += self._tallies.close()
        elif not self._counted:
            self._counted = self._tallies.take()
        while self._counted:
            self._write_rows(self._counted[:_BATCH_RECORDS])
            del self._counted[:_BATCH_RECORDS]
            if not closing:
                self._has_more_counts = bool(self._counted)
                return

    def _measure_space(self) -> None:
        """Measure the space of refusals from time to time; in between, add what this process writes."""
        now = time.monotonic()
        if self._looked_at is None or now >= self._looked_at + _LOOK_S:
            self._refusals_used = space(self._engine).refusals
            self._looked_at = now

    def _refusals_are_full(self) -> bool:
        return self._refusals_used >= self._refusal_bytes

    def _abandon(self, batch: Sequence[_Waiting]) -> None:
        """Fail the appends that still wait when the thread ends."""
        with self._changed:
            self._closed = True
            left = [*batch, *self._queue]
            self._queue.clear()
            self._queued = 0
            self._changed.notify_all()
        for waiting in left:
            if not waiting.done.done():
                waiting.done.set_exception(_no_record("the audit log stopped"))


def _nothing_to_wait_for() -> None:
    """Do nothing: the records are durable already."""


def _wait_for(done: Future[None], seconds: float) -> None:
    try:
        done.result(max(0.0, seconds))
    except (FutureTimeout, CancelledError):
        raise _no_record("it was not written in time") from None


def _not_durable(error: Exception) -> StateUnavailable:
    refusal = _no_record(error.message if isinstance(error, LakewardenError) else "the database refused it")
    refusal.__cause__ = error
    return refusal


def _no_record(why: str) -> StateUnavailable:
    return StateUnavailable(
        f"The decision could not be recorded in the audit log, so the request is refused: {why.rstrip('.')}.",
        rule="audit",
        hint="Make the catalog's database available again, then try again.",
    )
