"""Loading a table on behalf of somebody."""

from __future__ import annotations

from catalog import gates
from catalog.authorize import Authorizer, Caller
from catalog.errors import NoSuchTable
from catalog.identifiers import TableName
from catalog.inspection import Inspector
from catalog.loading import LoadedTable, TableLoader
from policy.decision import Decision, Reason

#: Any of these on a table lets its metadata be loaded.
_LOADING_RIGHTS = ("select", "update", "alter")


class TableAccess:
    """Loads tables for callers, and reports what is wrong with what it loads.

    Args:
        loader: loads tables.
        inspector: checks metadata that did not come through the catalog, file by file on every load.
        authorizer: decides and records.
    """

    def __init__(self, loader: TableLoader, inspector: Inspector, authorizer: Authorizer) -> None:
        self._loader = loader
        self._inspector = inspector
        self._authorizer = authorizer

    def load(self, caller: Caller, name: TableName) -> LoadedTable:
        """Load a table's metadata.

        Raises:
            NotAuthorized: SELECT, UPDATE or ALTER on the table is needed; whether it exists is not told.
            NoSuchTable, MetadataTampered, MetadataUnsealed, LocationNotAllowed: see `TableLoader.load`.
            LocationNotAllowed, MetadataInvalid: unsealed metadata names a file that breaks a rule.
        """
        self._require(caller, name)
        with self._authorizer.recorded(caller, "table.load", str(name)):
            table = self._loader.load(name)
            if table.seal is None:
                self._inspector.whole(table)
        report(self._authorizer, caller, table)
        return table

    def exists(self, caller: Caller, name: TableName) -> bool:
        """Whether there is such a table; told to those who may load it."""
        self._require(caller, name)
        with self._authorizer.recorded(caller, "table.load", str(name)):
            try:
                self._loader.load(name)
            except NoSuchTable:
                return False
            return True

    def _require(self, caller: Caller, name: TableName) -> None:
        owner = self._loader.owner(name)
        requests = [
            gates.table_request(caller.principal, name.database, name.name, access, owner)
            for access in _LOADING_RIGHTS
        ]
        granted = next((each for each in requests if self._authorizer.decide([each]).allowed), requests[0])
        self._authorizer.require(caller, "table.load", str(name), [granted])


def require(
    authorizer: Authorizer, loader: TableLoader, caller: Caller, action: str, name: TableName, access: str
) -> None:
    """Ask for one right on a table, whoever owns it.

    Raises:
        NotAuthorized: it is not granted.
    """
    owner = loader.owner(name)
    request = gates.table_request(caller.principal, name.database, name.name, access, owner)
    authorizer.require(caller, action, str(name), [request])


def report(authorizer: Authorizer, caller: Caller, table: LoadedTable) -> None:
    """Put into the audit trail what a reader of it should know of a table that was loaded."""
    if table.seal is None:
        found = Reason("unsealed", f"Loaded unsealed metadata: {table.metadata_location}")
        authorizer.record(caller, "table.unsealed", table.name, Decision.allow(found))
    if table.governed_copies:
        names = ", ".join(table.governed_copies[:5])
        copies = Reason(
            "governed-copy", f"metadata.json holds governed properties, which count for nothing: {names}"
        )
        authorizer.record(caller, "table.governed-copy", table.name, Decision.allow(copies))
