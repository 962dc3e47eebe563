"""Plans as tests ask for them."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from pyiceberg.table import Table

from catalog.planning.plan import Plan
from catalog.planning.request import ScanRequest
from policy.errors import NotAuthorized
from tests.support.lake import ALICE, Lake
from tests.support.tables import name_of


def plan(
    lake: Lake, table: Table, *columns: str, user: str = ALICE, engine: str | None = "spark", **request: Any
) -> Plan:
    """A plan of some columns, of all if none is named.

    Args:
        lake: the catalog.
        table: the table.
        columns: what is asked for.
        user: who asks.
        engine: the engine by which; None for a process of the user's own.
        request: more of the `ScanRequest`.
    """
    asked = {"columns": columns, **request} if columns else request
    return lake.services.planner.plan(lake.caller(user, engine), name_of(table), ScanRequest(**asked))


def calls_to_plan(lake: Lake, table: Table, **request: Any) -> int:
    """How many functions are called to plan a table for the second time."""
    plan(lake, table, **request)
    calls = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        plan(lake, table, **request)
    finally:
        sys.setprofile(None)
    return calls


def refused(lake: Lake, table: Table, *columns: str, **request: Any) -> NotAuthorized:
    """The refusal of such a plan."""
    with pytest.raises(NotAuthorized) as refusal:
        plan(lake, table, *columns, **request)
    return refusal.value


def about(column: str) -> dict[str, Any]:
    """The resources of a policy on one column of the tables of `db`."""
    return {"database": ["db"], "table": ["*"], "column": [column]}
