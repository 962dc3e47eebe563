"""Compares plans for standard clients with plans for engines, over HTTP, on the same table in one run.

Budget: planTableScan of 1,000 files within 1.5 times the time of `/engine/v1`.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import httpx

from bench.report import Figure, figure
from bench.samples import ROWS_A_FILE, make_table, root_of
from bench.service import served
from tests.support.lake import open_lake

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
            theirs, ours = _in_turn(client, requests, (standard, body), (engine, body))
            ratio = statistics.median(theirs) / statistics.median(ours)
            found += [
                figure(f"planTableScan, {what}, p50", theirs, "ms"),
                figure(f"plan of /engine/v1, {what}, p50", ours, "ms"),
                figure("  planTableScan / engine", [ratio], "times", "1.5"),
            ]
    return found


def _in_turn(client: httpx.Client, count: int, *asked: tuple[str, dict[str, Any]]) -> list[list[float]]:
    """Send each request in turn; the milliseconds of each."""
    calls: list[Callable[[], httpx.Response]] = [
        lambda url=url, body=body: client.post(url, json=body) for url, body in asked
    ]
    taken: list[list[float]] = [[] for _ in calls]
    for number in range(count + _WARM):
        for place, call in enumerate(calls):
            start = time.perf_counter()
            call().raise_for_status()
            if number >= _WARM:
                taken[place].append((time.perf_counter() - start) * 1000)
    return taken
