"""Garbage collection: deletes files below a table's location that nothing references.

Clients that were refused, killed or lost a race leave files there, and expired snapshots leave theirs. A file
is garbage if all of this holds:

- It is below the location that the catalog chose for this table, and no other table is located there or can
  be read from there. Files elsewhere can belong to other tables.
- No retained snapshot, statistics file, metadata log, or current metadata references it.
- It is not below the directory of an open write. `Writes.clean_up` deletes those files.
- Storage says that it was modified at least `MIN_AGE` ago. No write takes that long: settings with longer
  write sessions are refused.

Files are removed in batches, each under the lock of the table's commits, after all of this was decided again
for the metadata that is current then. A batch also counts up `TableRecord.cleanups`, before and after. A
commit that loaded the table before has checked its files before, so it gets a conflict and checks them again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from sqlalchemy import Connection

from catalog.authorization.authorizer import Caller
from catalog.base import crash_points
from catalog.base.errors import CommitConflict
from catalog.base.identifiers import TableName
from catalog.context import ServiceContext
from catalog.db.engine import read, write
from catalog.reading.loading import LoadedTable
from catalog.settings.catalog import MIN_AGE_OF_GARBAGE_S
from catalog.state import claims, seals, table_state
from catalog.state.table_state import TableRecord, TableState
from catalog.storage.base import StoredObject
from catalog.writes import sessions
from policy.errors import RequestInvalid
from policy.location.location import Location

_ACTION: Final = "table.clean-up"
MIN_AGE: Final = timedelta(seconds=MIN_AGE_OF_GARBAGE_S)
#: Files that are removed in one batch, while commits wait.
_BATCH: Final = 50
#: How often a batch is decided again because of other commits.
_ATTEMPTS: Final = 10

Progress = Callable[[str, int, int | None], None]


@dataclass(frozen=True, slots=True)
class Garbage:
    """The result of a garbage collection.

    Attributes:
        files: that are garbage, by path.
        removed: how many of them were removed. The others are named by now, or it was a dry run.
    """

    files: tuple[StoredObject, ...]
    removed: int

    @property
    def bytes(self) -> int:
        """Return the total size of the files."""
        return sum(each.size for each in self.files)


class GarbageCollector:
    """Lists and removes garbage.

    Args:
        context: the parts that services share.
    """

    def __init__(self, context: ServiceContext) -> None:
        self._context = context

    def collect(
        self, caller: Caller, name: TableName, *, remove: bool = False, progress: Progress | None = None
    ) -> Garbage:
        """List a table's garbage, and remove it if requested.

        Args:
            caller: who asks.
            name: the table.
            remove: whether to remove it.
            progress: is told what is being done, how far, and of how much.

        Raises:
            NotAuthorized: ALTER and DROP on the table are needed.
            NoSuchTable, MetadataUnsealed, MetadataTampered: it is not known what the table names.
            RequestInvalid: the location is not the table's alone.
            CommitConflict: a commit is under way; what was not removed stays.
            LocationInvalid: a file has a name that no reader is handed.
            StorageUnavailable: storage does not answer; a part can be removed.
        """
        tell = progress or _silent
        self._context.require(caller, _ACTION, name)
        with self._context.authorizer.recorded(caller, _ACTION, str(name)):
            table = self._context.loader.load_sealed(name)
            with read(self._context.engine) as connection:
                self._require_alone(connection, table.record)
                kept = sessions.unclosed(connection, table.record.id)
            files = self._found(table, kept, tell)
            crash_points.point("clean-up:listed")
            return Garbage(files, self._remove_all(table, files, tell) if remove else 0)

    def _found(self, table: LoadedTable, kept: list[Location], tell: Progress) -> tuple[StoredObject, ...]:
        named = self._named(table)
        latest = datetime.fromtimestamp(self._context.now_ms() / 1000, UTC) - MIN_AGE
        found = []
        for number, each in enumerate(self._context.storage.list_prefix(table.record.location), 1):
            if number % 1000 == 0:
                tell("Files checked", number, None)
            if each.modified <= latest and _is_garbage(each.location, named, kept):
                found.append(each)
        return tuple(sorted(found, key=lambda each: each.location.canonical))

    def _remove_all(self, table: LoadedTable, files: tuple[StoredObject, ...], tell: Progress) -> int:
        removed, named = 0, self._named(table)
        for at in range(0, len(files), _BATCH):
            batch = [each.location for each in files[at : at + _BATCH]]
            table, named, gone = self._remove(table, named, batch)
            removed += gone
            tell("Files removed", removed, len(files))
        return removed

    def _remove(
        self, table: LoadedTable, named: frozenset[str], batch: list[Location]
    ) -> tuple[LoadedTable, frozenset[str], int]:
        """Remove what is still garbage; return the table then, its references, and the number removed."""
        with write(self._context.engine) as connection:
            # Counted even if this process dies among the files.
            table_state.count_cleanup(connection, table.record.id)
        for _ in range(_ATTEMPTS):
            with write(self._context.engine) as connection:
                if self._stands(connection, table):
                    kept = sessions.unclosed(connection, table.record.id)
                    gone = [each for each in batch if _is_garbage(each, named, kept)]
                    table_state.count_cleanup(connection, table.record.id)
                    crash_points.point("clean-up:locked")
                    for location in gone:
                        self._context.storage.delete(location)
                    return table, named, len(gone)
            crash_points.point("clean-up:overtaken")
            table = self._loaded_again(table)
            named = self._named(table)
        raise _under_way(table)

    def _stands(self, connection: Connection, table: LoadedTable) -> bool:
        """Take the lock of the table's commits; return False if a commit came since the table was loaded.

        Raises:
            CommitConflict: one is being published, or the table was dropped.
            RequestInvalid: the location is not the table's alone any more.
        """
        seals.lock_table(connection, table.record.id)
        current = seals.current(connection, table.record.id)
        if current is None or current.metadata_location != table.metadata_location:
            return False
        now = table_state.table_by_id(connection, table.record.id)
        if now is None or now.state is not TableState.ACTIVE or seals.is_being_followed(connection, current):
            raise _under_way(table)
        # Until the batch is removed, no other table comes to lie or to be read from there.
        claims.lock_locations(connection)
        self._require_alone(connection, now)
        return True

    def _loaded_again(self, table: LoadedTable) -> LoadedTable:
        """Load the table after a concurrent commit, never another table with its name."""
        now = self._context.loader.load_sealed(table.record.name)
        if (now.record.id, now.record.location) != (table.record.id, table.record.location):
            raise _under_way(table)
        return now

    def _named(self, table: LoadedTable) -> frozenset[str]:
        """Return every file that the table references, in canonical form."""
        log = [each.metadata_file for each in table.metadata.metadata_log]
        paths = {*self._context.inspector.all_paths(table), *log, table.metadata_location}
        return frozenset(Location.parse(each).canonical for each in paths)

    def _require_alone(self, connection: Connection, record: TableRecord) -> None:
        """Refuse a location below which other tables can have files.

        Raises:
            RequestInvalid: the catalog did not choose it, or another table lies or can be read from there.
        """
        if claims.is_shared(connection, self._context.catalog, record, self._context.now_ms()):
            raise RequestInvalid(
                f"Files below {record.location.canonical} can belong to other tables, so none was removed.",
                table=str(record.name),
                rule="shared-location",
                hint="Only the default location of a table is cleaned up, and only while no other table lies "
                "there or has it in its allowed locations. Remove files elsewhere by hand.",
            )


def _is_garbage(location: Location, named: frozenset[str], kept: Iterable[Location]) -> bool:
    return location.canonical not in named and not any(each.contains(location) for each in kept)


def _silent(what: str, done: int, total: int | None) -> None:
    """Ignore progress."""


def _under_way(table: LoadedTable) -> CommitConflict:
    return CommitConflict(
        f"Commits to {table.name} are in progress.",
        table=table.name,
        rule="clean-up",
        hint="Run the clean-up again. If the error stays, a commit was interrupted; any later "
        "commit resolves it.",
    )
