"""Keeps write sessions in the database, from their beginning to their end.

The states of a write:

- *open*
- *committing* from the first attempt on
- *committed*, or *open* again if that attempt was refused
- *clearing* while its files are being deleted, then *aborted* or *cleaned up*
- *closed* once the files that killed attempts of a committed write left are deleted as well

An interrupted attempt leaves the write committing. Whether it succeeded is read from the table, and the write
can be committed again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from sqlalchemy import Connection, Engine, Row, and_, func, insert, or_, select, update

from catalog.db.engine import read, write
from catalog.db.schema import lw_write
from catalog.envelope.parquet_key_tools import StockKey
from catalog.envelope.transport import TransportKey
from catalog.reading.loading import LoadedTable
from catalog.state.write_states import ALIVE, UNCLOSED, WriteState
from policy.errors import CommitStateUnknown, StateUnavailable
from policy.location.location import Location

logger = logging.getLogger(__name__)


#: States in which all files of a write are deleted.
GONE: Final = (WriteState.ABORTED, WriteState.SWEPT)
#: States in which an expired write can have files to clean up.
_UNFINISHED: Final = (WriteState.OPEN, WriteState.CLEARING, WriteState.COMMITTED)


@dataclass(frozen=True, slots=True)
class WriteSession:
    """A write that has begun.

    Attributes:
        id: of the write; the commit refers to it.
        table: the table at that time, or as a staged write will create it.
        prefix: the directory below which the write's files go.
        transport: the key that wraps data keys, shown once; None if the table is not encrypted.
        expires_ms: when the write can be cleaned up, in milliseconds since 1970.
        stock_keys: key material that the files carry for standard readers, if the table is set up for them;
            shown once.
    """

    id: str
    table: LoadedTable
    prefix: Location
    transport: TransportKey | None
    expires_ms: int
    stock_keys: tuple[StockKey, ...] = ()


@dataclass(frozen=True, slots=True)
class SealedTransport:
    """A write's transport key as it is stored: sealed with one of the table's PEKs."""

    pek_id: UUID
    pek_version: int
    sealed: bytes


@dataclass(frozen=True, slots=True)
class WriteRow:
    """A write as it is stored.

    Attributes:
        id: of the write.
        table_id: the table's internal id.
        prefix: the directory of its files.
        governed_version: the table's governed version when the write began.
        transport: its transport key; None if the table was not encrypted then.
        state: its state when it was read.
        snapshot_id: the snapshot that it published; None if it published none.
        staged_metadata: the metadata of the table that it creates or replaces; None for other writes.
        base_location: the metadata.json of the table that it replaces; None for other writes.
    """

    id: str
    table_id: str
    prefix: Location
    governed_version: int
    transport: SealedTransport | None
    state: WriteState
    snapshot_id: int | None
    staged_metadata: str | None
    base_location: str | None


class WriteLog:
    """Stores writes in the database.

    Args:
        engine: the catalog's database.
        now_ms: the time in milliseconds.
        ttl_ms: how long a write can last.
    """

    def __init__(self, engine: Engine, now_ms: Callable[[], int], ttl_ms: int) -> None:
        self._engine = engine
        self.now_ms = now_ms
        self._ttl_ms = ttl_ms

    def expires_ms(self) -> int:
        """Return when a write that begins now can be cleaned up."""
        return self.now_ms() + self._ttl_ms

    def add(
        self,
        connection: Connection,
        principal: str,
        session: WriteSession,
        transport: SealedTransport | None,
        staged_metadata: str | None = None,
        base_location: str | None = None,
    ) -> None:
        """Record a new write."""
        keys: dict[str, object] = {}
        if transport is not None:
            keys = {
                "pek_id": str(transport.pek_id),
                "pek_version": transport.pek_version,
                "wrapped_transport_key": transport.sealed,
            }
        values = {
            "id": session.id,
            "table_id": session.table.record.id,
            "principal": principal,
            "prefix": session.prefix.canonical,
            "governed_version": session.table.governed.version,
            "state": WriteState.OPEN,
            "created_ms": self.now_ms(),
            "expires_ms": session.expires_ms,
            "staged_metadata": staged_metadata,
            "base_location": base_location,
        }
        connection.execute(insert(lw_write).values(**values, **keys))

    def find(self, principal: str, write_id: str) -> WriteRow | None:
        """Look up a write of a principal, in any state."""
        mine = (lw_write.c.id == write_id, lw_write.c.principal == principal)
        with read(self._engine) as connection:
            row = connection.execute(select(lw_write).where(*mine)).first()
        return None if row is None else _row(row)

    def again(self, row: WriteRow) -> WriteRow:
        """Return a write as it is stored now."""
        with read(self._engine) as connection:
            return _row(connection.execute(select(lw_write).where(lw_write.c.id == row.id)).one())

    def expired(self) -> list[WriteRow]:
        """List expired writes. A write that is committing has the same time once more to finish."""
        now, columns = self.now_ms(), lw_write.c
        left = and_(columns.state.in_(_UNFINISHED), columns.expires_ms < now)
        stuck = and_(columns.state == WriteState.COMMITTING, columns.expires_ms < now - self._ttl_ms)
        with read(self._engine) as connection:
            return [_row(row) for row in connection.execute(select(lw_write).where(or_(left, stuck)))]

    def open_under(self, connection: Connection, pek_id: UUID, version: int) -> int:
        """Count the writes that can still be committed and keep their transport key under a PEK version."""
        under = (lw_write.c.pek_id == str(pek_id), lw_write.c.pek_version == version)
        statement = select(func.count()).select_from(lw_write).where(*under, lw_write.c.state.in_(ALIVE))
        return connection.scalar(statement) or 0

    def begin_commit(self, row: WriteRow) -> bool:
        """Mark a write whose commit begins, and extend its time; return False if it is no longer open."""
        alive = (lw_write.c.id == row.id, lw_write.c.state.in_(ALIVE))
        marked = {"state": WriteState.COMMITTING, "expires_ms": self.expires_ms()}
        with write(self._engine) as connection:
            return connection.execute(update(lw_write).where(*alive).values(**marked)).rowcount == 1

    def moved(self, row: WriteRow, before: WriteState, after: WriteState) -> bool:
        """Move a write to another state; return False if it was not in the state `before`."""
        as_it_was = (lw_write.c.id == row.id, lw_write.c.state == before)
        with write(self._engine) as connection:
            return connection.execute(update(lw_write).where(*as_it_was).values(state=after)).rowcount == 1

    def note(self, row: WriteRow, before: WriteState, after: WriteState) -> None:
        """Record the result of an attempt. If that fails, the next commit or clean-up determines it."""
        try:
            self.moved(row, before, after)
        except (StateUnavailable, CommitStateUnknown) as problem:
            logger.warning("the end of a write could not be recorded: %s", type(problem).__name__)


def open_directories(connection: Connection, table_id: str) -> list[Location]:
    """List the directories of a table's writes that can still be committed."""
    mine = (lw_write.c.table_id == table_id, lw_write.c.state.in_(ALIVE))
    return [Location.parse(row.prefix) for row in connection.execute(select(lw_write.c.prefix).where(*mine))]


def unclosed(connection: Connection, table_id: str) -> list[Location]:
    """List the directories of a table's writes that are open, or that a clean-up has yet to process."""
    mine = (lw_write.c.table_id == table_id, lw_write.c.state.in_(UNCLOSED))
    rows = connection.execute(select(lw_write.c.prefix).where(*mine))
    return [Location.parse(row.prefix) for row in rows]


def _row(row: Row[tuple[object, ...]]) -> WriteRow:
    transport = None
    if row.wrapped_transport_key is not None:
        transport = SealedTransport(UUID(row.pek_id), row.pek_version, row.wrapped_transport_key)
    return WriteRow(
        id=row.id,
        table_id=row.table_id,
        prefix=Location.parse(row.prefix),
        governed_version=row.governed_version,
        transport=transport,
        state=WriteState(row.state),
        snapshot_id=row.snapshot_id,
        staged_metadata=row.staged_metadata,
        base_location=row.base_location,
    )
