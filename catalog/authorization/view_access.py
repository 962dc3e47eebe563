"""Decides who can read a view: SELECT on each of its columns, without masks and row filters.

A view is a resource like a table of its name. Nothing here could apply a mask or row filter to it, so they
refuse.
"""

from __future__ import annotations

from pyiceberg.schema import index_by_name

from catalog.authorization.authorizer import Authorizer, Caller
from catalog.authorization.columns import names_of
from catalog.state.views import ViewRecord
from policy.decision import Decision
from policy.errors import NotAuthorized
from policy.view import View


def require_selectable(authorizer: Authorizer, caller: Caller, record: ViewRecord, action: str) -> None:
    """Require that a caller can select every column of a view.

    Raises:
        NotAuthorized: they cannot, or a policy masks a column or filters rows.
    """
    settled, name = authorizer.settled(), record.name
    seen = View.of(
        settled.policies(), settled.now(), caller.principal, (name.database, name.name), record.owner
    )
    reading = seen.reads(names_of(record.schema, frozenset(index_by_name(record.schema).values())))
    settled.require(caller, action, str(name), reading.required)
    if reading.altered is not None:
        settled.record(caller, action, str(name), Decision.deny(reading.altered))
        raise NotAuthorized(
            f"{reading.altered.detail} Masks and row filters of views are not applied.",
            table=str(name),
            rule=reading.altered.rule,
            hint="Ask for a policy on the tables that the view reads instead.",
        )
