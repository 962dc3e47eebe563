"""Decides what a user sees of a scan of a table: columns, masks and rows.

- A column is read with SELECT on it, under every name in question. A field inside it is read under the same
  grant, unless a policy speaks against the field: a denial, or a grant that cannot be evaluated.
- A column that the user cannot select, and that the table holds a mask of (`encryption.masks`), is shown
  through that mask. Masks are for users who can read the rest: a scan of nothing but masked columns needs
  every other column.
- Masks and row filters of policies are one `Restriction`. A reader that enforces it gets it with the scan;
  for all others, it refuses the scan (`altered`).
- A mask on a field covers what is inside of the field. A row filter reads columns as the policy's own: the
  user needs no privilege on them.
- What cannot be decided refuses: a filter on a column that the table does not have, a mask on another type.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Final

from policy.decision import Decision, Reason
from policy.errors import PolicyInvalid
from policy.principal import Principal
from policy.privileges.requests import AccessRequest, Resource
from policy.ranger import FilterRule, MaskRule, PolicySet
from policy.ranger.model import PolicyType
from policy.restrictions.binding import Asker, bind
from policy.restrictions.columns import SchemaField, TableColumns
from policy.restrictions.masks import mask_of, strictest
from policy.restrictions.model import ColumnMask, Restriction
from policy.restrictions.predicate import FALSE, Predicate, all_of

_FIELD: Final = Decision.allow(Reason("nested-field", "No policy denies the field."))
#: Characters of a row filter that a reason shows.
_SHOWN_TEXT: Final = 300
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

    def whole_table(self) -> tuple[AccessRequest, Decision]:
        """SELECT on the table, with the answer: what a scan of a table without columns needs."""
        request = AccessRequest(self.principal, Resource.table(*self.table), "select", owner=self.owner)
        return request, self.decide(request)

    def altered(self, names: ColumnNames) -> Reason | None:
        """The mask of a policy on one of these columns, else a row filter of the table; None if there is
        neither."""
        masked, filters = self.masked(names), self.row_filters
        if masked is None and filters:
            detail = f"A policy filters the rows of {'.'.join(self.table)}."
            return Reason("row-filter", detail, filters[0].policy, filters[0].item)
        return masked

    def masked(self, names: ColumnNames) -> Reason | None:
        """The mask of a policy on one of these columns; None if there is none."""
        for name in sorted(names.columns | names.nested):
            rule = self.mask(name)
            if rule is not None:
                return Reason("mask", f"A policy masks the column {name!r}.", rule.policy, rule.item)
        return None

    def first_masked(self, names: ColumnNames) -> str | None:
        """The first of these columns, by name, that a policy masks."""
        return next((name for name in sorted(names.columns | names.nested) if self.mask(name)), None)

    @property
    def has_masks(self) -> bool:
        """Whether a policy can mask a column of the table for a user."""
        return any(each.type is PolicyType.MASK for each in self.policies.restricting(*self.table))

    @property
    def has_row_filter(self) -> bool:
        """Whether a policy filters the table's rows."""
        return bool(self.row_filters)

    @property
    def row_filters(self) -> tuple[FilterRule, ...]:
        """The row filters of policies on the table, all of which a row has to pass."""
        return self.policies.row_filters_for(self.principal, *self.table, self.now, owner=self.owner)

    def restriction(
        self,
        columns: TableColumns,
        read: TableColumns | None = None,
        field_ids: Collection[int] | None = None,
    ) -> Restriction:
        """The row filter and the masks of policies.

        Args:
            columns: the table's current schema.
            read: the schema that it is read with; by default the current one.
            field_ids: what is read of it; by default everything.

        Raises:
            PolicyInvalid: a filter or mask does not fit the schema. The error names the policy.
        """
        read = read or columns
        wanted = [each for each in read.by_id if field_ids is None or each in field_ids]
        filters, why = self._filtered(columns, read)
        masks: dict[int, ColumnMask] = {}
        for field_id in dict.fromkeys(one for each in wanted for one in (*read.by_id[each].above, each)):
            field = read.by_id[field_id]
            if masks.keys().isdisjoint(field.above) and (mask := self.mask_of(field, columns)) is not None:
                masks[field_id] = mask
                why.append(_mask_reason(field, mask))
        return Restriction(filters, masks, tuple(why))

    def _filtered(self, columns: TableColumns, read: TableColumns) -> tuple[Predicate, list[Reason]]:
        asker = Asker(self.principal.name, self.principal.groups, self.now.astimezone(UTC).date())
        parts: list[Predicate] = []
        why: list[Reason] = []
        for rule in self.row_filters:
            with _named(rule.policy):
                if rule.filter is None:
                    parts.append(FALSE)
                else:
                    parts.append(bind(rule.filter, asker, columns, read, table=self.table))
            why.append(self._filter_reason(rule))
        return all_of(*parts), why

    def _filter_reason(self, rule: FilterRule) -> Reason:
        table = ".".join(self.table)
        if rule.filter is None:
            detail = f"Policy {rule.policy!r} shows no row of {table}: {rule.doubt}."
        else:
            detail = f"Policy {rule.policy!r} filters the rows of {table}: {rule.filter.text[:_SHOWN_TEXT]}"
        return Reason("row-filter", detail, rule.policy, rule.item)

    def mask_of(self, field: SchemaField, columns: TableColumns) -> ColumnMask | None:
        """The mask on a field under each name that it has or had; None if there is none.

        Args:
            field: the field.
            columns: the table's current schema.

        Raises:
            PolicyInvalid: a mask does not fit the field. The error names the policy.
        """
        today = columns.by_id.get(field.field_id)
        names = field.names | {field.name} | (today.names | {today.name} if today else set())
        found = []
        for rule in filter(None, map(self.mask, sorted(names))):
            with _named(rule.policy):
                found.append(mask_of(rule.type, field, rule.policy, rule.item))
        return strictest(found, field) if found else None

    def restricting(self, names: ColumnNames) -> Iterator[Reason]:
        """The row filters of the table and the masks on these columns, by names alone."""
        yield from map(self._filter_reason, self.row_filters)
        for name in sorted(names.columns | names.nested):
            rule = self.mask(name)
            if rule is not None:
                detail = f"Policy {rule.policy!r} masks the column {name!r}: {rule.type}."
                yield Reason("mask", detail, rule.policy, rule.item)

    def mask(self, name: str) -> MaskRule | None:
        """The mask of a policy on a column."""
        return self.policies.mask_for(self.principal, *self.table, name, self.now, owner=self.owner)

    def withheld(self, names: ColumnNames) -> Reason | None:
        """Why the user cannot select all of these; None if the user can, be it masked."""
        answers = (answer for _, answer in self.answers(names))
        return next((each.reasons[0] for each in answers if not each.allowed), None)

    def _select(self, name: str) -> AccessRequest:
        return AccessRequest(self.principal, Resource.column(*self.table, name), "select", owner=self.owner)


def _mask_reason(field: SchemaField, mask: ColumnMask) -> Reason:
    detail = f"Policy {mask.policy!r} masks the column {field.name!r}: {mask.action.value}."
    return Reason("mask", detail, mask.policy, mask.item)


@contextmanager
def _named(policy: str) -> Iterator[None]:
    """Name the policy in a refusal."""
    try:
        yield
    except PolicyInvalid as problem:
        raise PolicyInvalid(
            f"Policy {policy!r}: {problem.message}", rule=problem.rule, hint=problem.hint
        ) from problem


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
    answers = tuple(view.answers(granted)) or (view.whole_table(),)
    return Visible(names, masked, Reading(answers, view.altered(names)))


def _masked(column: MaskedColumn, against: Reason) -> Reason:
    detail = f"The column {column.name!r} is shown through its mask, {column.mask}: {against.detail}"
    return Reason(SHOWN_MASKED, detail, against.policy, against.item)


def refused_key(key_id: str, refused: tuple[AccessRequest, Decision]) -> Reason:
    """Why a key is not released to a user who cannot select a column that it opens."""
    request, decision = refused
    column = request.resource.values[-1]
    return Reason("key-group", f"The key {key_id!r} also opens the column {column!r}: {decision.explanation}")
