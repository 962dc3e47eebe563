"""Decides what a user sees of a table: columns, masks, rows and keys.

The service plans scans by it, and `policy check`, `policy test` and `policy lint` answer by it, so that a
policy test that passes says what the service does.

- A column is read with SELECT on it, under every name in question. A field inside it is read under the same
  grant, unless a policy speaks against the field: a denial, or a grant that cannot be evaluated.
- A column that the user cannot select, and that the table holds a mask of (`encryption.masks`), is shown
  through that mask. Masks are for users who can read the rest: a scan of nothing but masked columns needs
  every other column.
- Masks and row filters of policies are not applied, so they refuse the scan.
- A key opens every column under it, so it needs all of them. A user's own process also needs `release`.
- A standard client gets everything in a table, so it needs every column, and a table that lets it in.

What keys a scan needs depends on its files. The service reads that in their key metadata; without files,
`seen` takes the current specification.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import accumulate
from typing import Final

from policy.decision import Decision, Reason
from policy.encryption.governed import STANDARD_CLIENTS
from policy.encryption.specification import EncryptionSpec, StandardClients
from policy.principal import Principal
from policy.privileges.operations import key_requests
from policy.privileges.requests import AccessRequest, Resource, Through
from policy.ranger import MaskRule, PolicySet

_FIELD: Final = Decision.allow(Reason("nested-field", "No policy denies the field."))
SHOWN_MASKED: Final = "column-mask"
"""The rule by which a column is shown through the table's mask."""


@dataclass(frozen=True, slots=True)
class ColumnNames:
    """Names of columns.

    Attributes:
        columns: of top-level columns.
        nested: of fields nested in them, dotted.
    """

    columns: frozenset[str] = frozenset()
    nested: frozenset[str] = frozenset()

    def __or__(self, other: ColumnNames) -> ColumnNames:
        return ColumnNames(self.columns | other.columns, self.nested | other.nested)


@dataclass(frozen=True, slots=True)
class Reading:
    """Whether a user can read some columns.

    Attributes:
        answers: SELECT on each column, then on each nested field, with the answer.
        altered: the mask or row filter of a policy that changes what is read; None if there is none.
    """

    answers: tuple[tuple[AccessRequest, Decision], ...]
    altered: Reason | None

    @property
    def required(self) -> list[AccessRequest]:
        """What has to be granted, without fields that no policy speaks against."""
        return [request for request, answer in self.answers if answer is not _FIELD]

    @property
    def refused(self) -> tuple[AccessRequest, Decision] | None:
        """The first request that is refused; None if all are granted."""
        return next((each for each in self.answers if not each[1].allowed), None)

    @property
    def granted(self) -> Decision:
        """Whether SELECT is granted on all of them."""
        return Decision.all_of(answer for _, answer in self.answers)


@dataclass(frozen=True, slots=True)
class View:
    """One user's view of one table by one set of policies.

    Attributes:
        principal: the user.
        table: the table's database and name.
        owner: the table's owner; None if there is none, or it is not known.
        policies: answers which masks and row filters apply.
        now: the time, with a zone.
        decide: answers a request by these policies at that time.
    """

    principal: Principal
    table: tuple[str, str]
    owner: str | None
    policies: PolicySet
    now: datetime
    decide: Callable[[AccessRequest], Decision]

    @classmethod
    def of(
        cls,
        policies: PolicySet,
        now: datetime,
        principal: Principal,
        table: tuple[str, str],
        owner: str | None,
    ) -> View:
        """A view in which the policies decide each request by themselves."""
        return cls(principal, table, owner, policies, now, partial(policies.decide, now=now))

    def reads(self, names: ColumnNames) -> Reading:
        """Whether the user can read all columns and fields of these names, as they are."""
        return Reading(tuple(self.answers(names)), self.altered(names))

    def required(self, names: ColumnNames) -> list[AccessRequest]:
        """What has to be granted, so that the user can select these."""
        return Reading(tuple(self.answers(names)), None).required

    def answers(self, names: ColumnNames) -> Iterator[tuple[AccessRequest, Decision]]:
        """SELECT on each of these names, with the answer."""
        for name in sorted(names.columns):
            request = self._select(name)
            yield request, self.decide(request)
        for name in sorted(names.nested):
            request = self._select(name)
            answer = self.decide(request)
            unheard = not answer.allowed and all(each.rule == "policy-no-match" for each in answer.reasons)
            yield request, _FIELD if unheard or answer.allowed else answer

    def altered(self, names: ColumnNames) -> Reason | None:
        """The mask of a policy on one of these columns, else a row filter of the table; None if there is
        neither."""
        masked = self.first_masked(names)
        if masked is not None:
            return Reason("mask", f"A policy masks the column {masked!r}.")
        if self.has_row_filter:
            return Reason("row-filter", f"A policy filters the rows of {'.'.join(self.table)}.")
        return None

    def first_masked(self, names: ColumnNames) -> str | None:
        """The first of these columns, by name, that a policy masks."""
        return next((name for name in sorted(names.columns | names.nested) if self.mask(name)), None)

    @property
    def has_row_filter(self) -> bool:
        """Whether a policy filters the table's rows."""
        return self.policies.has_row_filter(self.principal, *self.table, self.now, owner=self.owner)

    def mask(self, name: str) -> MaskRule | None:
        """The mask of a policy on a column."""
        return self.policies.mask_for(self.principal, *self.table, name, self.now, owner=self.owner)

    def withheld(self, names: ColumnNames) -> Reason | None:
        """Why the user cannot select all of these; None if the user can, be it masked."""
        answers = (answer for _, answer in self.answers(names))
        return next((each.reasons[0] for each in answers if not each.allowed), None)

    def _select(self, name: str) -> AccessRequest:
        return AccessRequest(self.principal, Resource.column(*self.table, name), "select", owner=self.owner)


@dataclass(frozen=True, slots=True)
class MaskedColumn:
    """A top-level column that the table holds a mask of.

    Attributes:
        field_id: its id.
        name: its name.
        mask: the mask.
        names: of what a scan reads of it; of all that is in it where the scan does not read it.
        read: whether the scan reads it.
    """

    field_id: int
    name: str | None
    mask: str
    names: ColumnNames
    read: bool


@dataclass(frozen=True, slots=True)
class Scan:
    """What is read of a table.

    Attributes:
        names: of the columns that are read and of which the table holds no mask.
        every: by id the names of all top-level columns; those of `masks` by the same ids.
        masks: every column of which the table holds a mask.
    """

    names: ColumnNames
    every: Mapping[int, str]
    masks: tuple[MaskedColumn, ...] = ()


@dataclass(frozen=True, slots=True)
class Visible:
    """What a user sees of a scan.

    Attributes:
        names: of the columns that are read as they are.
        masked: by id the columns that are shown through the table's masks, and why.
        reading: whether the rest can be read.
    """

    names: ColumnNames
    masked: Mapping[int, Reason]
    reading: Reading


def visible(view: View, scan: Scan) -> Visible:
    """Decide which columns of a scan a user sees, and which of them masked."""
    masked = {
        each.field_id: _masked(each, reason)
        for each in scan.masks
        if (reason := view.withheld(each.names)) is not None
    }
    names = scan.names
    for each in scan.masks:
        if each.read and each.field_id not in masked:
            names |= each.names
    if masked and not names.columns:
        names = ColumnNames(frozenset(name for key, name in scan.every.items() if key not in masked))
    # Counting tells of all columns, but shows no value that a mask would change.
    granted = names if names.columns else ColumnNames(frozenset(scan.every.values()), names.nested)
    return Visible(names, masked, Reading(tuple(view.answers(granted)), view.altered(names)))


def _masked(column: MaskedColumn, against: Reason) -> Reason:
    detail = f"The column {column.name!r} is shown through its mask, {column.mask}: {against.detail}"
    return Reason(SHOWN_MASKED, detail, against.policy, against.item)


def refused_key(key_id: str, refused: tuple[AccessRequest, Decision]) -> Reason:
    """Why a key is not released to a user who cannot select a column that it opens."""
    request, decision = refused
    column = request.resource.values[-1]
    return Reason("key-group", f"The key {key_id!r} also opens the column {column!r}: {decision.explanation}")


@dataclass(frozen=True, slots=True)
class KnownTable:
    """What is known of a table without its files.

    Attributes:
        columns: its top-level columns; None if they are not known.
        nested: dotted names of the fields in them.
        spec: its encryption; None if it is not known.
    """

    columns: tuple[str, ...] | None = None
    nested: tuple[str, ...] = ()
    spec: EncryptionSpec | None = None

    def inside(self, path: str) -> ColumnNames:
        """A column or field with what it is nested in, and what is nested in it in any letter case."""
        outer, *fields = accumulate(path.split("."), "{}.{}".format)
        below = (each for each in self.nested if each.lower().startswith(f"{path.lower()}."))
        return ColumnNames(frozenset({outer}), frozenset({*fields, *below}))

    def everything(self) -> ColumnNames:
        """Every column and field."""
        return ColumnNames(frozenset(self.columns or ()), frozenset(self.nested))


@dataclass(frozen=True, slots=True)
class Seen:
    """What a user sees of some columns of a table.

    Attributes:
        reading: whether the columns that are read as they are can be read.
        masked: the columns that are shown through the table's masks, and why.
        keys: the master keys whose data keys are not released, and why.
        client: why the table does not go to the user's client.
    """

    reading: Reading
    masked: Mapping[str, Reason]
    keys: Mapping[str, Reason]
    client: Reason | None

    @property
    def requests(self) -> tuple[AccessRequest, ...]:
        """What was asked of the policies about columns."""
        return tuple(request for request, _ in self.reading.answers)

    @property
    def decision(self) -> Decision:
        """Whether the scan is allowed; a column that is shown through a mask is named in the reasons."""
        if self.client is not None:
            return Decision.deny(self.client)
        granted, altered = self.reading.granted, self.reading.altered
        if not granted.allowed:
            return granted
        refused = [*([] if altered is None else [altered]), *self.keys.values()]
        if refused:
            return Decision.deny(*dict.fromkeys(refused))
        return Decision.allow(*self.masked.values(), *granted.reasons)


def seen(view: View, table: KnownTable, paths: Collection[str], through: Through = Through.ENGINE) -> Seen:
    """Decide what a user sees of some columns, by what is known of the table.

    Args:
        view: the user, the table and the policies.
        table: what is known of it.
        paths: the columns that are read, those of fields dotted.
        through: how they are read.
    """
    if through is Through.STANDARD_CLIENT:
        return _seen_by_standard_client(view, table, paths)
    scan = scan_of(table, paths)
    shown = visible(view, scan)
    hidden = {scan.every[each]: reason for each, reason in shown.masked.items()}
    read = [path for path in paths if path.partition(".")[0] not in hidden]
    return Seen(
        shown.reading,
        {name: why for name, why in hidden.items() if any(path.partition(".")[0] == name for path in paths)},
        dict(_keys(view, table, read, through)),
        None,
    )


def scan_of(table: KnownTable, paths: Collection[str]) -> Scan:
    """A scan of some columns, by what is known of the table."""
    groups = table.spec.masks if table.spec else ()
    masks = {column: group.mask for group in groups for column in group.columns}
    every = dict(enumerate(dict.fromkeys((*(table.columns or ()), *masks))))
    plain, touched = ColumnNames(), dict.fromkeys(masks, ColumnNames())
    for path in paths:
        outer = path.partition(".")[0]
        if outer in touched:
            touched[outer] |= table.inside(path)
        else:
            plain |= table.inside(path)
    masked = tuple(
        MaskedColumn(number, name, masks[name], touched[name] if read else table.inside(name), read)
        for number, name in every.items()
        if name in masks
        for read in (bool(touched[name].columns),)
    )
    return Scan(plain, every, masked)


def _keys(
    view: View, table: KnownTable, read: Collection[str], through: Through
) -> Iterator[tuple[str, Reason]]:
    """The keys that the scan needs and the user does not get, and why."""
    spec = table.spec
    if spec is None or not spec.encrypts:
        return
    opened = {
        group.key_id: group.columns
        for group in spec.columns
        if any(_overlap(path, column) for path in read for column in group.columns)
    }
    if through is Through.PROCESS:
        needed = {*opened, *([] if spec.master_key_id is None else [spec.master_key_id])}
        for request in key_requests(view.principal, needed, "release"):
            decision = view.decide(request)
            if not decision.allowed:
                yield request.resource.values[-1], decision.reasons[0]
        if not spec.columns and spec.master_key_id is not None:
            yield from _refused_key(view, spec.master_key_id, table.everything())
    for key_id, columns in opened.items():
        names = ColumnNames()
        for column in columns:
            names |= table.inside(column)
        yield from _refused_key(view, key_id, names)


def _refused_key(view: View, key_id: str, names: ColumnNames) -> Iterator[tuple[str, Reason]]:
    reading = view.reads(names)
    if reading.refused is not None:
        yield key_id, refused_key(key_id, reading.refused)
    elif reading.altered is not None:
        yield key_id, reading.altered


def _overlap(one: str, other: str) -> bool:
    return f"{one}.".startswith(f"{other}.") or f"{other}.".startswith(f"{one}.")


def _seen_by_standard_client(view: View, table: KnownTable, paths: Iterable[str]) -> Seen:
    names = table.everything()
    for path in paths:
        names |= table.inside(path)
    return Seen(view.reads(names), {}, {}, _refused_client(table.spec))


def _refused_client(spec: EncryptionSpec | None) -> Reason | None:
    """Why a table with this encryption does not go to a standard client, unless its namespace lets it in."""
    if spec is None or not spec.encrypts or spec.standard_clients is StandardClients.LOAD:
        return None
    return Reason("standard-client", f"The table is encrypted, and does not set {STANDARD_CLIENTS}=load.")
