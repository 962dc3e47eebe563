"""Decides which objects of the object store a caller's client can touch for a table.

Signed requests and vended credentials both build on this decision.

- The caller is judged as one who plans a scan: the client gets whole files (`StandardClients.restrictions`).
  So users under a row filter, mask or column denial get nothing, unless an administrator trusts their client,
  and encrypted tables go to standard clients by their own rule.
- A client can read what the retained snapshots name and the allowed locations contain: metadata.json,
  manifest lists, manifests, statistics files, data and delete files.
- Where the catalog has to plan (`read.scan-planning-mode`, else `planning.mode`), data and delete files can
  be read only if a plan named them that the same user made and that is still kept.
- Users with UPDATE write below the table's write locations: its own location, and those of its properties
  `write.*.path`, as far as the allowed locations contain them. Not in an unsealed table, and not with a
  client that would write plaintext into an encrypted table, and not where another table lies below.
- Users who can expire snapshots (ALTER, DROP and UPDATE) also read metadata files that no retained snapshot
  names any more, in the table's own write locations: clients delete expired files after the commit. Not once
  schemas were removed that alone name a column: policies on it would no longer be asked.
- No file is overwritten that a retained snapshot or the metadata log names. None is deleted that is part of
  a retained snapshot, and none where another table lies or can be read from.

Everything is decided for each request. Only the files that sealed metadata names are remembered.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from catalog.authorization.authorizer import Caller
from catalog.authorization.table_access import TableAccess
from catalog.base.cached import CachedProperty
from catalog.base.identifiers import TableName
from catalog.context import ServiceContext
from catalog.db.engine import read
from catalog.iceberg.metadata import names_every_field
from catalog.planning.standard import StandardPlanner
from catalog.reading.known_tables import KnownTables
from catalog.reading.loading import LoadedTable
from catalog.rules.file_deletion import is_deletable
from catalog.state import claims, seals
from catalog.storage_access.dropped import dropped_access
from catalog.storage_access.named_files import NamedFiles, NamedFilesReader
from catalog.storage_access.objects import (
    KEPT,
    NO_WRITES,
    SHARED,
    WRITTEN,
    ObjectAccess,
    any_lies_in,
    is_below,
)
from catalog.storage_access.staged import staged_access
from policy.decision import Decision, Reason
from policy.location.location import Location
from policy.privileges.operations import required
from policy.privileges.tables import write_paths
from policy.restrictions.model import Restriction

_NOT_NAMED: Final = Decision.deny(Reason("named-files", "No retained snapshot names the file."))
_NOT_PLANNED: Final = Decision.deny(
    Reason(
        "planned-files", "The catalog plans scans of the table, and no kept plan of the user names the file."
    )
)
_NAMED: Final = Decision.deny(Reason("retained-file", "The metadata or a retained snapshot names the file."))
_READ: Final = Decision.allow(Reason("named-files", "A retained snapshot names the file."))
_FORMER: Final = Decision.allow(
    Reason("former-metadata", "The file was sealed for the table, and the user can expire its snapshots.")
)


@dataclass(frozen=True)
class StorageAccess(ObjectAccess):
    """What a caller's client can do in the object store for one table.

    Attributes:
        table: the table; the caller's client can have all of it.
        plans_itself: whether the client can plan scans; else it reads only the data files of kept plans.
    """

    table: LoadedTable
    plans_itself: bool
    _writes: Callable[[], tuple[Location, ...]]
    _named: Callable[[], NamedFiles]
    _planned: Callable[[str], bool]
    _shared: Callable[[tuple[Location, ...]], bool]
    _foreign: Callable[[tuple[Location, ...], Location], bool]
    _former: Callable[[Location], bool]

    @property
    def name(self) -> str:
        return self.table.name

    @property
    def read_locations(self) -> tuple[Location, ...]:
        """Every location below which there can be files to read; not all files there can be read."""
        return self.table.governed.allowed.entries

    @CachedProperty
    def write_locations(self) -> tuple[Location, ...]:
        """The locations below which the client creates files; empty if it only reads."""
        return self._writes()

    @CachedProperty
    def named(self) -> NamedFiles:
        """The files that metadata and retained snapshots name."""
        return self._named()

    def decide_read(self, file: Location) -> Decision:
        inside = self.table.governed.allowed.decide(file)
        if not inside.allowed:
            return inside
        # A data file that the metadata also names as something else is a data file.
        if self.named.is_live(file.canonical):
            return _READ if self.plans_itself or self._planned(file.canonical) else _NOT_PLANNED
        if file.canonical in self.named.metadata:
            return _READ
        # Who expires snapshots reads, after the commit, which files they had.
        return (
            _FORMER if self._is_written(file) and self._former(file) and not self._is_shared else _NOT_NAMED
        )

    def decide_look(self, file: Location) -> Decision:
        """Decide whether it can be asked if there is a file, and how large it is.

        Writers ask before they create a file. That a file is there, its creation would tell them too.
        """
        return WRITTEN if self._is_written(file) else self.decide_read(file)

    def decide_create(self, file: Location) -> Decision:
        if not self._is_written(file):
            return NO_WRITES
        return _NAMED if self._is_live(file) or self.named.is_removed(file.canonical) else WRITTEN

    def decide_delete(self, file: Location) -> Decision:
        if not self._is_written(file):
            return NO_WRITES
        if self._is_live(file):
            return _NAMED
        if not is_deletable(self.table.metadata):
            return KEPT
        return SHARED if self._is_shared else WRITTEN

    def decide_list(self, directory: Location) -> Decision:
        """Decide whether names below a directory can be listed: by writers, in their write locations."""
        inside = any(each.contains(directory) for each in self.write_locations)
        return WRITTEN if inside and not self._foreign(self.write_locations, directory) else NO_WRITES

    @CachedProperty
    def _is_shared(self) -> bool:
        return self._shared(self.write_locations)

    def _is_written(self, file: Location) -> bool:
        places = self.write_locations
        return (
            is_below(places, file)
            and self.table.governed.allowed.decide(file).allowed
            and not self._foreign(places, file)
        )

    def _is_live(self, file: Location) -> bool:
        named, path = self.named, file.canonical
        return path in named.metadata or path in named.log or named.is_live(path)


class StorageDecisions:
    """Decides storage access.

    Args:
        context: the parts that services share.
        access: judges who gets a table.
        planner: knows the plans that users made.
    """

    def __init__(self, context: ServiceContext, access: TableAccess, planner: StandardPlanner) -> None:
        self._context = context
        self._access = access
        self._planner = planner
        self._files = NamedFilesReader(context.reader)
        self._known = KnownTables(context.engine, context.catalog)

    def access(self, caller: Caller, name: TableName, action: str, file: Location) -> ObjectAccess:
        """Return what a caller's client can touch of the table of a name, be it staged or dropped.

        Args:
            caller: who asks.
            name: the name.
            action: what for, as the audit log names it.
            file: the first object of the request.

        Raises:
            as `load`.
        """
        known = self._known.load(name)
        if known is None and self._context.loader.settle(name) is None:
            given = (self._context, caller, action, name, file)
            found = staged_access(*given) or dropped_access(*given)
            if found is not None:
                return found
        return self.load(caller, name, action, known)

    def load(
        self, caller: Caller, name: TableName, action: str, known: LoadedTable | None = None
    ) -> StorageAccess:
        """Load a table, judge the caller, and return what the client can touch.

        Args:
            caller: who asks, by whatever interface.
            name: the table.
            action: what for, as the audit log names it.
            known: the table, where it is loaded already.

        Raises:
            NotAuthorized: the caller's client cannot have the whole table, for what reason ever.
            NoSuchTable: there is none.
            LocationNotAllowed, MetadataTampered, MetadataUnsealed, MetadataInvalid: the table breaks a rule.
        """
        caller = replace(caller, standard=True)
        table, restriction = self._access.load_for_files(caller, name, action, known)
        if known is None:
            self._known.remember(table)
        return self.of(caller, table, restriction)

    def of(self, caller: Caller, table: LoadedTable, restriction: Restriction) -> StorageAccess:
        """Return what a caller's client can touch of a table.

        Args:
            caller: who asks.
            table: the table.
            restriction: what the client enforces, as `StandardClients.restrictions` judged the caller.
        """
        return StorageAccess(
            table,
            not self._planner.is_required(table),
            _writes=lambda: self._write_locations(caller, table),
            _named=lambda: self._files.of(table),
            _planned=lambda file: self._planner.has_planned(caller, table, restriction, file),
            _shared=partial(self._is_shared, table),
            _foreign=partial(self._is_foreign, table),
            _former=partial(self._is_former, caller, table),
        )

    def _write_locations(self, caller: Caller, table: LoadedTable) -> tuple[Location, ...]:
        plaintext = table.governed.spec.encrypts and caller.engine is None
        requests = required("table.write", caller.on(table.record.name, table.record.owner))
        if table.seal is None or plaintext or not self._context.authorizer.decide(requests).allowed:
            return ()
        return write_locations(table)

    def _is_foreign(self, table: LoadedTable, locations: tuple[Location, ...], place: Location) -> bool:
        """Return whether a place meets another table that lies below one of the locations."""
        others = self._context.overlapping(table.record, [place])
        return any_lies_in(locations, others)

    def _is_former(self, caller: Caller, table: LoadedTable, file: Location) -> bool:
        """Return whether a file was metadata of the table that a caller can expire the snapshots of."""
        context, record = self._context, table.record
        requests = required("table.expire", caller.on(record.name, record.owner))
        if not names_every_field(table.metadata) or not context.authorizer.decide(requests).allowed:
            return False
        with read(context.engine) as connection:
            return seals.was_sealed(connection, record.id, file.canonical)

    def _is_shared(self, table: LoadedTable, locations: tuple[Location, ...]) -> bool:
        """Return whether another table lies in one of the locations, or can be read from there."""
        context, own = self._context, table.record.id
        with read(context.engine) as connection:
            found = claims.shared(connection, context.catalog, locations, own, context.now_ms())
        return found is not None


def write_locations(table: LoadedTable) -> tuple[Location, ...]:
    """Return where the table's writers are sent to, as far as the allowed locations contain it."""
    metadata, allowed = table.metadata, table.governed.allowed
    places = (Location.parse(metadata.location), *write_paths(metadata.properties))
    return tuple(each for each in dict.fromkeys(places) if allowed.covers(each))
