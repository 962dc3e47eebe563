"""Row filters and masks of policies that do not fit a table's schema: a missing column, another type.

A scan of the current schema finds masks and row filters by the names of today. So no change of a schema may
give the name of a filter's column to another one, or a masked column a name that the mask is not on, or that
another mask is on, which can come before it or lift it. The same holds for the name of a table.

A query on such a table is refused. So policies are checked before they are put in force, and again when a
table's schema changes.

Not known here is whom a macro in a policy's resources stands for; such a policy is found by the names alone
that it has beside the macro.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import date
from typing import Final

from policy.errors import PolicyInvalid
from policy.privileges.requests import Resource
from policy.ranger import PolicySet
from policy.ranger.matching import Target
from policy.ranger.model import Policy, PolicyType
from policy.ranger.policy_set import relation
from policy.ranger.servicedef import MASK_NONE
from policy.restrictions.binding import Asker, bind
from policy.restrictions.columns import SchemaField, TableColumns
from policy.restrictions.masks import mask_of

#: Stands for every user; a filter has the same columns and types for all.
_NOBODY: Final = Asker("(nobody)", frozenset(), date(2000, 2, 29))


@dataclass(frozen=True, slots=True)
class Misfit:
    """A row filter or mask that cannot apply to a table.

    Attributes:
        policy: the policy's name.
        item: which item of it.
        rule: ``row-filter`` or ``mask``.
        problem: what does not fit.
        hint: what to do.
    """

    policy: str
    item: str
    rule: str
    problem: str
    hint: str | None = None


def misfits(
    policies: PolicySet, table: tuple[str, str], columns: TableColumns, only: Collection[Policy] | None = None
) -> Iterator[Misfit]:
    """The row filters and masks that do not fit a table.

    Args:
        policies: those in force.
        table: its database and name.
        columns: its current schema.
        only: the policies that are looked at; by default all.
    """
    for policy in policies.restricting(*table):
        if only is not None and policy not in only:
            continue
        if policy.type is PolicyType.ROW_FILTER:
            if _is_about(policy, Resource.table(*table)):
                yield from _filters(policy, table, columns)
        else:
            yield from _masks(policy, table, columns)


def moved(
    policies: PolicySet,
    table: tuple[str, str],
    before: TableColumns,
    after: TableColumns,
    name: tuple[str, str] | None = None,
) -> Iterator[Misfit]:
    """The row filters that would read another column or no longer be on the table, and the masks that lose a
    column.

    Args:
        policies: those in force.
        table: its database and name.
        before: its current schema, with the names in that schema alone, or in all of its schemas.
        after: the same after a change.
        name: its database and name after the change; by default the same.
    """
    name = name or table
    masking = []
    for policy in dict.fromkeys((*policies.restricting(*table), *policies.restricting(*name))):
        if policy.type is PolicyType.MASK:
            masking.append(policy)
        elif _is_about(policy, Resource.table(*table)):
            if policy.row_filters and not _is_about(policy, Resource.table(*name)):
                problem = f"it would not filter the rows under the name {'.'.join(name)}."
                yield Misfit(policy.name, policy.row_filters[0].label, "row-filter", problem)
            yield from _reading_others(policy, before, after)
    for field in before.by_id.values():
        now = after.by_id.get(field.field_id)
        if now is not None:
            yield from _masked_otherwise(masking, (table, field), (name, now), after)


def _reading_others(policy: Policy, before: TableColumns, after: TableColumns) -> Iterator[Misfit]:
    for item in policy.row_filters:
        named = () if item.row_filter is None else item.row_filter.columns
        for column in sorted(named, key=str):
            known, found = (_ids(each, column.path) for each in (before, after))
            if known and found and known != found:
                problem = f"another column would be called {column}."
                yield Misfit(policy.name, item.label, "row-filter", problem)


def _masked_otherwise(
    masking: Collection[Policy],
    before: tuple[tuple[str, str], SchemaField],
    now: tuple[tuple[str, str], SchemaField],
    after: TableColumns,
) -> Iterator[Misfit]:
    """The masks that a field loses by a new name, and those that come before them or lift them there."""
    (table, field), (name, named) = before, now
    around = [after.by_id[each] for each in (*named.above, named.field_id)]
    on = [each for each in masking if _is_on(each, table, field)]
    masks = [each for each in on if _first_mask(each) is not None]
    under = f"under the name {'.'.join(name) if name != table else named.name!r}"
    for policy in masks:
        if not any(_is_on(policy, name, each) for each in around):
            problem = f"its mask would not be on the column {field.name!r} {under}."
            if field.name == named.name and name == table:
                problem = f"no schema would have the name by which its mask is on the column {field.name!r}."
            yield Misfit(policy.name, _first_mask(policy) or "", "mask", problem)
    for policy in masking:
        if masks and policy not in on and policy.masks and _is_on(policy, name, named):
            problem = f"it would be on the column {field.name!r} {under}, beside policy {masks[0].name!r}."
            yield Misfit(policy.name, policy.masks[0].label, "mask", problem)


def _first_mask(policy: Policy) -> str | None:
    """The label of the policy's first item that masks; None if it only lifts masks."""
    return next((each.label for each in policy.masks if each.mask and each.mask.type != MASK_NONE), None)


def _ids(columns: TableColumns, path: tuple[str, ...]) -> frozenset[int]:
    return frozenset(each.field_id for each in columns.find(path))


def _filters(policy: Policy, table: tuple[str, str], columns: TableColumns) -> Iterator[Misfit]:
    for item in policy.row_filters:
        if item.row_filter is None:
            continue
        try:
            bind(item.row_filter, _NOBODY, columns, table=table)
        except PolicyInvalid as problem:
            yield Misfit(policy.name, item.label, problem.rule or "", problem.message, problem.hint)


def _masks(policy: Policy, table: tuple[str, str], columns: TableColumns) -> Iterator[Misfit]:
    masked: set[int] = set()
    for field in columns.by_id.values():
        # The mask of a column covers what is nested in it.
        if not masked.isdisjoint(field.above) or not _is_on(policy, table, field):
            continue
        masked.add(field.field_id)
        for item in policy.masks:
            if item.mask is None or item.mask.type == MASK_NONE:
                continue
            try:
                mask_of(item.mask.type, field, policy.name, item.label)
            except PolicyInvalid as problem:
                yield Misfit(policy.name, item.label, problem.rule or "", problem.message, problem.hint)


def _is_on(policy: Policy, table: tuple[str, str], field: SchemaField) -> bool:
    names = field.names | {field.name}
    return any(_is_about(policy, Resource.column(*table, name)) for name in names)


def _is_about(policy: Policy, resource: Resource) -> bool:
    return relation(policy, Target.of(resource), "", None).covers
