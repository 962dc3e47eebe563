"""Shows namespaces and tables: what the API lists and loads for the user."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import APIRouter, Query, Request, Response

from catalog.base.identifiers import TableName, namespace_of, table_name
from catalog.http import admin_keys, admin_tables
from catalog.http.auth import CallerOf, ServicesOf
from catalog.http.bodies import LEVEL_SEPARATOR
from catalog.http.console.rendering import page
from catalog.http.console.routes import ConsoleRoute
from catalog.tables.paging import PageRequest
from policy.location.allow_list import AllowList

_PAGE: Final = 100
_LONGEST: Final = 500
_ALLOWED: Final = "read.allowed.data.paths"
_DOT: Final = "."

router = APIRouter(route_class=ConsoleRoute, include_in_schema=False)

_Name = Annotated[str, Query(max_length=_LONGEST)]
_After = Annotated[str | None, Query(max_length=_LONGEST)]


@router.get("/console")
def list_namespaces(
    request: Request, caller: CallerOf, services: ServicesOf, after: _After = None
) -> Response:
    """List the namespaces at the top in which the user has any permission."""
    found = services.namespaces.children_page(caller, (), PageRequest(after, _PAGE))
    names = [_DOT.join(each) for each in found.entries]
    return page(request, "namespaces", namespaces=names, following=found.following)


@router.get("/console/namespace")
def show_namespace(
    request: Request,
    caller: CallerOf,
    services: ServicesOf,
    name: _Name,
    after: _After = None,
) -> Response:
    """List the namespaces below one, and the tables in it on which the user has any permission."""
    namespace = namespace_of(name.split(_DOT))
    below = services.namespaces.children_page(caller, namespace, PageRequest(None, _PAGE))
    tables = services.namespaces.tables_page(caller, namespace, PageRequest(after, _PAGE))
    return page(
        request,
        "namespace",
        name=name,
        namespaces=[_DOT.join(each) for each in below.entries],
        more_namespaces=below.following is not None,
        tables=[(each.name, str(each)) for each in tables.entries],
        following=tables.following,
    )


@router.get("/console/table")
def show_table(request: Request, caller: CallerOf, services: ServicesOf, name: _Name) -> Response:
    """Show a table: locations, governed properties, encryption, columns and keys."""
    table = _table_named(name)
    names = LEVEL_SEPARATOR.join(table.namespace), table.name
    governed = admin_tables.show_table(*names, Response(), caller, services)
    properties = dict(governed.properties)
    return page(
        request,
        "table",
        table=governed,
        namespace=table.database,
        allowed=AllowList.parse(properties.pop(_ALLOWED)).entries,
        properties=properties,
        columns=admin_tables.show_columns(*names, caller, services).columns,
        keys=admin_keys.list_keys(*names, caller, services).keys,
    )


def _table_named(text: str) -> TableName:
    *namespace, name = text.split(_DOT)
    return table_name(namespace, name)
