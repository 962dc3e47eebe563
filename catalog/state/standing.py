"""Reads all rows that a sealed table follows from, in one statement.

Equal rows mean an equal table: each change of a name, an owner, a location, a pointer, a seal or a governed
version changes one of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Final

from sqlalchemy import Connection, Table, and_, bindparam, select

from catalog.base.identifiers import TableName
from catalog.db.schema import lw_binding, lw_governed, lw_seal, lw_table
from catalog.state import seals, table_state
from catalog.state.seals import Seal, SealState
from catalog.state.table_state import Governed, TableRecord

_PARTS: Final = (lw_table, lw_seal, lw_governed)
#: Each signature runs this statement, so it is built once.
_STANDING: Final = (
    select(*_PARTS)
    .join_from(lw_binding, lw_table, lw_binding.c.table_id == lw_table.c.id)
    .join(
        lw_seal,
        and_(
            lw_seal.c.metadata_location == bindparam("pointer"),
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


def rows_of(connection: Connection, catalog: str, name: TableName, pointer: str) -> tuple[object, ...] | None:
    """Return the rows of a table; None unless it has the name and its pointer is that of its current seal."""
    wanted = {"catalog": catalog, "namespace": name.database, "name": name.name, "pointer": pointer}
    row = connection.execute(_STANDING, wanted).first()
    return None if row is None else tuple(row)


def standing_of(rows: Sequence[object]) -> Standing:
    """Return what the rows of a table say."""
    found, start = [], 0
    for part in _PARTS:
        end = start + len(part.columns)
        found.append(_row(part, rows[start:end]))
        start = end
    table, seal, governed = found
    return Standing(table_state.table_of(table), table_state.governed_of(governed), seals.seal_of(seal))


def _row(table: Table, values: Sequence[object]) -> Any:
    return SimpleNamespace(**dict(zip(table.columns.keys(), values, strict=True)))
