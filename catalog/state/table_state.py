"""Stores the governed state: the binding of names to tables, and governed versions.

All functions use a connection that the caller opened to the catalog's own database, so that related changes
are made in one transaction. Nothing is taken from a metadata file.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final
from uuid import UUID

from sqlalchemy import Connection, Row, and_, bindparam, delete, false, func, insert, or_, select, update
from sqlalchemy.exc import IntegrityError

from catalog.base.errors import CommitConflict
from catalog.base.existence import table_exists, table_rename_taken
from catalog.base.identifiers import TableName
from catalog.db.schema import lw_binding, lw_governed, lw_pek, lw_seal, lw_table
from catalog.state.name_lists import name_values
from catalog.state.seals import SealState
from policy.encryption.epoch_documents import epoch_document, epoch_of
from policy.encryption.epochs import Epochs
from policy.encryption.specification import EncryptionSpec
from policy.location.allow_list import AllowList
from policy.location.location import Location


class TableState(StrEnum):
    """The state of a table; a prepared table is being created."""

    PREPARED = "prepared"
    ACTIVE = "active"
    DROPPED = "dropped"
    PURGED = "purged"


@dataclass(frozen=True, slots=True)
class TableRecord:
    """A governed table, or the tombstone of one.

    `location` is where the table was created or where an authorized commit moved it; `default_location` says
    whether the catalog chose it. `pending_name` is the new name in an unfinished rename or registration.
    `dropping` says that a drop has begun, and `purging` that it deletes keys and files too. `cleanups` counts
    how often garbage collection removed files of the table.
    """

    id: str
    table_uuid: UUID
    name: TableName
    owner: str
    location: Location
    default_location: bool
    state: TableState
    pending_name: TableName | None = None
    dropping: bool = False
    purging: bool = False
    cleanups: int = 0


@dataclass(frozen=True, slots=True)
class Governed:
    """A version of a table's governed properties.

    Attributes:
        version: its number; each change increments it.
        allowed: the list of locations that the table can be read from.
        spec: the encryption of new files.
        epochs: the encryption of every file, by sequence number.
    """

    version: int
    allowed: AllowList
    spec: EncryptionSpec
    epochs: Epochs

    @property
    def ever_encrypted(self) -> bool:
        """Return whether any epoch encrypts."""
        return any(epoch.spec.encrypts for epoch in self.epochs.entries)

    def to_properties(self) -> dict[str, str]:
        """Return the governed properties in force, as users see them."""
        shown = {"read.allowed.data.paths": self.allowed.to_property(), **self.spec.to_properties()}
        if self.epochs.current.peks:
            shown["encryption.pek-id"] = ",".join(str(ref.pek_id) for ref in self.epochs.current.peks)
        return shown


# Every load runs these statements, so they are built once.
_BOUND: Final = (
    select(lw_table)
    .join(lw_binding, lw_binding.c.table_id == lw_table.c.id)
    .where(
        lw_binding.c.catalog == bindparam("catalog"),
        lw_binding.c.namespace == bindparam("namespace"),
        lw_binding.c.name == bindparam("name"),
    )
)
_CURRENT_GOVERNED: Final = select(lw_governed).where(
    lw_governed.c.table_id == bindparam("table_id"), lw_governed.c.state == SealState.CURRENT
)


def bound(connection: Connection, catalog: str, name: TableName) -> TableRecord | None:
    """Return the active table with that name."""
    wanted = {"catalog": catalog, "namespace": name.database, "name": name.name}
    row = connection.execute(_BOUND, wanted).first()
    return None if row is None else table_of(row)


def require_unbound(connection: Connection, catalog: str, name: TableName) -> None:
    """Check that a name is free.

    Raises:
        TableExists: the name is bound to a table.
    """
    if bound(connection, catalog, name) is not None:
        raise table_exists(name)


def bound_tables(connection: Connection, catalog: str) -> list[TableRecord]:
    """Return every active table."""
    statement = select(lw_table).join(lw_binding, lw_binding.c.table_id == lw_table.c.id)
    rows = connection.execute(statement.where(lw_binding.c.catalog == catalog))
    return [table_of(row) for row in rows]


def table_by_uuid(connection: Connection, table_uuid: UUID) -> TableRecord | None:
    """Return the table with this UUID, in any state."""
    row = connection.execute(select(lw_table).where(lw_table.c.table_uuid == str(table_uuid))).first()
    return None if row is None else table_of(row)


def tombstone(connection: Connection, catalog: str, table_uuid: UUID) -> TableRecord | None:
    """Return the tombstone of a dropped or purged table with this UUID."""
    mine = (lw_table.c.catalog == catalog, lw_table.c.table_uuid == str(table_uuid))
    gone = lw_table.c.state.in_((TableState.DROPPED, TableState.PURGED))
    row = connection.execute(select(lw_table).where(*mine, gone)).first()
    return None if row is None else table_of(row)


def dropped_as(connection: Connection, catalog: str, name: TableName, after_ms: int) -> list[TableRecord]:
    """Return the tables that had a name when they were dropped, after a time, and were not purged."""
    columns = lw_table.c
    mine = (columns.catalog == catalog, columns.namespace == name.database, columns.name == name.name)
    gone = (columns.state == TableState.DROPPED, columns.dropped_ms > after_ms)
    return [table_of(row) for row in connection.execute(select(lw_table).where(*mine, *gone))]


def table_by_id(connection: Connection, table_id: str) -> TableRecord | None:
    """Return the table with this internal id, in any state."""
    row = connection.execute(select(lw_table).where(lw_table.c.id == table_id)).first()
    return None if row is None else table_of(row)


def locked(connection: Connection, record: TableRecord) -> TableRecord:
    """Lock a table until the transaction ends, and return its present record."""
    mine = select(lw_table).where(lw_table.c.id == record.id).with_for_update()
    return table_of(connection.execute(mine).one())


def add_table(connection: Connection, catalog: str, record: TableRecord, at_ms: int) -> None:
    """Add a table that is being created.

    Raises:
        CommitConflict: its UUID exists already.
    """
    values = {
        "id": record.id,
        "catalog": catalog,
        "table_uuid": str(record.table_uuid),
        "namespace": record.name.database,
        "name": record.name.name,
        "owner": record.owner,
        "location": record.location.canonical,
        "default_location": record.default_location,
        "state": record.state,
        "created_ms": at_ms,
    }
    try:
        connection.execute(insert(lw_table).values(**values))
    except IntegrityError as error:
        raise CommitConflict("Another request is creating the table.", table=str(record.name)) from error


def bind(connection: Connection, catalog: str, record: TableRecord) -> None:
    """Bind the table's name to it and make it active.

    Raises:
        TableExists: the name is bound to another table.
    """
    name = record.name
    values = {"catalog": catalog, "table_id": record.id} | name_values(name)
    try:
        connection.execute(insert(lw_binding).values(**values))
    except IntegrityError as error:
        raise table_exists(name) from error
    statement = update(lw_table).where(lw_table.c.id == record.id)
    connection.execute(
        statement.values(
            state=TableState.ACTIVE,
            namespace=name.database,
            name=name.name,
            owner=record.owner,
            dropped_ms=None,
            purging=None,
            pending_namespace=None,
            pending_name=None,
        )
    )


def rebind(connection: Connection, catalog: str, record: TableRecord, target: TableName) -> None:
    """Rename the table.

    Raises:
        TableExists: the new name is bound to another table.
    """
    # As every change of a table, this locks it first, so that none deadlock.
    statement = update(lw_table).where(lw_table.c.id == record.id)
    connection.execute(
        statement.values(
            namespace=target.database, name=target.name, pending_namespace=None, pending_name=None
        )
    )
    bindings = update(lw_binding).where(lw_binding.c.table_id == record.id)
    try:
        connection.execute(bindings.values(**name_values(target)))
    except IntegrityError as error:
        raise table_rename_taken(record.name, target) from error


def intend_rename(connection: Connection, record: TableRecord, target: TableName) -> None:
    """Record that the table is being renamed, so that an interrupted rename is finished.

    Raises:
        CommitConflict: the table has been renamed, dropped or registered meanwhile.
    """
    _intend(connection, record, {"pending_namespace": target.database, "pending_name": target.name})


def take_back_rename(connection: Connection, record: TableRecord, target: TableName) -> None:
    """Take back an intended rename."""
    columns = lw_table.c
    pending = (columns.pending_namespace == target.database, columns.pending_name == target.name)
    statement = update(lw_table).where(columns.id == record.id, *pending)
    connection.execute(statement.values(pending_namespace=None, pending_name=None))


def intend_drop(connection: Connection, record: TableRecord, at_ms: int, *, purge: bool = False) -> None:
    """Record that the table is being dropped or purged, so that an interrupted drop is finished.

    Raises:
        CommitConflict: the table has been renamed or dropped meanwhile.
    """
    _intend(connection, record, {"dropped_ms": at_ms, "purging": purge})


def take_back_drop(connection: Connection, record: TableRecord) -> None:
    """Take back an intended drop."""
    statement = update(lw_table).where(lw_table.c.id == record.id, lw_table.c.state == TableState.ACTIVE)
    connection.execute(statement.values(dropped_ms=None, purging=None))


def _intend(connection: Connection, record: TableRecord, values: dict[str, object]) -> None:
    columns = lw_table.c
    as_it_was = (
        columns.id == record.id,
        columns.namespace == record.name.database,
        columns.name == record.name.name,
        columns.state == record.state,
    )
    if connection.execute(update(lw_table).where(*as_it_was).values(**values)).rowcount != 1:
        raise changed_meanwhile(record.name)


def changed_meanwhile(name: TableName) -> CommitConflict:
    """Build the error for a table that other requests renamed, dropped or registered."""
    return CommitConflict(
        "Another request renamed, dropped or registered the table.",
        table=str(name),
        hint="List the tables: it can have another name. Repeat the request if it is still needed.",
    )


def bury(connection: Connection, record: TableRecord) -> TableRecord:
    """Unbind the name of a table with an intended drop; the table becomes a tombstone.

    Returns:
        the table after the change; a table that was restored since the drop was intended stays.
    """
    mine = lw_table.c.id == record.id
    intended = (mine, lw_table.c.state == TableState.ACTIVE, lw_table.c.dropped_ms.is_not(None))
    buried = {"state": TableState.DROPPED, "pending_namespace": None, "pending_name": None}
    if connection.execute(update(lw_table).where(*intended).values(**buried)).rowcount:
        connection.execute(delete(lw_binding).where(lw_binding.c.table_id == record.id))
    return table_of(connection.execute(select(lw_table).where(mine)).one())


def dropping_before(connection: Connection, catalog: str, at_ms: int) -> list[TableRecord]:
    """Return tables with an unfinished drop from before a time, and tombstones with files left."""
    columns = lw_table.c
    active = columns.state == TableState.ACTIVE
    left = and_(columns.state == TableState.DROPPED, columns.purging.is_(True))
    mine = (columns.catalog == catalog, columns.dropped_ms < at_ms, or_(active, left))
    return [table_of(row) for row in connection.execute(select(lw_table).where(*mine))]


def set_table_state(connection: Connection, table_id: str, state: TableState) -> None:
    """Set the state of a table."""
    connection.execute(update(lw_table).where(lw_table.c.id == table_id).values(state=state))


def set_location(connection: Connection, table_id: str, location: Location, *, default: bool = False) -> None:
    """Record the table's location from an authorized commit."""
    statement = update(lw_table).where(lw_table.c.id == table_id)
    connection.execute(statement.values(location=location.canonical, default_location=default))


def count_cleanup(connection: Connection, table_id: str) -> None:
    """Record that files of the table are being removed."""
    statement = update(lw_table).where(lw_table.c.id == table_id)
    connection.execute(statement.values(cleanups=lw_table.c.cleanups + 1))


def allowed_of_others(
    connection: Connection, catalog: str, except_id: str, fragments: Iterable[str]
) -> Iterator[AllowList]:
    """Return the allowed locations of other tables that exist or can be registered again.

    Args:
        connection: to the database.
        catalog: the catalog's name.
        except_id: the table whose lists are left out.
        fragments: parts of JSON; lists that are stored without any of them are left out.
    """
    stored = lw_governed.c.allowed_paths
    statement = (
        select(lw_governed.c.allowed_paths)
        .join(lw_table, lw_table.c.id == lw_governed.c.table_id)
        .where(
            lw_table.c.catalog == catalog,
            lw_table.c.id != except_id,
            lw_table.c.state != TableState.PURGED,
            lw_governed.c.state.in_((SealState.CURRENT, SealState.PREPARED)),
            or_(false(), *(stored.contains(each, autoescape=True) for each in fragments)),
        )
    )
    for row in connection.execute(statement):
        yield AllowList.of(json.loads(row.allowed_paths))


def current_governed(connection: Connection, table_id: str) -> Governed | None:
    """Return the table's current governed version."""
    row = connection.execute(_CURRENT_GOVERNED, {"table_id": table_id}).first()
    return None if row is None else governed_of(row)


def governed_version(connection: Connection, table_id: str, version: int) -> Governed | None:
    """Return a current or prepared governed version of a table."""
    mine = (lw_governed.c.table_id == table_id, lw_governed.c.version == version)
    row = connection.execute(select(lw_governed).where(*mine)).first()
    return None if row is None else governed_of(row)


def next_governed_version(connection: Connection, table_id: str) -> int:
    """Return a version number that no governed version of the table has."""
    highest = connection.scalar(
        select(func.max(lw_governed.c.version)).where(lw_governed.c.table_id == table_id)
    )
    return (highest or 0) + 1


def add_governed(connection: Connection, table_id: str, governed: Governed, author: str, at_ms: int) -> None:
    """Add a governed version in the state prepared; it takes effect with the seal that names it.

    Raises:
        CommitConflict: another commit is preparing the same version.
    """
    values = {
        "table_id": table_id,
        "version": governed.version,
        "state": SealState.PREPARED,
        "allowed_paths": json.dumps([entry.canonical for entry in governed.allowed.entries]),
        "properties": json.dumps(governed.spec.to_properties()),
        "regimes": json.dumps([epoch_document(epoch) for epoch in governed.epochs.entries]),
        "author": author,
        "created_ms": at_ms,
    }
    try:
        connection.execute(insert(lw_governed).values(**values))
    except IntegrityError as error:
        raise CommitConflict("Another request changed the governed properties at the same time.") from error


def abandon_governed(connection: Connection, table_id: str, version: int) -> None:
    """Abandon a prepared governed version that no commit puts in force. Its number is not used again."""
    columns = lw_governed.c
    mine = (columns.table_id == table_id, columns.version == version, columns.state == SealState.PREPARED)
    names_it = (lw_seal.c.table_id == table_id, lw_seal.c.governed_version == version)
    prepared = select(lw_seal.c.id).where(*names_it, lw_seal.c.state == SealState.PREPARED)
    statement = update(lw_governed).where(*mine, ~prepared.exists())
    connection.execute(statement.values(state=SealState.ABANDONED))


def require_prepared(connection: Connection, table_id: str, version: int) -> None:
    """Check that a governed version can still be put in force.

    Raises:
        CommitConflict: it was abandoned.
    """
    mine = (lw_governed.c.table_id == table_id, lw_governed.c.version == version)
    state = connection.scalar(select(lw_governed.c.state).where(*mine))
    if state != SealState.PREPARED:
        raise CommitConflict("The write was abandoned.", hint="Begin a new write.")


def forget_creation(connection: Connection, table_id: str) -> None:
    """Remove everything of a table that was never created except its tombstone: claims and keys."""
    connection.execute(delete(lw_pek).where(lw_pek.c.table_id == table_id))
    set_table_state(connection, table_id, TableState.PURGED)


def new_table_id() -> str:
    """Return a new internal id; it is never shown to users."""
    return str(uuid.uuid4())


def table_of(row: Row[tuple[object, ...]]) -> TableRecord:
    """Convert a row of `lw_table` to a record."""
    return TableRecord(
        row.id,
        UUID(row.table_uuid),
        TableName(tuple(row.namespace.split(".")), row.name),
        row.owner,
        Location.parse(row.location),
        row.default_location,
        TableState(row.state),
        TableName(tuple(row.pending_namespace.split(".")), row.pending_name) if row.pending_name else None,
        dropping=row.state == TableState.ACTIVE and row.dropped_ms is not None,
        purging=bool(row.purging),
        cleanups=row.cleanups,
    )


def governed_of(row: Row[tuple[object, ...]]) -> Governed:
    """Convert a row of `lw_governed` to a governed version."""
    spec = EncryptionSpec.parse(json.loads(row.properties), catalog_master_key_id=None)
    epochs = Epochs.of(epoch_of(each) for each in json.loads(row.regimes))
    return Governed(row.version, AllowList.of(json.loads(row.allowed_paths)), spec, epochs)
