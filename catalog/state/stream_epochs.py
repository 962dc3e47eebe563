"""Records which epochs of streaming queries were committed to a table.

A streaming engine numbers what it commits. After a crash it commits the last epoch again, in another write
and possibly long after, when the first snapshot has expired. So the catalog records the last epoch of each
query in the transaction that moves the metadata pointer: one write commits an epoch, and no other does.

A record belongs to a table and a principal. Another user who commits with the same query id has another
record, and suppresses nothing.

Source: Apache Spark, `StreamingWrite.commit`: an epoch can be committed several times, and takes effect once.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import ColumnElement, Connection, Engine, insert, select, update

from catalog.db.engine import read
from catalog.db.schema import lw_stream
from policy.errors import RequestInvalid


class EpochRepeated(RequestInvalid):
    """Another write committed the epoch, or a later one."""


@dataclass(frozen=True, slots=True)
class StreamEpoch:
    """What a streaming query commits.

    Attributes:
        query_id: of the query; the same after a restart.
        number: counts up with each commit.
    """

    query_id: str
    number: int


@dataclass(frozen=True, slots=True)
class EpochCommit:
    """An epoch that a write commits.

    Attributes:
        table_id: the table's internal id.
        principal: name of the user.
        epoch: the epoch.
        write_id: the write.
    """

    table_id: str
    principal: str
    epoch: StreamEpoch
    write_id: str

    def is_repeated(self, engine: Engine) -> bool:
        """Return whether another write committed the epoch, or a later one."""
        with read(engine) as connection:
            return self._is_repeated(connection)

    def _is_repeated(self, connection: Connection) -> bool:
        columns = lw_stream.c
        found = connection.execute(select(columns.epoch, columns.write_id).where(*self._key())).first()
        return found is not None and found.epoch >= self.epoch.number and found.write_id != self.write_id

    def record(self, connection: Connection, now_ms: int) -> None:
        """See `CommitRecord.record`.

        Raises:
            EpochRepeated: another write committed the epoch; the transaction must not take effect.
        """
        if self._is_repeated(connection):
            raise EpochRepeated(
                "The epoch was committed by another write.",
                rule="stream-epoch",
                hint="Go on with the next epoch.",
            )
        values = {"epoch": self.epoch.number, "write_id": self.write_id, "committed_ms": now_ms}
        if connection.execute(update(lw_stream).where(*self._key()).values(**values)).rowcount == 0:
            key = {"table_id": self.table_id, "principal": self.principal, "query_id": self.epoch.query_id}
            connection.execute(insert(lw_stream).values(**key, **values))

    def _key(self) -> tuple[ColumnElement[bool], ...]:
        columns = lw_stream.c
        return (
            columns.table_id == self.table_id,
            columns.principal == self.principal,
            columns.query_id == self.epoch.query_id,
        )
