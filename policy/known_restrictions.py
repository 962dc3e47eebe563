"""Decides row filters and masks by what is known of a table, for `policy.visible`."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import accumulate

from policy.errors import PolicyInvalid
from policy.known_table import KnownTable
from policy.restrictions.actions import MaskAction, action_of
from policy.restrictions.columns import SchemaField, TableColumns
from policy.restrictions.conditions import Column
from policy.restrictions.model import Restriction
from policy.view import ColumnNames, View


def restriction(view: View, table: KnownTable, names: ColumnNames) -> Restriction | None:
    """The row filter and the masks on some columns; None if they do not fit the schema or it is not known."""
    if table.schema is None:
        return None
    try:
        return decided(view, table.schema, names)
    except PolicyInvalid:
        return None


def decided(view: View, schema: TableColumns, names: ColumnNames) -> Restriction:
    """The row filter and the masks on some columns.

    Raises:
        PolicyInvalid: they do not fit the schema.
    """
    read = names.columns | names.nested
    fields = frozenset(each.field_id for each in schema.by_id.values() if each.name in read)
    return view.restriction(schema, field_ids=fields)


def filter_columns(view: View) -> Iterator[Column]:
    """The columns that the row filters name."""
    for rule in view.row_filters:
        yield from rule.filter.columns if rule.filter else ()


def is_filtered(view: View, table: KnownTable) -> bool:
    """Whether a row filter hides rows from the user, as far as the schema is known."""
    found = restriction(view, table, ColumnNames())
    return bool(view.row_filters if found is None else found)


def nulls(view: View, table: KnownTable, columns: Collection[str] = ()) -> set[str]:
    """The columns and fields of the table, and of `columns`, that are NULL for the user."""
    return {name for name in {*columns, *(table.columns or ()), *table.nested} if is_null(view, table, name)}


def is_null(view: View, table: KnownTable, path: str) -> bool:
    """Whether a mask replaces a column, or a field with what it is nested in, with NULL.

    Without the table's schema, that is a mask type that does so for every type.
    """
    outer = table.column(path)
    inner = path[len(outer) + 1 :].split(".") if len(path) > len(outer) else []
    found = () if table.schema is None else table.schema.find((outer, *inner))
    if found and table.schema is not None:
        around = (table.schema.by_id[each] for each in (*found[0].above, found[0].field_id))
        return any(_is_nulled(view, table.schema, each) for each in around)
    rules = map(view.mask, accumulate(inner, "{}.{}".format, initial=outer))
    return any(each and action_of(each.type, "string") is MaskAction.REPLACE_WITH_NULL for each in rules)


def _is_nulled(view: View, schema: TableColumns, field: SchemaField) -> bool:
    try:
        mask = view.mask_of(field, schema)
    except PolicyInvalid:
        return False
    return mask is not None and mask.action is MaskAction.REPLACE_WITH_NULL
