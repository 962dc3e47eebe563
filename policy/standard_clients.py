"""Decides what a standard Iceberg client gets of a table: all of it, with what it has to enforce, or nothing.

The service answers loads by it, and `policy check` and `policy test` say what the service does.

- A standard client gets everything in a table. So its user needs SELECT on every column under every name that
  it has or had.
- Row filters and masks are enforced by a client that an administrator trusts: a user's with `enforce` on the
  service. Of engines, the service knows more.
- The answer has masks of the current columns. A mask on a column that only older schemas have refuses it, and
  so does one that has no action of the specification in its place.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from policy.decision import Reason
from policy.errors import PolicyInvalid
from policy.privileges.operations import On, required
from policy.privileges.requests import Resource
from policy.restrictions.columns import TableColumns
from policy.restrictions.model import UNRESTRICTED, Restriction
from policy.restrictions.standard import standard_restriction
from policy.view import ColumnNames, View

INSTEAD: Final = "Use the Spark plugin (docs/spark.md) or the Python client (docs/python.md)"
PARTIAL: Final = f"{INSTEAD}: they read only the columns and rows that policies grant."
UNTRUSTED: Final = (
    f"{PARTIAL} If the client enforces the read-restrictions of the Iceberg REST protocol, an administrator "
    "can grant its user `enforce` on the service (docs/row-filters-and-masks.md)."
)
_NO_ACTION: Final = (
    f"{PARTIAL} For standard clients, name the action mask-to-fixed-value in the policy, or make the column "
    "optional."
)


@dataclass(frozen=True, slots=True)
class Withheld:
    """Why a standard client does not get a table.

    Attributes:
        reason: why.
        hint: what to do.
    """

    reason: Reason
    hint: str = PARTIAL


def view_of_everything(
    view: View, names: ColumnNames, former: ColumnNames, columns: TableColumns
) -> Restriction | Withheld:
    """What applies to a whole table, whichever client enforces it.

    Args:
        view: the user, the table and the policies.
        names: every name of every column and field.
        former: those of the fields that only older schemas have.
        columns: the current schema.
    """
    reading = view.reads(names)
    if reading.refused is not None:
        return Withheld(reading.refused[1].reasons[0])
    if not reading.answers:
        decision = view.decide(On(view.principal, Resource.table(*view.table), view.owner).request("select"))
        if not decision.allowed:
            return Withheld(decision.reasons[0])
    if reading.altered is None:
        return UNRESTRICTED
    masked = view.first_masked(former)
    if masked is not None:
        detail = f"A policy masks {masked!r}, a name of a column that older snapshots have."
        return Withheld(Reason("mask", detail))
    try:
        return view.restriction(columns)
    except PolicyInvalid as problem:
        return Withheld(Reason(problem.rule or "policy", problem.message), problem.hint or PARTIAL)


def enforces(view: View, service: str) -> bool:
    """Whether an administrator trusts the clients of a user to enforce row filters and masks."""
    requests = required("client.enforce", On.service(view.principal, service))
    return all(view.decide(each).allowed for each in requests)


def enforced(restriction: Restriction, columns: TableColumns) -> Restriction | Withheld:
    """A restriction in the actions of the specification, for a client that is trusted to enforce it."""
    required_ids = {each.field_id for each in columns.by_id.values() if each.required}
    found = standard_restriction(restriction, required_ids)
    if isinstance(found, Restriction):
        return found
    mask = restriction.masks[found]
    detail = (
        f"The required column {columns.by_id[found].name!r} is masked by {mask.action}, for which the "
        "Iceberg REST protocol has no action."
    )
    return Withheld(Reason("mask", detail, mask.policy, mask.item), _NO_ACTION)
