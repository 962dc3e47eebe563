"""Decides what a user sees of a table by what is known of it, without its files.

The service plans scans by `policy.view`, and `policy check`, `policy test` and `policy lint` answer by `seen`
here, so that a policy test that passes says what the service does.

- A key opens every column under it, so it needs all of them. A user's own process also needs `release`.
- A scan needs any privilege on the table: a denial on the table itself denies what is in it.
- A standard client gets everything in a table, so it needs every column, and a table that lets it in.
- An engine enforces masks and row filters of policies for users who cannot run code in it, and so does a
  standard client of a user with `enforce` on the service. They refuse every other client, and what needs the
  values as they are, such as an UPDATE. A key that opens a column that is NULL for the user is not released.
- A row filter reads columns that the user cannot select, but none that is shown through a mask of the table.

What keys a scan needs depends on its files. The service reads that in their key metadata; without files,
`seen` takes the current specification.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Final, Protocol

from policy.decision import Decision, Reason
from policy.encryption.governed import STANDARD_CLIENTS
from policy.encryption.specification import EncryptionSpec, StandardClients
from policy.errors import PolicyInvalid
from policy.privileges.operations import On, key_requests, required
from policy.privileges.requests import AccessRequest, Resource, Through
from policy.restrictions.actions import MaskAction, action_of
from policy.restrictions.columns import SchemaField, TableColumns
from policy.restrictions.conditions import Column
from policy.restrictions.model import Restriction
from policy.standard_clients import Withheld, enforced, enforces, view_of_everything
from policy.view import (
    SHOWN_MASKED,
    ColumnNames,
    MaskedColumn,
    Reading,
    Scan,
    View,
    Visible,
    refused_key,
    visible,
)

RESTRICTING: Final = frozenset({SHOWN_MASKED, "mask", "row-filter"})
"""The rules of the reasons in an allowed decision by which less is shown."""


class FieldNames(Protocol):
    """Finds the names of a table's fields in its schemas. A policy can be about any of them."""

    def today(self, path: str) -> ColumnNames | None:
        """The names in the current schema of a field in any letter case, of what it is nested in, and of what
        is nested in it; None if the schema does not have it."""

    def ever(self, paths: Iterable[str] | None) -> ColumnNames:
        """The same names of some fields in every schema of the table; of all fields if `paths` is None."""

    def former(self) -> ColumnNames:
        """The names of the fields that only older schemas have, and of what these are nested in."""


@dataclass(frozen=True, slots=True)
class KnownTable:
    """What is known of a table without its files.

    Attributes:
        columns: its top-level columns; None if they are not known.
        nested: dotted names of the fields in them.
        spec: its encryption; None if it is not known.
        fields: finds names in its schemas; None if these are not known.
        schema: its fields with their types, by which row filters and masks are decided; None if these are not
            known.
        service: the catalog that it is in, which is the service's name in policies; None if it is not known.
    """

    columns: tuple[str, ...] | None = None
    nested: tuple[str, ...] = ()
    spec: EncryptionSpec | None = None
    fields: FieldNames | None = None
    schema: TableColumns | None = None
    service: str | None = None

    def inside(self, path: str) -> ColumnNames:
        """A column or field in any letter case, with what it is nested in, and what is nested in it."""
        found = None if self.fields is None else self.fields.today(path)
        if found is not None:
            return found
        outer = self._outer(path)
        inner = path[len(outer) + 1 :]
        around = accumulate(inner.split("."), "{}.{}".format, initial=outer) if inner else ()
        below = (each for each in self.nested if each.lower().startswith(f"{path.lower()}."))
        return ColumnNames(frozenset({outer}), frozenset({*around, *below} - {outer}))

    def ever(self, paths: Collection[str]) -> ColumnNames:
        """The names that `inside` finds of some columns and fields, and those that they had."""
        names = _inside(self, paths)
        return names if self.fields is None else names | self.fields.ever(paths)

    def column(self, path: str) -> str:
        """The top-level column that a path is, or is nested in."""
        return next(iter(self.inside(path).columns))

    def everything(self) -> ColumnNames:
        """Every column and field, under every name that it has or had."""
        today = ColumnNames(frozenset(self.columns or ()), frozenset(self.nested))
        return today if self.fields is None else today | self.fields.ever(None)

    def _outer(self, path: str) -> str:
        """The top-level column of a path, by names alone: a column's own name can have dots."""
        known: Iterable[str] = self.columns or ()
        if self.columns is None and self.spec is not None:
            keyed = [column for group in self.spec.columns for column in group.columns]
            masked = [column for group in self.spec.masks for column in group.columns]
            plaintext = self.spec.plaintext_columns or ()
            known = (column.partition(".")[0] for column in (*keyed, *masked, *plaintext))
        lower, first = f"{path.lower()}.", path.partition(".")[0]
        holders = (each for each in known if lower.startswith(f"{each.lower()}."))
        return max(holders, key=lambda each: (len(each), path.startswith(each)), default=first)


@dataclass(frozen=True, slots=True)
class Seen:
    """What a user sees of some columns of a table.

    Attributes:
        reading: whether the columns that are read as they are can be read.
        masked: the columns that are shown through the table's masks, and why.
        keys: the master keys whose data keys are not released, and why.
        whole: why nothing of the table is shown, whatever is read: the user has no privilege on the table, it
            does not go to the user's client, or a row filter or mask does not fit its schema.
        restricting: the masks and row filters of policies that the engine enforces.
    """

    reading: Reading
    masked: Mapping[str, Reason]
    keys: Mapping[str, Reason]
    whole: Reason | None
    restricting: tuple[Reason, ...] = ()

    @property
    def requests(self) -> tuple[AccessRequest, ...]:
        """What was asked of the policies about columns."""
        return tuple(request for request, _ in self.reading.answers)

    @property
    def decision(self) -> Decision:
        """Whether the scan is allowed; the reasons name masked columns and row filters."""
        if self.whole is not None:
            return Decision.deny(self.whole)
        granted, altered = self.reading.granted, self.reading.altered
        if not granted.allowed:
            return granted
        refused = [*([] if altered is None else [altered]), *self.keys.values()]
        if refused:
            return Decision.deny(*dict.fromkeys(refused))
        return Decision.allow(*self.masked.values(), *self.restricting, *granted.reasons)


def seen(
    view: View,
    table: KnownTable,
    paths: Collection[str],
    through: Through = Through.ENGINE,
    *,
    engine: str | None = None,
    unaltered: bool = False,
) -> Seen:
    """Decide what a user sees of some columns, by what is known of the table.

    Args:
        view: the user, the table and the policies.
        table: what is known of it.
        paths: the columns that are read, those of fields dotted.
        through: how they are read.
        engine: the engine's name; None if it is not known, so that the user is taken to run no code in it.
        unaltered: whether they must be read as they are, without masks and row filters.
    """
    if through is Through.STANDARD_CLIENT:
        return _seen_by_standard_client(view, table, paths)
    scan = scan_of(table, paths)
    shown = visible(view, scan)
    shown = _counting_former(view, table, paths, shown)
    hidden = {scan.every[each]: reason for each, reason in shown.masked.items()}
    columns = {path: table.column(path) for path in paths}
    read = [path for path in paths if columns[path] not in hidden]
    nothing = _enforces_nothing(view, table, shown)
    enforcing = through is Through.ENGINE and (nothing or not runs_code(view, engine))
    plain = nothing and not _nulls(view, table)
    closed = through is Through.PROCESS and (plain or _closed(view, table, shown.names))
    enforced = not unaltered and (enforcing or closed)
    reading = replace(shown.reading, altered=None) if enforced else shown.reading
    whole = _unseen(view) if reading.granted.allowed else None
    if enforced and whole is None:
        whole = _misfit(view, table, _deciding(table, shown, through), hidden.keys())
    return Seen(
        reading,
        {name: why for name, why in hidden.items() if name in columns.values()},
        dict(_keys(view, table, read, through, enforced=enforced)),
        whole,
        tuple(view.restricting(shown.names | table.ever(read))) if enforced else (),
    )


def _counting_former(view: View, table: KnownTable, paths: Collection[str], shown: Visible) -> Visible:
    """Count masks under every name that the columns had, as the service does."""
    if shown.reading.altered is not None:
        return shown
    read = [each for each in paths if table.column(each) in shown.names.columns]
    return replace(shown, reading=replace(shown.reading, altered=view.masked(table.ever(read))))


def enforces_filters(view: View, table: KnownTable, through: Through, engine: str | None) -> bool:
    """Whether a reader enforces the row filters of a table, or has none to enforce."""
    return not _is_filtered(view, table) or (through is not Through.PROCESS and not runs_code(view, engine))


def runs_code(view: View, engine: str | None) -> bool:
    """Whether the user can run code in an engine, which then enforces no row filter and no mask for them."""
    if engine is None:
        return False
    return all(
        view.decide(each).allowed for each in required("engine.code", On.engine(view.principal, engine))
    )


def _deciding(table: KnownTable, shown: Visible, through: Through) -> ColumnNames:
    """The columns whose masks have to fit the schema: all, where keys open more than what is read."""
    spec, engine = table.spec, through is Through.ENGINE
    keyed = engine and spec is not None and spec.by_column
    opened = not engine or (spec is not None and spec.encrypts)
    return table.everything() if keyed or (opened and shown.reading.altered is not None) else shown.names


def _enforces_nothing(view: View, table: KnownTable, shown: Visible) -> bool:
    """Whether row filters and masks apply that change nothing for the user: all rows pass."""
    if shown.reading.altered is None:
        return False
    found = _restriction(view, table, shown.names)
    return found is not None and not found


def _restriction(view: View, table: KnownTable, names: ColumnNames) -> Restriction | None:
    """The row filter and the masks on some columns; None if they do not fit the schema or it is not known."""
    if table.schema is None:
        return None
    try:
        return _decided(view, table.schema, names)
    except PolicyInvalid:
        return None


def _decided(view: View, schema: TableColumns, names: ColumnNames) -> Restriction:
    """The row filter and the masks on some columns.

    Raises:
        PolicyInvalid: they do not fit the schema.
    """
    read = names.columns | names.nested
    fields = frozenset(each.field_id for each in schema.by_id.values() if each.name in read)
    return view.restriction(schema, field_ids=fields)


def _closed(view: View, table: KnownTable, names: ColumnNames) -> bool:
    """Whether a user's own process has nothing to enforce: it has no key of the masked columns.

    Those that are read are NULL as a whole. These, and all others that are NULL, are under column keys. No
    row filter applies.
    """
    spec = table.spec
    if spec is None or not spec.by_column or _is_filtered(view, table):
        return False
    masked = {name for name in names.columns | names.nested if view.mask(name)}
    columns = names.columns.union(table.columns or ())
    keyed = {column for group in spec.columns for column in group.columns}
    if spec.plaintext_columns is not None:
        keyed |= columns.difference(spec.plaintext_columns)
    nulls = _nulls(view, table, columns)
    return all(table.column(name) in nulls for name in masked) and all(
        not keyed.isdisjoint((name, table.column(name))) for name in nulls
    )


def _nulls(view: View, table: KnownTable, columns: Collection[str] = ()) -> set[str]:
    """The columns and fields of the table, and of `columns`, that are NULL for the user."""
    return {name for name in {*columns, *(table.columns or ()), *table.nested} if _is_null(view, table, name)}


def _misfit(view: View, table: KnownTable, names: ColumnNames, hidden: Set[str]) -> Reason | None:
    """Why a row filter or a mask cannot be enforced. Whether it fits is told if the table's schema is known.

    Args:
        view: the user, the table and the policies.
        table: what is known of it.
        names: of the columns that are read.
        hidden: the columns that are shown through the table's masks: no row filter sees their values.
    """
    if table.schema is None:
        filtered = {table.column(str(each)) for each in _filtered(view)}
    else:
        try:
            found = _decided(view, table.schema, names)
        except PolicyInvalid as problem:
            return Reason(problem.rule or "policy", problem.message)
        filtered = {table.schema.by_id[each].path[0] for each in found.filters_by}
    needed = sorted(hidden & filtered)
    if not needed:
        return None
    return Reason("masked-column", f"A row filter needs the column {needed[0]!r}, which the table masks.")


def _filtered(view: View) -> Iterator[Column]:
    """The columns that the row filters name."""
    for rule in view.row_filters:
        yield from rule.filter.columns if rule.filter else ()


def _is_filtered(view: View, table: KnownTable) -> bool:
    """Whether a row filter hides rows from the user, as far as the schema is known."""
    found = _restriction(view, table, ColumnNames())
    return bool(view.row_filters if found is None else found)


def _unseen(view: View) -> Reason | None:
    """Why nothing of the table is shown, whatever is read of it: a policy on the table denies it."""
    answers = map(view.decide, required("table.plan", _on(view)))
    return next((each.reasons[0] for each in answers if not each.allowed), None)


def _on(view: View) -> On:
    return On(view.principal, Resource.table(*view.table), view.owner)


def scan_of(table: KnownTable, paths: Collection[str]) -> Scan:
    """A scan of some columns, by what is known of the table."""
    groups = table.spec.masks if table.spec else ()
    masks = {column: group.mask for group in groups for column in group.columns}
    every = dict(enumerate(dict.fromkeys((*(table.columns or ()), *masks))))
    plain, touched = ColumnNames(), dict.fromkeys(masks, ColumnNames())
    for path in paths:
        names = table.inside(path)
        (outer,) = names.columns
        if outer in touched:
            touched[outer] |= names
        else:
            plain |= names
    masked = tuple(
        MaskedColumn(number, name, masks[name], touched[name] if read else table.inside(name), read)
        for number, name in every.items()
        if name in masks
        for read in (bool(touched[name].columns),)
    )
    return Scan(plain, every, masked)


def _keys(
    view: View, table: KnownTable, read: Collection[str], through: Through, *, enforced: bool
) -> Iterator[tuple[str, Reason]]:
    """The keys that the scan needs and the user does not get, and why."""
    spec = table.spec
    if spec is None or not spec.encrypts:
        return
    found = _restriction(view, table, ColumnNames())
    if found is None or table.schema is None:
        filtered = [str(each) for each in _filtered(view)]
    else:
        filtered = [table.schema.by_id[each].name for each in sorted(found.filters_by)]
    selected = _inside(table, read)
    if enforced:
        read = [*(each for each in read if not _is_null(view, table, each)), *filtered]
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
        if column.lower() not in lower and _is_null(view, table, column):
            detail = f"The key {key_id!r} also opens the column {column!r}, whose values a policy withholds."
            yield key_id, Reason("mask", detail)
            return


def _is_null(view: View, table: KnownTable, path: str) -> bool:
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


def _with_fields_of(table: KnownTable, read: Collection[str]) -> Callable[[str], bool]:
    """Tells whether a column or field that has a key has a field in common with what is read."""
    names = _inside(table, read)
    lower = {each.lower() for each in names.columns | names.nested}
    paths = set(map(str.lower, read))

    def keyed(column: str) -> bool:
        if column.lower() in lower:
            return True
        # A field of which the table's names are not known.
        around = accumulate(column.lower().split("."), "{}.{}".format)
        return table.column(column) in names.columns and not paths.isdisjoint(around)

    return keyed


def _inside(table: KnownTable, paths: Collection[str]) -> ColumnNames:
    found = [table.inside(each) for each in paths]
    return ColumnNames(
        frozenset().union(*(each.columns for each in found)),
        frozenset().union(*(each.nested for each in found)),
    )


def _seen_by_standard_client(view: View, table: KnownTable, paths: Iterable[str]) -> Seen:
    names = table.everything()
    for path in paths:
        names |= table.inside(path)
    reading = view.reads(names)
    if not reading.answers:
        request = _on(view).request("select")
        reading = replace(reading, answers=((request, view.decide(request)),))
    whole = _refused_client(table.spec) or _unseen(view)
    if reading.altered is None or not reading.granted.allowed:
        return Seen(reading, {}, {}, whole)
    trusted = table.service is not None and enforces(view, table.service)
    found = _for_everything(view, table, names)
    if isinstance(found, Withheld):
        whole = whole or found.reason
    elif found is None or found:
        if not trusted:
            return Seen(reading, {}, {}, whole)
        whole = whole or _not_enforced(table, found)
    return Seen(replace(reading, altered=None), {}, {}, whole, tuple(view.restricting(names)))


def _for_everything(view: View, table: KnownTable, names: ColumnNames) -> Restriction | Withheld | None:
    """What applies to the whole table; None if its schema is not known."""
    if table.schema is None:
        return None
    former = ColumnNames() if table.fields is None else table.fields.former()
    return view_of_everything(view, names, former, table.schema)


def _not_enforced(table: KnownTable, found: Restriction | None) -> Reason | None:
    """Why a trusted client does not get the table with this restriction."""
    if found is None or table.schema is None:
        return None
    answered = enforced(found, table.schema)
    return answered.reason if isinstance(answered, Withheld) else None


def _refused_client(spec: EncryptionSpec | None) -> Reason | None:
    """Why a table with this encryption does not go to a standard client, unless its namespace lets it in."""
    if spec is None or not spec.encrypts or spec.standard_clients is StandardClients.LOAD:
        return None
    return Reason("standard-client", f"The table is encrypted, and does not set {STANDARD_CLIENTS}=load.")
