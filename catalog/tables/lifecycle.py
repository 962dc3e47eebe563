"""Renames, drops and purges tables.

- A dropped table leaves a tombstone: its name is free, its UUID and its location are not.
- A purge deletes the table's keys and files at once. Without the keys, all copies of the files are
  unreadable. The keys are deleted in the transaction that frees the name, so that the table cannot be
  registered again with keys that are about to be deleted. After an interruption, the next clean-up continues.
- The intention to free or assign a name is recorded first. The pointer and the name's binding then change in
  one transaction, and only while the intention stands: an operation that another one overtakes has no effect.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection

from catalog.authorization.authorizer import Caller
from catalog.authorization.columns import every_name, refuse_masks, selects
from catalog.authorization.restrictions import require_fitting_name
from catalog.base import crash_points
from catalog.base.errors import CommitConflict, NoSuchNamespace, TableExists
from catalog.base.identifiers import TableName
from catalog.context import ServiceContext
from catalog.db.engine import read, write
from catalog.reading import loading
from catalog.reading.loading import LoadedTable
from catalog.rules.file_deletion import require_deletable
from catalog.state import claims, seals, table_state
from catalog.state.pointers import Bind
from catalog.state.table_state import TableRecord, TableState
from policy.location.location import Location
from policy.privileges.operations import renaming, required

#: A drop that takes longer than this was interrupted.
_CUT_SHORT_MS: Final = 3600 * 1000
#: How often a drop or a rename loads the pointer again because of concurrent commits.
_ATTEMPTS: Final = 20


class Lifecycle:
    """Renames, drops and purges tables.

    Args:
        context: the parts that services share.
    """

    def __init__(self, context: ServiceContext) -> None:
        self._context = context

    def rename(self, caller: Caller, source: TableName, target: TableName) -> None:
        """Rename a table. Its UUID, location, governed state and keys stay.

        Raises:
            NotAuthorized: ALTER on the source and CREATE on the target are needed; unmasked SELECT on every
                column of the source, since policies go by names; and `unprotect` on it, where the new name
                takes it out of the reach of an encryption rule, or of a namespace that forbids unsealed
                metadata or, for an encrypted table, standard clients.
            EncryptionPolicyViolation: under the other name the table would break a rule that it does not
                break now.
            RequestInvalid: the new name takes it out of a row filter, mask or denial of a policy.
            NoSuchTable, TableExists, NoSuchNamespace: as it says.
            CommitConflict: other requests renamed or dropped the table meanwhile, or commit all the time.
        """
        first = table = self._renamed(caller, source, target)
        for _ in range(_ATTEMPTS):
            if self._moved(table, source, target):
                return
            # A commit came first. What was checked of the table is checked again.
            table = self._renamed(caller, source, target)
            if table.record.id != first.record.id:
                break
        raise table_state.changed_meanwhile(source)

    def _moved(self, table: LoadedTable, source: TableName, target: TableName) -> bool:
        """Rename a table that is as it was loaded; return False if its pointer has moved."""
        record = table.record
        self._context.loader.settle(target)
        with write(self._context.engine) as connection:
            table_state.require_unbound(connection, self._context.catalog, target)
            table_state.intend_rename(connection, record, target)
        crash_points.point("rename:intended")

        def bind(connection: Connection) -> None:
            now = table_state.locked(connection, record)
            if now.state is not TableState.ACTIVE or (now.name, now.pending_name) != (source, target):
                raise table_state.changed_meanwhile(source)
            table_state.rebind(connection, self._context.catalog, now, target)

        try:
            moved = self._context.pointers.rename(source, target, table.metadata_location, bind)
        except (TableExists, NoSuchNamespace, CommitConflict):
            self._take_back_rename(record, target)
            raise
        if not moved:
            self._take_back_rename(record, target)
            return False
        crash_points.point("rename:bound")
        return True

    def _take_back_rename(self, record: TableRecord, target: TableName) -> None:
        with write(self._context.engine) as connection:
            table_state.take_back_rename(connection, record, target)

    def _renamed(self, caller: Caller, source: TableName, target: TableName) -> LoadedTable:
        """Load the table, and check that the caller can rename it; a refusal is recorded."""
        both = f"{source} -> {target}"
        with self._context.authorizer.recorded(caller, "table.rename", both):
            return self._renamable(caller, source, target, both)

    def _renamable(self, caller: Caller, source: TableName, target: TableName, both: str) -> LoadedTable:
        on = self._context.on(caller, source)
        requests = renaming(on, target)
        if not self._context.authorizer.decide(requests).allowed:
            self._context.authorizer.require(caller, "table.rename", both, requests)
        table = self._context.loader.load_sealed(source)
        verdict = self._context.encryption.of_name(table, target)
        if verdict.downgrades or self._context.loader.exposes(source, target, table.governed.spec):
            requests += required("table.unprotect", on)
        columns = every_name(table)
        requests += selects(self._context.authorizer, caller, table, columns)
        self._context.authorizer.require(caller, "table.rename", both, requests)
        refuse_masks(self._context.authorizer, caller, table, columns, action="table.rename")
        verdict.enforce(str(source))
        require_fitting_name(self._context.authorizer.policies(), table, target)
        return table

    def drop(self, caller: Caller, name: TableName) -> None:
        """Drop a table in any state. Its files stay.

        Raises:
            NotAuthorized: DROP on the table is needed.
            NoSuchTable: there is no such governed table.
        """
        self._context.require(caller, "table.drop", name)
        self._bury(self._context.loader.record(name), purge=False)

    def drop_at(self, table: LoadedTable) -> None:
        """Drop a table whose caller was authorized, if its current metadata is what was loaded.

        Raises:
            CommitConflict: another commit came first, or another request dropped it; it was not dropped.
        """
        self._bury(table.record, purge=False, pointer=table.metadata_location)

    def purge(self, caller: Caller, name: TableName) -> int:
        """Drop a table, destroy its keys, and delete the files that its sealed metadata names inside of its
        own location.

        Returns:
            how many files were left because they lie elsewhere.

        Raises:
            RequestInvalid: the table sets `gc.enabled=false`.
            as `drop`; MetadataTampered or MetadataUnsealed, where it is not known which files are the
            table's.
        """
        self._context.require(caller, "table.purge", name)
        with self._context.authorizer.recorded(caller, "table.purge", str(name)):
            table = self._context.loader.load_sealed(name)
            require_deletable(table.metadata, table.name)
            own, foreign = self._files(table)
        self._bury(table.record, purge=True)
        for location in own:
            self._context.storage.delete(location)
        crash_points.point("purge:files-deleted")
        if self._is_alone(table.record):
            self._context.storage.delete_prefix(table.record.location)
        crash_points.point("purge:directory-deleted")
        # Without this the tombstone goes on reserving the location, which is safe.
        with loading.left_to_the_next_load("a purge"), write(self._context.engine) as connection:
            loading.bury(connection, table.record)
            table_state.set_table_state(connection, table.record.id, TableState.PURGED)
        crash_points.point("purge:recorded")
        return foreign

    def clean_up(self) -> int:
        """Complete interrupted purges; return the number of tables whose files were deleted.

        The intention of a drop that was cut short is taken back. Files of a purged table are deleted
        where the catalog chose the place and nothing else is there.
        """
        with read(self._context.engine) as connection:
            left = table_state.dropping_before(
                connection, self._context.catalog, self._context.now_ms() - _CUT_SHORT_MS
            )
        return sum(self._finish(record) for record in left)

    def _finish(self, record: TableRecord) -> bool:
        with write(self._context.engine) as connection:
            seals.lock_table(connection, record.id)
            table_state.take_back_drop(connection, record)
            now = table_state.table_by_id(connection, record.id)
        if now is None or now.state is not TableState.DROPPED or not now.purging or not self._is_alone(now):
            return False
        self._context.storage.delete_prefix(now.location)
        with write(self._context.engine) as connection:
            table_state.set_table_state(connection, now.id, TableState.PURGED)
        return True

    def _is_alone(self, record: TableRecord) -> bool:
        """Return whether all files below a table's location are its own."""
        with read(self._context.engine) as connection:
            return not claims.is_shared(connection, self._context.catalog, record, self._context.now_ms())

    def _bury(self, record: TableRecord, *, purge: bool, pointer: str | None = None) -> None:
        with write(self._context.engine) as connection:
            table_state.intend_drop(connection, record, self._context.now_ms(), purge=purge)
        crash_points.point("drop:intended")

        def bury(connection: Connection) -> None:
            now = table_state.locked(connection, record)
            intended = now.state is TableState.ACTIVE and now.dropping and now.purging is purge
            if not intended or now.name != record.name:
                raise _overtaken(record)
            loading.bury(connection, now)

        try:
            if not self._unpointed(record.name, pointer, bury):
                raise _overtaken(record)
        except CommitConflict:
            with write(self._context.engine) as connection:
                table_state.take_back_drop(connection, record)
            raise
        crash_points.point("drop:buried")

    def _unpointed(self, name: TableName, expected: str | None, bury: Bind) -> bool:
        """Remove the table's pointer and bury the table; return False if the pointer moves all the time.

        Args:
            name: the table.
            expected: what the pointer must be; None for whatever it is.
            bury: buries the table, and raises if the name is another table's now.
        """
        for _ in range(_ATTEMPTS):
            pointer = self._context.pointers.load(name)
            if expected is not None and pointer != expected:
                return False
            if pointer is None:
                with write(self._context.engine) as connection:
                    bury(connection)
                return True
            if self._context.pointers.delete(name, pointer, bury):
                return True
        return False

    def _files(self, table: LoadedTable) -> tuple[set[Location], int]:
        """Return the table's files inside of its location, and the number of its files elsewhere."""
        named = self._context.inspector.all_paths(table) | {table.metadata_location}
        named |= {entry.metadata_file for entry in table.metadata.metadata_log}
        locations = {Location.parse(path) for path in named}
        others = [other.location for other in self._neighbours(table.record)]
        own = {
            location
            for location in locations
            if table.record.location.contains(location)
            and not any(each.contains(location) for each in others)
        }
        return own, len(locations) - len(own)

    def _neighbours(self, record: TableRecord) -> list[TableRecord]:
        with read(self._context.engine) as connection:
            return claims.overlapping(
                connection, self._context.catalog, record.location, record.id, self._context.now_ms()
            )


def _overtaken(record: TableRecord) -> CommitConflict:
    return CommitConflict(
        "Other requests changed the table while it was being dropped. It was not dropped.",
        table=str(record.name),
        hint="Load the table, and drop it again.",
    )
