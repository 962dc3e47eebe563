"""Decides what a user sees of a table by what is known of it, without its files.

The service plans scans by `policy.view`, and `policy check`, `policy test` and `policy lint` answer by `seen`
here, so that a policy test that passes says what the service does.

- A key opens every column under it, so it needs all of them. A user's own process also needs `release`.
- A scan needs any privilege on the table: a denial on the table itself denies what is in it.
- A standard client gets everything in a table, so it needs every column, and a table that lets it in.
- An engine enforces masks and row filters of policies, and so does a standard client of a user with `enforce`
  on the service. They refuse every other client, and what needs the values as they are, such as an UPDATE. A
  key that opens a column that is NULL for the user is not released.
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
from policy.restrictions.columns import TableColumns
from policy.restrictions.conditions import Column
from policy.restrictions.model import Restriction
from policy.standard_clients import Withheld, enforced, enforces, view_of_everything
from policy.view import SHOWN_MASKED, ColumnNames, MaskedColumn, Reading, Scan, View, refused_key, visible

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
    unaltered: bool = False,
) -> Seen:
    """Decide what a user sees of some columns, by what is known of the table.

    Args:
        view: the user, the table and the policies.
        table: what is known of it.
        paths: the columns that are read, those of fields dotted.
        through: how they are read.
        unaltered: whether they must be read as they are, without masks and row filters.
    """
    if through is Through.STANDARD_CLIENT:
        return _seen_by_standard_client(view, table, paths)
    scan = scan_of(table, paths)
    shown = visible(view, scan)
    hidden = {scan.every[each]: reason for each, reason in shown.masked.items()}
    columns = {path: table.column(path) for path in paths}
    read = [path for path in paths if columns[path] not in hidden]
    engine = through is Through.ENGINE
    enforced = not unaltered and (engine or _closed(view, table, shown.names))
    reading = replace(shown.reading, altered=None) if enforced else shown.reading
    whole = _unseen(view) if reading.granted.allowed else None
    if enforced and whole is None:
        whole = _misfit(view, table, shown.names, hidden.keys())
    return Seen(
        reading,
        {name: why for name, why in hidden.items() if name in columns.values()},
        dict(_keys(view, table, read, through, enforced=enforced)),
        whole,
        tuple(view.restricting(shown.names)) if enforced else (),
    )


def _closed(view: View, table: KnownTable, names: ColumnNames) -> bool:
    """Whether a user's own process has nothing to enforce: it has no key of the masked columns.

    Those that are read are NULL as a whole. These, and all others that are NULL, are under column keys. No
    row filter applies.
    """
    spec = table.spec
    if spec is None or not spec.by_column or view.row_filters:
        return False
    masked = {name for name in names.columns | names.nested if view.mask(name)}
    columns = names.columns.union(table.columns or ())
    keyed = {column for group in spec.columns for column in group.columns}
    if spec.plaintext_columns is not None:
        keyed |= columns.difference(spec.plaintext_columns)
    nulls = {name for name in columns.union(table.nested) if _is_null(view, table, name)}
    return all(table.column(name) in nulls for name in masked) and all(
        not keyed.isdisjoint((name, table.column(name))) for name in nulls
    )


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
        read, by_id = names.columns | names.nested, table.schema.by_id
        fields = frozenset(each.field_id for each in by_id.values() if each.name in read)
        try:
            found = view.restriction(table.schema, field_ids=fields)
        except PolicyInvalid as problem:
            return Reason(problem.rule or "policy", problem.message)
        filtered = {by_id[each].path[0] for each in found.filters_by}
    needed = sorted(hidden & filtered)
    if not needed:
        return None
    return Reason("masked-column", f"A row filter needs the column {needed[0]!r}, which the table masks.")


def _filtered(view: View) -> Iterator[Column]:
    """The columns that the row filters name."""
    for rule in view.row_filters:
        yield from rule.filter.columns if rule.filter else ()


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
    filtered = [str(each) for each in _filtered(view)]
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
    reading = view.reads(names)
    if reading.refused is not None:
        yield key_id, refused_key(key_id, reading.refused)
    elif reading.altered is not None:
        yield key_id, reading.altered


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
    inner = path[len(outer) + 1 :]
    for name in accumulate(inner.split("."), "{}.{}".format, initial=outer) if inner else (outer,):
        rule = view.mask(name)
        known = () if table.schema is None else table.schema.find(name.split("."))
        if (
            rule
            and action_of(rule.type, known[0].type if known else "string") is MaskAction.REPLACE_WITH_NULL
        ):
            return True
    return False


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
    if table.service is None or not enforces(view, table.service):
        return Seen(reading, {}, {}, whole)
    restricting = tuple(view.restricting(names)) if reading.altered else ()
    if restricting and reading.granted.allowed:
        whole = whole or _not_enforced(view, table, names)
    return Seen(replace(reading, altered=None), {}, {}, whole, restricting)


def _not_enforced(view: View, table: KnownTable, names: ColumnNames) -> Reason | None:
    """Why no standard client gets the table, though it is trusted; if the table's schema is known."""
    if table.schema is None:
        return None
    former = ColumnNames() if table.fields is None else table.fields.former()
    found = view_of_everything(view, names, former, table.schema)
    if isinstance(found, Restriction):
        found = enforced(found, table.schema)
    return found.reason if isinstance(found, Withheld) else None


def _refused_client(spec: EncryptionSpec | None) -> Reason | None:
    """Why a table with this encryption does not go to a standard client, unless its namespace lets it in."""
    if spec is None or not spec.encrypts or spec.standard_clients is StandardClients.LOAD:
        return None
    return Reason("standard-client", f"The table is encrypted, and does not set {STANDARD_CLIENTS}=load.")
