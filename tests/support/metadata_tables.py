"""Metadata tables as tests ask for them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyiceberg.table import Table

from catalog.metadata_tables.kinds import MetadataTable
from catalog.metadata_tables.pages import Page, PageRequest
from tests.support.lake import ALICE, Lake
from tests.support.tables import name_of


def page(
    lake: Lake,
    table: Table,
    kind: str,
    *columns: str,
    user: str = ALICE,
    engine: str | None = "spark",
    **asked: Any,
) -> Page:
    """One page, by default the first; columns of structs are written with dots.

    Args:
        lake: the catalog.
        table: the table.
        kind: name of the metadata table.
        columns: what is asked for; all if none is named.
        user: who asks.
        engine: the engine by which; None for a process of the user's own.
        asked: more of the `PageRequest`.
    """
    paths = [each.split(".") for each in columns] or None
    request = PageRequest(MetadataTable(kind), columns=paths, **asked)
    return lake.services.metadata_tables.page(lake.caller(user, engine), name_of(table), request)


def pages(lake: Lake, table: Table, kind: str, *columns: str, **asked: Any) -> list[Page]:
    """All pages."""
    found = [page(lake, table, kind, *columns, **asked)]
    while found[-1].next_token is not None:
        found.append(page(lake, table, kind, *columns, **asked, token=found[-1].next_token))
    return found


def rows(lake: Lake, table: Table, kind: str, *columns: str, **asked: Any) -> list[dict[str, Any]]:
    """The rows of all pages; maps are dictionaries."""
    found = pages(lake, table, kind, *columns, **asked)
    batches = [batch for each in found for batch in each.batches]
    return pa.Table.from_batches(batches, found[0].schema).to_pylist(maps_as_pydicts="strict")  # type: ignore[no-any-return]
