"""Reads tables through definer views.

The engine names the view, as `referenced-by` does in the Iceberg REST specification. Each load and each plan
is decided anew (`catalog.authorization.definers`): a permission that the definer or the reader loses, and a
change of the view, end it with the next request.

- The current rows, or those of an earlier snapshot, can be read; appends, changes and delete files cannot.
- A text names tables. A view in it is refused, since it is no table.
"""

from __future__ import annotations

from dataclasses import dataclass

from catalog.authorization.authorizer import Caller
from catalog.authorization.definers import acting
from catalog.authorization.table_access import TableAccess, require_any
from catalog.base.existence import no_view
from catalog.base.identifiers import TableName
from catalog.context import ServiceContext
from catalog.db.engine import read
from catalog.planning.plan import Plan, Planner
from catalog.planning.request import ScanRequest
from catalog.reading.loading import LoadedTable
from catalog.state import views
from policy.errors import RequestInvalid
from policy.privileges.operations import required


@dataclass(frozen=True, slots=True)
class ThroughView:
    """A table, and the view that it is read through.

    Attributes:
        view: the view.
        view_id: its UUID.
        version: the state of the view that the engine has read.
        table: the table.
    """

    view: TableName
    view_id: str
    version: int
    table: TableName


class DefinerViews:
    """Loads and plans tables for the readers of definer views.

    Args:
        context: the parts that services share.
        access: loads tables.
        planner: plans scans.
    """

    def __init__(self, context: ServiceContext, access: TableAccess, planner: Planner) -> None:
        self._context = context
        self._access = access
        self._planner = planner

    def load(self, caller: Caller, through: ThroughView) -> LoadedTable:
        """Load a table's metadata, for the engine alone.

        Raises:
            NotAuthorized, CommitConflict: as `acting`, and as `TableAccess.load` for the definer.
            NoSuchView, NoSuchTable: there is none.
        """
        return self._access.load(self._acting(caller, through, "table.load"), through.table)

    def plan(self, caller: Caller, through: ThroughView, request: ScanRequest) -> Plan:
        """Plan a scan.

        Raises:
            NotAuthorized, CommitConflict: as `acting`, and as `Planner.plan` for the definer; or a mask or
                row filter of the table concerns the definer or the reader.
            NoSuchView: there is none.
            RequestInvalid: it asks for more than rows of a snapshot.
        """
        if request.is_incremental or request.files is not None:
            raise RequestInvalid(
                "Through a view, appends, changes and chosen files are not read.",
                table=str(through.table),
                rule="view-scan",
                hint="Plan the rows of a snapshot.",
            )
        return self._planner.plan(self._acting(caller, through, "table.plan"), through.table, request)

    def _acting(self, caller: Caller, through: ThroughView, action: str) -> Caller:
        context, name = self._context, through.view
        with read(context.engine) as connection:
            record = views.view(connection, context.catalog, name)
        if record is None:
            # Told to those who could read it.
            require_any(
                context.authorizer, caller, "view.load", str(name), required("view.load", caller.on(name))
            )
            raise no_view(name)
        with context.authorizer.recorded(caller, action, str(through.table)):
            seen = (through.view_id, through.version)
            return acting(context.authorizer, context.principals, caller, record, seen, through.table, action)
