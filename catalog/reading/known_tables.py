"""Remembers loaded tables by the rows of the database that they follow from.

The rows are read for each request. Equal rows mean an equal table (`catalog.state.standing`), so that neither
metadata.json is read nor anything of it compared again.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import Engine

from catalog.base.identifiers import TableName
from catalog.base.recent import Recent
from catalog.reading.loading import LoadedTable
from catalog.state import standing
from catalog.state.standing import Standing

#: The maximum number of snapshots in tables that are remembered.
_MAX_SNAPSHOTS: Final = 20_000


class KnownTables:
    """Sealed tables that this process loaded before.

    Args:
        engine: the catalog's database.
        catalog: the catalog's name.
    """

    def __init__(self, engine: Engine, catalog: str) -> None:
        self._engine = engine
        self._catalog = catalog
        self._tables: Recent[LoadedTable] = Recent(
            _MAX_SNAPSHOTS, lambda each: len(each.metadata.snapshots) + 1
        )

    def load(self, name: TableName) -> LoadedTable | None:
        """Return a table that is as it was when it was remembered; None if it is not known to be."""
        rows = standing.rows_of(self._engine, self._catalog, name)
        return None if rows is None else self._tables.known(rows)

    def remember(self, table: LoadedTable) -> None:
        """Remember a table that was just loaded, unless its rows say something else by now."""
        rows = standing.rows_of(self._engine, self._catalog, table.record.name)
        if rows is None or table.seal is None:
            return
        if standing.standing_of(rows) == Standing(table.record, table.governed, table.seal):
            self._tables.get(rows, lambda: table)
