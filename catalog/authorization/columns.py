"""Finds the columns of a scan under every name, and checks the caller's privileges on them.

- SELECT is needed on each top-level column that is read or filtered by: that is how grants are written.
- A field nested in it is read under that grant, unless a policy speaks against the field or against one that
  it is nested in: a denial, or a grant that cannot be evaluated. A policy is about the name that it writes:
  only one on `person.ssn`, or one with a wildcard, is about `person.ssn`. To withhold a nested field, deny
  it; a grant that merely leaves it out (`isExcludes`) does not withhold it.
- Reading a field reads what is nested in it. Elements, keys and values are nested fields with Iceberg's names
  (`tags.element`, `props.value`), and with the shorter ones by which a scan may ask for them. Values of a map
  are read with their keys, and keys with the whole map (`catalog.iceberg.selection`).
- A column that was renamed is read under a right on both names: an older snapshot's name for it must not be a
  way around a denial of today's. A mask counts under every name that the column had.
- A scan can ask for metadata columns by Iceberg's names. `_file` and `_partition` show values of the columns
  that the table is or was partitioned by, in directory names too, so that they are read with these columns.
  `_pos` and `_spec_id` need no column. A column of the table that has such a name is meant instead.
- A user's own process on an encrypted table needs `release` on the keys of footers. What else keys need, once
  it is known which files are read, is in `releases`.
- Masks and row filters refuse, unless the reader of a scan enforces them (`catalog.planning.restricting`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from pyiceberg.expressions import BooleanExpression
from pyiceberg.expressions.visitors import bind
from pyiceberg.schema import Schema, index_by_name
from pyiceberg.types import NestedField

from catalog.authorization.authorizer import Authorizer, Caller
from catalog.iceberg.filter_values import comparisons, filtered_columns, require_exact
from catalog.iceberg.selection import inner_fields, maps, with_entries
from catalog.reading.loading import LoadedTable
from policy.decision import Decision, Reason
from policy.errors import NotAuthorized, RequestInvalid
from policy.nearest import did_you_mean
from policy.privileges.requests import AccessRequest
from policy.view import ColumnNames, Reading, View

ACTION: Final = "table.plan"

_SHOWN_NAME: Final = 80
_OF_PARTITIONS: Final = frozenset({"_file", "_partition"})
_METADATA_COLUMNS: Final = _OF_PARTITIONS | {"_pos", "_spec_id"}


@dataclass(frozen=True, slots=True)
class ScanColumns:
    """The columns of a scan.

    Attributes:
        top_level: ids of the top-level columns, in the order of the schema.
        field_ids: ids of the fields that are read or filtered by, with all that is nested in them.
        names: their names and those of what they are nested in, in the scan's schema and in today's.
        outer: of each of these fields that is nested, the ids of what it is nested in.
        sources: those of the fields whose values metadata columns show.
    """

    top_level: tuple[int, ...]
    field_ids: frozenset[int]
    names: ColumnNames
    outer: Mapping[int, frozenset[int]]
    sources: frozenset[int] = frozenset()


def resolve(
    table: LoadedTable,
    schema: Schema,
    columns: Iterable[str] | None,
    row_filter: BooleanExpression,
    *,
    case_sensitive: bool,
    suggests: bool = False,
) -> ScanColumns:
    """Find the columns of a scan.

    Args:
        table: the table.
        schema: the schema that it is read with.
        columns: names of what is wanted, nested ones dotted; None for all.
        row_filter: the filter.
        case_sensitive: whether names in both are.
        suggests: whether the error for an unknown name can tell a name of the schema.

    Raises:
        RequestInvalid: a name that the schema does not have, or a comparison that its type does not, or
            only with another value.
    """
    names = schema.column_names if columns is None else list(columns)
    hidden = [name for name in names if _is_metadata(schema, name)]
    sources = frozenset().union(*(_sources(table, name) for name in hidden))
    wanted = [
        _field_id(table, schema, name, case_sensitive, suggests) for name in names if name not in hidden
    ]
    # Binding leaves out comparisons that it knows the result of, though NULL can make it another.
    filtered = [
        _field_id(table, schema, name, case_sensitive, suggests) for name in filtered_columns(row_filter)
    ]
    try:
        require_exact(row_filter, schema, case_sensitive=case_sensitive, table=table.name)
        bind(schema, row_filter, case_sensitive)
    except (ValueError, TypeError, ArithmeticError) as error:
        column = _incomparable(row_filter, schema, case_sensitive)
        raise RequestInvalid(
            f"The filter compares {column} with a value of another type.",
            table=table.name,
            rule="filter",
            hint="Compare each column with a value of its own type.",
        ) from error
    asked = with_entries(schema, [*wanted, *sources, *filtered])
    chains = [chain for chain in _chains(schema) if not asked.isdisjoint(chain)]
    read = frozenset(chain[-1] for chain in chains)
    touched = {each for chain in chains for each in chain}
    top_level = tuple(each.field_id for each in schema.fields if each.field_id in touched)
    outer = {chain[-1]: frozenset(chain[:-1]) for chain in chains if len(chain) > 1}
    known = names_of(schema, read) | names_of(table.metadata.schema(), read) | every_name(table, sources)
    return ScanColumns(top_level, read, known, outer, sources)


def comparing(columns: ScanColumns, compared: Schema) -> ScanColumns:
    """Return the columns of a scan with those that equality deletes compare."""
    chains = {chain[-1]: frozenset(chain[:-1]) for chain in _chains(compared)}
    leaves = {each for each in chains if compared.find_type(each).is_primitive}
    outer = {each: above for each, above in chains.items() if above} | dict(columns.outer)
    return replace(columns, field_ids=columns.field_ids | leaves, outer=outer)


def _incomparable(row_filter: BooleanExpression, schema: Schema, case_sensitive: bool) -> str:
    """Return the first column of a filter whose type does not have its value."""
    for name, comparison in comparisons(row_filter):
        try:
            bind(schema, comparison, case_sensitive)
        except (ValueError, TypeError, ArithmeticError):
            return f"the column {name[:_SHOWN_NAME]!a}"
    return "a column"


def _is_metadata(schema: Schema, name: str) -> bool:
    """Return whether a name is a metadata column's, and no column's of the table."""
    first = name.partition(".")[0]
    return first in _METADATA_COLUMNS and all(each.name != first for each in schema.fields)


def _sources(table: LoadedTable, name: str) -> frozenset[int]:
    """Return the columns whose values a metadata column shows."""
    first, _, part = name.partition(".")
    if first not in _OF_PARTITIONS:
        return frozenset()
    fields = (each for spec in table.metadata.partition_specs for each in spec.fields)
    sources = {each.source_id for each in fields if not part or each.name == part}
    return frozenset(sources)


def _field_id(table: LoadedTable, schema: Schema, name: str, case_sensitive: bool, suggests: bool) -> int:
    try:
        return schema.find_field(name, case_sensitive).field_id
    except ValueError:
        raise RequestInvalid(
            f"Column {name[:_SHOWN_NAME]!a} does not exist.",
            table=table.name,
            rule="column",
            hint=(did_you_mean(name, schema.column_names) if suggests else "")
            + "Use the names in the table's schema; for nested columns, write a dot between them."
            + (" Column names are case-sensitive." if case_sensitive else ""),
        ) from None


def authorize(authorizer: Authorizer, caller: Caller, table: LoadedTable, reading: Reading) -> None:
    """Refuse a scan that the caller may not make, and record the answer.

    Args:
        authorizer: decides and records.
        caller: who scans.
        table: the table.
        reading: whether the caller can read what the scan touches.

    Raises:
        NotAuthorized: a column or a key is not granted, a column is masked, or rows are filtered.
    """
    require_granted(authorizer, caller, table, reading)
    refuse_altered(authorizer, caller, table, reading.altered)


def require_granted(authorizer: Authorizer, caller: Caller, table: LoadedTable, reading: Reading) -> None:
    """Refuse a scan of which the caller lacks a privilege, and record the answer.

    Args:
        as `authorize`.

    Raises:
        NotAuthorized: a column or a key is not granted.
    """
    requests = caller.releases(footer_keys(table)) if table.governed.ever_encrypted else []
    authorizer.require(caller, ACTION, table.name, requests + reading.required)


def view_of(authorizer: Authorizer, caller: Caller, table: LoadedTable) -> View:
    """The caller's view of a table by the policies in force."""
    return View(
        caller.principal,
        (table.record.name.database, table.record.name.name),
        table.record.owner,
        authorizer.policies(),
        authorizer.now(),
        lambda request: authorizer.decide([request]),
    )


def reading_of(authorizer: Authorizer, caller: Caller, table: LoadedTable, columns: ScanColumns) -> Reading:
    """Return whether the caller can read the columns of a scan. None is shown through a mask of the table."""
    view = view_of(authorizer, caller, table)
    return counting_former(view, table, columns.field_ids, view.reads(columns.names))


def counting_former(view: View, table: LoadedTable, field_ids: frozenset[int], reading: Reading) -> Reading:
    """Return a reading in which masks count under every name that its columns had, too.

    So they do for all who get more than a scan (`standard_clients`, `releases`).
    """
    if reading.altered is not None or not view.has_masks:
        return reading
    return replace(reading, altered=view.masked(every_name(table, field_ids)))


def selects(
    authorizer: Authorizer, caller: Caller, table: LoadedTable, names: ColumnNames
) -> list[AccessRequest]:
    """What is to be asked for, so that these columns may be read."""
    return view_of(authorizer, caller, table).required(names)


def every_name(table: LoadedTable, field_ids: frozenset[int] | None = None) -> ColumnNames:
    """Return every name of some fields and their parents in any schema of the table.

    Args:
        table: the table.
        field_ids: the fields; None for all.
    """
    names = ColumnNames()
    for schema in table.metadata.schemas:
        names |= names_of(schema, frozenset(schema.field_ids) if field_ids is None else field_ids)
    return names


def partition_sources(table: LoadedTable) -> frozenset[int]:
    """Return the columns that a table is or was partitioned by."""
    specs = table.metadata.partition_specs
    return frozenset(field.source_id for spec in specs for field in spec.fields)


def former_fields(table: LoadedTable) -> ColumnNames:
    """Return every name of the fields that only older schemas of a table have, and of their parents."""
    known = frozenset().union(*(schema.field_ids for schema in table.metadata.schemas))
    former = known - frozenset(table.metadata.schema().field_ids)
    return every_name(table, former) if former else ColumnNames()


def names_by_field(table: LoadedTable, field_ids: frozenset[int] | None = None) -> dict[int, ColumnNames]:
    """Return by id every name of some fields and their parents in any schema of the table.

    Args:
        table: the table.
        field_ids: the fields; None for all.
    """
    found: dict[int, ColumnNames] = {}
    for schema in table.metadata.schemas:
        named: dict[int, set[str]] = defaultdict(set)
        for name, field_id in index_by_name(schema).items():
            named[field_id].add(name)
        columns = {each.field_id: each.name for each in schema.fields}
        for chain in _chains(schema):
            if field_ids is None or chain[-1] in field_ids:
                column = columns[chain[0]]
                nested = frozenset().union(*(named[each] for each in chain)) - {column}
                names = ColumnNames(frozenset({column}), nested)
                found[chain[-1]] = found.get(chain[-1], ColumnNames()) | names
    return found


class FieldNames:
    """Finds the names of a table's fields in its schemas, for `policy.known_table`.

    Args:
        table: the table.
    """

    def __init__(self, table: LoadedTable) -> None:
        self._table = table
        self._schema = table.metadata.schema()

    def today(self, path: str) -> ColumnNames | None:
        """See `policy.known_table.FieldNames`."""
        field_id = self._id(path)
        return None if field_id is None else self._names[field_id]

    def ever(self, paths: Iterable[str] | None) -> ColumnNames:
        """See `policy.known_table.FieldNames`."""
        if paths is None:
            return every_name(self._table)
        found = (self._id(each) for each in paths)
        return every_name(self._table, frozenset().union(*(self._inside[each] for each in found if each)))

    def former(self) -> ColumnNames:
        """See `policy.known_table.FieldNames`."""
        return former_fields(self._table)

    def _id(self, path: str) -> int | None:
        for case_sensitive in (True, False):
            with suppress(ValueError):
                return self._schema.find_field(path, case_sensitive).field_id
        return None

    @cached_property
    def _inside(self) -> dict[int, set[int]]:
        """By id each field with all that is nested in it, and what else of a map is read with it."""
        inside: dict[int, set[int]] = defaultdict(set)
        for chain in _chains(self._schema):
            for each in chain:
                inside[each].add(chain[-1])
        read = {each: set(below) for each, below in inside.items()}
        for kind in maps(self._schema.fields):
            key, value = inside[kind.key_id], inside[kind.value_id]
            for each in value:
                read[each] |= key
            for each in key:
                read[each] |= key | value
        return read

    @cached_property
    def _names(self) -> dict[int, ColumnNames]:
        """By id the names of each field, of what it is nested in and of what is nested in it."""
        named: dict[int, set[str]] = defaultdict(set)
        for name, field_id in index_by_name(self._schema).items():
            named[field_id].add(name)
        columns = {each.field_id: each.name for each in self._schema.fields}
        found = {}
        for chain in _chains(self._schema):
            fields = self._inside[chain[-1]].union(chain)
            names = set().union(*(named[each] for each in fields))
            found[chain[-1]] = ColumnNames(
                frozenset({columns[chain[0]]}), frozenset(names - {columns[chain[0]]})
            )
        return found


def _chains(schema: Schema) -> Iterator[tuple[int, ...]]:
    """Return for each field the ids of its parents and its own id, in one pass."""
    left: list[tuple[tuple[int, ...], NestedField]] = [((), each) for each in schema.fields]
    while left:
        above, each = left.pop()
        chain = (*above, each.field_id)
        yield chain
        left += [(chain, inner) for inner in inner_fields(each.field_type)]


def nested_in(schema: Schema, field_id: int) -> frozenset[int]:
    """Return a field of a schema with everything nested in it; nothing if the schema lacks it."""
    return frozenset(chain[-1] for chain in _chains(schema) if field_id in chain)


def names_of(schema: Schema, field_ids: frozenset[int]) -> ColumnNames:
    """Return a schema's names for some fields and their parents."""
    touched = {each for chain in _chains(schema) if chain[-1] in field_ids for each in chain}
    columns = frozenset(each.name for each in schema.fields if each.field_id in touched)
    named = {name for name, field_id in index_by_name(schema).items() if field_id in touched}
    return ColumnNames(columns, frozenset(named - columns))


def footer_keys(table: LoadedTable) -> set[str]:
    """Return the master keys of the footers of a table's files, in all epochs."""
    specs = [epoch.spec for epoch in table.governed.epochs.entries]
    return {spec.master_key_id for spec in specs if spec.master_key_id is not None}


def refuse_masks(
    authorizer: Authorizer, caller: Caller, table: LoadedTable, names: ColumnNames, *, action: str = ACTION
) -> None:
    """Refuse, with a record, columns for which a mask or row filter applies to the caller.

    Raises:
        NotAuthorized: one does.
    """
    refuse_altered(
        authorizer, caller, table, view_of(authorizer, caller, table).altered(names), action=action
    )


def refuse_altered(
    authorizer: Authorizer, caller: Caller, table: LoadedTable, reason: Reason | None, *, action: str = ACTION
) -> None:
    """Refuse, on record, what a mask or a row filter of a policy stands in the way of.

    Raises:
        NotAuthorized: one does.
    """
    if reason is None:
        return
    authorizer.record(caller, action, table.name, Decision.deny(reason))
    raise NotAuthorized(
        reason.detail,
        table=table.name,
        rule=reason.rule,
        hint="Leave the column out, or ask for a policy without the mask."
        if reason.rule == "mask"
        else "Ask for a policy without the row filter.",
    )
