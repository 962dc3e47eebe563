"""Keeps plans of standard clients until they expire.

Kept are plans that were answered in parts, and those whose files the catalog signs requests for.

A plan is a row, so that every replica can continue it. It has no paths, and no values but those in the filter
of the client. What a part of the plan lists is read and checked again when it is fetched.
"""

from __future__ import annotations

import hashlib
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

#: How ids begin of plans whose files are in their answer. The rest is a digest: equal plans are one.
_ANSWERED: Final = "answered-"
_COLUMNS: Final = lw_scan_plan.c
_LENGTH: Final = func.length(_COLUMNS.request) + func.length(_COLUMNS.tasks)


@dataclass(frozen=True, slots=True)
class KeptPlan:
    """A plan that is kept.

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
        mine = (_COLUMNS.principal == plan.principal, ~_COLUMNS.id.startswith(_ANSWERED))
        with write(self._engine) as connection:
            connection.execute(delete(lw_scan_plan).where(_COLUMNS.expires_ms <= now))
            held = connection.execute(select(func.count(), func.sum(_LENGTH)).where(*mine)).one()
            if held[0] >= MAX_PLANS or (held[1] or 0) + len(request) + len(tasks) > MAX_CHARACTERS:
                raise StateUnavailable(
                    f"{plan.principal} has {held[0]:,} scan plans, the limit for plans of this size.",
                    rule="scan-plans",
                    hint=f"Cancel plans, or try again later: a plan is kept for {self._lifetime_ms // 1000} "
                    "seconds.",
                )
            connection.execute(insert(lw_scan_plan).values(self._row(plan_id, plan, request, tasks, now)))
        return plan_id

    def keep_answered(self, plan: KeptPlan) -> None:
        """Keep a plan whose files are in its answer, until it expires; equal plans are one.

        Where the user has too many plans, the one is forgotten that expires first.

        Raises:
            StateUnavailable: the database does not answer.
        """
        request, tasks, now = json.dumps(plan.request), json.dumps(plan.tasks), self._now_ms()
        told = json.dumps([plan.table_id, plan.principal, request, tasks, plan.restrictions])
        plan_id = _ANSWERED + hashlib.sha256(told.encode()).hexdigest()[: 36 - len(_ANSWERED)]
        mine = (_COLUMNS.principal == plan.principal, _COLUMNS.id.startswith(_ANSWERED))
        room = MAX_CHARACTERS - len(request) - len(tasks)
        with write(self._engine) as connection:
            connection.execute(delete(lw_scan_plan).where(_COLUMNS.expires_ms <= now))
            held = select(_COLUMNS.id, _LENGTH).where(*mine, _COLUMNS.id != plan_id)
            gone = [plan_id]
            newest = connection.execute(held.order_by(_COLUMNS.expires_ms.desc())).all()
            for number, (each, length) in enumerate(newest, 1):
                room -= length
                if number >= MAX_PLANS or room < 0:
                    gone.append(each)
            for at in range(0, len(gone), MAX_PLANS):
                connection.execute(delete(lw_scan_plan).where(_COLUMNS.id.in_(gone[at : at + MAX_PLANS])))
            connection.execute(insert(lw_scan_plan).values(self._row(plan_id, plan, request, tasks, now)))

    def of(self, table_id: str, principal: str) -> dict[str, KeptPlan]:
        """Return a user's plans of a table by id, the newest first."""
        mine = (_COLUMNS.table_id == table_id, _COLUMNS.principal == principal)
        statement = select(lw_scan_plan).where(*mine, _COLUMNS.expires_ms > self._now_ms())
        with read(self._engine) as connection:
            rows = connection.execute(statement.order_by(_COLUMNS.expires_ms.desc())).all()
        return {row.id: _plan_of(row) for row in rows}

    def find(self, plan_id: str, table_id: str, principal: str) -> KeptPlan | None:
        """Return a user's plan of a table; None if there is none, or it expired."""
        with read(self._engine) as connection:
            found = connection.execute(
                select(lw_scan_plan).where(
                    *_is(plan_id, table_id, principal), _COLUMNS.expires_ms > self._now_ms()
                )
            ).first()
        return None if found is None else _plan_of(found)

    def remove(self, plan_id: str, table_id: str, principal: str) -> bool:
        """Remove a user's plan of a table, and return whether there was one."""
        with write(self._engine) as connection:
            removed = connection.execute(
                delete(lw_scan_plan).where(
                    *_is(plan_id, table_id, principal), _COLUMNS.expires_ms > self._now_ms()
                )
            )
        return removed.rowcount == 1

    def _row(self, plan_id: str, plan: KeptPlan, request: str, tasks: str, now: int) -> dict[str, Any]:
        return {
            "id": plan_id,
            "table_id": plan.table_id,
            "principal": plan.principal,
            "request": request,
            "tasks": tasks,
            "restrictions": plan.restrictions,
            "expires_ms": now + self._lifetime_ms,
        }


def _plan_of(row: Any) -> KeptPlan:
    tasks = tuple(tuple(each) for each in json.loads(row.tasks))
    return KeptPlan(row.table_id, row.principal, json.loads(row.request), tasks, row.restrictions)


def _is(plan_id: str, table_id: str, principal: str) -> tuple[Any, ...]:
    return (_COLUMNS.id == plan_id, _COLUMNS.table_id == table_id, _COLUMNS.principal == principal)
