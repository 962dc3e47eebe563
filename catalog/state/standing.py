"""Reads all rows that a sealed table follows from, in one statement.

Equal rows mean an equal table: each change of a name, an owner, a location, a pointer, a seal or a governed
version changes one of them. So what they say is remembered by the rows, which are read each time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Final

from sqlalchemy import Engine, Table, and_, bindparam, select

from catalog.base.identifiers import TableName
from catalog.base.recent import Recent
from catalog.db.prepared import Prepared
from catalog.db.schema import iceberg_tables, lw_binding, lw_governed, lw_seal, lw_table
from catalog.state import seals, table_state
from catalog.state.seals import Seal, SealState
from catalog.state.sql_pointers import is_table
from catalog.state.table_state import Governed, TableRecord

#: The maximum number of tables whose rows are remembered.
_MAX_TABLES: Final = 1_000

_PARTS: Final = (lw_table, lw_seal, lw_governed)
_STANDING: Final = Prepared(
    select(*_PARTS)
    .join_from(lw_binding, lw_table, lw_binding.c.table_id == lw_table.c.id)
    .join(
        iceberg_tables,
        and_(
            iceberg_tables.c.catalog_name == lw_binding.c.catalog,
            iceberg_tables.c.table_namespace == lw_binding.c.namespace,
            iceberg_tables.c.table_name == lw_binding.c.name,
            is_table(),
        ),
    )
    .join(
        lw_seal,
        and_(
            lw_seal.c.metadata_location == iceberg_tables.c.metadata_location,
            lw_seal.c.table_id == lw_table.c.id,
            lw_seal.c.state == SealState.CURRENT,
        ),
    )
    .join(
        lw_governed,
        and_(lw_governed.c.table_id == lw_table.c.id, lw_governed.c.state == SealState.CURRENT),
    )
    .where(
        lw_binding.c.catalog == bindparam("catalog"),
        lw_binding.c.namespace == bindparam("namespace"),
        lw_binding.c.name == bindparam("name"),
    )
)


@dataclass(frozen=True, slots=True)
class Standing:
    """What a table's rows say.

    Attributes:
        record: its identity.
        governed: what governs it.
        seal: the current seal, that of its pointer.
    """

    record: TableRecord
    governed: Governed
    seal: Seal


_said: Final = Recent[Standing](_MAX_TABLES, lambda _: 1)


def rows_of(engine: Engine, catalog: str, name: TableName) -> tuple[object, ...] | None:
    """Return the rows of a table; None unless it has the name and its pointer is that of its current seal.

    Raises:
        StateUnavailable: the database does not answer.
    """
    return _STANDING.first(engine, catalog=catalog, namespace=name.database, name=name.name)


def standing_of(rows: tuple[object, ...]) -> Standing:
    """Return what the rows of a table say."""
    return _said.get(rows, lambda: _parsed(rows))


def _parsed(rows: Sequence[object]) -> Standing:
    found, start = [], 0
    for part in _PARTS:
        end = start + len(part.columns)
        found.append(_row(part, rows[start:end]))
        start = end
    table, seal, governed = found
    return Standing(table_state.table_of(table), table_state.governed_of(governed), seals.seal_of(seal))


def _row(table: Table, values: Sequence[object]) -> Any:
    return SimpleNamespace(**dict(zip(table.columns.keys(), values, strict=True)))
