"""Lists the namespaces and tables that a user sees, and reads what the catalog says of one table.

Source: docs/rest-api.md, "Namespaces", "Tables" and "inspect".
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

import pyarrow as pa
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil

from catalog.base.identifiers import TableName
from catalog.client.errors import not_the_catalog
from catalog.client.http import CatalogClient, table_path

_HEADER: Final = b"lakewarden.metadata-table"
_SEPARATOR: Final = "\x1f"


def namespaces(client: CatalogClient, below: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The namespaces in which the user has any permission, each before those inside of it.

    Args:
        client: the user's.
        below: a namespace to begin at, which is not in the result; by default all are listed.

    Raises:
        LakewardenError: the catalog's refusal, or no answer.
    """
    prefix = _prefix(client)
    left = [below]
    while left:
        parent = left.pop()
        query = {"parent": _SEPARATOR.join(parent) or None}
        found = [tuple(each) for each in _list(client, ("v1", prefix, "namespaces"), "namespaces", query)]
        if parent != below:
            yield parent
        left += reversed(found)


def tables(client: CatalogClient, namespace: tuple[str, ...]) -> list[TableName]:
    """The tables of a namespace on which the user has any permission; errors as in `namespaces`."""
    path = ("v1", _prefix(client), "namespaces", _SEPARATOR.join(namespace), "tables")
    found = _list(client, path, "identifiers")
    return [TableName(tuple(each["namespace"]), each["name"]) for each in found]


def loaded(client: CatalogClient, table: TableName) -> tuple[TableMetadata, Mapping[str, Any]]:
    """A table's metadata, and the whole answer to its load; errors as in `namespaces`."""
    answer = client.post(table_path(table, "load"))
    return TableMetadataUtil.parse_obj(answer["metadata"]), answer


def inspected(client: CatalogClient, table: TableName, body: Mapping[str, Any]) -> pa.Table:
    """All rows of a metadata table; errors as in `namespaces`.

    Args:
        body: what to ask for, as the catalog takes it.
    """
    asked, pages = dict(body), list[pa.Table]()
    while True:
        with client.stream(table_path(table, "inspect"), asked) as stream:
            page, header = _page(stream)
        pages.append(page.replace_schema_metadata(None))
        if header["next-page-token"] is None:
            return pa.concat_tables(pages)
        asked["page-token"] = header["next-page-token"]
        if header["snapshot-id"] is not None:
            # The pages are those of one state, whatever was committed meanwhile.
            asked = {name: value for name, value in asked.items() if name not in ("ref", "as-of-ms")}
            asked["snapshot-id"] = header["snapshot-id"]


def _page(stream: Any) -> tuple[pa.Table, Mapping[str, Any]]:
    try:
        with pa.ipc.open_stream(io.BufferedReader(stream)) as reader:
            return reader.read_all(), json.loads(reader.schema.metadata[_HEADER])
    except (pa.ArrowException, OSError, LookupError, TypeError, ValueError) as error:
        raise not_the_catalog("not a page of a metadata table") from error


def _prefix(client: CatalogClient) -> str:
    """What stands before the operations of Iceberg's interface."""
    try:
        return str((client.ask("GET", ("v1", "config")) or {})["overrides"]["prefix"])
    except (LookupError, TypeError) as error:
        raise not_the_catalog("no prefix") from error


def _list(
    client: CatalogClient, path: tuple[str, ...], name: str, query: Mapping[str, object] | None = None
) -> list[Any]:
    """A whole list of Iceberg's interface."""
    found = (client.ask("GET", path, None, query) or {}).get(name)
    if not isinstance(found, list):
        raise not_the_catalog(f"no {name}")
    return found
