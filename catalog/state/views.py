"""Stores views: their names, owners, definers and metadata.

All functions use a connection that the caller opened to the catalog's own database. Tables and views share
one name space: a view's name is also in `iceberg_tables`, where no table can then be created or renamed to.
It is changed there first, so that two transactions never deadlock.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

from pyiceberg.schema import Schema
from pyiceberg.view.metadata import ViewMetadata, ViewVersion
from sqlalchemy import ColumnElement, Connection, Row, Table, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from catalog.base.errors import CommitConflict
from catalog.base.existence import view_exists, view_rename_taken
from catalog.base.identifiers import Namespace, TableName
from catalog.db.schema import iceberg_tables, lw_binding, lw_view
from catalog.iceberg.view_metadata import current_version, texts
from catalog.state.name_lists import name_values

SPARK: Final = "spark"
"""The dialect of the texts that the catalog can read."""

_VIEW: Final = "VIEW"
_DEFINER_RIGHTS: Final = "definer-rights"


@dataclass(frozen=True, slots=True)
class ViewRecord:
    """A view.

    Attributes:
        id: its UUID.
        name: its name.
        owner: who created it.
        definer: the name of the user who wrote its text.
        version: counts its changes.
        metadata: Iceberg's view metadata.
        definer_rights: whether its tables are read with the permissions of the definer.
        metadata_location: where a copy of the metadata is stored for other catalogs; None for a view that
            was not changed since a release without these files.
    """

    id: str
    name: TableName
    owner: str
    definer: str
    version: int
    metadata: ViewMetadata
    definer_rights: bool = False
    metadata_location: str | None = None

    @property
    def current(self) -> ViewVersion:
        """The version that is read."""
        return current_version(self.metadata)

    @property
    def spark_text(self) -> str | None:
        """The text that our engine reads, and that definer rights go by; None if there is none."""
        return texts(self.current).get(SPARK)

    @property
    def schema(self) -> Schema:
        """The columns of the current version."""
        wanted = self.current.schema_id
        return next(each for each in self.metadata.schemas if each.schema_id == wanted)


def view(connection: Connection, catalog: str, name: TableName) -> ViewRecord | None:
    """Return the view with this name."""
    row = connection.execute(select(lw_view).where(*_named(catalog, name))).first()
    return None if row is None else _record(row)


def every_view(connection: Connection, catalog: str) -> list[ViewRecord]:
    """Return all views of a catalog."""
    return [_record(row) for row in connection.execute(select(lw_view).where(lw_view.c.catalog == catalog))]


def has_views(connection: Connection, catalog: str, namespace: Namespace) -> bool:
    """Return whether there is a view directly in a namespace."""
    mine = (lw_view.c.catalog == catalog, lw_view.c.namespace == ".".join(namespace))
    return connection.execute(select(lw_view.c.id).where(*mine).limit(1)).first() is not None


def defined_by(connection: Connection, user: str) -> list[TableName]:
    """Return the definer views of a user, of every catalog in the database."""
    columns = lw_view.c
    mine = select(columns.namespace, columns.name).where(columns.definer == _definer(user, has_rights=True))
    return [TableName(tuple(row.namespace.split(".")), row.name) for row in connection.execute(mine)]


def add(connection: Connection, catalog: str, record: ViewRecord) -> None:
    """Add a view.

    Raises:
        ViewExists: its name is taken, by a view or a table.
    """
    name = record.name
    names = {"catalog_name": catalog, "table_namespace": name.database, "table_name": name.name}
    if _is_table(connection, catalog, name):
        raise view_exists(name, is_table=True)
    values = {"id": record.id, "catalog": catalog} | name_values(name)
    try:
        connection.execute(insert(iceberg_tables).values(**names, iceberg_type=_VIEW))
        connection.execute(insert(lw_view).values(**values, owner=record.owner, **_content(record)))
    except IntegrityError as error:
        raise view_exists(name) from error


def replace(connection: Connection, record: ViewRecord, expected: int) -> None:
    """Store another state of a view.

    Raises:
        CommitConflict: it is not in the expected version any more.
    """
    _changed(connection, record, expected, **_content(record))


def rename(connection: Connection, catalog: str, record: ViewRecord, target: TableName) -> None:
    """Give a view another name.

    Raises:
        ViewExists: the name is taken, by a view or a table.
        CommitConflict: the view is not in this version any more.
    """
    if _is_table(connection, catalog, target):
        raise view_rename_taken(record.name, target, is_table=True)
    names = {"table_namespace": target.database, "table_name": target.name}
    new = name_values(target) | {"version": record.version + 1}
    try:
        connection.execute(update(iceberg_tables).where(*_pointer(catalog, record.name)).values(**names))
        _changed(connection, record, record.version, **new)
    except IntegrityError as error:
        raise view_rename_taken(record.name, target) from error


def remove(connection: Connection, catalog: str, record: ViewRecord) -> None:
    """Remove a view; its name is free.

    Raises:
        CommitConflict: it is not in this version any more.
    """
    connection.execute(delete(iceberg_tables).where(*_pointer(catalog, record.name)))
    mine = (lw_view.c.id == record.id, lw_view.c.version == record.version)
    if connection.execute(delete(lw_view).where(*mine)).rowcount != 1:
        raise _conflict(record.name)


def _changed(connection: Connection, record: ViewRecord, expected: int, **values: object) -> None:
    mine = (lw_view.c.id == record.id, lw_view.c.version == expected)
    if connection.execute(update(lw_view).where(*mine).values(**values)).rowcount != 1:
        raise _conflict(record.name)


def _conflict(name: TableName) -> CommitConflict:
    return CommitConflict(
        f"Another request changed the view {name}.",
        table=str(name),
        hint="Load the view again, and repeat the request if it is still needed.",
    )


def _is_table(connection: Connection, catalog: str, name: TableName) -> bool:
    """Return whether a governed table has the name, whatever the pointer store says."""
    found = connection.execute(select(lw_binding.c.table_id).where(*_named(catalog, name, lw_binding)))
    return found.first() is not None


def _named(catalog: str, name: TableName, table: Table = lw_view) -> list[ColumnElement[bool]]:
    columns = table.c
    return [columns.catalog == catalog, columns.namespace == name.database, columns.name == name.name]


def _pointer(catalog: str, name: TableName) -> list[ColumnElement[bool]]:
    columns = iceberg_tables.c
    return [
        columns.catalog_name == catalog,
        columns.table_namespace == name.database,
        columns.table_name == name.name,
        columns.iceberg_type == _VIEW,
    ]


def _content(record: ViewRecord) -> dict[str, object]:
    return {
        "definer": _definer(record.definer, has_rights=record.definer_rights),
        "version": record.version,
        "metadata": record.metadata.model_dump_json(),
        "metadata_location": record.metadata_location,
    }


def _definer(user: str, *, has_rights: bool) -> str:
    return json.dumps({"name": user, _DEFINER_RIGHTS: has_rights})


def _record(row: Row[tuple[object, ...]]) -> ViewRecord:
    definer = json.loads(row.definer)
    return ViewRecord(
        row.id,
        TableName(tuple(row.namespace.split(".")), row.name),
        row.owner,
        definer["name"],
        row.version,
        ViewMetadata.model_validate_json(row.metadata),
        # Views of former releases do not say so.
        definer.get(_DEFINER_RIGHTS) is True,
        row.metadata_location,
    )
