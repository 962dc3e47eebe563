"""Compares plans for standard clients with plans for engines, over HTTP, on the same table in one run.

Budget: planTableScan of 1,000 files within 1.5 times the time of `/engine/v1`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import httpx

from bench.report import Figure, at_most, figure
from bench.rounds import in_rounds, ratios_of
from bench.samples import ROWS_A_FILE, make_table, root_of
from bench.service import served
from tests.support.lake import open_lake

BUDGET: Final = 1.5
_STANDARD, _ENGINE = "planTableScan", "plan of /engine/v1"
_FILES: Final = 1_000
_WARM: Final = 5
_SOME: Final = {"type": "gt-eq", "term": "id", "value": _FILES // 2 * ROWS_A_FILE}


def measure(root: Path, requests: int) -> list[Figure]:
    """Plan one table in both ways, in turn: as a whole, and with a filter that half of the files match."""
    directory = root_of(root, "standard-plan")
    with open_lake(directory) as lake:
        lake.catalog().create_namespace("db")
        make_table(lake.catalog(), "db.t", _FILES, 100)
    with (
        served(directory) as catalog,
        httpx.Client(headers={"Authorization": f"Bearer {catalog.token}"}, timeout=60) as client,
    ):
        standard, engine = (
            f"{catalog.url}{path}/plan"
            for path in (f"{catalog.prefix}/namespaces/db/tables/t", "/engine/v1/tables/db/t")
        )
        found = []
        for what, body in ((f"{_FILES:,} files", {}), ("half of them by a filter", {"filter": _SOME})):
            actions = {
                name: lambda url=url, body=body: client.post(url, json=body).raise_for_status()
                for name, url in ((_STANDARD, standard), (_ENGINE, engine))
            }
            taken = in_rounds(actions, requests, warm_up=_WARM)
            for name, seconds in taken.items():
                found.append(figure(f"{name}, {what}, p50", [each * 1000 for each in seconds], "ms"))
            ratio = figure("  planTableScan / engine", ratios_of(taken, _STANDARD, _ENGINE), "times")
            found.append(at_most(BUDGET, ratio))
    return found
