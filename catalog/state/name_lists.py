"""Lists names of tables and views in a namespace, and looks up only those that a policy can be about.

Lists are in the order of the folded names, as policies compare them (`policy.letter_case`), and then of the
names. So what a user can see is a range of an index for each text that names begin with, and a look-up for
each whole name. A user who sees few of many names costs what these names cost.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Row, Select, Table, and_, select, tuple_, union_all

from catalog.base.identifiers import Namespace, TableName
from catalog.db.schema import iceberg_tables, lw_binding, lw_table, lw_view
from catalog.state.sql_pointers import is_table
from policy.letter_case import fold
from policy.ranger.resource_tree import PossibleNames

#: With more whole names, or beginnings of names, than these, a list reads all names.
_MAX_WHOLE: Final = 1_000
_MAX_BEGUN: Final = 16

#: Follows every character of a name: a noncharacter, which no name has (`policy.identifiers`).
_AFTER_ALL: Final = "\U0010ffff"


@dataclass(frozen=True, slots=True)
class Names:
    """Which names of a namespace a list wants.

    Attributes:
        namespace: the namespace.
        possible: names that the user can see; the list can have others too.
        after: only names after this one; None for all.
        limit: at most this many; None for all.
    """

    namespace: Namespace
    possible: PossibleNames
    after: str | None = None
    limit: int | None = None


def name_values(name: TableName) -> dict[str, str]:
    """Return the columns of a table or view that its name decides."""
    return {"namespace": name.database, "name": name.name, "folded": fold(name.name)}


def tables(connection: Connection, catalog: str, wanted: Names) -> list[tuple[TableName, str]]:
    """Return name and owner of active tables that have a pointer, in order."""
    columns = lw_binding.c
    pointer = and_(
        iceberg_tables.c.catalog_name == columns.catalog,
        iceberg_tables.c.table_namespace == columns.namespace,
        iceberg_tables.c.table_name == columns.name,
        is_table(),
    )
    statement = (
        select(columns.name, lw_table.c.owner)
        .join(lw_table, columns.table_id == lw_table.c.id)
        .join(iceberg_tables, pointer)
        .where(columns.catalog == catalog)
    )
    return _listed(connection, statement, lw_binding, wanted)


def views(connection: Connection, catalog: str, wanted: Names) -> list[tuple[TableName, str]]:
    """Return name and owner of views, in order."""
    columns = lw_view.c
    statement = select(columns.name, columns.owner).where(columns.catalog == catalog)
    return _listed(connection, statement, lw_view, wanted)


def _listed(
    connection: Connection, statement: Select[Any], table: Table, wanted: Names
) -> list[tuple[TableName, str]]:
    rows = _rows(connection, statement, table, wanted)
    return [(TableName(wanted.namespace, row.name), row.owner) for row in rows]


def _rows(connection: Connection, statement: Select[Any], table: Table, wanted: Names) -> list[Row[Any]]:
    columns, statement = table.c, statement.add_columns(table.c.folded)
    statement = statement.where(columns.namespace == ".".join(wanted.namespace))
    if wanted.after is not None:
        statement = statement.where(tuple_(columns.folded, columns.name) > (fold(wanted.after), wanted.after))
    statement = statement.order_by(columns.folded, columns.name).limit(wanted.limit)
    parts = [statement.where(part) for part in _parts(columns.folded, wanted.possible)]
    if len(parts) < 2:
        return [row for part in parts for row in connection.execute(part)]
    # Each part is read in the order of the index, as far as the limit.
    found = union_all(*(select(part.subquery()) for part in parts)).subquery()
    in_order = select(found).order_by(found.c.folded, found.c.name).limit(wanted.limit)
    return list(connection.execute(in_order))


def _parts(folded: ColumnElement[str], possible: PossibleNames) -> list[ColumnElement[bool]]:
    """Return conditions of which each name meets one: a range of names, or some whole names."""
    if len(possible.whole) > _MAX_WHOLE or len(possible.begun) > _MAX_BEGUN:
        return [folded >= ""]
    parts: list[ColumnElement[bool]] = [
        folded.between(text, f"{text}{_AFTER_ALL}") for text in possible.begun
    ]
    if possible.whole:
        parts.append(folded.in_(sorted(possible.whole)))
    return parts
