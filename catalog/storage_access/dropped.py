"""Decides which objects of a dropped table can be touched by a client that deletes its files.

Spark with Iceberg 1.11 drops a table without `purgeRequested`, and then deletes the files that its last
metadata names. It asks for signatures by the old name.

- For a day after the drop. Needed is DROP, as for a purge, at each request. To read, the user also has to see
  everything in the table.
- Read are metadata files that were sealed for the table, unless removed schemas alone name a column in them.
  Deleted is what lies in its location. Nothing else.
- Only in the location that the catalog chose, and if no other table lies there or can be read from there.
  Elsewhere it is not known which files are the table's.
- Not if the table sets gc.enabled=false. Its metadata.json says that; if that is gone, the table cannot come
  back, and the rest is deleted, too.
- A table that has the name now, such as the same one after it came back, is decided as any other.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from catalog.authorization.authorizer import Caller
from catalog.base.cached import CachedProperty
from catalog.base.identifiers import TableName
from catalog.context import ServiceContext
from catalog.db.engine import read
from catalog.iceberg.metadata import names_every_field
from catalog.reading.loading import LoadedTable
from catalog.rules.file_deletion import is_deletable
from catalog.state import claims, seals, table_state
from catalog.state.table_state import TableRecord
from catalog.storage.errors import MetadataMissing
from catalog.storage_access.objects import KEPT, NO_WRITES, SHARED, WRITTEN, ObjectAccess, is_below
from policy.decision import Decision, Reason
from policy.location.location import Location
from policy.privileges.operations import required

#: How long after the drop a client can delete the files: a day.
_CLIENT_PURGE_MS: Final = 24 * 3600 * 1000
_READ: Final = Decision.allow(Reason("dropped-table", "The file was metadata of the dropped table."))
_NOT_METADATA: Final = Decision.deny(
    Reason("named-files", "The table was dropped, and the file was not sealed as metadata of it.")
)


@dataclass(frozen=True)
class DroppedAccess(ObjectAccess):
    """What a user who can purge a dropped table can touch.

    Attributes:
        record: the table.
        caller: the user.
        action: what for, as the audit log names it.
        context: the parts that services share.
    """

    record: TableRecord
    caller: Caller
    action: str
    context: ServiceContext

    @property
    def name(self) -> str:
        return str(self.record.name)

    def decide_read(self, file: Location) -> Decision:
        """Decide whether the content of a file can be read.

        Raises:
            NotAuthorized: the user does not see everything in the table.
        """
        with read(self.context.engine) as connection:
            known = seals.was_sealed(connection, self.record.id, file.canonical)
        if not known or self._table is None or not names_every_field(self._table.metadata):
            return _NOT_METADATA
        self.context.standard_clients.restrictions(self.caller, self.action, self._table)
        return SHARED if self._is_shared else _READ

    def decide_look(self, file: Location) -> Decision:
        return self.decide_read(file)

    def decide_create(self, file: Location) -> Decision:
        return NO_WRITES

    def decide_delete(self, file: Location) -> Decision:
        if not self._is_own(file):
            return NO_WRITES
        if self._table is not None and not is_deletable(self._table.metadata):
            return KEPT
        return SHARED if self._is_shared else WRITTEN

    def decide_list(self, directory: Location) -> Decision:
        return NO_WRITES

    def _is_own(self, file: Location) -> bool:
        return is_below([self.record.location], file)

    @CachedProperty
    def _table(self) -> LoadedTable | None:
        """The table as it was dropped; None if its metadata.json is gone."""
        try:
            return self.context.loader.load_dropped(self.record)
        except MetadataMissing:
            return None

    @CachedProperty
    def _is_shared(self) -> bool:
        context = self.context
        with read(context.engine) as connection:
            return claims.is_shared(connection, context.catalog, self.record, context.now_ms())


def dropped_access(
    context: ServiceContext, caller: Caller, action: str, name: TableName, file: Location
) -> DroppedAccess | None:
    """Return what a caller can touch of the dropped table that had a name, and that a file is of.

    Args:
        context: the parts that services share.
        caller: who asks.
        action: what for, as the audit log names it.
        name: a name that no table has.
        file: the first object of the request.

    Returns:
        None if there is no such table, or the user cannot purge it.
    """
    with read(context.engine) as connection:
        after_ms = context.now_ms() - _CLIENT_PURGE_MS
        gone = table_state.dropped_as(connection, context.catalog, name, after_ms)
    record = next((each for each in gone if each.default_location and each.location.contains(file)), None)
    if record is None:
        return None
    requests = required("table.purge", caller.on(name, record.owner))
    if not context.authorizer.decide(requests).allowed:
        return None
    context.authorizer.require(caller, action, str(name), requests)
    return DroppedAccess(record, replace(caller, standard=True), action, context)
