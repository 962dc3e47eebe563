"""Resources as people write them: ``KIND:NAME``.

- ``database:sales``, ``table:sales.orders``, ``column:sales.orders/customer.email``, ``url:s3://lake/x``,
  ``storage:s3://lake/x``, ``key:pii``, ``engine:spark``, ``service:lakewarden``.
- The last dot of a table's name ends the namespace. No table's name has a slash, so the first slash begins
  the column.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, NoReturn

from policy.errors import RequestInvalid
from policy.identifiers import TableName, table_name
from policy.privileges.requests import Resource


def resource_named(text: str) -> Resource:
    """The resource that ``KIND:NAME`` means.

    Raises:
        RequestInvalid: the kind is unknown, or the name is not one of that kind.
        LocationInvalid: the name is to be a location and is none.
    """
    kind, colon, name = text.partition(":")
    if not colon or kind not in _KINDS:
        _refuse("The resource is not in the form KIND:NAME.", f"Use one of the kinds {', '.join(_KINDS)}.")
    return _KINDS[kind](name)


def table_named(text: str) -> TableName:
    """The table that a dotted name means.

    Raises:
        RequestInvalid: it has no namespace, or a part is not a name.
    """
    *namespace, name = text.split(".")
    if not namespace:
        _refuse("The table name has no namespace.", "Write NAMESPACE.TABLE.")
    return table_name(namespace, name)


def _refuse(message: str, hint: str) -> NoReturn:
    raise RequestInvalid(message, rule="resource-name", hint=hint)


def _table(name: str) -> Resource:
    table = table_named(name)
    return Resource.table(table.database, table.name)


def _column(name: str) -> Resource:
    table_text, slash, column = name.partition("/")
    if not slash:
        _refuse("The column name has no table.", "Write NAMESPACE.TABLE/COLUMN.")
    table = table_named(table_text)
    return Resource.column(table.database, table.name, column)


_KINDS: Final[Mapping[str, Callable[[str], Resource]]] = MappingProxyType(
    {
        "database": Resource.database,
        "table": _table,
        "column": _column,
        "url": Resource.url,
        "storage": Resource.storage,
        "key": Resource.key,
        "engine": Resource.engine,
        "service": Resource.service,
    }
)
