"""Row filters, masks and denials of policies that do not fit a table: a missing column, another type or name.

A scan of the current schema finds masks and row filters by the names of today. So no change of a schema may
give the name of a filter's column to another one, or a masked column a name that the mask is not on, or that
another mask is on, which can come before it or lift it. The same holds for the name of a table.

So does a denial of `select`: where the policy is not about the new name, other users could read the column.
Nor may a policy that comes before the denial grant `select` under the new name alone. What a policy whose
conditions look at names says under another name is taken as different.

A query on a table that a row filter or mask does not fit is refused. So policies are checked before they are
put in force, and again when a table's schema changes.

Not known here is whom a macro in a policy's resources stands for; such a policy is found by the names alone
that it has beside the macro.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from typing import Final

from policy.errors import PolicyInvalid
from policy.privileges.requests import ALL, Resource
from policy.ranger import PolicySet
from policy.ranger.model import Item, Policy, PolicyType
from policy.ranger.servicedef import MASK_NONE
from policy.restrictions.binding import Asker, bind
from policy.restrictions.columns import SchemaField, TableColumns
from policy.restrictions.masks import mask_of

#: Stands for every user; a filter has the same columns and types for all.
_NOBODY: Final = Asker("(nobody)", frozenset(), date(2000, 2, 29))

_SELECT: Final = frozenset({"select", ALL})
#: The rule and the name of what withholds a column, by type of policy.
_RULES: Final[Mapping[PolicyType, tuple[str, str]]] = {
    PolicyType.MASK: ("mask", "mask"),
    PolicyType.ACCESS: ("policy-deny", "denial"),
}


@dataclass(frozen=True, slots=True)
class Misfit:
    """A row filter, mask or denial that cannot apply to a table.

    Attributes:
        policy: the policy's name.
        item: which item of it.
        rule: ``row-filter``, ``mask`` or ``policy-deny``.
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
            if policies.is_about(policy, Resource.table(*table)):
                yield from _filters(policy, table, columns)
        else:
            yield from _masks(policies, policy, table, columns)


def moved(
    policies: PolicySet,
    table: tuple[str, str],
    before: TableColumns,
    after: TableColumns,
    name: tuple[str, str] | None = None,
) -> Iterator[Misfit]:
    """The row filters that would read another column or no longer be on the table, and the masks and denials
    that lose a column.

    Args:
        policies: those in force.
        table: its database and name.
        before: its current schema, with the names in that schema alone, or in all of its schemas.
        after: the same after a change.
        name: its database and name after the change; by default the same.
    """
    name = name or table
    filtering: list[Policy] = []
    on_columns: list[Policy] = []
    for policy in policies.about(table, name):
        (filtering if policy.type is PolicyType.ROW_FILTER else on_columns).append(policy)
    yield from _filtered_otherwise(policies, filtering, table, name)
    for policy in filtering:
        if policies.is_about(policy, Resource.table(*table)):
            yield from _reading_others(policy, before, after)
    if not any(_withholding(each) for each in on_columns):
        return
    for field in before.by_id.values():
        now = after.by_id.get(field.field_id)
        if now is not None:
            yield from _withheld_otherwise(policies, on_columns, (table, field), (name, now), after)


def _filtered_otherwise(
    policies: PolicySet, filtering: Iterable[Policy], table: tuple[str, str], name: tuple[str, str]
) -> Iterator[Misfit]:
    """The row filters that a table loses by a new name, and what comes before them there."""
    with_items = [each for each in filtering if each.row_filters]
    before, now = (
        [each for each in with_items if policies.is_about(each, Resource.table(*names))]
        for names in (table, name)
    )
    staying = [each for each in before if each in now and _same_for(each, name == table)]
    under = f"under the name {'.'.join(name)}"
    for policy in before:
        if policy not in staying:
            problem = f"it would not filter the rows {under}."
            yield Misfit(policy.name, policy.row_filters[0].label, "row-filter", problem)
    for policy in now:
        later = [each for each in before if each.priority < policy.priority]
        if policy not in staying and later:
            problem = f"it would come before the row filter of policy {later[0].name!r} {under}."
            yield Misfit(policy.name, policy.row_filters[0].label, "row-filter", problem)


def _reading_others(policy: Policy, before: TableColumns, after: TableColumns) -> Iterator[Misfit]:
    for item in policy.row_filters:
        named = () if item.row_filter is None else item.row_filter.columns
        for column in sorted(named, key=str):
            known, found = (_ids(each, column.path) for each in (before, after))
            if known and found and known != found:
                problem = f"another column would be called {column}."
                yield Misfit(policy.name, item.label, "row-filter", problem)


def _withheld_otherwise(
    policies: PolicySet,
    on_columns: Collection[Policy],
    before: tuple[tuple[str, str], SchemaField],
    now: tuple[tuple[str, str], SchemaField],
    after: TableColumns,
) -> Iterator[Misfit]:
    """The masks and denials that a field loses by a new name, and what comes before them there."""
    (table, field), (name, named) = before, now
    around = [after.by_id[each] for each in (*named.above, named.field_id)]
    on = [each for each in on_columns if _is_on(policies, each, table, field)]
    withholding = [(each, item) for each in on if (item := _withholding(each)) is not None]
    masks = [each for each, _ in withholding if each.type is PolicyType.MASK]
    denying = min((each.priority for each, _ in withholding if each.type is PolicyType.ACCESS), default=None)
    under = f"under the name {'.'.join(name) if name != table else named.name!r}"
    same = name == table and field.name == named.name
    for policy, item in withholding:
        if not (any(_is_on(policies, policy, name, each) for each in around) and _same_for(policy, same)):
            rule, what = _RULES[policy.type]
            problem = f"its {what} would not be on the column {field.name!r} {under}."
            if field.name == named.name and name == table:
                problem = (
                    f"no schema would have the name by which its {what} is on the column {field.name!r}."
                )
            yield Misfit(policy.name, item, rule, problem)
    for policy in on_columns:
        if (policy in on and _same_for(policy, same)) or not _is_on(policies, policy, name, named):
            continue
        if masks and policy.masks:
            problem = f"it would be on the column {field.name!r} {under}, beside policy {masks[0].name!r}."
            yield Misfit(policy.name, policy.masks[0].label, "mask", problem)
        grant = _first_on_select(policy.allow)
        if denying is not None and policy.priority > denying and grant is not None:
            problem = f"it would grant select on the column {field.name!r} {under}, before it is denied."
            yield Misfit(policy.name, grant, "policy-deny", problem)


def _same_for(policy: Policy, same: bool) -> bool:
    """Whether the conditions of a policy say the same under a new name, or the name is the same."""
    return same or not any(each.looks_at_names for each in policy.every_condition)


def _withholding(policy: Policy) -> str | None:
    """The label of the policy's first item that masks, or denies `select`; None if there is none."""
    if policy.type is PolicyType.MASK:
        return next((each.label for each in policy.masks if each.mask and each.mask.type != MASK_NONE), None)
    return _first_on_select(policy.deny) or ("isDenyAllElse" if policy.deny_all_else else None)


def _first_on_select(items: Iterable[Item]) -> str | None:
    return next((each.label for each in items if each.accesses & _SELECT), None)


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


def _masks(
    policies: PolicySet, policy: Policy, table: tuple[str, str], columns: TableColumns
) -> Iterator[Misfit]:
    masked: set[int] = set()
    for field in columns.by_id.values():
        # The mask of a column covers what is nested in it.
        if not masked.isdisjoint(field.above) or not _is_on(policies, policy, table, field):
            continue
        masked.add(field.field_id)
        for item in policy.masks:
            if item.mask is None or item.mask.type == MASK_NONE:
                continue
            try:
                mask_of(item.mask.type, field, policy.name, item.label)
            except PolicyInvalid as problem:
                yield Misfit(policy.name, item.label, problem.rule or "", problem.message, problem.hint)


def _is_on(policies: PolicySet, policy: Policy, table: tuple[str, str], field: SchemaField) -> bool:
    names = field.names | {field.name}
    return any(policies.is_about(policy, Resource.column(*table, name)) for name in names)
