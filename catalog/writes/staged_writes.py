"""Writes that create their table: `CREATE TABLE … AS SELECT` as one step.

At the beginning, everything about the table is recorded in states that no user sees: its identity (prepared),
its governed version (prepared), its keys, and its metadata beside the write. The commit builds the first
snapshot on that metadata, and publishes it like every creation. The pointer makes the whole table visible.

An abandoned write leaves a tombstone of the identity, which claims neither name nor location, and no key.
Data that was written under the keys can never be read again.
"""

from __future__ import annotations

from typing import Final

from catalog.authorization import key_groups
from catalog.authorization.authorizer import Caller
from catalog.base import crash_points
from catalog.base.errors import CommitConflict, TableExists
from catalog.base.identifiers import TableName
from catalog.commits.publish import Publication, Publisher
from catalog.commits.snapshot_producer import MadeSnapshot
from catalog.context import ServiceContext
from catalog.db.engine import read, write
from catalog.envelope.peks import PekRecord
from catalog.iceberg.metadata import dump_metadata, metadata_directory, parse_metadata
from catalog.reading.loading import LoadedTable
from catalog.rules import governance
from catalog.rules import table_changes as change_rules
from catalog.rules.governance import Requested
from catalog.snapshot_checks.inspection import Origin
from catalog.state import claims, seals, table_state
from catalog.state import pek_records as key_records
from catalog.state.open_writes import publishing
from catalog.state.seals import Digest
from catalog.tables.drafts import Draft, Drafter, NewTable
from catalog.writes.first_commit import first_snapshot
from catalog.writes.new_files import FileCommit
from catalog.writes.sessions import WriteLog, WriteRow, WriteSession
from catalog.writes.table_writes import (
    Granted,
    name_of,
    new_session,
    of_write,
    require_allowed,
)
from policy.errors import CommitStateUnknown, LakewardenError, RequestInvalid
from policy.location.location import Location
from policy.privileges.tables import write_paths

_NOWHERE: Final = ""
_FIRST_VERSION: Final = 1


class StagedWrites:
    """Begins and publishes writes that create their table.

    Args:
        context: the parts that services share.
        log: stores the writes.
        drafter: drafts tables, and checks whether they can be created.
    """

    def __init__(self, context: ServiceContext, log: WriteLog, drafter: Drafter) -> None:
        self._context = context
        self._log = log
        self._drafter = drafter
        self._publisher = Publisher(context)

    def begin(self, caller: Caller, new: NewTable) -> WriteSession:
        """See `Writes.begin_staged`."""
        with self._context.authorizer.recorded(caller, "table.stage", str(new.name)):
            self._drafter.may_create(caller, "table.stage", new.name)
            draft = self._drafter.draft(caller, new)
            releases = caller.releases(draft.wanted.spec.key_ids())
            overlaps = self._drafter.authorize(caller, "table.stage", draft, releases)
            self._drafter.require_free(new.name)
            governance.check_schema(draft.wanted.spec, draft.metadata, str(new.name))
            self._drafter.check_rules(new.name, draft.metadata, draft.wanted.spec)
            refs, made = self._context.keyring.keys_for(draft.record, draft.wanted.spec)
            governed = governance.first_version(draft.wanted, draft.metadata, refs, _FIRST_VERSION)
            table = LoadedTable(draft.record, governed, draft.metadata, _NOWHERE, None)
            session = self._recorded(caller, table, made, overlaps)
            crash_points.point("stage:begun")
            return session

    def _recorded(
        self, caller: Caller, table: LoadedTable, made: tuple[PekRecord, ...], overlaps: frozenset[str]
    ) -> WriteSession:
        """Record the write and the table that it will create, in one transaction."""
        record = table.record
        session, sealed = new_session(self._log, self._context.keyring, table, made)
        require_allowed(table, metadata_directory(table.metadata))
        author, now_ms = caller.principal.name, self._log.now_ms()
        staged = dump_metadata(table.metadata).decode("utf-8")
        with write(self._context.engine) as connection:
            claims.require_unclaimed(connection, self._context.catalog, record, overlaps, now_ms)
            table_state.add_table(connection, self._context.catalog, record, now_ms)
            table_state.add_governed(connection, record.id, table.governed, author, now_ms)
            key_records.add(connection, self._context.catalog, made, now_ms)
            self._log.add(connection, author, session, sealed, staged)
        return session

    def name(self, row: WriteRow) -> TableName:
        """Return the name of the table that the write creates or has created."""
        return name_of(self._context.engine, row)

    def authorize(self, caller: Caller, row: WriteRow) -> Granted:
        """Authorize the caller to create the table now.

        Raises:
            NotAuthorized: the required privileges for the creation, all in one request.
        """
        table = self._table(row, self.name(row))
        allowed, spec = table.governed.allowed, table.governed.spec
        wanted = Requested(allowed, spec, allowed.entries, spec.key_ids(), unprotects=spec.opens_to_others)
        paths = tuple(write_paths(table.metadata.properties))
        draft = Draft(table.record, table.metadata, wanted, paths, {})
        overlaps = self._drafter.authorize(caller, "table.create", draft)
        return Granted(table.record.name, overlaps)

    def found(self, row: WriteRow, granted: Granted) -> LoadedTable:
        """Load the table that was created."""
        return of_write(self._context.loader.load_sealed(granted.name), row)

    def is_published(self, row: WriteRow) -> bool:
        """Return whether the table was created; it can have been dropped since then."""
        self._context.loader.settle(self.name(row))
        with read(self._context.engine) as connection:
            return seals.current(connection, row.table_id) is not None

    def publish(self, caller: Caller, row: WriteRow, files: FileCommit, granted: Granted) -> LoadedTable:
        """Create the table with its first snapshot."""
        if self.is_published(row):
            return self.found(row, granted)
        self._drafter.require_free(granted.name)
        table = self._table(row, granted.name)
        built = first_snapshot(self._context, table, row, files, caller)
        try:
            with publishing(row.id, None if built is None else built.snapshot.snapshot_id):
                return self._create(caller, table, built, granted)
        except CommitStateUnknown:
            raise
        except LakewardenError as refusal:
            if built is not None:
                built.discard(self._context.storage)
            if isinstance(refusal, CommitConflict | TableExists) and self.is_published(row):
                return self.found(row, granted)  # A parallel attempt published it.
            raise

    def forget(self, row: WriteRow) -> tuple[Location, ...] | None:
        """Delete the identity and the keys; return the directories to delete, or None if the table exists."""
        self._context.loader.settle(self.name(row))
        with write(self._context.engine) as connection:
            seals.lock_table(connection, row.table_id)
            if seals.current(connection, row.table_id) is not None:
                return None
            seals.abandon_creation(connection, row.table_id)
            table_state.forget_creation(connection, row.table_id)
            record = table_state.table_by_id(connection, row.table_id)
            assert record is not None
            others = claims.overlapping(
                connection, self._context.catalog, record.location, record.id, self._log.now_ms()
            )
        crash_points.point("clear:forgotten")
        return (row.prefix, record.location) if record.default_location and not others else (row.prefix,)

    def _create(
        self, caller: Caller, table: LoadedTable, built: MadeSnapshot | None, granted: Granted
    ) -> LoadedTable:
        metadata, written = table.metadata, dict[str, Digest]()
        if built is not None:
            metadata = change_rules.apply(metadata, built.updates, None, table.name)
            written.update(built.written)
        self._drafter.check_rules(granted.name, metadata, table.governed.spec)
        files = self._context.inspector.commit(table, metadata, Origin.WRITE, written)
        published = self._publisher.publish(
            Publication(
                record=table.record,
                base=None,
                metadata=metadata,
                governed=table.governed,
                governs=False,
                files=files,
                peks=(),
                author=caller.principal.name,
                overlaps=granted.overlaps,
            )
        )
        key_groups.report(self._context.authorizer, caller, "table.create", published)
        return published

    def _table(self, row: WriteRow, name: TableName) -> LoadedTable:
        """Load the table as it was recorded when its write began."""
        with read(self._context.engine) as connection:
            record = table_state.table_by_id(connection, row.table_id)
            governed = table_state.governed_version(connection, row.table_id, row.governed_version)
        if record is None or governed is None or row.staged_metadata is None:
            raise RequestInvalid(
                f"The creation of {name} that this write belongs to no longer exists.",
                table=str(name),
                rule="write-id",
                hint="Begin a new write.",
            )
        data = row.staged_metadata.encode("utf-8")
        metadata = parse_metadata(data, path=_NOWHERE, table=str(name))
        return LoadedTable(record, governed, metadata, _NOWHERE, None)
