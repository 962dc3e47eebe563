"""Decides which objects the creator of a staged table can touch, before the commit that creates it.

A client that creates a table with its rows (CREATE TABLE AS SELECT) writes the files of a table that does not
exist yet. What counts is the row that the catalog keeps of the staged creation: user, name, locations, end.

- Each request needs what staging needed: CREATE on the name, and RWStorage on locations that the catalog did
  not choose; and UPDATE, as for the files of a table.
- Files are created below the write locations, and not where another table lies.
- They can be read there, since a client reads the manifests of its own snapshot; but not where another table
  lies or can be read from.
- What lies below a location that the catalog chose for the creation of another user is that user's alone.
- They are deleted below the location that the catalog chose alone: nobody else writes there.
- Nothing is listed. Nothing is signed for an encrypted table, nor once a table has the name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from catalog.authorization.authorizer import Caller
from catalog.base.identifiers import TableName
from catalog.context import ServiceContext
from catalog.db.engine import read
from catalog.state import claims, staged_tables, table_state
from catalog.state.staged_tables import StagedTable
from catalog.state.table_state import TableState
from catalog.storage_access.objects import NO_WRITES, SHARED, WRITTEN, ObjectAccess, any_lies_in, is_below
from policy.decision import Decision, Reason
from policy.location.location import Location
from policy.privileges.operations import required, storage_requests

_READ: Final = Decision.allow(Reason("staged-table", "The user is creating the table of the file."))


@dataclass(frozen=True)
class StagedAccess(ObjectAccess):
    """What the creator of a staged table can touch.

    Attributes:
        staged: the table.
        context: the parts that services share.
    """

    staged: StagedTable
    context: ServiceContext

    @property
    def name(self) -> str:
        return str(self.staged.name)

    def decide_read(self, file: Location) -> Decision:
        if not self._is_below(file):
            return NO_WRITES
        return SHARED if self._is_shared() else _READ

    def decide_look(self, file: Location) -> Decision:
        return self.decide_create(file)

    def decide_create(self, file: Location) -> Decision:
        return WRITTEN if self._is_below(file) and not self._is_foreign(file) else NO_WRITES

    def decide_delete(self, file: Location) -> Decision:
        staged = self.staged
        if not (staged.default_location and staged.location.contains(file) and self._is_below(file)):
            return NO_WRITES
        return SHARED if self._is_shared() else WRITTEN

    def decide_list(self, directory: Location) -> Decision:
        return NO_WRITES

    def _is_below(self, file: Location) -> bool:
        context, staged = self.context, self.staged
        if not is_below(staged.write_locations, file):
            return False
        with read(context.engine) as connection:
            user = staged.principal
            return not staged_tables.is_of_others(connection, context.catalog, file, user, context.now_ms())

    def _is_foreign(self, file: Location) -> bool:
        """Return whether a file meets another table that lies in one of the locations."""
        context, locations = self.context, self.staged.write_locations
        with read(context.engine) as connection:
            others = claims.overlapping(connection, context.catalog, file, None, context.now_ms())
        return any_lies_in(locations, others)

    def _is_shared(self) -> bool:
        context, locations = self.context, self.staged.write_locations
        with read(context.engine) as connection:
            found = claims.shared(connection, context.catalog, locations, "", context.now_ms())
        return found is not None


def staged_access(
    context: ServiceContext, caller: Caller, action: str, name: TableName, file: Location
) -> StagedAccess | None:
    """Return what a caller can touch of the table of this name that they stage, and that a file is of.

    Args:
        context: the parts that services share.
        caller: who asks.
        action: what for, as the audit log names it.
        name: a name that no table has.
        file: the first object of the request.

    Returns:
        None if the user stages no such table.

    Raises:
        NotAuthorized: the caller lacks a permission that staging or writing it needs.
    """
    user = caller.principal.name
    with read(context.engine) as connection:
        every = staged_tables.of_user(connection, context.catalog, name, user, context.now_ms())
        staged = next((each for each in every if any(at.contains(file) for at in each.write_locations)), None)
        # An interrupted commit leaves the row of a table that is there, or was.
        made = staged and table_state.table_by_uuid(connection, staged.table_uuid)
    if staged is None or (made and made.state is not TableState.PREPARED):
        return None
    on = caller.on(name, caller.principal.name)
    own = staged.location if staged.default_location else None
    requests = [
        *required("table.stage", caller.on(name)),
        *required("table.write", on),
        *storage_requests(on, (staged.location, *staged.write_locations), own),
    ]
    context.authorizer.require(caller, action, str(name), requests)
    return StagedAccess(staged, context)
