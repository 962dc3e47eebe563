"""Brings a dropped table back: the same identity, governed state and keys.

- It needs privileges on the dropped table, and the metadata that was current when it was dropped. The
  governed version of that time is in force again.
- The intention to assign the name is recorded first. The pointer and the name's binding are then made in one
  transaction, and only while the intention stands: a registration that another one overtakes has no effect.
"""

from __future__ import annotations

from dataclasses import replace

from sqlalchemy import Connection

from catalog.authorization.authorizer import Caller
from catalog.authorization.columns import every_name, refuse_masks, selects
from catalog.authorization.restrictions import require_fitting_name
from catalog.base import crash_points
from catalog.base.errors import CommitConflict, NoSuchNamespace, TableExists
from catalog.base.existence import table_exists
from catalog.base.identifiers import TableName
from catalog.context import ServiceContext
from catalog.db.engine import read, write
from catalog.reading.loading import LoadedTable
from catalog.state import seals, table_state
from catalog.state.seals import Seal, SealState
from catalog.state.table_state import TableRecord, TableState
from policy.errors import MetadataTampered, RequestInvalid
from policy.privileges.operations import required
from policy.privileges.requests import AccessRequest
from policy.view import ColumnNames


class Undrop:
    """Registers dropped tables again.

    Args:
        context: the parts that services share.
    """

    def __init__(self, context: ServiceContext) -> None:
        self._context = context

    def revive(
        self,
        caller: Caller,
        name: TableName,
        found: LoadedTable,
        data: bytes,
        first: list[AccessRequest],
    ) -> LoadedTable:
        """Register a dropped table again.

        Args:
            caller: who asks.
            name: the name that it gets.
            found: the table, with the metadata that is offered.
            data: the bytes of that.
            first: what is needed beside the rights on the old table.

        Raises:
            NotAuthorized: a right is missing.
            TableExists: the name is taken.
            MetadataTampered: the UUID is another table's, or the metadata is not what was current.
            RequestInvalid: it was purged, or its new name takes it out of a row filter or mask of a policy.
            EncryptionPolicyViolation: under its new name the table would break a rule.
            CommitConflict: it came back under another name meanwhile.
        """
        known, location = found.record, found.metadata_location
        with read(self._context.engine) as connection:
            seal = seals.find(connection, location)
            governed = table_state.current_governed(connection, known.id)
        _require_dropped(known, name)
        verdict = (
            self._context.encryption.of_name(replace(found, governed=governed), name) if governed else None
        )
        spec = (governed or found.governed).spec
        downgrades = (verdict is not None and verdict.downgrades) or self._context.loader.exposes(
            known.name, name, spec
        )
        on = caller.on(known.name, known.owner)
        rights = required("table.undrop", on) + (required("table.unprotect", on) if downgrades else [])
        # Policies refer to names: a privilege on the new name must not bypass a denial of the old one.
        columns = every_name(found) if name != known.name else ColumnNames()
        rights += selects(self._context.authorizer, caller, found, columns)
        self._context.authorizer.require(caller, "table.register", str(name), [*first, *rights])
        if columns.columns:
            refuse_masks(self._context.authorizer, caller, found, columns, action="table.register")
        if seal is None or seal.table_id != known.id or seal.state is not SealState.CURRENT or not governed:
            raise MetadataTampered(
                "The metadata is not the one that was current when the table was dropped.",
                table=str(name),
                rule="rollback",
            )
        seals.check_digest(data, seal.digest, what="table metadata", path=location, table=str(name))
        if verdict is not None:
            verdict.enforce(str(name))
        if name != known.name:
            require_fitting_name(self._context.authorizer.policies(), found, name)
        revived = replace(known, name=name, state=TableState.ACTIVE)
        table = replace(found, record=revived, governed=governed, seal=seal)
        self._context.standard_clients.require(caller, "table.register", table)
        self._bind(known, name, seal)
        return table

    def _bind(self, known: TableRecord, name: TableName, seal: Seal) -> None:
        """Assign the name and the pointer to the table."""
        with write(self._context.engine) as connection:
            table_state.require_unbound(connection, self._context.catalog, name)
            table_state.intend_rename(connection, known, name)
        crash_points.point("revive:intended")

        def bind(connection: Connection) -> None:
            now = table_state.locked(connection, known)
            # It can have come back meanwhile, with other commits, and have been dropped again.
            unchanged = seals.current(connection, known.id) == seal
            if now.state is not TableState.DROPPED or now.pending_name != name or not unchanged:
                raise table_state.changed_meanwhile(name)
            table_state.bind(connection, self._context.catalog, replace(now, name=name))

        try:
            if self._context.pointers.load(name) == seal.metadata_location:  # Of a table that is adopted.
                with write(self._context.engine) as connection:
                    bind(connection)
            else:
                self._context.pointers.create(name, seal.metadata_location, bind)
        except (TableExists, NoSuchNamespace, CommitConflict):
            with write(self._context.engine) as connection:
                table_state.take_back_rename(connection, known, name)
            raise
        crash_points.point("revive:bound")


def _require_dropped(known: TableRecord, name: TableName) -> None:
    if known.state is TableState.ACTIVE and known.name == name:
        raise table_exists(name)
    if known.state is not TableState.DROPPED:
        raise MetadataTampered(
            f"The metadata has the UUID {known.table_uuid}, which belongs to another table.",
            table=str(name),
            rule="table-uuid",
        )
    if known.purging:
        raise RequestInvalid(
            "The table was purged: its keys are destroyed, and its files are being deleted.",
            table=str(name),
            rule="purged",
        )
