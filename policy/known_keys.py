"""Decides which keys a user gets for a scan, by what is known of a table, for `policy.visible`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from itertools import accumulate

from policy.decision import Reason
from policy.encryption.specification import EncryptionSpec
from policy.known_restrictions import filter_columns, is_null, restriction
from policy.known_table import KnownTable
from policy.privileges.operations import key_requests
from policy.privileges.requests import Through
from policy.view import ColumnNames, View, refused_key


def refused_keys(
    view: View, table: KnownTable, read: Collection[str], through: Through, *, enforced: bool
) -> Iterator[tuple[str, Reason]]:
    """The keys that the scan needs and the user does not get, and why."""
    spec = table.spec
    if spec is None or not spec.encrypts:
        return
    found = restriction(view, table, ColumnNames())
    if found is None or table.schema is None:
        filtered = [str(each) for each in filter_columns(view)]
    else:
        filtered = [table.schema.by_id[each].name for each in sorted(found.filters_by)]
    selected = table.each_inside(read)
    if enforced:
        read = [*(each for each in read if not is_null(view, table, each)), *filtered]
    keyed = _with_fields_of(table, read)
    opened = {group.key_id: group.columns for group in spec.columns if any(map(keyed, group.columns))}
    if through is Through.PROCESS:
        needed = {*opened, *([] if spec.master_key_id is None else [spec.master_key_id])}
        for request in key_requests(view.principal, needed, "release"):
            decision = view.decide(request)
            if not decision.allowed:
                yield request.resource.values[-1], decision.reasons[0]
        if not spec.by_column and spec.master_key_id is not None:
            yield from _refused_key(view, spec.master_key_id, table.everything())
        yield from _refused_with_others(view, table, spec, read)
    for key_id, columns in opened.items():
        if enforced and through is Through.ENGINE:
            yield from _refused_nulled(view, key_id, table, columns, filtered, selected)
        else:
            yield from _refused_key(view, key_id, table.ever(columns))


def _refused_with_others(
    view: View, table: KnownTable, spec: EncryptionSpec, read: Collection[str]
) -> Iterator[tuple[str, Reason]]:
    """The table's key, if a column is read that no property names, and the user lacks another one.

    An engine gets that key, and withholds the other columns.
    """
    if spec.plaintext_columns is None or spec.master_key_id is None:
        return
    known = {*(table.columns or read), *table.nested}
    others = [each for each in known if spec.key_of(each) == spec.master_key_id]
    if any(map(_with_fields_of(table, read), others)):
        yield from _refused_key(view, spec.master_key_id, table.ever(others))


def _refused_key(view: View, key_id: str, names: ColumnNames) -> Iterator[tuple[str, Reason]]:
    reading, masked = view.reads(names), view.masked(names)
    if reading.refused is not None:
        yield key_id, refused_key(key_id, reading.refused)
    elif masked is not None:
        yield key_id, masked


def _refused_nulled(
    view: View,
    key_id: str,
    table: KnownTable,
    columns: Collection[str],
    filtered: Collection[str],
    selected: ColumnNames,
) -> Iterator[tuple[str, Reason]]:
    """A key that the engine does not get: it opens a column that the user cannot select, or that is NULL.

    Columns that only the row filter reads are read by the policy, whatever the user can select.
    """
    lower = {each.lower() for each in filtered}
    filtering = lower.difference(map(str.lower, selected.columns | selected.nested))
    names = table.ever([each for each in columns if each.lower() not in filtering])
    nested = frozenset(each for each in names.nested if each.lower() not in filtering)
    refused = view.reads(ColumnNames(names.columns, nested)).refused
    if refused is not None:
        yield key_id, refused_key(key_id, refused)
        return
    fields = (each for column in columns for each in (column, *sorted(table.inside(column).nested)))
    for column in fields:
        if column.lower() not in lower and is_null(view, table, column):
            detail = f"The key {key_id!r} also opens the column {column!r}, whose values a policy withholds."
            yield key_id, Reason("mask", detail)
            return


def _with_fields_of(table: KnownTable, read: Collection[str]) -> Callable[[str], bool]:
    """Tells whether a column or field that has a key has a field in common with what is read."""
    names = table.each_inside(read)
    lower = {each.lower() for each in names.columns | names.nested}
    paths = set(map(str.lower, read))

    def keyed(column: str) -> bool:
        if column.lower() in lower:
            return True
        # A field of which the table's names are not known.
        around = accumulate(column.lower().split("."), "{}.{}".format)
        return table.column(column) in names.columns and not paths.isdisjoint(around)

    return keyed
