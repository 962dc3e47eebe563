"""Reads the state of many tables in a few statements, for reports on the whole catalog."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final, TypeVar

from sqlalchemy import ColumnElement, Connection, Row, Select, and_, or_, select, tuple_

from catalog.base.identifiers import TableName
from catalog.db.schema import (
    iceberg_tables,
    lw_binding,
    lw_governed,
    lw_pek,
    lw_seal,
    lw_sealed_file,
    lw_table,
    lw_write,
)
from catalog.envelope.peks import PekRecord
from catalog.state import pek_records, seals, table_state
from catalog.state.seals import Seal, SealedFile, SealState
from catalog.state.sql_pointers import is_table
from catalog.state.table_state import Governed, TableRecord, TableState
from catalog.state.write_states import UNCLOSED
from policy.location.overlaps import Claim, Claims

#: Names or ids in a statement; a name takes two parameters.
_BATCH: Final = 250
_Item = TypeVar("_Item")


def pointers(
    connection: Connection, catalog: str, names: Sequence[TableName] | None = None
) -> dict[TableName, str]:
    """Return the pointers of tables, by name.

    Args:
        connection: to the database.
        catalog: the catalog's name.
        names: these tables only; None for all.
    """
    columns = iceberg_tables.c
    statement = select(columns.table_namespace, columns.table_name, columns.metadata_location).where(
        columns.catalog_name == catalog, is_table()
    )
    rows = _by_name(connection, statement, columns.table_namespace, columns.table_name, names)
    return {
        TableName(tuple(row.table_namespace.split(".")), row.table_name): row.metadata_location or ""
        for row in rows
    }


def bound(
    connection: Connection, catalog: str, names: Sequence[TableName] | None = None
) -> dict[TableName, TableRecord]:
    """Return the active tables by name; see `pointers`."""
    columns = lw_binding.c
    statement = (
        select(lw_table).join(lw_binding, columns.table_id == lw_table.c.id).where(columns.catalog == catalog)
    )
    rows = _by_name(connection, statement, columns.namespace, columns.name, names)
    records = (table_state.table_of(row) for row in rows)
    return {record.name: record for record in records}


def current_seals(connection: Connection, table_ids: Sequence[str]) -> dict[str, Seal]:
    """Return the current seals of tables, by internal id."""
    statement = select(lw_seal).where(lw_seal.c.state == SealState.CURRENT)
    return {
        row.table_id: seals.seal_of(row) for row in _of(connection, statement, lw_seal.c.table_id, table_ids)
    }


def prepared(connection: Connection, locations: Sequence[str]) -> frozenset[str]:
    """Return those of the metadata locations whose seal no load has promoted yet."""
    columns = lw_seal.c
    statement = select(columns.metadata_location).where(columns.state == SealState.PREPARED)
    rows = _of(connection, statement, columns.metadata_location, locations)
    return frozenset(row.metadata_location for row in rows)


def current_governed(connection: Connection, table_ids: Sequence[str]) -> dict[str, Governed]:
    """Return what governs tables now, by internal id."""
    statement = select(lw_governed).where(lw_governed.c.state == SealState.CURRENT)
    rows = _of(connection, statement, lw_governed.c.table_id, table_ids)
    return {row.table_id: table_state.governed_of(row) for row in rows}


def governed_versions(
    connection: Connection, table_ids: Sequence[str]
) -> dict[str, list[tuple[int, Governed]]]:
    """Return what governed tables and governs them now, oldest first, each with the time when it was made.

    Args:
        connection: to the database.
        table_ids: internal ids of the tables.

    Returns:
        times in milliseconds since 1970 and versions, by internal id.
    """
    was_in_force = lw_governed.c.state.in_((SealState.CURRENT, SealState.SUPERSEDED))
    statement = select(lw_governed).where(was_in_force).order_by(lw_governed.c.version)
    found: dict[str, list[tuple[int, Governed]]] = {}
    for row in _of(connection, statement, lw_governed.c.table_id, table_ids):
        found.setdefault(row.table_id, []).append((row.created_ms, table_state.governed_of(row)))
    return found


def peks(connection: Connection, records: Sequence[TableRecord]) -> dict[str, list[PekRecord]]:
    """Return the PEKs of tables in every version and state, by internal id."""
    uuids = {record.id: record.table_uuid for record in records}
    statement = select(lw_pek).order_by(lw_pek.c.master_key_id, lw_pek.c.id, lw_pek.c.version)
    found: dict[str, list[PekRecord]] = {}
    for row in _of(connection, statement, lw_pek.c.table_id, list(uuids)):
        found.setdefault(row.table_id, []).append(pek_records.from_row(row, uuids[row.table_id]))
    return found


def unclosed_writes(connection: Connection, table_ids: Sequence[str]) -> dict[str, list[str]]:
    """Return the directories of tables' writes that are open, or wait for a clean-up; by internal id."""
    statement = select(lw_write.c.table_id, lw_write.c.prefix).where(lw_write.c.state.in_(UNCLOSED))
    found: dict[str, list[str]] = {}
    for row in _of(connection, statement, lw_write.c.table_id, table_ids):
        found.setdefault(row.table_id, []).append(row.prefix)
    return found


def sealed_files(
    connection: Connection, table_ids: Sequence[str], after: tuple[str, str] | None, limit: int
) -> list[tuple[str, SealedFile]]:
    """Return the sealed manifest lists and manifests of tables, each with its table's internal id.

    Args:
        connection: to the database.
        table_ids: the tables, at most 1,000.
        after: internal id and path of the last one of the page before.
        limit: at most this many.
    """
    columns = lw_sealed_file.c
    statement = (
        select(lw_sealed_file)
        .join(lw_seal, lw_seal.c.id == columns.seal_id)
        .where(
            columns.table_id.in_(table_ids), lw_seal.c.state.in_((SealState.CURRENT, SealState.SUPERSEDED))
        )
    )
    if after is not None:
        table_id, path = after
        statement = statement.where(
            or_(columns.table_id > table_id, and_(columns.table_id == table_id, columns.path > path))
        )
    rows = connection.execute(statement.order_by(columns.table_id, columns.path).limit(limit))
    return [(row.table_id, seals.sealed_file_of(row)) for row in rows]


def locations(connection: Connection, catalog: str) -> Claims:
    """Return the locations of all tables that are not purged."""
    columns = lw_table.c
    statement = select(columns.id, columns.namespace, columns.name, columns.location, columns.state)
    rows = connection.execute(_kept(statement, catalog))
    return Claims([_claim(row, row.location) for row in rows])


def readable(connection: Connection, catalog: str) -> Claims:
    """Return all that tables, which are not purged, can be read from, or will be."""
    columns = lw_table.c
    statement = select(
        columns.id, columns.namespace, columns.name, columns.state, lw_governed.c.allowed_paths
    ).join(lw_governed, lw_governed.c.table_id == columns.id)
    in_force = lw_governed.c.state.in_((SealState.CURRENT, SealState.PREPARED))
    rows = connection.execute(_kept(statement, catalog).where(in_force))
    return Claims([_claim(row, each) for row in rows for each in json.loads(row.allowed_paths)])


def _kept(statement: Select[Any], catalog: str) -> Select[Any]:
    return statement.where(lw_table.c.catalog == catalog, lw_table.c.state != TableState.PURGED)


def _claim(row: Row[Any], location: str) -> Claim:
    return Claim(row.id, f"{row.namespace}.{row.name}", location, row.state == TableState.DROPPED)


def _by_name(
    connection: Connection,
    statement: Select[Any],
    namespace: ColumnElement[str],
    name: ColumnElement[str],
    names: Sequence[TableName] | None,
) -> Iterator[Row[Any]]:
    if names is None:
        yield from connection.execute(statement)
        return
    for batch in _batches(names):
        wanted = [(each.database, each.name) for each in batch]
        yield from connection.execute(statement.where(tuple_(namespace, name).in_(wanted)))


def _of(
    connection: Connection, statement: Select[Any], column: ColumnElement[Any], values: Sequence[str]
) -> Iterator[Row[Any]]:
    for batch in _batches(values):
        yield from connection.execute(statement.where(column.in_(batch)))


def _batches(values: Sequence[_Item]) -> Iterator[Sequence[_Item]]:
    return (values[start : start + _BATCH] for start in range(0, len(values), _BATCH))
