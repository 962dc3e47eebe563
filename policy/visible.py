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

from collections.abc import Collection, Iterable, Mapping, Set
from dataclasses import dataclass, replace
from typing import Final

from policy.decision import Decision, Reason
from policy.encryption.governed import STANDARD_CLIENTS
from policy.encryption.specification import EncryptionSpec, StandardClients
from policy.errors import PolicyInvalid
from policy.known_keys import refused_keys
from policy.known_restrictions import decided, filter_columns, is_filtered, nulls, restriction
from policy.known_table import KnownTable
from policy.privileges.operations import On, required, running_code
from policy.privileges.requests import AccessRequest, Resource, Through
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
    visible,
)

RESTRICTING: Final = frozenset({SHOWN_MASKED, "mask", "row-filter"})
"""The rules of the reasons in an allowed decision by which less is shown."""


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
    plain = nothing and not nulls(view, table)
    closed = through is Through.PROCESS and (plain or _closed(view, table, shown.names))
    enforced = not unaltered and (enforcing or closed)
    reading = replace(shown.reading, altered=None) if enforced else shown.reading
    whole = _unseen(view) if reading.granted.allowed else None
    if enforced and whole is None:
        whole = _misfit(view, table, _deciding(table, shown, through), hidden.keys())
    return Seen(
        reading,
        {name: why for name, why in hidden.items() if name in columns.values()},
        dict(refused_keys(view, table, read, through, enforced=enforced)),
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
    return not is_filtered(view, table) or (through is not Through.PROCESS and not runs_code(view, engine))


def runs_code(view: View, engine: str | None) -> bool:
    """Whether the user can run code in an engine, which then enforces no row filter and no mask for them."""
    if engine is None:
        return False
    return all(view.decide(each).allowed for each in running_code(view.principal, engine))


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
    found = restriction(view, table, shown.names)
    return found is not None and not found


def _closed(view: View, table: KnownTable, names: ColumnNames) -> bool:
    """Whether a user's own process has nothing to enforce: it has no key of the masked columns.

    Those that are read are NULL as a whole. These, and all others that are NULL, are under column keys. No
    row filter applies.
    """
    spec = table.spec
    if spec is None or not spec.by_column or is_filtered(view, table):
        return False
    masked = {name for name in names.columns | names.nested if view.mask(name)}
    columns = names.columns.union(table.columns or ())
    keyed = {column for group in spec.columns for column in group.columns}
    if spec.plaintext_columns is not None:
        keyed |= columns.difference(spec.plaintext_columns)
    hidden = nulls(view, table, columns)
    return all(table.column(name) in hidden for name in masked) and all(
        not keyed.isdisjoint((name, table.column(name))) for name in hidden
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
        filtered = {table.column(str(each)) for each in filter_columns(view)}
    else:
        try:
            found = decided(view, table.schema, names)
        except PolicyInvalid as problem:
            return Reason(problem.rule or "policy", problem.message)
        filtered = {table.schema.by_id[each].path[0] for each in found.filters_by}
    needed = sorted(hidden & filtered)
    if not needed:
        return None
    return Reason("masked-column", f"A row filter needs the column {needed[0]!r}, which the table masks.")


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
