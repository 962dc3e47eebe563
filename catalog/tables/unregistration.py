"""Unregisters tables: drops a table without its files, and returns its last metadata.

The pointer is removed only if it still is on the metadata that is returned. So every commit before is in that
metadata, and every later one fails.

Source: Iceberg REST catalog specification, `unregisterTable`.
"""

from __future__ import annotations

from catalog.authorization.authorizer import Caller
from catalog.authorization.table_access import TableAccess
from catalog.base.identifiers import TableName
from catalog.commits.conflicts import made_anew
from catalog.context import ServiceContext
from catalog.reading.loading import LoadedTable
from catalog.tables.lifecycle import Lifecycle


class Unregistration:
    """Unregisters tables.

    Args:
        context: the parts that services share.
        lifecycle: drops the table.
        access: loads the table for the caller.
    """

    def __init__(self, context: ServiceContext, lifecycle: Lifecycle, access: TableAccess) -> None:
        self._context = context
        self._lifecycle = lifecycle
        self._access = access

    def unregister(self, caller: Caller, name: TableName) -> LoadedTable:
        """Unregister a table. Its files, keys and governed state stay, and it can be registered again.

        Returns:
            the table with its last metadata.

        Raises:
            NotAuthorized: DROP on the table is needed, and what loading it needs, as the answer shows it.
            NoSuchTable: there is no such governed table.
            CommitConflict: other commits came first in every attempt.
        """
        self._context.require(caller, "table.unregister", name)

        def drop(table: LoadedTable) -> LoadedTable:
            self._lifecycle.drop_at(table)
            return table

        return made_anew(lambda: self._access.load(caller, name), drop)
