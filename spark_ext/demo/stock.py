"""The standard Iceberg client that Lakewarden is compared with: pyiceberg's catalog and reader.

Nothing of Lakewarden is used here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.manifest import clear_manifest_cache
from pyiceberg.table import StaticTable, Table
from pyiceberg.table.update import TableUpdate


@dataclass(frozen=True, slots=True)
class StockRows:
    """What a standard reader got out of a table.

    Attributes:
        total: how many rows.
        sample: the last one.
    """

    total: int
    sample: Mapping[str, Any]


@contextmanager
def stock_catalog(name: str, url: str) -> Iterator[SqlCatalog]:
    """pyiceberg's own catalog on a database."""
    catalog = SqlCatalog(name, uri=url)
    try:
        yield catalog
    finally:
        catalog.close()


def commit(catalog: Catalog, identifier: str, updates: Sequence[TableUpdate]) -> None:
    """Commit with a standard client."""
    catalog.commit_table(catalog.load_table(identifier), (), tuple(updates))


def read(table: Table) -> StockRows:
    """Scan a table with pyiceberg, as it lies in storage now."""
    clear_manifest_cache()
    rows = table.scan().to_arrow()
    return StockRows(rows.num_rows, rows.slice(rows.num_rows - 1).to_pylist()[0])


def read_at(metadata_location: str) -> StockRows:
    """Scan the table of a metadata.json, without any catalog."""
    return read(StaticTable.from_metadata(metadata_location))
