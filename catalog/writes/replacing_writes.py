"""Writes that replace their table: `REPLACE TABLE`, with and without `AS SELECT`, as one commit.

At the beginning, the table's next metadata and governed version are made, authorized and recorded in states
that no user sees. The commit builds the first snapshot on that metadata, authorizes the whole change again,
and publishes it on top of the table that it began with. A reader sees the old table or the new one.

- The table stays the same: UUID, internal id, snapshots, keys and epochs. Files of earlier snapshots are read
  as their epochs say.
- Governed properties stay unless the request sets them. What protects less needs `unprotect`, as in ALTER.
- Any commit since the beginning conflicts: the statement replaces what its user saw.

An abandoned write leaves a governed version that is never in force, and keys that the next epoch can use.
"""

from __future__ import annotations

from pyiceberg.table.metadata import TableMetadata

from catalog.authorization import key_groups
from catalog.authorization.authorizer import Caller
from catalog.base import crash_points
from catalog.base.errors import CommitConflict, ConcurrentModification
from catalog.base.identifiers import TableName
from catalog.commits.conflicts import made_anew
from catalog.commits.governing import Governing
from catalog.commits.judgement import Judge, Judged
from catalog.commits.publish import Publication, Publisher
from catalog.commits.snapshot_producer import MadeSnapshot
from catalog.context import ServiceContext
from catalog.db.engine import read, write
from catalog.envelope.peks import PekRecord, PekState
from catalog.iceberg.metadata import dump_metadata, metadata_directory, parse_metadata
from catalog.reading.loading import LoadedTable
from catalog.rules import governance
from catalog.rules import table_changes as change_rules
from catalog.rules.governance import Requested
from catalog.rules.openable import check_commit
from catalog.snapshot_checks.inspection import Origin
from catalog.state import pek_records as key_records
from catalog.state import seals, table_state
from catalog.state.open_writes import publishing
from catalog.tables.drafts import NewTable
from catalog.tables.replacements import replacing_updates
from catalog.writes.first_commit import first_snapshot
from catalog.writes.new_files import FileCommit
from catalog.writes.sessions import WriteLog, WriteRow, WriteSession
from catalog.writes.table_writes import Granted, name_of, new_session, of_write, require_allowed
from policy.encryption.file_formats import FileFormat, written_format
from policy.errors import CommitStateUnknown, LakewardenError, RequestInvalid
from policy.location.location import Location
from policy.privileges.tables import WRITE_PATHS

_OPERATIONS = frozenset({"table.alter", "table.write"})


class ReplacingWrites:
    """Begins and publishes writes that replace their table.

    Args:
        context: the parts that services share.
        log: stores the writes.
    """

    def __init__(self, context: ServiceContext, log: WriteLog) -> None:
        self._context = context
        self._log = log
        self._judge = Judge(context)
        self._governing = Governing(context)
        self._publisher = Publisher(context)

    def begin(self, caller: Caller, new: NewTable) -> WriteSession:
        """See `Writes.begin_replacing`."""
        self._context.require(caller, "table.replace", new.name)
        with self._context.authorizer.recorded(caller, "table.replace", str(new.name)):
            return made_anew(
                lambda: self._context.loader.load_sealed(new.name),
                lambda table: self._begun(caller, table, new),
            )

    def _begun(self, caller: Caller, table: LoadedTable, new: NewTable) -> WriteSession:
        in_force = table.governed.to_properties()
        changes = change_rules.part(replacing_updates(table.metadata, new), in_force, table.name)
        metadata = change_rules.apply(table.metadata, changes.updates, table.metadata_location, table.name)
        check_commit(table.metadata, metadata, self._context.now_ms(), table.name)
        asked = governance.for_change(
            table.governed,
            changes,
            table.record.location,
            self._context.master_key_id,
            table.name,
            written_format(metadata.properties) or FileFormat.AVRO,
        )
        wanted = governance.for_replacement(
            table.governed,
            asked,
            table.metadata.schema(),
            metadata.schema(),
            table.name,
            said=changes.governed_said,
        )
        self._require(caller, table, metadata, wanted)
        releases = caller.releases(wanted.spec.key_ids())
        if releases:
            self._context.authorizer.require(caller, "table.replace", table.name, releases)
        begins = governance.begins_epoch(table.governed, wanted.spec, metadata.schema())
        governed, made = self._governing.next(table, wanted, metadata, begins=begins)
        after = LoadedTable(table.record, governed, metadata, table.metadata_location, table.seal)
        self._governing.refuse_breaking(table, after)
        session = self._recorded(caller, after, made)
        crash_points.point("replace:begun")
        return session

    def _recorded(self, caller: Caller, after: LoadedTable, made: tuple[PekRecord, ...]) -> WriteSession:
        """Record the write, and the governed version that its commit puts in force, in one transaction."""
        session, sealed = new_session(self._log, self._context.keyring, after, made)
        require_allowed(after, metadata_directory(after.metadata))
        author, now_ms = caller.principal.name, self._log.now_ms()
        staged = dump_metadata(after.metadata).decode("utf-8")
        with write(self._context.engine) as connection:
            seals.lock_table(connection, after.record.id)
            table_state.add_governed(connection, after.record.id, after.governed, author, now_ms)
            key_records.add(connection, self._context.catalog, made, now_ms)
            if sealed is not None:
                in_force = after.governed.epochs.current.peks
                key_records.require(connection, in_force, PekState.ACTIVE, PekState.DECRYPT_ONLY)
            self._log.add(connection, author, session, sealed, staged, after.metadata_location)
        return session

    def name(self, row: WriteRow) -> TableName:
        """Return the current name of the write's table."""
        return name_of(self._context.engine, row)

    def authorize(self, caller: Caller, row: WriteRow) -> Granted:
        """Authorize the caller to replace the table; the commit decides the rest of what it requires.

        Raises:
            NotAuthorized: ALTER and UPDATE on the table are needed.
            RequestInvalid: the table is gone.
        """
        name = self.name(row)
        self._context.require(caller, "table.replace", name)
        return Granted(name)

    def found(self, row: WriteRow, granted: Granted) -> LoadedTable:
        """Load the table of a published write."""
        return of_write(self._context.loader.load_sealed(granted.name), row)

    def is_published(self, row: WriteRow) -> bool:
        """Return whether the governed version of the write is or was in force."""
        self._context.loader.settle(self.name(row))
        with read(self._context.engine) as connection:
            return seals.was_governed(connection, row.table_id, row.governed_version)

    def publish(self, caller: Caller, row: WriteRow, files: FileCommit, granted: Granted) -> LoadedTable:
        """Replace the table, with its first snapshot if the commit has rows."""
        table = of_write(self._context.loader.load_sealed(granted.name), row)
        if self.is_published(row):
            return table
        if table.metadata_location != row.base_location:
            raise _changed(table)
        after = self._after(table, row)
        built = first_snapshot(self._context, after, row, files, caller)
        crash_points.point("replace:built")
        try:
            with publishing(row.id, None if built is None else built.snapshot.snapshot_id):
                return self._replace(caller, table, after, built)
        except CommitStateUnknown:
            raise
        except LakewardenError as refusal:
            if built is not None:
                built.discard(self._context.storage)
            if not isinstance(refusal, CommitConflict):
                raise
            if self.is_published(row):
                return self.found(row, granted)  # A parallel attempt published it.
            raise _changed(table) from refusal

    def forget(self, row: WriteRow) -> tuple[Location, ...] | None:
        """Abandon the governed version; return the directory to delete, or None if the table was replaced."""
        if self.is_published(row):
            return None
        with write(self._context.engine) as connection:
            seals.lock_table(connection, row.table_id)
            table_state.abandon_governed(connection, row.table_id, row.governed_version)
        crash_points.point("clear:forgotten")
        return (row.prefix,)

    def _replace(
        self, caller: Caller, table: LoadedTable, after: LoadedTable, built: MadeSnapshot | None
    ) -> LoadedTable:
        metadata = after.metadata
        if built is not None:
            metadata = change_rules.apply(metadata, built.updates, None, table.name)
        check_commit(table.metadata, metadata, self._context.now_ms(), table.name)
        spec, allowed = after.governed.spec, after.governed.allowed
        wanted = governance.replaced(
            table.governed, allowed, spec, table.metadata.schema(), metadata.schema()
        )
        judged = self._require(caller, table, metadata, wanted)
        self._governing.refuse_breaking(table, after)
        written = {} if built is None else built.written
        files = self._context.inspector.commit(after, metadata, Origin.WRITE, written)
        published = self._publisher.publish(
            Publication(
                record=table.record,
                base=table,
                metadata=metadata,
                governed=after.governed,
                governs=True,
                staged=True,
                files=files,
                peks=(),
                author=caller.principal.name,
                relies=self._governing.relies(table, after.governed),
                overlaps=judged.overlaps,
            )
        )
        if after.governed.epochs.current != table.governed.epochs.current:
            key_groups.report(self._context.authorizer, caller, "table.replace", published)
        return published

    def _require(
        self, caller: Caller, table: LoadedTable, metadata: TableMetadata, wanted: Requested
    ) -> Judged:
        """Authorize the whole change, and check it by the rules of encryption."""
        moved = _moved(table.metadata, metadata)
        judged = self._judge.require(caller, table, metadata, wanted, _OPERATIONS, moved)
        governance.check_schema(wanted.spec, metadata, table.name)
        judged.verdict.enforce(table.name)
        return judged

    def _after(self, table: LoadedTable, row: WriteRow) -> LoadedTable:
        """Load the table as it was recorded when the write began."""
        with read(self._context.engine) as connection:
            governed = table_state.governed_version(connection, row.table_id, row.governed_version)
        if governed is None or row.staged_metadata is None:
            raise RequestInvalid(
                f"The replacement of {table.name} that this write belongs to no longer exists.",
                table=table.name,
                rule="write-id",
                hint="Begin a new write.",
            )
        data = row.staged_metadata.encode("utf-8")
        metadata = parse_metadata(data, path=table.metadata_location, table=table.name)
        return LoadedTable(table.record, governed, metadata, table.metadata_location, table.seal)


def _moved(before: TableMetadata, after: TableMetadata) -> list[Location]:
    """Return the new locations of the table and of its files."""
    found = [after.location] if after.location != before.location else []
    found += [
        after.properties[name]
        for name in WRITE_PATHS
        if name in after.properties and after.properties[name] != before.properties.get(name)
    ]
    return [Location.parse(each) for each in found]


def _changed(table: LoadedTable) -> ConcurrentModification:
    return ConcurrentModification(
        "Another commit changed the table after the statement began to replace it.",
        table=table.name,
        rule="replaced-table",
        hint="Nothing was replaced. Check the table, and run the statement again.",
    )
