"""Destroys keys whose waiting time has ended.

- If every version of a PEK is due, it is destroyed even if something needs it: the user asked for that.
- If other versions of a PEK remain, the table is checked again. A version that is needed again (because an
  older metadata.json was restored, for example) stays disabled, and its time of destruction is removed. If
  the check fails, or a commit or write is in progress, the next clean-up decides.
- An audit record is written before a key is destroyed, and another one with the result.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

from sqlalchemy import Connection

from catalog.authorization.authorizer import Caller
from catalog.base.errors import CommitConflict, NoSuchTable
from catalog.context import ServiceContext
from catalog.db.engine import read, write
from catalog.envelope.peks import PekRecord, PekState
from catalog.key_management.uses import Need, need, uses
from catalog.reading.loading import LoadedTable
from catalog.state import pek_records as key_records
from catalog.state import seals, table_state
from catalog.state.table_state import TableRecord, TableState
from catalog.writes.sessions import WriteLog
from policy.decision import Decision, Reason
from policy.errors import KeyNotUsable, LakewardenError
from policy.principal import Principal

logger = logging.getLogger(__name__)

#: The principal that the audit log names for keys that are destroyed by the catalog.
_CATALOG: Final = Caller(Principal("lakewarden"), None, "keys-due")


class KeyEnds:
    """Destroys keys whose waiting time has ended.

    Args:
        context: the parts that services share.
        log: lists the open writes.
    """

    def __init__(self, context: ServiceContext, log: WriteLog) -> None:
        self._context = context
        self._log = log

    def destroy_due(self) -> int:
        """Destroy the keys whose waiting time has ended, and return their number."""
        with read(self._context.engine) as connection:
            due = key_records.due(connection, self._context.catalog, self._context.now_ms())
        return sum(self._end(pek) for pek in due)

    def require_settled(self, connection: Connection, table: LoadedTable, peks: Iterable[PekRecord]) -> None:
        """Refuse if the table has changed since it was checked, or a commit or write is in progress.

        The caller's transaction must hold the table's lock.

        Raises:
            CommitConflict: another commit was made, or is prepared; or a write was begun under one of the
                keys.
        """
        writes = [self._log.open_under(connection, pek.id, pek.version) for pek in peks]
        if any(writes) or not seals.is_settled(connection, table.record.id, table.metadata_location):
            raise CommitConflict(
                "Commits to the table are in progress, so it is not known what needs the key.",
                table=table.name,
                rule="key-in-use",
                hint="Try again. An interrupted commit is resolved by the next commit, such as a rotation.",
            )

    def require_unneeded(self, record: TableRecord, peks: Iterable[PekRecord]) -> LoadedTable:
        """Load the table, and check that it needs none of these versions.

        Raises:
            KeyNotUsable: a version is needed; the message says by what.
            NoSuchTable, MetadataUnsealed, MetadataTampered: the table's needs cannot be determined.
        """
        table = self._context.loader.load_sealed(record.name)
        if table.record.id != record.id:
            raise NoSuchTable(f"The table {record.name} was replaced by another one.", table=table.name)
        found = uses(self._context.reader, table)
        for pek in peks:
            needed = need(table, found, pek.ref)
            with read(self._context.engine) as connection:
                writes = self._log.open_under(connection, pek.id, pek.version)
            if needed is None and writes:
                needed = Need(
                    f"is needed by {writes} open writes",
                    "Wait until they end, or run `lakewarden db clean-up` once they have expired.",
                )
            if needed is not None:
                raise KeyNotUsable(
                    f"The key {pek.id} version {pek.version} {needed.why}.",
                    table=table.name,
                    rule="key-in-use",
                    hint=needed.hint,
                )
        return table

    def _end(self, pek: PekRecord) -> bool:
        with read(self._context.engine) as connection:
            record = table_state.table_by_id(connection, pek.table_id)
            others = [] if record is None else key_records.of_table(connection, record)
        table = None
        if record is not None and any(_outlives(other, pek) for other in others):
            try:
                table, needed = self._need(record, pek)
            except LakewardenError as problem:
                logger.warning(
                    "a key is not destroyed until it is known what needs it: %s", type(problem).__name__
                )
                return False
            if needed is not None:
                self._keep(record, pek, needed)
                return False
        self._record("key.destroying", record, pek, "is destroyed, after its waiting time")
        destroyed = self._destroy(pek, table)
        self._context.peks.forget(pek.id)
        if destroyed:
            self._record("key.destroyed", record, pek, "is destroyed")
        else:
            self._record("key.kept", record, pek, "was not destroyed: its table or its state was changed")
        return destroyed

    def _need(self, record: TableRecord, pek: PekRecord) -> tuple[LoadedTable, Need | None]:
        if record.state is not TableState.ACTIVE:
            raise CommitConflict("The table is dropped, and can be registered again.", table=str(record.name))
        table = self._context.loader.load_sealed(record.name)
        if table.record.id != record.id:
            raise CommitConflict("The table was replaced by another one.", table=table.name)
        return table, need(table, uses(self._context.reader, table), pek.ref)

    def _destroy(self, pek: PekRecord, table: LoadedTable | None) -> bool:
        try:
            with write(self._context.engine) as connection:
                seals.lock_table(connection, pek.table_id)
                if table is not None:
                    self.require_settled(connection, table, [pek])
                return key_records.destroy(connection, pek)
        except CommitConflict:
            return False

    def _keep(self, record: TableRecord, pek: PekRecord, needed: Need) -> None:
        """Keep a version that is needed: it stays disabled, and a user can enable it again."""
        self._record("key.kept", record, pek, needed.why)
        with write(self._context.engine) as connection:
            key_records.move(connection, pek, PekState.DISABLED)

    def _record(self, action: str, record: TableRecord | None, pek: PekRecord, what: str) -> None:
        reason = Reason(action.removeprefix("key."), f"Key {pek.id} version {pek.version} {what}.")
        whose = "" if record is None else str(record.name)
        self._context.authorizer.record(_CATALOG, action, whose, Decision.allow(reason))


def _outlives(other: PekRecord, pek: PekRecord) -> bool:
    """Return whether a version is another version of the same PEK and is not going to be destroyed."""
    alive = other.state is not PekState.DESTROYED and other.destroy_after_ms is None
    return other.id == pek.id and other.version != pek.version and alive
