"""Writes to tables that exist: how they begin, and how their files land in a snapshot.

The commit wraps each data key anew under the PEK, leaves out the bounds of encrypted columns, builds the
manifests and takes the way of every other commit.
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
from catalog.context import ServiceContext
from catalog.db.engine import read, write
from catalog.envelope.parquet_key_tools import StockKey
from catalog.envelope.peks import PekRecord, PekState
from catalog.keyring.keyring import Keyring
from catalog.reading.loading import LoadedTable, TableLoader
from catalog.rules.governance import check_room
from catalog.snapshot_checks.inspection import Origin
from catalog.state import pek_records as key_records
from catalog.state import seals, table_state
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
    """That a write may be committed.

    Attributes:
        name: the table.
        overlaps: ids of the tables that it may overlap, where the write creates it.
    """

    name: TableName
    overlaps: frozenset[str] = frozenset()


class TableWrites:
    """Begins writes to tables that exist, and lands them.

    Args:
        context: the parts that services share.
        log: keeps the writes.
        committer: takes the commits.
    """

    def __init__(self, context: ServiceContext, log: WriteLog, committer: Committer) -> None:
        self._context = context
        self._log = log
        self._committer = committer

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
                # A version that a write keeps its key under is not destroyed beside this.
                seals.lock_table(connection, table.record.id)
                in_force = table.governed.epochs.current.peks
                key_records.require(connection, in_force, PekState.ACTIVE, PekState.DECRYPT_ONLY)
            self._log.add(connection, caller.principal.name, session, sealed)
        crash_points.point("write:begun")
        return session

    def authorize(self, caller: Caller, row: WriteRow) -> Granted:
        """Whether the caller may commit the write now.

        Raises:
            NotAuthorized: UPDATE on the table is needed.
            RequestInvalid: the table is gone.
        """
        name = self.name(row)
        self._context.require(caller, "table.write", name)
        return Granted(name)

    def name(self, row: WriteRow) -> TableName:
        """Today's name of the write's table.

        Raises:
            RequestInvalid: the table is gone.
        """
        return name_of(self._context.engine, self._context.loader, row)

    def found(self, row: WriteRow, granted: Granted) -> LoadedTable:
        """The table of a write that landed."""
        return of_write(self._context.loader.load_sealed(granted.name), row)

    def is_published(self, row: WriteRow) -> bool:
        """Whether a snapshot of the write is in the table, or was."""
        with read(self._context.engine) as connection:
            record = table_state.table_by_id(connection, row.table_id)
        if record is not None and record.state is TableState.ACTIVE:
            return self._published(self._context.loader.load_sealed(record.name), row)
        return self._is_sealed(row)

    def publish(self, caller: Caller, row: WriteRow, files: FileCommit, granted: Granted) -> LoadedTable:
        """Commit the files, on top of whatever was committed meanwhile."""

        def look() -> tuple[LoadedTable, MadeSnapshot | None]:
            table = of_write(self._context.loader.load_sealed(granted.name), row)
            crash_points.point("write:looked")
            return table, None if self._published(table, row) else self._build(table, row, files)

        return made_anew(look, lambda seen: self._commit(caller, *seen))

    def _build(self, table: LoadedTable, row: WriteRow, files: FileCommit) -> MadeSnapshot:
        self._require_written_alike(table, row)
        return make_snapshot(self._context, self._log, table, row, files)

    def _require_written_alike(self, table: LoadedTable, row: WriteRow) -> None:
        """The write's files are encrypted as the table was when it began; that has to be so still.

        Key metadata says of a file what the epoch in force says, and the catalog does not open the file.

        Raises:
            KeyNotUsable: the table is encrypted in another way by now.
        """
        with read(self._context.engine) as connection:
            begun = table_state.governed_version(connection, row.table_id, row.governed_version)
        now = table.governed.epochs.current
        if row.transport is None or not now.spec.encrypts:
            return  # told by what the files have no keys for, or keys too many
        if begun is None or not encrypts_equally(begun.epochs.current, now):
            raise KeyNotUsable(
                "The table's encryption changed after the write began.",
                table=table.name,
                rule="write-key",
                hint="Begin a new write, and write the rows again.",
            )

    def _commit(self, caller: Caller, table: LoadedTable, built: MadeSnapshot | None) -> LoadedTable:
        """Commit what was built; nothing was where the write has landed before."""
        if built is None:
            return table
        try:
            return self._committer.commit(
                caller,
                table.record.name,
                built.requirements,
                built.updates,
                origin=Origin.WRITE,
                written=built.written,
                under=table.governed.version,
            )
        except CommitConflict:
            # Whether what is to be removed is still there is decided by the next attempt.
            built.discard(self._context.storage)
            raise

    def forget(self, row: WriteRow) -> tuple[Location, ...] | None:
        """What is to be deleted of a write that is given up: its files, nothing else."""
        return (row.prefix,)

    def _published(self, table: LoadedTable, row: WriteRow) -> bool:
        """Whether a snapshot of this write, whose answer was lost, is there, or was and has expired."""
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


def name_of(engine: Engine, loader: TableLoader, row: WriteRow) -> TableName:
    """Today's name of a write's table, after finishing a rename that was cut short.

    Raises:
        RequestInvalid: the table is gone.
    """
    with read(engine) as connection:
        record = table_state.table_by_id(connection, row.table_id)
    if record is not None and record.pending_name is not None:
        loader.settle(record.name)
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
    """A write that begins now, and its transport key as it is kept; nothing is recorded yet.

    Args:
        log: says when the write expires.
        keyring: opens the table's PEKs.
        table: as it is, or as the write will create it.
        made: PEKs of the table that are not recorded yet.

    Raises:
        LocationNotAllowed: the table's data directory is not in its allowed list.
        PropertyInvalid: the table has more columns than an encrypted file can hold.
        KeyNotUsable, KmsUnavailable: the table's key cannot be had.
    """
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
    """Where a table's data files go."""
    given = table.metadata.properties.get("write.data.path")
    return Location.parse(given) if given else Location.parse(table.metadata.location).child("data")


def require_allowed(table: LoadedTable, directory: Location) -> None:
    """Refuse to write where the table may not be read from.

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
    """The table, which is the write's: one that was dropped may have a namesake by now.

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
