"""loadTable of the running service, with one client: elapsed time, and CPU time of the service.

A table of one snapshot, and one with history. The client knows the table already in every second measurement,
and the answer is 304. CPU time is that of the process of the service.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import httpx

from bench.processes import worked_ms
from bench.report import Figure, at_most, figure
from bench.samples import make_table, root_of
from bench.service import Served, served
from tests.support.lake import open_lake

_SNAPSHOTS: Final = 50
#: Tables by name: their snapshots, and the budget of CPU time in milliseconds.
_TABLES: Final = {"small": (1, 1.0), "history": (_SNAPSHOTS, 1.5)}
_BATCHES: Final = 7
_WARM_UP: Final = 20


def measure(root: Path, requests: int) -> list[Figure]:
    """Load each table again and again over one connection."""
    directory = root_of(root, "load")
    with open_lake(directory) as lake:
        lake.catalog().create_namespace("db")
        for name, (snapshots, _) in _TABLES.items():
            make_table(lake.catalog(), f"db.{name}", snapshots, 1)
    with served(directory) as catalog, httpx.Client() as client:
        client.headers["Authorization"] = f"Bearer {catalog.token}"
        return [each for name in _TABLES for each in _figures(catalog, client, name, requests)]


def _figures(catalog: Served, client: httpx.Client, name: str, requests: int) -> list[Figure]:
    snapshots, budget = _TABLES[name]
    url = f"{catalog.url}{catalog.prefix}/namespaces/db/tables/{name}"
    loaded = client.get(url).raise_for_status()
    known = {"If-None-Match": loaded.headers["ETag"]}
    elapsed, worked = _taken(catalog, client, url, {}, requests)
    _, worked_known = _taken(catalog, client, url, known, requests)
    ordered = sorted(elapsed)
    table = f"load a table of {snapshots} snapshots"
    return [
        figure(f"{table}, p50", elapsed, "ms", "10 ms"),
        figure("  p95", [ordered[int(len(ordered) * 0.95)]], "ms"),
        at_most(budget, figure("  CPU time of the service", worked, "ms")),
        figure("  CPU time, known already (304)", worked_known, "ms"),
    ]


def _taken(
    catalog: Served, client: httpx.Client, url: str, headers: Mapping[str, str], requests: int
) -> tuple[list[float], list[float]]:
    """Return milliseconds of each request, and milliseconds of CPU a request in each of some batches."""
    elapsed: list[float] = []
    worked: list[float] = []
    for _ in range(_WARM_UP):
        client.get(url, headers=headers)
    a_batch = max(1, requests // _BATCHES)
    for _ in range(_BATCHES):
        before = worked_ms([catalog.process])
        for _ in range(a_batch):
            start = time.perf_counter()
            client.get(url, headers=headers)
            elapsed.append((time.perf_counter() - start) * 1000)
        worked.append((worked_ms([catalog.process]) - before) / a_batch)
    return elapsed, worked
