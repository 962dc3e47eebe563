"""The fields of a table as row filters, masks and denials of policies see them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final

from pyiceberg.schema import Schema, index_by_name
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import ListType, MapType, NestedField, StructType

from catalog.authorization.authorizer import Authorizer, Caller
from catalog.authorization.columns import every_name, view_of
from catalog.base.identifiers import TableName
from catalog.reading.loading import LoadedTable
from policy.errors import RequestInvalid
from policy.misfits import Misfit, misfits, moved
from policy.ranger import PolicySet
from policy.restrictions.columns import SchemaField, TableColumns

_NESTED: Final = {StructType: "struct", ListType: "list", MapType: "map"}


def columns_of(table: LoadedTable, schema: Schema | None = None) -> TableColumns:
    """Return the fields of a schema of a table, with every name that a schema of the table gives them.

    Args:
        table: the table.
        schema: the schema; by default the current one.
    """
    found = table.metadata.schema() if schema is None else schema
    return _named(found, table.metadata.schemas)


def _named(schema: Schema, naming: Iterable[Schema]) -> TableColumns:
    """Return the fields of a schema, with every name that some schemas give them."""
    names: dict[int, set[str]] = defaultdict(set)
    for each in naming:
        for name, field_id in index_by_name(each).items():
            names[field_id].add(name)
    return TableColumns(each for column in schema.fields for each in _fields(column, (), (), names))


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


def masked_sources(authorizer: Authorizer, caller: Caller, table: LoadedTable) -> list[int]:
    """Return the columns that a partition spec is made from and that policies mask for a user.

    The partition of a row does not decide what such a mask shows.
    """
    sources = frozenset(each.source_id for spec in table.metadata.partition_specs for each in spec.fields)
    view = view_of(authorizer, caller, table)
    names = {each: every_name(table, frozenset({each})) for each in sources}
    return sorted(each for each, named in names.items() if view.first_masked(named) is not None)


def require_fitting(policies: PolicySet, table: LoadedTable, after: TableMetadata) -> None:
    """Refuse a change of a table's schema that takes a column from the row filters, masks and denials on it.

    It takes one by its type or by its absence, or if the name that policies find it by goes to another one,
    or with the last schema that has the name.

    Args:
        policies: those in force.
        table: the table before the change.
        after: its metadata after it.

    Raises:
        RequestInvalid: a row filter, mask or denial of a policy fits the schema no more, or a row filter
            would read another column.
    """
    before, schema = table.metadata.schema(), after.schema()
    kept = {each.schema_id for each in after.schemas}
    forgets = any(each.schema_id not in kept for each in table.metadata.schemas)
    if schema == before and not forgets:
        return
    name = (table.record.name.database, table.record.name.name)
    before_all, after_all = columns_of(table), _named(schema, after.schemas)
    known = set(misfits(policies, name, before_all))
    lost = list(moved(policies, name, _named(before, [before]), _named(schema, [schema])))
    if forgets:
        lost += moved(policies, name, before_all, after_all)
    _refuse_first(table, known, (*misfits(policies, name, after_all), *lost), "so that it fits both schemas")


def require_fitting_name(policies: PolicySet, table: LoadedTable, name: TableName) -> None:
    """Refuse another name for a table that takes it from the row filters, masks and denials on it.

    Policies go by names. Without them, all users of the table would see hidden rows and values, not only the
    user who renames it.

    Args:
        policies: those in force.
        table: the table under its old name.
        name: the new one.

    Raises:
        RequestInvalid: a row filter, mask or denial of a policy would not be on the table, or not fit it.
    """
    columns = columns_of(table)
    old, new = ((each.database, each.name) for each in (table.record.name, name))
    known = set(misfits(policies, old, columns))
    lost = (*misfits(policies, new, columns), *moved(policies, old, columns, columns, new))
    _refuse_first(table, known, lost, "so that it names both tables")


def _refuse_first(
    table: LoadedTable, known: Collection[Misfit], found: Iterable[Misfit], wanted: str
) -> None:
    for each in found:
        if each not in known:
            raise RequestInvalid(
                f"The change does not fit policy {each.policy!r}, {each.item}: {each.problem}",
                table=table.name,
                rule=each.rule,
                hint=f"Change the policy first, {wanted}, or ask an administrator to.",
            )
