"""Garbage collection: deletes files below a table's location that nothing references.

Clients that were refused, killed or lost a race leave files there, and expired snapshots leave theirs. A file
is garbage if all of this holds:

- It is below the location that the catalog chose for this table, and no other table is located there or can
  be read from there. Files elsewhere can belong to other tables. A file that an expired snapshot lists can
  be below a location that a user chose, too.
- No retained snapshot, statistics file, metadata log, or current metadata references it. A snapshot that
  removed a file references it, except where the file is known from an expired snapshot.
- It is not below the directory of an open write. `Writes.clean_up` deletes those files.
- Storage says that it was modified at least `MIN_AGE` ago. No write takes that long: settings with longer
  write sessions are refused. A file that an expired snapshot lists can be younger.

Files are removed in batches, each under the lock of the table's commits, after all of this was decided again
for the metadata that is current then. A batch also counts up `TableRecord.cleanups`, before and after. A
commit that loaded the table before has checked its files before, so it gets a conflict and checks them again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from sqlalchemy import Connection

from catalog.authorization.authorizer import Caller
from catalog.base import crash_points
from catalog.base.errors import CommitConflict
from catalog.base.identifiers import TableName
from catalog.base.progress import Tell, silent
from catalog.context import ServiceContext
from catalog.db.engine import read, write
from catalog.reading.loading import LoadedTable
from catalog.rules.file_deletion import require_deletable
from catalog.settings.catalog import MIN_AGE_OF_GARBAGE_S
from catalog.state import claims, seals, table_state
from catalog.state.table_state import TableRecord, TableState
from catalog.storage.base import StoredObject
from catalog.writes import sessions
from catalog.writes.filters import require_every_row, require_paths
from policy.errors import RequestInvalid
from policy.location.location import Location

_ACTION: Final = "table.clean-up"
MIN_AGE: Final = timedelta(seconds=MIN_AGE_OF_GARBAGE_S)
#: Files that are removed in one batch, while commits wait.
_BATCH: Final = 50
#: How often a batch is decided again because of other commits.
_ATTEMPTS: Final = 10


@dataclass(frozen=True, slots=True)
class _Rule:
    """When files are garbage.

    Attributes:
        kept: lists the directories of a table's writes whose files are kept.
        removed: whether files are kept that a retained snapshot lists as removed.
        shared: returns whether files below a table's location can belong to other tables.
    """

    kept: Callable[[Connection, str], list[Location]]
    removed: bool
    shared: Callable[[Connection, str, TableRecord, int], bool]


_UNKNOWN: Final = _Rule(sessions.unclosed, removed=True, shared=claims.is_shared)
_EXPIRED: Final = _Rule(sessions.open_directories, removed=False, shared=claims.meets_others)


@dataclass(frozen=True, slots=True)
class Scope:
    """A part of a table's garbage.

    Attributes:
        location: the directory; None for the table's location.
        older_than: the files were modified by then; None for `MIN_AGE` ago.
        after: paths behind this one; None for all.
        most: how many files at most; None for all.
    """

    location: Location | None = None
    older_than: datetime | None = None
    after: str | None = None
    most: int | None = None

    def page(self, files: Sequence[StoredObject]) -> tuple[StoredObject, ...]:
        """Return the files of this page.

        Args:
            files: all of them, by path.
        """
        behind = [each for each in files if self.after is None or each.location.canonical > self.after]
        return tuple(behind[: self.most])


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
        self,
        caller: Caller,
        name: TableName,
        *,
        remove: bool = False,
        scope: Scope | None = None,
        progress: Tell = silent,
    ) -> Garbage:
        """List a table's garbage, and remove it if requested.

        Args:
            caller: who asks.
            name: the table.
            remove: whether to remove it.
            scope: a part of it; None for all.
            progress: is told what is being done, how far, and of how much.

        Raises:
            NotAuthorized: ALTER and DROP on the table are needed, and SELECT, unmasked, on the columns that
                it is or was partitioned by: paths have their values. No row filter of a policy applies.
            NoSuchTable, MetadataUnsealed, MetadataTampered: it is not known what the table names.
            RequestInvalid: the location is not the table's alone, or `gc.enabled` is false.
            CommitConflict: a commit is under way; what was not removed stays.
            LocationInvalid: a file has a name that no reader is handed.
            StorageUnavailable: storage does not answer; a part can be removed.
        """
        scope = scope or Scope()
        self._context.require(caller, _ACTION, name)
        with self._context.authorizer.recorded(caller, _ACTION, str(name)):
            table = self._context.loader.load_sealed(name)
            require_every_row(self._context, table, caller, _ACTION)
            require_paths(self._context, table, caller, _ACTION)
            if remove:
                require_deletable(table.metadata, table.name)
            with read(self._context.engine) as connection:
                self._require_alone(connection, table.record, _UNKNOWN)
                kept = sessions.unclosed(connection, table.record.id)
            files = self._found(table, kept, scope, progress)
            crash_points.point("clean-up:listed")
            locations = [each.location for each in files]
            removed = self._remove_all(table, locations, _UNKNOWN, progress) if remove else []
            return Garbage(files, len(removed))

    def remove_unnamed(self, table: LoadedTable, files: Sequence[Location]) -> list[Location]:
        """Remove those of the files that are below the table's own location and that nothing references.

        Args:
            table: the table. The caller is authorized.
            files: files that expired snapshots list; they can be of any age.

        Returns:
            the removed files.

        Raises:
            as `collect`.
        """
        own = [each for each in files if table.record.location.contains(each)]
        return self._remove_all(table, own, _EXPIRED, silent)

    def _found(
        self, table: LoadedTable, kept: list[Location], scope: Scope, tell: Tell
    ) -> tuple[StoredObject, ...]:
        named, latest = self.named(table, removed=True), self._latest(table, scope)
        start = table.record.location if scope.location is None else scope.location
        if not table.record.location.contains(start):
            raise RequestInvalid(
                f"The location {start.canonical} is not below the table's own location.",
                table=table.name,
                rule="shared-location",
                hint="Leave the location out, or give a directory of this table.",
            )
        found = []
        for number, each in enumerate(self._context.storage.list_prefix(start), 1):
            if number % 1000 == 0:
                tell("Files checked", number, None)
            if each.modified <= latest and _is_garbage(each.location, named, kept):
                found.append(each)
        return scope.page(sorted(found, key=lambda each: each.location.canonical))

    def _latest(self, table: LoadedTable, scope: Scope) -> datetime:
        """Return the latest time at which garbage can have been modified.

        Raises:
            RequestInvalid: an open write could have files that are older than the requested time.
        """
        latest = datetime.fromtimestamp(self._context.now_ms() / 1000, UTC) - MIN_AGE
        if scope.older_than is None:
            return latest
        if scope.older_than > latest:
            raise RequestInvalid(
                f"Only files that are {MIN_AGE.days} days old are removed. Younger ones can be in use.",
                table=table.name,
                rule="older-than",
                hint=f"Give a time before {latest.isoformat(timespec='seconds')}, or none.",
            )
        return scope.older_than

    def _remove_all(
        self, table: LoadedTable, files: Sequence[Location], rule: _Rule, tell: Tell
    ) -> list[Location]:
        removed: list[Location] = []
        named = self.named(table, removed=rule.removed) if files else frozenset[str]()
        for at in range(0, len(files), _BATCH):
            table, named, gone = self._remove(table, named, files[at : at + _BATCH], rule)
            removed += gone
            tell("Files removed", len(removed), len(files))
        return removed

    def _remove(
        self, table: LoadedTable, named: frozenset[str], batch: Sequence[Location], rule: _Rule
    ) -> tuple[LoadedTable, frozenset[str], list[Location]]:
        """Remove what is still garbage; return the table then, its references, and what was removed."""
        with write(self._context.engine) as connection:
            # Counted even if this process dies among the files.
            table_state.count_cleanup(connection, table.record.id)
        for _ in range(_ATTEMPTS):
            require_deletable(table.metadata, table.name)
            with write(self._context.engine) as connection:
                if self._stands(connection, table, rule):
                    kept = rule.kept(connection, table.record.id)
                    gone = [each for each in batch if _is_garbage(each, named, kept)]
                    table_state.count_cleanup(connection, table.record.id)
                    crash_points.point("clean-up:locked")
                    for location in gone:
                        self._context.storage.delete(location)
                    return table, named, gone
            crash_points.point("clean-up:overtaken")
            table = self._loaded_again(table)
            named = self.named(table, removed=rule.removed)
        raise _under_way(table)

    def _stands(self, connection: Connection, table: LoadedTable, rule: _Rule) -> bool:
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
        self._require_alone(connection, now, rule)
        return True

    def _loaded_again(self, table: LoadedTable) -> LoadedTable:
        """Load the table after a concurrent commit, never another table with its name."""
        now = self._context.loader.load_sealed(table.record.name)
        if (now.record.id, now.record.location) != (table.record.id, table.record.location):
            raise _under_way(table)
        return now

    def named(self, table: LoadedTable, *, removed: bool) -> frozenset[str]:
        """Return every file that the table references, in canonical form; see `Inspector.all_paths`."""
        log = [each.metadata_file for each in table.metadata.metadata_log]
        paths = {*self._context.inspector.all_paths(table, removed=removed), *log, table.metadata_location}
        return frozenset(Location.parse(each).canonical for each in paths)

    def _require_alone(self, connection: Connection, record: TableRecord, rule: _Rule) -> None:
        """Refuse a location below which other tables can have files.

        Raises:
            RequestInvalid: they can.
        """
        if rule.shared(connection, self._context.catalog, record, self._context.now_ms()):
            raise RequestInvalid(
                f"Files below {record.location.canonical} can belong to other tables, so none was removed.",
                table=str(record.name),
                rule="shared-location",
                hint="Only the default location of a table is cleaned up, and only while no other table lies "
                "there or has it in its allowed locations. Remove files elsewhere by hand.",
            )


def _is_garbage(location: Location, named: frozenset[str], kept: Iterable[Location]) -> bool:
    return location.canonical not in named and not any(each.contains(location) for each in kept)


def _under_way(table: LoadedTable) -> CommitConflict:
    return CommitConflict(
        f"Commits to {table.name} are in progress.",
        table=table.name,
        rule="clean-up",
        hint="Run the clean-up again. If the error stays, a commit was interrupted; any later "
        "commit resolves it.",
    )
