"""Write sessions: what an engine does between beginning a write and its commit.

- A write has an id, and its files lie below a directory of that name: a writer that dies leaves nothing
  visible, and what it left is cleaned up.
- The write's transport key is made for it; executors wrap their data keys under it (`write_transport`).
- Committing a write twice is one commit.

How a write begins, lands and is taken back depends on whether its table is there (`table_writes`) or comes
with it (`staged_writes`). Its life is the same (`write_sessions`).
"""

from __future__ import annotations

import logging
from typing import Final, Protocol

from catalog.authorization.authorizer import Caller
from catalog.base import crash_points
from catalog.base.identifiers import TableName
from catalog.context import ServiceContext
from catalog.reading.loading import LoadedTable
from catalog.rules.table_changes import refuse_reserved_names
from catalog.state.write_states import ALIVE, DONE, WriteState
from catalog.tables.drafts import NewTable
from catalog.writes.new_files import FileCommit
from catalog.writes.orphans import Orphans
from catalog.writes.sessions import GONE, WriteLog, WriteRow, WriteSession, not_open
from catalog.writes.staged_writes import StagedWrites
from catalog.writes.table_writes import Granted, TableWrites
from policy.decision import Decision, Reason
from policy.errors import CommitStateUnknown, LakewardenError, RequestInvalid
from policy.location.location import Location

logger = logging.getLogger(__name__)

#: Whoever began a write may give it up, whatever rights are left.
_OWN_WRITE: Final = Decision.allow(Reason("own-write", "The write belongs to the caller, who aborts it."))

#: As much of a write id as a client's mistake may put into the audit trail.
_SHOWN_ID: Final = 64


class _Kind(Protocol):
    """What differs between writes."""

    def name(self, row: WriteRow) -> TableName:
        """The table's name; RequestInvalid if the table is gone."""

    def authorize(self, caller: Caller, row: WriteRow) -> Granted:
        """Whether the caller may commit the write now; NotAuthorized if not."""

    def found(self, row: WriteRow, granted: Granted) -> LoadedTable:
        """The table of a write that landed."""

    def is_published(self, row: WriteRow) -> bool:
        """Whether the write landed, however its commit ended."""

    def publish(self, caller: Caller, row: WriteRow, files: FileCommit, granted: Granted) -> LoadedTable:
        """Commit the files; a write that has landed already is found."""

    def forget(self, row: WriteRow) -> tuple[Location, ...] | None:
        """Take back what its beginning made; the directories to delete, or None if it landed after all."""


class Writes:
    """Begins, commits, aborts and cleans up writes.

    Args:
        context: the parts that services share.
        log: keeps the writes.
        tables: writes to tables that exist.
        staged: writes that create their table.
        orphans: finds what committed writes left.
    """

    def __init__(
        self,
        context: ServiceContext,
        log: WriteLog,
        tables: TableWrites,
        staged: StagedWrites,
        orphans: Orphans,
    ) -> None:
        self._context = context
        self._log = log
        self._tables = tables
        self._staged = staged
        self._orphans = orphans

    def begin(self, caller: Caller, name: TableName) -> WriteSession:
        """Begin a write.

        Raises:
            NotAuthorized: UPDATE on the table is needed; and `release` on its keys, unless an engine asks.
            LocationNotAllowed: the table's data directory is not in its allowed list.
            KeyNotUsable, KmsUnavailable: the table's key cannot be had.
            NoSuchTable, MetadataUnsealed, MetadataTampered: see `TableLoader.load_sealed`.
        """
        return self._tables.begin(caller, name)

    def begin_staged(self, caller: Caller, new: NewTable) -> WriteSession:
        """Begin a write whose commit creates its table; until then nothing is visible.

        Raises:
            NotAuthorized: what creating the table needs, and `release` on its keys, unless an engine asks.
            LocationNotAllowed: the table's own directories are not in its allowed list.
            as `Creator.create` otherwise.
        """
        return self._staged.begin(caller, new)

    def screen(self, caller: Caller, write_id: str) -> None:
        """Refuse a commit that could not be made, before its files are known.

        Raises:
            RequestInvalid: no such write of the caller's.
            NotAuthorized: the caller cannot commit it any more.
        """
        row = self._find(caller, write_id)
        self._kind(row).authorize(caller, row)

    def commit(self, caller: Caller, write_id: str, files: FileCommit) -> LoadedTable:
        """Commit the files of a write; committing it again answers with what the first time did.

        Raises:
            RequestInvalid: no such write of the caller's, or one that was aborted or cleaned up.
            CommitConflict: files to be removed are gone, or the base is not the current snapshot any more.
            TableExists: another table got the name of the one that the write would create.
            as `Committer.commit` or `Creator.create` otherwise.
        """
        row = self._find(caller, write_id)
        kind = self._kind(row)
        granted = kind.authorize(caller, row)
        if row.state in DONE:
            return kind.found(row, granted)
        with self._context.authorizer.recorded(caller, "table.commit", str(granted.name)):
            refuse_reserved_names(files.summary, str(granted.name))
            if not self._is_committing(caller, row):
                return kind.found(row, granted)
            self._log.renew(row)
            crash_points.point("write:committing")
            try:
                table = kind.publish(caller, row, files, granted)
            except CommitStateUnknown:
                raise
            except LakewardenError:
                if self._find(caller, write_id).state in DONE:
                    return kind.found(row, granted)  # landed by an attempt that ran beside this one
                if row.state == WriteState.OPEN:
                    self._log.note(row, WriteState.COMMITTING, WriteState.OPEN)
                raise
            crash_points.point("write:landed")
            # An attempt that ran beside this one and failed may have opened the write again.
            self._log.note(row, WriteState.OPEN, WriteState.COMMITTED)
            self._log.note(row, WriteState.COMMITTING, WriteState.COMMITTED)
            crash_points.point("write:committed")
            return table

    def _is_committing(self, caller: Caller, row: WriteRow) -> bool:
        """Begin an attempt to commit a write; False if another attempt landed meanwhile.

        Raises:
            RequestInvalid: the write was aborted or cleaned up.
        """
        if row.state == WriteState.COMMITTING or self._log.moved(row, WriteState.OPEN, WriteState.COMMITTING):
            return True
        now = self._find(caller, row.id).state
        if now not in (*ALIVE, *DONE):
            raise not_open()
        return now in ALIVE

    def abort(self, caller: Caller, write_id: str) -> None:
        """Give a write up; its files are deleted. A write that was given up already stays so.

        What another abort, or a clean-up, began to delete and may not finish is deleted here, too.

        Raises:
            RequestInvalid: no such open write of the caller's.
        """
        row = self._find(caller, write_id)
        self._context.authorizer.record(caller, "table.write", str(self._kind(row).name(row)), _OWN_WRITE)
        if row.state == WriteState.OPEN and self._kind(row).is_published(row):
            self._log.note(row, WriteState.OPEN, WriteState.COMMITTED)
        self._log.moved(row, WriteState.OPEN, WriteState.CLEARING)
        now = self._find(caller, write_id).state
        if now in GONE:
            return
        if now != WriteState.CLEARING or not self._clear(row, WriteState.ABORTED):
            raise not_open()

    def clean_up(self) -> int:
        """Delete what expired writes left: all files of one that never landed, of one that did those that it
        did not commit.

        Returns:
            how many writes something was left of.
        """
        return sum(self._clean_up(row) for row in self._log.expired())

    def _clean_up(self, row: WriteRow) -> bool:
        try:
            if row.state == WriteState.COMMITTED:
                return self._tidy(row)
            if row.state != WriteState.CLEARING and self._kind(row).is_published(row):
                self._log.note(row, row.state, WriteState.COMMITTED)
                return False
            if not self._log.moved(row, row.state, WriteState.CLEARING):
                return False  # committed, aborted or cleaned up meanwhile
            return self._clear(row, WriteState.SWEPT)
        except LakewardenError as problem:
            logger.warning("an expired write is left to the next clean-up: %s", type(problem).__name__)
            return False

    def _tidy(self, row: WriteRow) -> bool:
        """Delete what killed attempts left of a write that was committed; False if they left nothing."""
        orphans = self._orphans.of(row)
        for location in orphans:
            self._context.storage.delete(location)
        crash_points.point("tidy:deleted")
        self._log.note(row, WriteState.COMMITTED, WriteState.CLOSED)
        crash_points.point("tidy:noted")
        return bool(orphans)

    def _clear(self, row: WriteRow, after: WriteState) -> bool:
        """Take a write back; False if it landed at the last moment."""
        crash_points.point("clear:marked")
        leftovers = self._kind(row).forget(row)
        if leftovers is None:
            self._log.note(row, WriteState.CLEARING, WriteState.COMMITTED)
            return False
        for location in leftovers:
            self._context.storage.delete_prefix(location)
        crash_points.point("clear:deleted")
        self._log.note(row, WriteState.CLEARING, after)
        crash_points.point("clear:noted")
        return True

    def _kind(self, row: WriteRow) -> _Kind:
        return self._tables if row.staged_metadata is None else self._staged

    def _find(self, caller: Caller, write_id: str) -> WriteRow:
        row = self._log.find(caller.principal.name, write_id)
        if row is None:
            refusal = RequestInvalid(
                "You have no write with this id.",
                rule="write-id",
                hint="Begin a write, and use the id in the answer.",
            )
            denied = Decision.deny(Reason("write-id", f"{refusal.message} ({write_id[:_SHOWN_ID]})"))
            self._context.authorizer.record(caller, "table.write", "write", denied)
            raise refusal
        return row
