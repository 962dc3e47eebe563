"""Plans as tests ask for them."""

from __future__ import annotations

from typing import Any

from pyiceberg.table import Table

from catalog.planning.plan import Plan, ScanRequest
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
    return lake.warden.planner.plan(lake.caller(user, engine), name_of(table), ScanRequest(**asked))
