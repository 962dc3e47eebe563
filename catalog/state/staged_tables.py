"""Stores staged creations: what a client of `/v1` was given to commit a new table with.

`write_locations` are those below which requests to the object store are signed for the client; null for none.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Self
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, Row, delete, func, insert, select

from catalog.base.identifiers import TableName
from catalog.db.schema import lw_staged
from policy.location.location import Location


@dataclass(frozen=True, slots=True)
class StagedTable:
    """A staged creation.

    Attributes:
        table_uuid: the UUID that the table gets.
        name: its name.
        principal: the user who can commit it.
        location: where it will lie.
        default_location: whether the catalog chose that.
        write_locations: below which the user's client writes files that requests are signed for.
        expires_ms: when it can no longer be committed.
    """

    table_uuid: UUID
    name: TableName
    principal: str
    location: Location
    default_location: bool
    write_locations: tuple[Location, ...]
    expires_ms: int

    @classmethod
    def _of(cls, row: Row[Any]) -> Self:
        return cls(
            UUID(row.table_uuid),
            TableName(tuple(row.namespace.split(".")), row.name),
            row.principal,
            Location.parse(row.location),
            row.default_location,
            tuple(map(Location.parse, json.loads(row.write_locations or "[]"))),
            row.expires_ms,
        )


def add(connection: Connection, catalog: str, staged: StagedTable, now_ms: int) -> None:
    """Add a staged creation, and forget those that have expired."""
    connection.execute(delete(lw_staged).where(lw_staged.c.expires_ms < now_ms))
    row = {
        "table_uuid": str(staged.table_uuid),
        "catalog": catalog,
        "namespace": staged.name.database,
        "name": staged.name.name,
        "location": staged.location.canonical,
        "default_location": staged.default_location,
        "principal": staged.principal,
        "write_locations": json.dumps([each.canonical for each in staged.write_locations]),
        "expires_ms": staged.expires_ms,
    }
    connection.execute(insert(lw_staged).values(**row))


def find(
    connection: Connection, catalog: str, name: TableName, principal: str, table_uuid: UUID, now_ms: int
) -> StagedTable | None:
    """Return the staged creation of this UUID, if it is the user's and can be committed."""
    found = _of_user(connection, catalog, name, principal, now_ms, lw_staged.c.table_uuid == str(table_uuid))
    return found[0] if found else None


def of_user(
    connection: Connection, catalog: str, name: TableName, principal: str, now_ms: int
) -> list[StagedTable]:
    """Return the creations of a name that a user has staged and can commit."""
    return _of_user(connection, catalog, name, principal, now_ms)


def is_of_others(connection: Connection, catalog: str, file: Location, principal: str, now_ms: int) -> bool:
    """Return whether a file lies below the location that the catalog chose for another user's creation."""
    columns = lw_staged.c
    above = func.substr(file.canonical, 1, func.length(columns.location) + 1) == columns.location + "/"
    statement = select(columns.table_uuid).where(
        columns.catalog == catalog,
        columns.default_location.is_(True),
        columns.principal != principal,
        columns.expires_ms > now_ms,
        above,
    )
    return connection.execute(statement.limit(1)).first() is not None


def remove(connection: Connection, table_uuid: UUID) -> None:
    """Forget a staged creation."""
    connection.execute(delete(lw_staged).where(lw_staged.c.table_uuid == str(table_uuid)))


def _of_user(
    connection: Connection,
    catalog: str,
    name: TableName,
    principal: str,
    now_ms: int,
    *more: ColumnElement[bool],
) -> list[StagedTable]:
    columns = lw_staged.c
    statement = select(lw_staged).where(
        columns.catalog == catalog,
        columns.namespace == name.database,
        columns.name == name.name,
        columns.principal == principal,
        columns.expires_ms > now_ms,
        *more,
    )
    return [StagedTable._of(row) for row in connection.execute(statement)]
