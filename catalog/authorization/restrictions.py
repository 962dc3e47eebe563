"""The fields of a table as row filters and masks of policies see them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Final

from pyiceberg.schema import Schema, index_by_name
from pyiceberg.types import ListType, MapType, NestedField, StructType

from catalog.reading.loading import LoadedTable
from policy.errors import RequestInvalid
from policy.misfits import misfits, moved
from policy.ranger import PolicySet
from policy.restrictions.columns import SchemaField, TableColumns

_NESTED: Final = {StructType: "struct", ListType: "list", MapType: "map"}


def columns_of(table: LoadedTable, schema: Schema | None = None) -> TableColumns:
    """Return the fields of a schema of a table, with every name that a schema of the table gives them.

    Args:
        table: the table.
        schema: the schema; by default the current one.
    """
    names: dict[int, set[str]] = defaultdict(set)
    for each in table.metadata.schemas:
        for name, field_id in index_by_name(each).items():
            names[field_id].add(name)
    found = table.metadata.schema() if schema is None else schema
    return TableColumns(each for column in found.fields for each in _fields(column, (), (), names))


def _fields(
    field: NestedField,
    path: tuple[str, ...],
    above: tuple[int, ...],
    names: Mapping[int, set[str]],
    *,
    repeated: bool = False,
    in_key: bool = False,
) -> Iterator[SchemaField]:
    """Yield a field, then what is inside of it."""
    path, kind = (*path, field.name), field.field_type
    yield SchemaField(
        field.field_id,
        path,
        _NESTED.get(type(kind)) or str(kind),
        field.required,
        above,
        frozenset(names.get(field.field_id, ())),
        repeated,
        in_key,
    )
    above = (*above, field.field_id)
    if isinstance(kind, StructType):
        for each in kind.fields:
            yield from _fields(each, path, above, names, repeated=repeated, in_key=in_key)
    elif isinstance(kind, ListType):
        yield from _fields(kind.element_field, path, above, names, repeated=True, in_key=in_key)
    elif isinstance(kind, MapType):
        yield from _fields(kind.key_field, path, above, names, repeated=True, in_key=True)
        yield from _fields(kind.value_field, path, above, names, repeated=True, in_key=in_key)


def require_fitting(policies: PolicySet, table: LoadedTable, after: Schema) -> None:
    """Refuse a change of a table's schema that takes a column from the row filters and masks on it.

    Args:
        policies: those in force.
        table: the table before the change.
        after: its schema after it.

    Raises:
        RequestInvalid: a row filter or mask of a policy fits the schema no more, or a row filter would read
            another column.
    """
    if after == table.metadata.schema():
        return
    name = (table.record.name.database, table.record.name.name)
    today, then = columns_of(table), columns_of(table, after)
    known = set(misfits(policies, name, today))
    for each in (*misfits(policies, name, then), *moved(policies, name, today, then)):
        if each not in known:
            raise RequestInvalid(
                f"The change does not fit policy {each.policy!r}, {each.item}: {each.problem}",
                table=table.name,
                rule=each.rule,
                hint="Change the policy first, so that it fits both schemas, or ask an administrator to.",
            )
