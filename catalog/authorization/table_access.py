"""Loads tables for callers.

- SELECT, UPDATE or ALTER on the table lets its metadata be loaded, and so does SELECT on one of its columns.
- Whether there is a table is told to those who have any right on it: who may make one of that name would
  learn it anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeVar

from catalog.audit.outcomes import note
from catalog.authorization.authorizer import Authorizer, Caller
from catalog.authorization.standard_clients import StandardClients
from catalog.base.errors import NoSuchTable
from catalog.base.identifiers import TableName
from catalog.reading.loading import LoadedTable, TableLoader
from catalog.snapshot_checks.inspection import Inspector
from catalog.state.table_state import TableRecord
from policy.decision import Decision, Reason
from policy.privileges.operations import OPERATIONS, On, loading, required
from policy.privileges.requests import AccessRequest
from policy.restrictions.model import Restriction

_Judged = TypeVar("_Judged")

_LOAD: Final = "table.load"
_PLAN: Final = "table.plan"
_REPORT: Final = "table.report"
_EXISTS: Final = "table.exists"


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
        """Load a table's metadata, for a client that need not enforce anything on its rows.

        Raises:
            NotAuthorized: SELECT, UPDATE or ALTER on the table, or SELECT on a column of it, is needed;
                whether it exists is not told. Or a standard client must not have it.
            NoSuchTable, MetadataTampered, MetadataUnsealed, LocationNotAllowed: see `TableLoader.load`.
            LocationNotAllowed, MetadataInvalid: unsealed metadata names a file that breaks a rule.
        """
        table, _ = self._loaded(caller, name, _LOAD, self._standard_clients.require)
        note("snapshot", table.metadata.current_snapshot_id)
        return table

    def load_restricted(self, caller: Caller, name: TableName) -> tuple[LoadedTable, Restriction]:
        """Load a table's metadata, and what a standard client enforces on its rows; errors as in `load`."""
        table, restriction = self._loaded(caller, name, _LOAD, self._standard_clients.restrictions)
        note("snapshot", table.metadata.current_snapshot_id)
        return table, restriction

    def load_to_plan(self, caller: Caller, name: TableName) -> tuple[LoadedTable, Restriction]:
        """Load a table of which a standard client gets a plan: its files have everything that is in it.

        Returns and raises:
            as `load_restricted`.
        """
        return self._loaded(caller, name, _PLAN, self._standard_clients.restrictions)

    def load_for_files(
        self, caller: Caller, name: TableName, action: str, known: LoadedTable | None
    ) -> tuple[LoadedTable, Restriction]:
        """Load a table of which a standard client gets files, by sealed metadata that was verified before.

        Args:
            caller: who asks.
            name: the table.
            action: what for, as the audit log names it.
            known: the table, where it is loaded already.

        Returns and raises:
            as `load_restricted`.
        """
        return self._loaded(caller, name, action, self._standard_clients.restrictions, known, again=False)

    def report(self, caller: Caller, name: TableName) -> None:
        """Check that a caller can load a table whose metrics they report; errors as in `load_restricted`."""
        self._loaded(caller, name, _REPORT, self._standard_clients.restrictions)

    def _loaded(
        self,
        caller: Caller,
        name: TableName,
        action: str,
        judge: Callable[[Caller, str, LoadedTable], _Judged],
        known: LoadedTable | None = None,
        *,
        again: bool = True,
    ) -> tuple[LoadedTable, _Judged]:
        authorizer = self._authorizer.settled()
        standing = self._loader.standing(name) if known is None else None
        found = known or standing
        on = caller.on(name, self._loader.owner(name) if found is None else found.record.owner)
        ways = loading(on)
        if not any_of(authorizer, ways) and authorizer.decide(required(_EXISTS, on)).allowed:
            ways += on.select(self._columns(caller, name, action))
        require_any(authorizer, caller, action, str(name), ways)
        see_paths = caller.reader is None and sees_paths(authorizer, on)
        with authorizer.recorded(caller, action, str(name), show_path=see_paths):
            table = known or self._loader.load(name, again=again, known=standing)
            judged = judge(caller, action, table)
            if table.seal is None:
                self._inspector.whole(table)
        report(authorizer, caller, table)
        return table, judged

    def exists(self, caller: Caller, name: TableName) -> bool:
        """Return whether a table exists.

        Raises:
            NotAuthorized: the caller has no right on it.
        """
        on = caller.on(name, self._loader.owner(name))
        self._authorizer.require(caller, _LOAD, str(name), required(_EXISTS, on))
        with self._authorizer.recorded(caller, _LOAD, str(name)):
            try:
                self._loader.load(name)
            except NoSuchTable:
                return False
            return True

    def _columns(self, caller: Caller, name: TableName, action: str) -> list[str]:
        """Return a table's columns, for callers with some privilege on the table; empty without such a table.

        Whether they can load it is not known yet, so that a broken rule is told without its path.
        """
        with self._authorizer.recorded(caller, action, str(name), show_path=False):
            try:
                return list(self._loader.load(name).metadata.schema().column_names)
            except NoSuchTable:
                return []


def any_of(authorizer: Authorizer, ways: Sequence[AccessRequest]) -> AccessRequest | None:
    """Return the first request that is granted."""
    return next(filter(authorizer.grants, ways), None)


def require_any(
    authorizer: Authorizer, caller: Caller, action: str, about: str, ways: Sequence[AccessRequest]
) -> None:
    """Require any one of some requests; the first is named if none is granted.

    Raises:
        NotAuthorized: none of them is granted.
    """
    authorizer.require(caller, action, about, [any_of(authorizer, ways) or ways[0]])


def sees_paths(authorizer: Authorizer, on: On) -> bool:
    """Return whether a refusal can name foreign paths: to callers with ALTER, who maintain the table."""
    return authorizer.decide(required("table.alter", on)).allowed


def require_on(authorizer: Authorizer, caller: Caller, operation: str, about: str, on: On) -> None:
    """Require the privileges of an operation, all or any of them as its row says.

    Raises:
        NotAuthorized: they are not granted.
    """
    decide = require_any if OPERATIONS[operation].any_of else Authorizer.require
    decide(authorizer, caller, operation, about, required(operation, on))


def overlap_requests(caller: Caller, others: Iterable[TableRecord]) -> list[AccessRequest]:
    """Return requests for ALTER on each other table whose location overlaps."""
    tables = (caller.on(other.name, other.owner) for other in others)
    return [request for each in tables for request in required("table.overlap", each)]


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
