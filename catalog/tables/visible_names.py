"""Lists the tables, or the views, of a namespace that a caller sees."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from sqlalchemy import Connection

from catalog.authorization.authorizer import Caller
from catalog.authorization.table_access import any_of
from catalog.base.identifiers import Namespace, TableName
from catalog.context import ServiceContext
from catalog.db.engine import read
from catalog.state.name_lists import Names
from catalog.tables.paging import ListPage, PageRequest, visible_page
from policy.privileges.operations import required

#: Reads names with their owners (`catalog.state.name_lists`).
ReadNames: TypeAlias = Callable[[Connection, str, Names], list[tuple[TableName, str]]]


def visible_names(
    context: ServiceContext,
    caller: Caller,
    action: str,
    namespace: Namespace,
    read_names: ReadNames,
    wanted: PageRequest | None,
) -> ListPage[TableName]:
    """List what the caller sees of a namespace.

    Only names that a policy can be about are read; each of them is decided on, by the same policies.

    Args:
        context: the parts that services share.
        caller: who asks.
        action: the operation that requires the privilege to see one of them.
        namespace: the namespace.
        read_names: reads the names.
        wanted: the page; None for the whole list.
    """
    authorizer = context.authorizer.settled()
    possible = authorizer.policies().tables_with_privileges(caller.principal, ".".join(namespace))

    def rows(after: str | None, limit: int | None) -> list[tuple[TableName, str]]:
        with read(context.engine) as connection:
            return read_names(connection, context.catalog, Names(namespace, possible, after, limit))

    def seen(row: tuple[TableName, str]) -> bool:
        name, owner = row
        return (
            name.name in possible and any_of(authorizer, required(action, caller.on(name, owner))) is not None
        )

    page = visible_page(
        rows, lambda row: row[0].name, lambda some: [row for row in some if seen(row)], wanted
    )
    return ListPage([name for name, _ in page.entries], page.following)
