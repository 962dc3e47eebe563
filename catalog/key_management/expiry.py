"""The end of keys whose time has come.

- Where every version of a PEK goes, it goes needed or not: that is what was asked for.
- Where a version goes by itself, the table is looked at once more. If something needs it by now (an older
  metadata.json was restored, say), it stays, disabled and without a time of destruction. If that cannot be
  known, or a commit is under way, it is left to the next clean-up.
- That an end is about to come is on record before it comes, and afterwards how it came out.
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

#: In whose name what is due is destroyed.
_CATALOG: Final = Caller(Principal("lakewarden"), None, "keys-due")


class KeyEnds:
    """Destroys keys whose time has come.

    Args:
        context: the parts that services share.
        log: knows the open writes.
    """

    def __init__(self, context: ServiceContext, log: WriteLog) -> None:
        self._context = context
        self._log = log

    def destroy_due(self) -> int:
        """Destroy the keys whose time has come; how many they were."""
        with read(self._context.engine) as connection:
            due = key_records.due(connection, self._context.catalog, self._context.now_ms())
        return sum(self._end(pek) for pek in due)

    def require_settled(self, connection: Connection, table: LoadedTable, peks: Iterable[PekRecord]) -> None:
        """What was seen of a table is still so, and nothing is under way; in a transaction that locks it.

        Raises:
            CommitConflict: a commit came, or may be about to; or a write was begun under one of the keys.
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
        """The table, which needs none of these versions any more.

        Raises:
            KeyNotUsable: something does; says what.
            NoSuchTable, MetadataUnsealed, MetadataTampered: what is needed cannot be known.
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
        """It stays disabled; whoever disabled it can enable it again."""
        self._record("key.kept", record, pek, needed.why)
        with write(self._context.engine) as connection:
            key_records.move(connection, pek, PekState.DISABLED)

    def _record(self, action: str, record: TableRecord | None, pek: PekRecord, what: str) -> None:
        reason = Reason(action.removeprefix("key."), f"Key {pek.id} version {pek.version} {what}.")
        whose = "" if record is None else str(record.name)
        self._context.authorizer.record(_CATALOG, action, whose, Decision.allow(reason))


def _outlives(other: PekRecord, pek: PekRecord) -> bool:
    """Whether another version of a PEK is there to stay when one goes."""
    alive = other.state is not PekState.DESTROYED and other.destroy_after_ms is None
    return other.id == pek.id and other.version != pek.version and alive
