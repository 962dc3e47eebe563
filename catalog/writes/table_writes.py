"""Writes to existing tables: begins them, and commits their files in a snapshot.

The commit rewraps each data key under the PEK, leaves out the bounds of encrypted columns, builds the
manifests, and is then processed like every other commit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import uuid4

from sqlalchemy import Engine

from catalog.authorization.authorizer import Caller
from catalog.base import crash_points
from catalog.base.errors import CommitConflict
from catalog.base.identifiers import TableName
from catalog.commits.committer import Committer
from catalog.commits.conflicts import made_anew
from catalog.commits.snapshot_producer import MadeSnapshot
from catalog.commits.turns import Turns
from catalog.context import ServiceContext
from catalog.db.engine import read, write
from catalog.envelope.parquet_key_tools import StockKey
from catalog.envelope.peks import PekRecord, PekState
from catalog.iceberg.metadata import require_written_version
from catalog.keyring.keyring import Keyring
from catalog.reading.loading import LoadedTable
from catalog.rules.governance import check_room
from catalog.snapshot_checks.inspection import Origin
from catalog.state import pek_records as key_records
from catalog.state import seals, table_state
from catalog.state.commit_records import CommitRecord, recording
from catalog.state.copied_files import CopyCommit
from catalog.state.open_writes import publishing
from catalog.state.stream_epochs import EpochCommit, EpochRepeated
from catalog.state.table_state import TableState
from catalog.writes.new_files import FileCommit
from catalog.writes.sessions import SealedTransport, WriteLog, WriteRow, WriteSession
from catalog.writes.transport import make_transport, stock_keys_of
from catalog.writes.written_files import WRITE_ID, make_snapshot
from policy.encryption.epochs import encrypts_equally
from policy.errors import KeyNotUsable, LocationNotAllowed, RequestInvalid
from policy.location.location import Location


@dataclass(frozen=True, slots=True)
class Granted:
    """The permission to commit a write.

    Attributes:
        name: the table.
        overlaps: ids of the tables that it is allowed to overlap, if the write creates it.
    """

    name: TableName
    overlaps: frozenset[str] = frozenset()


class TableWrites:
    """Begins and publishes writes to existing tables.

    Args:
        context: the parts that services share.
        log: stores the writes.
        committer: makes the commits.
    """

    def __init__(self, context: ServiceContext, log: WriteLog, committer: Committer) -> None:
        self._context = context
        self._log = log
        self._committer = committer
        self._turns = Turns()

    def begin(self, caller: Caller, name: TableName) -> WriteSession:
        """See `Writes.begin`."""
        self._context.require(caller, "table.write", name)
        with self._context.authorizer.recorded(caller, "table.write", str(name)):
            return made_anew(
                lambda: self._context.loader.load_sealed(name), lambda table: self._begun(caller, table)
            )

    def _begun(self, caller: Caller, table: LoadedTable) -> WriteSession:
        releases = caller.releases(table.governed.spec.key_ids())
        if releases:
            self._context.authorizer.require(caller, "table.write", table.name, releases)
        crash_points.point("write:allowed")
        session, sealed = new_session(self._log, self._context.keyring, table)
        with write(self._context.engine) as connection:
            if sealed is not None:
                # The lock prevents destruction of the version that the transport key is sealed with.
                seals.lock_table(connection, table.record.id)
                in_force = table.governed.epochs.current.peks
                key_records.require(connection, in_force, PekState.ACTIVE, PekState.DECRYPT_ONLY)
            self._log.add(connection, caller.principal.name, session, sealed)
        crash_points.point("write:begun")
        return session

    def authorize(self, caller: Caller, row: WriteRow) -> Granted:
        """Authorize the caller to commit the write now.

        Raises:
            NotAuthorized: UPDATE on the table is needed.
            RequestInvalid: the table is gone.
        """
        name = self.name(row)
        self._context.require(caller, "table.write", name)
        return Granted(name)

    def name(self, row: WriteRow) -> TableName:
        """Return the current name of the write's table.

        Raises:
            RequestInvalid: the table is gone.
        """
        return name_of(self._context.engine, row)

    def found(self, row: WriteRow, granted: Granted) -> LoadedTable:
        """Load the table of a published write."""
        return of_write(self._context.loader.load_sealed(granted.name), row)

    def is_published(self, row: WriteRow) -> bool:
        """Return whether a snapshot of the write is or was in the table."""
        with read(self._context.engine) as connection:
            record = table_state.table_by_id(connection, row.table_id)
        if record is not None and record.state is TableState.ACTIVE:
            return self._published(self._context.loader.load_sealed(record.name), row)
        return self._is_sealed(row)

    def publish(self, caller: Caller, row: WriteRow, files: FileCommit, granted: Granted) -> LoadedTable:
        """Commit the files on top of the current snapshot, in turn; retry after conflicts."""
        records: list[CommitRecord] = []
        if files.epoch is not None:
            records.append(EpochCommit(row.table_id, caller.principal.name, files.epoch, row.id))
        if files.copied is not None:
            records.append(CopyCommit(row.table_id, str(granted.name), files.copied, row.id))

        def look() -> tuple[LoadedTable, MadeSnapshot | None]:
            table = of_write(self._context.loader.load_sealed(granted.name), row)
            crash_points.point("write:looked")
            return table, None if self._published(table, row) else self._build(caller, table, row, files)

        with self._turns.taken(row.table_id):
            return made_anew(look, lambda seen: self._commit(caller, row, *seen, records))

    def _build(self, caller: Caller, table: LoadedTable, row: WriteRow, files: FileCommit) -> MadeSnapshot:
        self._require_written_alike(table, row)
        return make_snapshot(self._context, table, row, files, caller)

    def _require_written_alike(self, table: LoadedTable, row: WriteRow) -> None:
        """Check that the table's encryption has not changed since the write began.

        The catalog does not open the file: key metadata describes it by the epoch in force.

        Raises:
            KeyNotUsable: the table's encryption has changed.
        """
        with read(self._context.engine) as connection:
            begun = table_state.governed_version(connection, row.table_id, row.governed_version)
        now = table.governed.epochs.current
        if row.transport is None or not now.spec.encrypts:
            return  # Files without keys, or with too many, are refused elsewhere.
        if begun is None or not encrypts_equally(begun.epochs.current, now):
            raise KeyNotUsable(
                "The table's encryption changed after the write began.",
                table=table.name,
                rule="write-key",
                hint="Begin a new write, and write the rows again.",
            )

    def _commit(
        self,
        caller: Caller,
        row: WriteRow,
        table: LoadedTable,
        built: MadeSnapshot | None,
        records: Sequence[CommitRecord],
    ) -> LoadedTable:
        """Commit the snapshot; return the table as it is if the write was published before."""
        if built is None:
            return table
        try:
            published = publishing(row.id, built.snapshot.snapshot_id)
            with published, recording(records, self._context.now_ms()):
                return self._committer.commit(
                    caller,
                    table.record.name,
                    built.requirements,
                    built.updates,
                    origin=Origin.WRITE,
                    written=built.written,
                    under=table.governed.version,
                )
        except (CommitConflict, EpochRepeated, RequestInvalid):
            # The next attempt checks whether the files to remove still exist.
            built.discard(self._context.storage)
            raise

    def forget(self, row: WriteRow) -> tuple[Location, ...] | None:
        """Return the directory to delete, the files of the write alone; or None if it was published."""
        # An attempt can have published it after `row` was read.
        return None if self.is_published(self._log.again(row)) else (row.prefix,)

    def _published(self, table: LoadedTable, row: WriteRow) -> bool:
        """Return whether the table has, or had, a snapshot of this write."""
        named = any(
            snapshot.summary is not None and snapshot.summary.additional_properties.get(WRITE_ID) == row.id
            for snapshot in table.metadata.snapshots
        )
        return named or self._is_sealed(row)

    def _is_sealed(self, row: WriteRow) -> bool:
        if row.snapshot_id is None:
            return False
        with read(self._context.engine) as connection:
            return seals.holds_snapshot(connection, row.table_id, row.snapshot_id)


def name_of(engine: Engine, row: WriteRow) -> TableName:
    """Return the current name of a write's table.

    Raises:
        RequestInvalid: the table is gone.
    """
    with read(engine) as connection:
        record = table_state.table_by_id(connection, row.table_id)
    if record is None:
        raise RequestInvalid(
            "The table of this write was dropped.", rule="write-id", hint="Begin a new write."
        )
    return record.name


def new_session(
    log: WriteLog, keyring: Keyring, table: LoadedTable, made: Sequence[PekRecord] = ()
) -> tuple[WriteSession, SealedTransport | None]:
    """Make a new write with its transport key. Nothing is recorded.

    Args:
        log: determines when the write expires.
        keyring: opens the table's PEKs.
        table: the existing table, or the table that the write will create.
        made: PEKs of the table that are not recorded yet.

    Raises:
        UnsupportedFormatVersion: files of the table's format version are not written.
        LocationNotAllowed: the table's data directory is not in its allowed list.
        PropertyInvalid: the table has more columns than an encrypted file can hold.
        KeyNotUsable, KmsUnavailable: the table's key is not available.
    """
    require_written_version(table.metadata, table.name)
    write_id, spec = uuid4(), table.governed.spec
    prefix = data_directory(table).child(str(write_id))
    require_allowed(table, prefix)
    transport = sealed = None
    stock_keys: tuple[StockKey, ...] = ()
    if spec.encrypts:
        check_room(table)
        peks = keyring.writing_peks(table.record, table.governed, made)
        transport, sealed = make_transport(write_id, spec, peks)
        stock_keys = stock_keys_of(transport, table, peks)
    return WriteSession(str(write_id), table, prefix, transport, log.expires_ms(), stock_keys), sealed


def data_directory(table: LoadedTable) -> Location:
    """Return the directory of a table's data files."""
    given = table.metadata.properties.get("write.data.path")
    return Location.parse(given) if given else Location.parse(table.metadata.location).child("data")


def require_allowed(table: LoadedTable, directory: Location) -> None:
    """Refuse a write directory that the table cannot be read from.

    Raises:
        LocationNotAllowed: the directory is not in the table's allowed list.
    """
    decision = table.governed.allowed.decide(directory)
    if not decision.allowed:
        raise LocationNotAllowed(
            "The write directory is not in the table's allowed locations, so new files could not be read.",
            table=table.name,
            path=directory.canonical,
            rule=decision.reasons[0].rule,
            hint="Add the directory to read.allowed.data.paths, or change write.data.path.",
        )


def of_write(table: LoadedTable, row: WriteRow) -> LoadedTable:
    """Check that the table is the write's own. A dropped table's name can belong to another table.

    Raises:
        RequestInvalid: it is another table.
    """
    if table.record.id != row.table_id:
        raise RequestInvalid(
            "The table of this write was dropped, and another table has its name.",
            table=table.name,
            rule="write-id",
            hint="Begin a new write.",
        )
    return table
