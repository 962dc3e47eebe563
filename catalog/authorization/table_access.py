"""Loads tables for callers.

- SELECT, UPDATE or ALTER on the table lets its metadata be loaded, and so does SELECT on one of its columns.
- Whether there is a table is told to those who have any right on it: who may make one of that name would
  learn it anyway.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from catalog.audit.outcomes import note
from catalog.authorization import privileges
from catalog.authorization.authorizer import Authorizer, Caller
from catalog.authorization.standard_clients import StandardClients
from catalog.base.errors import NoSuchTable
from catalog.base.identifiers import TableName
from catalog.reading.loading import LoadedTable, TableLoader
from catalog.snapshot_checks.inspection import Inspector
from policy.decision import Decision, Reason
from policy.privileges.requests import ANY, AccessRequest, Resource

_LOAD: Final = "table.load"
_LOADING_RIGHTS: Final = ("select", "update", "alter")


class TableAccess:
    """Loads tables for callers, and records problems of the loaded tables.

    Args:
        loader: loads tables.
        inspector: checks metadata that did not come through the catalog, file by file on every load.
        authorizer: decides and records.
        standard_clients: decides what standard clients get.
    """

    def __init__(
        self,
        loader: TableLoader,
        inspector: Inspector,
        authorizer: Authorizer,
        standard_clients: StandardClients,
    ) -> None:
        self._loader = loader
        self._inspector = inspector
        self._authorizer = authorizer
        self._standard_clients = standard_clients

    def load(self, caller: Caller, name: TableName) -> LoadedTable:
        """Load a table's metadata.

        Raises:
            NotAuthorized: SELECT, UPDATE or ALTER on the table, or SELECT on a column of it, is needed;
                whether it exists is not told. Or a standard client must not have it.
            NoSuchTable, MetadataTampered, MetadataUnsealed, LocationNotAllowed: see `TableLoader.load`.
            LocationNotAllowed, MetadataInvalid: unsealed metadata names a file that breaks a rule.
        """
        authorizer = self._authorizer.settled()
        owner = self._loader.owner(name)
        ways = loading_ways(caller, name, owner)
        if not any_of(authorizer, ways) and authorizer.decide([_on_table(caller, name, ANY, owner)]).allowed:
            ways += self._on_columns(caller, name, owner)
        require_any(authorizer, caller, _LOAD, str(name), ways)
        see_paths = sees_paths(authorizer, caller, name, owner)
        with authorizer.recorded(caller, _LOAD, str(name), show_path=see_paths):
            table = self._loader.load(name)
            self._standard_clients.require(caller, _LOAD, table)
            if table.seal is None:
                self._inspector.whole(table)
        report(authorizer, caller, table)
        note("snapshot", table.metadata.current_snapshot_id)
        return table

    def exists(self, caller: Caller, name: TableName) -> bool:
        """Return whether a table exists.

        Raises:
            NotAuthorized: the caller has no right on it.
        """
        owner = self._loader.owner(name)
        self._authorizer.require(caller, _LOAD, str(name), [_on_table(caller, name, ANY, owner)])
        with self._authorizer.recorded(caller, _LOAD, str(name)):
            try:
                self._loader.load(name)
            except NoSuchTable:
                return False
            return True

    def _on_columns(self, caller: Caller, name: TableName, owner: str | None) -> list[AccessRequest]:
        """Return SELECT on each column, for callers with some privilege on the table; empty without such a
        table.

        Whether they may load it is not known yet, so that what breaks a rule is told without its path.
        """
        with self._authorizer.recorded(caller, _LOAD, str(name), show_path=False):
            try:
                columns = self._loader.load(name).metadata.schema().column_names
            except NoSuchTable:
                return []
        return _on_each(caller, name, owner, columns)


def loading_ways(
    caller: Caller, name: TableName, owner: str | None, columns: Iterable[str] = ()
) -> list[AccessRequest]:
    """Return the privileges of which any one permits loading the metadata: on the table, or SELECT on a
    column.
    """
    on_table = [_on_table(caller, name, access, owner) for access in _LOADING_RIGHTS]
    return on_table + _on_each(caller, name, owner, columns)


def _on_each(
    caller: Caller, name: TableName, owner: str | None, columns: Iterable[str]
) -> list[AccessRequest]:
    resources = (Resource.column(name.database, name.name, column) for column in columns)
    return [AccessRequest(caller.principal, each, "select", owner=owner) for each in resources]


def _on_table(caller: Caller, name: TableName, access: str, owner: str | None) -> AccessRequest:
    return privileges.table_request(caller.principal, name.database, name.name, access, owner)


def any_of(authorizer: Authorizer, ways: Sequence[AccessRequest]) -> AccessRequest | None:
    """Return the first request that is granted."""
    return next((each for each in ways if authorizer.decide([each]).allowed), None)


def require_any(
    authorizer: Authorizer, caller: Caller, action: str, about: str, ways: Sequence[AccessRequest]
) -> None:
    """Require any one of some requests; the first is named if none is granted.

    Raises:
        NotAuthorized: none of them is granted.
    """
    authorizer.require(caller, action, about, [any_of(authorizer, ways) or ways[0]])


def sees_paths(authorizer: Authorizer, caller: Caller, name: TableName, owner: str | None) -> bool:
    """Return whether a refusal can name foreign paths: to callers with ALTER, who maintain the table."""
    return authorizer.decide([_on_table(caller, name, "alter", owner)]).allowed


def require(
    authorizer: Authorizer, loader: TableLoader, caller: Caller, action: str, name: TableName, access: str
) -> None:
    """Require one privilege on a table of any owner.

    Raises:
        NotAuthorized: it is not granted.
    """
    owner = loader.owner(name)
    request = privileges.table_request(caller.principal, name.database, name.name, access, owner)
    authorizer.require(caller, action, str(name), [request])


def report(authorizer: Authorizer, caller: Caller, table: LoadedTable) -> None:
    """Record in the audit log what is notable about a loaded table."""
    if table.seal is None:
        found = Reason("unsealed", f"Loaded unsealed metadata: {table.metadata_location}")
        authorizer.record(caller, "table.unsealed", table.name, Decision.allow(found))
    if table.governed_copies:
        names = ", ".join(table.governed_copies[:5])
        copies = Reason(
            "governed-copy",
            f"metadata.json contains governed properties, which have no effect there: {names}",
        )
        authorizer.record(caller, "table.governed-copy", table.name, Decision.allow(copies))
