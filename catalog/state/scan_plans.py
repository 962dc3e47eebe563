"""Keeps the plans of standard clients that were answered in parts, until they expire.

A plan is a row, so that every replica can continue it. It has no paths, and no values but those in the filter
of the client. What a part of the plan lists is read and checked again when it is fetched.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final
from uuid import uuid4

from sqlalchemy import Engine, delete, func, insert, select

from catalog.db.engine import read, write
from catalog.db.schema import lw_scan_plan
from policy.errors import StateUnavailable

#: The maximum number of plans of one principal at a time, and of characters in all of them.
MAX_PLANS: Final = 1_000
MAX_CHARACTERS: Final = 64 * 1024 * 1024

_COLUMNS: Final = lw_scan_plan.c


@dataclass(frozen=True, slots=True)
class KeptPlan:
    """A plan that was answered in parts.

    Attributes:
        table_id: the table's internal id.
        principal: name of the user.
        request: the scan, in JSON.
        tasks: of each part, the positions of its manifests in the list of the scan.
        restrictions: digest of what the client enforces; None for nothing.
    """

    table_id: str
    principal: str
    request: dict[str, Any]
    tasks: tuple[tuple[int, ...], ...]
    restrictions: str | None


class ScanPlans:
    """Keeps plans in the database.

    Args:
        engine: the catalog's database.
        now_ms: the time in milliseconds.
        lifetime_ms: how long a plan is kept.
    """

    def __init__(self, engine: Engine, now_ms: Callable[[], int], lifetime_ms: int) -> None:
        self._engine = engine
        self._now_ms = now_ms
        self._lifetime_ms = lifetime_ms

    def keep(self, plan: KeptPlan) -> str:
        """Keep a plan, and return its id. Expired plans are deleted.

        Raises:
            StateUnavailable: the user has too many plans, or the database does not answer.
        """
        plan_id, now = str(uuid4()), self._now_ms()
        request, tasks = json.dumps(plan.request), json.dumps(plan.tasks)
        mine = _COLUMNS.principal == plan.principal
        with write(self._engine) as connection:
            connection.execute(delete(lw_scan_plan).where(_COLUMNS.expires_ms <= now))
            length = func.length(_COLUMNS.request) + func.length(_COLUMNS.tasks)
            held = connection.execute(select(func.count(), func.sum(length)).where(mine)).one()
            if held[0] >= MAX_PLANS or (held[1] or 0) + len(request) + len(tasks) > MAX_CHARACTERS:
                raise StateUnavailable(
                    f"{plan.principal} has {held[0]:,} scan plans, the limit for plans of this size.",
                    rule="scan-plans",
                    hint=f"Cancel plans, or try again later: a plan is kept for {self._lifetime_ms // 1000} "
                    "seconds.",
                )
            connection.execute(
                insert(lw_scan_plan).values(
                    id=plan_id,
                    table_id=plan.table_id,
                    principal=plan.principal,
                    request=request,
                    tasks=tasks,
                    restrictions=plan.restrictions,
                    expires_ms=now + self._lifetime_ms,
                )
            )
        return plan_id

    def find(self, plan_id: str, table_id: str, principal: str) -> KeptPlan | None:
        """Return a user's plan of a table; None if there is none, or it expired."""
        with read(self._engine) as connection:
            found = connection.execute(
                select(lw_scan_plan).where(
                    *_is(plan_id, table_id, principal), _COLUMNS.expires_ms > self._now_ms()
                )
            ).first()
        if found is None:
            return None
        tasks = tuple(tuple(each) for each in json.loads(found.tasks))
        return KeptPlan(found.table_id, found.principal, json.loads(found.request), tasks, found.restrictions)

    def remove(self, plan_id: str, table_id: str, principal: str) -> bool:
        """Remove a user's plan of a table, and return whether there was one."""
        with write(self._engine) as connection:
            removed = connection.execute(
                delete(lw_scan_plan).where(
                    *_is(plan_id, table_id, principal), _COLUMNS.expires_ms > self._now_ms()
                )
            )
        return removed.rowcount == 1


def _is(plan_id: str, table_id: str, principal: str) -> tuple[Any, ...]:
    return (_COLUMNS.id == plan_id, _COLUMNS.table_id == table_id, _COLUMNS.principal == principal)
