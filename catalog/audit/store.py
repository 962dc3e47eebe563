"""Writes one chain of the audit log to the database, and measures the log's space there.

- A batch of records, the chain's new head and the used space change in one transaction.
- If the commit of a batch was in doubt, the writer looks it up before the next batch. So no record is written
  twice, and no durable record is forgotten.
- A chain continues only at the end that its writer knows. If the database has another end (records were
  removed or edited, or the database was replaced by an older copy), its records stay as they are. The writer
  begins a new chain whose first record says so.
- Sizes are estimated, not measured: characters of the texts, and a fixed amount per record.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Engine,
    bindparam,
    case,
    cast,
    func,
    insert,
    literal,
    select,
    update,
)

from catalog.audit.records import GENESIS, NOBODY, AuditRecord, Row, chained, is_refusal, size_of, to_columns
from catalog.db.engine import read, write
from catalog.db.prepared import PreparedChange
from catalog.db.schema import lw_audit, lw_audit_chain
from policy.decision import Reason
from policy.errors import CommitStateUnknown

# Every request waits for these statements.
_APPEND: Final = PreparedChange(insert(lw_audit), lw_audit.c.keys())
_BEGIN: Final = insert(lw_audit_chain)
_MOVE: Final = PreparedChange(
    update(lw_audit_chain)
    .where(
        lw_audit_chain.c.writer == bindparam("of"),
        lw_audit_chain.c.sequence == bindparam("old_sequence"),
        lw_audit_chain.c.hash == bindparam("old_hash"),
    )
    .values(
        sequence=bindparam("new_sequence"),
        hash=bindparam("new_hash"),
        at_ms=case(
            (lw_audit_chain.c.at_ms < bindparam("latest"), bindparam("latest")), else_=lw_audit_chain.c.at_ms
        ),
        refusal_bytes=lw_audit_chain.c.refusal_bytes + bindparam("refusals"),
        other_bytes=lw_audit_chain.c.other_bytes + bindparam("others"),
    )
)


@dataclass(frozen=True, slots=True)
class Position:
    """The end of a chain."""

    writer: str
    sequence: int
    hash: str


@dataclass(frozen=True, slots=True)
class Space:
    """The space of the audit log in bytes: refusals, and everything else."""

    refusals: int
    others: int


class ChainWriter:
    """Appends to one chain; not thread-safe.

    Args:
        engine: the catalog's database, upgraded.
        writer: the id of the chain; it must be new.
    """

    def __init__(self, engine: Engine, writer: str) -> None:
        self._engine = engine
        self._end = Position(writer, 0, GENESIS)
        self._in_doubt: Position | None = None

    @property
    def end(self) -> Position:
        """Return the end of the chain, as far as this writer knows."""
        return self._end

    def write(self, rows: Sequence[Row]) -> None:
        """Write records, all or none.

        Raises:
            StateUnavailable: the database does not answer; nothing was written.
            CommitStateUnknown: it is not known whether they were written.
            sqlalchemy.exc.IntegrityError: the writer's id was used before.
        """
        end: Position | None = None
        try:
            with write(self._engine) as connection:
                end = self._put(connection, rows)
        except CommitStateUnknown:
            self._in_doubt = end
            raise
        self._end, self._in_doubt = end, None

    def close(self) -> None:
        """Record that the chain has ended.

        Raises:
            StateUnavailable, CommitStateUnknown: the database does not answer.
        """
        if self._end.sequence:
            here = lw_audit_chain.c.writer == self._end.writer
            with write(self._engine) as connection:
                connection.execute(update(lw_audit_chain).where(here).values(closed=True))

    def _put(self, connection: Connection, rows: Sequence[Row]) -> Position:
        # A commit in doubt has taken effect, or has not, or is in progress in the server until the lock is
        # free.
        known = [end for end in (self._in_doubt, self._end) if end is not None]
        for end in (*known, *known[:-1]):
            last = _continue(connection, end, rows)
            if last is not None:
                self._end = end
                return last
        fresh = Position(str(uuid.uuid4()), 0, GENESIS)
        last = _continue(connection, fresh, [_lost(self._end, rows[0]), *rows])
        assert last is not None
        return last


def space(engine: Engine) -> Space:
    """Return the space of the whole audit log.

    Raises:
        StateUnavailable: the database does not answer.
    """
    sums = [
        func.coalesce(cast(func.sum(column), BigInteger), 0)
        for column in (lw_audit_chain.c.refusal_bytes, lw_audit_chain.c.other_bytes)
    ]
    with read(engine) as connection:
        found = connection.execute(select(*sums)).one()
    return Space(int(found[0]), int(found[1]))


def size_column() -> ColumnElement[int]:
    """Return `size_of` as an SQL expression."""
    texts = (
        lw_audit.c.principal,
        func.coalesce(lw_audit.c.engine, ""),
        lw_audit.c.action,
        lw_audit.c.resource,
        lw_audit.c.reasons,
        lw_audit.c.request_id,
    )
    return sum((func.length(text) for text in texts), start=literal(400))


def _continue(connection: Connection, end: Position, rows: Sequence[Row]) -> Position | None:
    """Append to a chain if it ends at this position.

    Returns:
        the new end, or None if the database has another one; then nothing was written.
    """
    chain = chained(rows, end.writer, end.sequence, end.hash)
    last = Position(end.writer, end.sequence + len(chain), str(chain[-1]["hash"]))
    if not _moved(connection, end, last, rows):
        return None
    _APPEND.run(connection, chain)
    return last


def _moved(connection: Connection, end: Position, last: Position, rows: Sequence[Row]) -> bool:
    """Update the end of a chain, and the space that its new records use."""
    refusals = sum(size_of(row) for row in rows if is_refusal(row))
    others = sum(size_of(row) for row in rows if not is_refusal(row))
    latest = max(int(str(row["at_ms"])) for row in rows)
    if end.sequence == 0:
        head = {"writer": last.writer, "sequence": last.sequence, "hash": last.hash, "at_ms": latest}
        sizes = {"refusal_bytes": refusals, "other_bytes": others}
        connection.execute(_BEGIN, {**head, **sizes, "checkpointed": 0, "closed": False})
        return True
    old = {"of": end.writer, "old_sequence": end.sequence, "old_hash": end.hash}
    new = {"new_sequence": last.sequence, "new_hash": last.hash, "latest": latest}
    sums = {"refusals": refusals, "others": others}
    return _MOVE.run(connection, [{**old, **new, **sums}]) == 1


def _lost(end: Position, next_row: Row) -> Row:
    """Return the record for a chain that does not end where its writer left it."""
    detail = (
        f"The chain {end.writer} ended with record {end.sequence}, hash {end.hash}, but the "
        "database has a different end. This chain continues in its place."
    )
    at_ms = int(str(next_row["at_ms"]))
    reason = Reason("audit-chain-lost", detail)
    return to_columns(AuditRecord(NOBODY, None, "audit.chain-lost", end.writer, False, (reason,), "", at_ms))
