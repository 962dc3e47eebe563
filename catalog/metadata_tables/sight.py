"""Decides what of a table's columns its metadata tables show to a user.

One rule, that of scans: a column is shown to a user who can select it, unmasked, under every name that it
has or had, in a table whose rows no policy filters for the user. Of all other columns there are no bounds,
counts, sizes or partition values, and under a row filter summaries of snapshots count nothing
(`catalog.authorization.shown`). Paths of files are shown to users who see all columns that the table is or
was partitioned by, since standard clients write partition values into paths.

Sealed bounds of encrypted columns are shown by the same rule; a user's own process, without a trusted engine,
also needs `release` on the table's keys.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from catalog.authorization.authorizer import Authorizer, Caller
from catalog.authorization.columns import (
    footer_keys,
    names_by_field,
    partition_sources,
    refuse_altered,
    view_of,
)
from catalog.authorization.shown import sees
from catalog.authorization.table_access import require_any
from catalog.reading.loading import LoadedTable
from policy.privileges.operations import loading
from policy.view import ColumnNames

ACTION = "table.inspect"


@dataclass(frozen=True, slots=True)
class Sight:
    """What a user sees.

    Attributes:
        columns: ids of the columns and nested fields that are shown.
        sources: whether every column that the table is or was partitioned by is among them.
        sealed: whether the bounds of encrypted columns are shown.
        rows: whether no policy filters the rows for them.
    """

    columns: frozenset[int]
    sources: bool
    sealed: bool
    rows: bool = True

    @classmethod
    def everything(cls, table: LoadedTable) -> Sight:
        """Return what a user sees who can select every column."""
        return cls(frozenset().union(*(each.field_ids for each in table.metadata.schemas)), True, False)

    @property
    def paths(self) -> bool:
        """Whether paths of files are shown."""
        return self.sources


def sight_of(
    authorizer: Authorizer, caller: Caller, table: LoadedTable, wanted: frozenset[int] | None
) -> Sight:
    """Return what a user sees of some columns, and of those that the table is or was partitioned by.

    Args:
        authorizer: decides.
        caller: the user.
        table: the table.
        wanted: ids of the columns; None for all.
    """
    sources = partition_sources(table)
    names = names_by_field(table, None if wanted is None else wanted | sources)
    view = view_of(authorizer, caller, table)
    shown = frozenset(each for each, known in names.items() if sees(view, known))
    releases = caller.releases(footer_keys(table))
    sealed = table.seal is not None and (not releases or authorizer.decide(releases).allowed)
    encrypted = sealed and table.governed.ever_encrypted
    return Sight(shown, sources <= shown, encrypted, not view.has_row_filter)


def require_load(authorizer: Authorizer, caller: Caller, table: LoadedTable) -> None:
    """Require what loading a table requires: SELECT, UPDATE or ALTER, or SELECT on a column.

    Raises:
        NotAuthorized: the user has none of these.
    """
    on = caller.on(table.record.name, table.record.owner)
    ways = loading(on, sorted(table.metadata.schema().column_names))
    require_any(authorizer, caller, ACTION, table.name, ways)


def require_column(authorizer: Authorizer, caller: Caller, table: LoadedTable, shown: Sight) -> None:
    """Require that a user sees one column of today's schema, and record which columns are shown.

    Raises:
        NotAuthorized: there is none.
    """
    view = view_of(authorizer, caller, table)
    columns = [each.field_id for each in table.metadata.schema().fields]
    if not columns:
        require_load(authorizer, caller, table)
        return
    names = names_by_field(table, frozenset(columns) | shown.columns)
    first = next((each for each in columns if sees(view, names[each])), None)
    if first is None:
        selectable = (each for each in columns if view.reads(names[each]).refused is None)
        reading = view.reads(names[next(selectable, columns[0])])
        authorizer.require(caller, ACTION, table.name, reading.required)
        refuse_altered(authorizer, caller, table, reading.altered, action=ACTION)
        return
    known = _union(names[each] for each in {*shown.columns, first} & names.keys())
    authorizer.require(caller, ACTION, table.name, view.required(known))


def _union(names: Iterable[ColumnNames]) -> ColumnNames:
    every = list(names)
    return ColumnNames(
        frozenset().union(*(each.columns for each in every)),
        frozenset().union(*(each.nested for each in every)),
    )
