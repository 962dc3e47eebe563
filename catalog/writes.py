"""Write sessions: what an engine does between beginning a write and its commit.

- A write has an id, and its files lie below a directory of that name: a writer that dies leaves nothing
  visible, and what it left is swept.
- The write's transport key is made for it; executors wrap their data keys under it. It is kept between begin
  and commit under the table's PEK, never in clear.
- The commit wraps each data key anew under the PEK, leaves out the bounds of encrypted columns, builds the
  manifests and takes the way of every other commit. Committing a write twice is one commit.

The life of a write: *open*; *committing* from the first attempt on; *committed*, or *open* again if that
attempt was refused. An attempt that was cut short leaves it committing: whether it landed is seen from its
snapshot, and the write may be committed again. *clearing* while its files are being deleted, then *aborted*
or *swept*.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final
from uuid import UUID, uuid4

from sqlalchemy import Engine, Row, and_, insert, or_, select, update

from catalog import access as access_rules
from catalog import faults, gates, seals, state
from catalog.authorize import Authorizer, Caller
from catalog.changes import refuse_reserved_names
from catalog.commits import Committer
from catalog.db.engine import read, write
from catalog.db.schema import lw_write
from catalog.errors import CommitConflict
from catalog.identifiers import TableName
from catalog.keyring import Keyring
from catalog.keys.secret import SecretBytes
from catalog.keys.transport import Purpose, TransportKey, open_transport_key, seal_transport_key
from catalog.keys.write_keys import WriteRewrapper
from catalog.loading import LoadedTable, TableLoader
from catalog.new_files import FileCommit
from catalog.snapshots import SnapshotReader
from catalog.state import TableState
from catalog.storage.base import Storage
from catalog.written_files import SnapshotBuilder
from policy.decision import Decision, Reason
from policy.errors import (
    CommitStateUnknown,
    KeyNotUsable,
    LakewardenError,
    LocationNotAllowed,
    RequestInvalid,
    StateUnavailable,
)
from policy.location import Location
from policy.regimes import PekRef

#: Snapshot summary entry that says which write a snapshot comes from.
WRITE_ID: Final = "lakewarden.write-id"
PEK_ID: Final = "encryption.pek-id"

logger = logging.getLogger(__name__)

#: Whoever began a write may give it up, whatever rights are left.
_OWN_WRITE: Final = Decision.allow(Reason("own-write", "The write is the caller's own, and is given up."))

#: As much of a write id as a client's mistake may put into the audit trail.
_SHOWN_ID: Final = 64

#: How often an append is based anew on what other commits did meanwhile.
_ATTEMPTS: Final = 100


class WriteState(StrEnum):
    """Where a write stands in its life."""

    OPEN = "open"
    COMMITTING = "committing"
    COMMITTED = "committed"
    CLEARING = "clearing"
    ABORTED = "aborted"
    SWEPT = "swept"


@dataclass(frozen=True, slots=True)
class WriteSession:
    """A write that was begun.

    Attributes:
        id: of the write; the commit names it.
        table: the table as it was then.
        prefix: the directory below which the write's files go.
        transport: the key for wrapping data keys, shown once; None if the table is not encrypted.
        expires_ms: when the write may be swept, in milliseconds since 1970.
    """

    id: str
    table: LoadedTable
    prefix: Location
    transport: TransportKey | None
    expires_ms: int


class Writes:
    """Begins, commits, aborts and sweeps writes.

    Args:
        engine: the catalog's database.
        loader: loads tables.
        reader: reads manifests.
        committer: takes the commits.
        keyring: the tables' keys.
        storage: where manifests are written and leftovers are swept.
        authorizer: decides and records.
        now_ms: the time in milliseconds.
        ttl_ms: for how long a write may last.
    """

    def __init__(
        self,
        engine: Engine,
        loader: TableLoader,
        reader: SnapshotReader,
        committer: Committer,
        keyring: Keyring,
        storage: Storage,
        authorizer: Authorizer,
        *,
        now_ms: Callable[[], int],
        ttl_ms: int,
    ) -> None:
        self._engine = engine
        self._loader = loader
        self._builder = SnapshotBuilder(reader, storage)
        self._committer = committer
        self._keyring = keyring
        self._storage = storage
        self._authorizer = authorizer
        self._now_ms = now_ms
        self._ttl_ms = ttl_ms

    def begin(self, caller: Caller, name: TableName) -> WriteSession:
        """Begin a write.

        Raises:
            NotAuthorized: UPDATE on the table is needed; and `release` on its keys, unless an engine asks.
            LocationNotAllowed: the table's data directory is not in its allowed list.
            KeyNotUsable, KmsUnavailable: the table's key cannot be had.
            NoSuchTable, MetadataUnsealed, MetadataTampered: see `TableLoader.load_sealed`.
        """
        self._require_update(caller, "table.write", name)
        with self._authorizer.recorded(caller, "table.write", str(name)):
            table = self._loader.load_sealed(name)
            self._require_release(caller, table)
            write_id = uuid4()
            prefix = _data_directory(table).child(str(write_id))
            _require_allowed(table, prefix)
            transport, row = self._transport(table, write_id)
            session = WriteSession(str(write_id), table, prefix, transport, self._now_ms() + self._ttl_ms)
            with write(self._engine) as connection:
                connection.execute(insert(lw_write).values(**self._row(caller, session), **row))
            faults.point("write:begun")
            return session

    def commit(self, caller: Caller, write_id: str, files: FileCommit) -> LoadedTable:
        """Commit the files of a write; committing it again answers with what the first time did.

        Raises:
            RequestInvalid: no such write of the caller's, or one that was aborted or swept.
            CommitConflict: files to be removed are gone, or the base is not the current snapshot any more.
            as `Committer.commit` otherwise.
        """
        row = self._find(caller, write_id)
        name = self._name(row)
        self._require_update(caller, "table.write", name)
        if row.state == WriteState.COMMITTED:
            return self._of_write(self._loader.load_sealed(name), row)
        with self._authorizer.recorded(caller, "table.commit", str(name)):
            refuse_reserved_names(files.summary, str(name))
            if row.state != WriteState.COMMITTING:
                self._move(row, WriteState.OPEN, WriteState.COMMITTING)
            self._renew(row)
            faults.point("write:committing")
            try:
                table = self._land(caller, name, row, files)
            except CommitStateUnknown:
                raise
            except LakewardenError:
                if row.state == WriteState.OPEN:
                    self._note(row, WriteState.COMMITTING, WriteState.OPEN)
                raise
            faults.point("write:landed")
            # An attempt that ran beside this one and failed may have opened the write again.
            self._note(row, WriteState.OPEN, WriteState.COMMITTED)
            self._note(row, WriteState.COMMITTING, WriteState.COMMITTED)
            faults.point("write:committed")
            return table

    def abort(self, caller: Caller, write_id: str) -> None:
        """Give a write up; its files are deleted.

        Raises:
            RequestInvalid: no such open write of the caller's.
        """
        row = self._find(caller, write_id)
        self._authorizer.record(caller, "table.write", str(self._name(row)), _OWN_WRITE)
        if row.state == WriteState.OPEN and self._has_landed(row):
            self._note(row, WriteState.OPEN, WriteState.COMMITTED)
        self._move(row, WriteState.OPEN, WriteState.CLEARING)
        self._clear(row, WriteState.ABORTED)

    def sweep(self) -> int:
        """Delete what expired writes left; a write that landed keeps its files.

        Returns:
            how many writes were swept.
        """
        return sum(self._sweep(row) for row in self._expired())

    def _expired(self) -> Sequence[Row[tuple[object, ...]]]:
        """Expired writes; those that are being committed get as long again to come to an end."""
        now, columns = self._now_ms(), lw_write.c
        left = and_(columns.state.in_([WriteState.OPEN, WriteState.CLEARING]), columns.expires_ms < now)
        stuck = and_(columns.state == WriteState.COMMITTING, columns.expires_ms < now - self._ttl_ms)
        with read(self._engine) as connection:
            return connection.execute(select(lw_write).where(or_(left, stuck))).all()

    def _sweep(self, row: Row[tuple[object, ...]]) -> bool:
        try:
            if row.state != WriteState.CLEARING and self._has_landed(row):
                self._note(row, WriteState(row.state), WriteState.COMMITTED)
                return False
            if not self._moved(row, WriteState(row.state), WriteState.CLEARING):
                return False  # committed, aborted or swept meanwhile
            self._clear(row, WriteState.SWEPT)
        except LakewardenError as problem:
            logger.warning("an expired write is left to the next sweep: %s", type(problem).__name__)
            return False
        return True

    def _clear(self, row: Row[tuple[object, ...]], after: WriteState) -> None:
        faults.point("clear:marked")
        self._storage.delete_prefix(Location.parse(row.prefix))
        faults.point("clear:deleted")
        self._note(row, WriteState.CLEARING, after)
        faults.point("clear:noted")

    def _has_landed(self, row: Row[tuple[object, ...]]) -> bool:
        with read(self._engine) as connection:
            record = state.table_by_id(connection, row.table_id)
        if record is not None and record.state is TableState.ACTIVE:
            return self._landed(self._loader.load_sealed(record.name), row)
        return self._is_sealed(row)

    def _land(
        self, caller: Caller, name: TableName, row: Row[tuple[object, ...]], files: FileCommit
    ) -> LoadedTable:
        for attempt in range(1, _ATTEMPTS + 1):
            table = self._of_write(self._loader.load_sealed(name), row)
            if self._landed(table, row):
                return table
            summary = {**files.summary, WRITE_ID: row.id, **_pek_summary(table)}
            built = self._builder.build(
                table, files, Location.parse(row.prefix), self._keys(table, row), summary
            )
            faults.point("write:built")
            self._announce(row, built.snapshot_id)
            faults.point("write:announced")
            try:
                return self._committer.commit(
                    caller, name, built.requirements, built.updates, by_catalog=True
                )
            except CommitConflict:
                # Whether what is to be removed is still there is decided by the next attempt.
                built.discard(self._storage)
                if attempt == _ATTEMPTS:
                    raise
        raise AssertionError("the loop ends with an answer or an error")

    def _of_write(self, table: LoadedTable, row: Row[tuple[object, ...]]) -> LoadedTable:
        """A table that was dropped may have a namesake by now."""
        if table.record.id != row.table_id:
            raise RequestInvalid(
                "The write's table is gone; another one has its name.",
                table=table.name,
                rule="write-id",
                hint="Begin a new write.",
            )
        return table

    def _landed(self, table: LoadedTable, row: Row[tuple[object, ...]]) -> bool:
        """Whether a snapshot of this write, whose answer was lost, is there, or was and has expired."""
        named = any(
            snapshot.summary is not None and snapshot.summary.additional_properties.get(WRITE_ID) == row.id
            for snapshot in table.metadata.snapshots
        )
        return named or self._is_sealed(row)

    def _is_sealed(self, row: Row[tuple[object, ...]]) -> bool:
        if row.snapshot_id is None:
            return False
        with read(self._engine) as connection:
            return seals.holds_snapshot(connection, row.table_id, row.snapshot_id)

    def _renew(self, row: Row[tuple[object, ...]]) -> None:
        """Give a commit that begins now its time, however old the write is."""
        statement = update(lw_write).where(lw_write.c.id == row.id, lw_write.c.state == WriteState.COMMITTING)
        with write(self._engine) as connection:
            connection.execute(statement.values(expires_ms=self._now_ms() + self._ttl_ms))

    def _announce(self, row: Row[tuple[object, ...]], snapshot_id: int) -> None:
        """Say under which snapshot the next attempt will be found; a write that is being cleared has none."""
        columns = lw_write.c
        alive = columns.state.in_([WriteState.OPEN, WriteState.COMMITTING])
        statement = update(lw_write).where(columns.id == row.id, alive).values(snapshot_id=snapshot_id)
        with write(self._engine) as connection:
            announced = connection.execute(statement).rowcount == 1
        if not announced:
            raise _not_open()

    def _keys(self, table: LoadedTable, row: Row[tuple[object, ...]]) -> WriteRewrapper | None:
        """The keys to take the write's data keys over with; None for plaintext."""
        if not table.governed.spec.encrypts:
            return None
        if row.wrapped_transport_key is None:
            raise KeyNotUsable(
                "The table has been encrypted since the write began.",
                table=table.name,
                rule="write-key",
                hint="Begin the write again.",
            )
        pek_id = UUID(row.pek_id)
        peks = self._keyring.writing_peks(table.record, table.governed)
        ref = next(
            (
                pek.ref
                for pek in self._keyring.records(table.record)
                if (pek.id, pek.version) == (pek_id, row.pek_version)
            ),
            None,
        )
        if ref is None:
            raise KeyNotUsable("The write's key is gone.", table=table.name, rule="write-key")
        sealing = self._keyring.open_peks(table.record, [ref])[ref]
        transport = open_transport_key(row.wrapped_transport_key, UUID(row.id).bytes, Purpose.WRITE, sealing)
        spec = table.governed.spec
        return WriteRewrapper(transport, table.record.table_uuid, spec.algorithm, spec.footer, peks)

    def _transport(self, table: LoadedTable, write_id: UUID) -> tuple[TransportKey | None, dict[str, object]]:
        if not table.governed.spec.encrypts:
            return None, {}
        peks = self._keyring.writing_peks(table.record, table.governed)
        pek = peks[table.governed.spec.key_ids()[0]]
        transport = TransportKey(write_id.bytes, Purpose.WRITE, SecretBytes(secrets.token_bytes(32)))
        return transport, {
            "pek_id": str(pek.ref.pek_id),
            "pek_version": pek.ref.version,
            "wrapped_transport_key": seal_transport_key(transport, pek),
        }

    def _row(self, caller: Caller, session: WriteSession) -> dict[str, object]:
        return {
            "id": session.id,
            "table_id": session.table.record.id,
            "principal": caller.principal.name,
            "prefix": session.prefix.canonical,
            "governed_version": session.table.governed.version,
            "state": WriteState.OPEN,
            "created_ms": self._now_ms(),
            "expires_ms": session.expires_ms,
        }

    def _find(self, caller: Caller, write_id: str) -> Row[tuple[object, ...]]:
        statement = select(lw_write).where(
            lw_write.c.id == write_id, lw_write.c.principal == caller.principal.name
        )
        with read(self._engine) as connection:
            row = connection.execute(statement).first()
        if row is None:
            refusal = RequestInvalid(
                "There is no such write of yours.",
                rule="write-id",
                hint="Begin a write, and commit under its id.",
            )
            denied = Decision.deny(Reason("write-id", f"{refusal.message} ({write_id[:_SHOWN_ID]})"))
            self._authorizer.record(caller, "table.write", "write", denied)
            raise refusal
        return row

    def _name(self, row: Row[tuple[object, ...]]) -> TableName:
        with read(self._engine) as connection:
            record = state.table_by_id(connection, row.table_id)
        if record is not None and record.pending_name is not None:
            self._loader.settle(record.name)
            with read(self._engine) as connection:
                record = state.table_by_id(connection, row.table_id)
        if record is None:
            raise RequestInvalid("The write's table is gone.", rule="write-id")
        return record.name

    def _moved(self, row: Row[tuple[object, ...]], before: WriteState, after: WriteState) -> bool:
        statement = update(lw_write).where(lw_write.c.id == row.id, lw_write.c.state == before)
        with write(self._engine) as connection:
            return connection.execute(statement.values(state=after)).rowcount == 1

    def _note(self, row: Row[tuple[object, ...]], before: WriteState, after: WriteState) -> None:
        """Record how an attempt ended; where that fails, the next commit or sweep finds it out."""
        try:
            self._moved(row, before, after)
        except (StateUnavailable, CommitStateUnknown) as problem:
            logger.warning("the end of a write could not be recorded: %s", type(problem).__name__)

    def _move(self, row: Row[tuple[object, ...]], before: WriteState, after: WriteState) -> None:
        if not self._moved(row, before, after):
            raise _not_open()

    def _require_release(self, caller: Caller, table: LoadedTable) -> None:
        """The process that asks makes and uses data keys: a trusted engine, or one with the right to."""
        if caller.engine is None and table.governed.spec.encrypts:
            requests = gates.key_requests(caller.principal, table.governed.spec.key_ids(), "release")
            self._authorizer.require(caller, "table.write", table.name, requests)

    def _require_update(self, caller: Caller, action: str, name: TableName) -> None:
        access_rules.require(self._authorizer, self._loader, caller, action, name, "update")


def _data_directory(table: LoadedTable) -> Location:
    given = table.metadata.properties.get("write.data.path")
    return Location.parse(given) if given else Location.parse(table.metadata.location).child("data")


def _require_allowed(table: LoadedTable, prefix: Location) -> None:
    decision = table.governed.allowed.decide(prefix)
    if not decision.allowed:
        raise LocationNotAllowed(
            "What would be written could not be read: the data directory is not in the allowed list.",
            table=table.name,
            path=prefix.canonical,
            rule=decision.reasons[0].rule,
            hint="Add the directory to read.allowed.data.paths, or change write.data.path.",
        )


def _pek_summary(table: LoadedTable) -> dict[str, str]:
    refs: tuple[PekRef, ...] = table.governed.regimes.current.peks
    return {PEK_ID: ",".join(str(ref.pek_id) for ref in refs)} if refs else {}


def _not_open() -> RequestInvalid:
    return RequestInvalid(
        "The write is not open any more: it was committed, aborted or swept, or is being committed.",
        rule="write-state",
        hint="Load the table and look for the write's snapshot; otherwise begin a new write.",
    )
