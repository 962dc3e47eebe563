"""Begins, commits, aborts and cleans up write sessions.

- A write has an id, and its files are below a directory of that name. If a writer dies, nothing it wrote is
  visible, and its files are cleaned up.
- Each write has its own transport key. Executors wrap their data keys under it (`transport`).
- Committing a write twice has the same effect as committing it once. So has committing an epoch of a stream
  in two writes: the second write is given up.

The beginning, publishing and abandoning of a write differ between tables that exist (`table_writes`), that
the write creates (`staged_writes`) and that it replaces (`replacing_writes`). The states are the same
(`sessions`).
"""

from __future__ import annotations

import logging
from typing import Final, Protocol

from catalog.audit.outcomes import note
from catalog.authorization.authorizer import Caller
from catalog.base import crash_points
from catalog.base.identifiers import TableName
from catalog.context import ServiceContext
from catalog.reading.loading import LoadedTable
from catalog.rules.table_changes import refuse_reserved_names
from catalog.state.open_writes import not_open
from catalog.state.stream_epochs import EpochCommit, EpochRepeated
from catalog.state.write_states import ALIVE, DONE, WriteState
from catalog.tables.drafts import NewTable
from catalog.writes.new_files import FileCommit
from catalog.writes.orphans import Orphans
from catalog.writes.replacing_writes import ReplacingWrites
from catalog.writes.sessions import GONE, WriteLog, WriteRow, WriteSession
from catalog.writes.staged_writes import StagedWrites
from catalog.writes.table_writes import Granted, TableWrites
from policy.decision import Decision, Reason
from policy.errors import CommitStateUnknown, LakewardenError, RequestInvalid
from policy.location.location import Location

logger = logging.getLogger(__name__)

#: Users can abort their own writes, even without their former permissions.
_OWN_WRITE: Final = Decision.allow(Reason("own-write", "The write belongs to the caller, who aborts it."))

#: Maximum length of an unknown write id in the audit log.
_SHOWN_ID: Final = 64


class _Kind(Protocol):
    """The operations that differ between kinds of writes."""

    def name(self, row: WriteRow) -> TableName:
        """Return the table's name; RequestInvalid if the table is gone."""

    def authorize(self, caller: Caller, row: WriteRow) -> Granted:
        """Authorize the caller to commit the write now; NotAuthorized if refused."""

    def found(self, row: WriteRow, granted: Granted) -> LoadedTable:
        """Load the table of a published write."""

    def is_published(self, row: WriteRow) -> bool:
        """Return whether the write was published, whatever answer its commit got."""

    def publish(self, caller: Caller, row: WriteRow, files: FileCommit, granted: Granted) -> LoadedTable:
        """Commit the files; return the table if the write was published already."""

    def forget(self, row: WriteRow) -> tuple[Location, ...] | None:
        """Undo the beginning of the write; return the directories to delete, or None if it was published."""


class Writes:
    """Begins, commits, aborts and cleans up writes.

    Args:
        context: the parts that services share.
        log: stores the writes.
        tables: writes to tables that exist.
        staged: writes that create their table.
        replacing: writes that replace their table.
        orphans: finds what committed writes left.
    """

    def __init__(
        self,
        context: ServiceContext,
        log: WriteLog,
        tables: TableWrites,
        staged: StagedWrites,
        replacing: ReplacingWrites,
        orphans: Orphans,
    ) -> None:
        self._context = context
        self._log = log
        self._tables = tables
        self._staged = staged
        self._replacing = replacing
        self._orphans = orphans

    def begin(self, caller: Caller, name: TableName) -> WriteSession:
        """Begin a write.

        Raises:
            NotAuthorized: UPDATE on the table is needed; and `release` on its keys, unless the caller is an
                engine.
            LocationNotAllowed: the table's data directory is not in its allowed list.
            KeyNotUsable, KmsUnavailable: the table's key is not available.
            NoSuchTable, MetadataUnsealed, MetadataTampered: see `TableLoader.load_sealed`.
        """
        return self._tables.begin(caller, name)

    def begin_staged(self, caller: Caller, new: NewTable) -> WriteSession:
        """Begin a write whose commit creates its table. Until then nothing is visible.

        Raises:
            NotAuthorized: the required privileges for creating the table, and `release` on its keys unless
                the caller is an engine.
            LocationNotAllowed: the table's own directories are not in its allowed list.
            as `Creator.create` otherwise.
        """
        return self._staged.begin(caller, new)

    def begin_replacing(self, caller: Caller, new: NewTable) -> WriteSession:
        """Begin a write whose commit replaces its table. Until then the table stays as it is.

        Raises:
            NotAuthorized: ALTER and UPDATE on the table are needed, and what its changes need; and `release`
                on its keys unless the caller is an engine.
            LocationNotAllowed: the table's own directories are not in its allowed list.
            as `Committer.commit` otherwise.
        """
        return self._replacing.begin(caller, new)

    def screen(self, caller: Caller, write_id: str) -> None:
        """Refuse a commit that cannot succeed, before its files are sent.

        Raises:
            RequestInvalid: the caller has no such write.
            NotAuthorized: the caller no longer has permission to commit it.
        """
        row = self._find(caller, write_id)
        self._kind(row).authorize(caller, row)

    def commit(self, caller: Caller, write_id: str, files: FileCommit) -> LoadedTable:
        """Commit the files of a write. A repeated commit returns the table without committing again.

        Raises:
            RequestInvalid: the caller has no such write, or it was aborted or cleaned up.
            ConcurrentModification: a commit since the base conflicts (`validation`).
            TableExists: another table has the name of the table that the write creates.
            as `Committer.commit` or `Creator.create` otherwise.
        """
        row = self._find(caller, write_id)
        kind = self._kind(row)
        granted = kind.authorize(caller, row)
        if row.state in DONE:
            return kind.found(row, granted)
        if self._repeats(caller, row, files):
            return self._given_up(row, granted)
        with self._context.authorizer.recorded(caller, "table.commit", str(granted.name)):
            refuse_reserved_names(files.summary, str(granted.name))
            if not self._is_committing(caller, row):
                return kind.found(row, granted)
            crash_points.point("write:committing")
            try:
                table = kind.publish(caller, row, files, granted)
            except CommitStateUnknown:
                raise
            except EpochRepeated:
                return self._given_up(row, granted)
            except LakewardenError as refusal:
                now = self._find(caller, write_id).state
                if now in DONE:
                    return kind.found(row, granted)  # A parallel attempt published it.
                if now not in ALIVE:
                    raise not_open() from refusal  # It was given up meanwhile, and its files were deleted.
                if row.state == WriteState.OPEN:
                    self._log.note(row, WriteState.COMMITTING, WriteState.OPEN)
                raise
            crash_points.point("write:landed")
            return table

    def _repeats(self, caller: Caller, row: WriteRow, files: FileCommit) -> bool:
        """Return whether another write committed the epoch of a stream."""
        if files.epoch is None:
            return False
        epoch = EpochCommit(row.table_id, caller.principal.name, files.epoch, row.id)
        return epoch.is_repeated(self._context.engine)

    def _given_up(self, row: WriteRow, granted: Granted) -> LoadedTable:
        """Delete the files of a write whose epoch another write committed; return the table.

        Another attempt, with other files or another epoch, is not published after that (`open_writes`).
        """
        kind = self._kind(row)
        if kind.is_published(row):  # It committed an earlier epoch, and its answer was lost.
            return kind.found(row, granted)
        note("epoch", "committed by another write")
        if any(self._log.moved(row, state, WriteState.CLEARING) for state in ALIVE):
            self._clear(row, WriteState.ABORTED)
        return kind.found(row, granted)

    def _is_committing(self, caller: Caller, row: WriteRow) -> bool:
        """Begin an attempt to commit a write; return False if another attempt was published meanwhile.

        Raises:
            RequestInvalid: the write was aborted or cleaned up.
        """
        if self._log.begin_commit(row):
            return True
        now = self._find(caller, row.id).state
        if now not in (*ALIVE, *DONE):
            raise not_open()
        return now in ALIVE

    def abort(self, caller: Caller, write_id: str) -> None:
        """Abort a write and delete its files. If it was aborted before, do nothing.

        This also completes a deletion that another abort or a clean-up began.

        Raises:
            RequestInvalid: the caller has no such open write.
            NotAuthorized: the token of the caller has a scope, and the caller cannot commit the write.
        """
        row = self._find(caller, write_id)
        if caller.principal.scope is not None:
            self._kind(row).authorize(caller, row)
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
        """Delete the files of expired writes: all of them, or those that a committed write did not commit.

        Returns:
            the number of writes that had files to delete.
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
                return False  # It was committed, aborted or cleaned up meanwhile.
            return self._clear(row, WriteState.SWEPT)
        except LakewardenError as problem:
            logger.warning("an expired write is left to the next clean-up: %s", type(problem).__name__)
            return False

    def _tidy(self, row: WriteRow) -> bool:
        """Delete the files that killed attempts of a committed write left; return False if there are none."""
        orphans = self._orphans.of(row)
        for location in orphans:
            self._context.storage.delete(location)
        crash_points.point("tidy:deleted")
        self._log.note(row, WriteState.COMMITTED, WriteState.CLOSED)
        crash_points.point("tidy:noted")
        return bool(orphans)

    def _clear(self, row: WriteRow, after: WriteState) -> bool:
        """Undo a write and delete its files; return False if it was published meanwhile."""
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
        if row.staged_metadata is None:
            return self._tables
        return self._staged if row.base_location is None else self._replacing

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
