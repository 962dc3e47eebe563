"""loadTable of the running service, on a table with history, with one client. Budget: p50 under 10 ms."""

from __future__ import annotations

import time
from pathlib import Path

import httpx

from bench.report import Figure, figure
from bench.samples import make_table, root_of
from bench.service import served
from tests.support.lake import open_lake

_SNAPSHOTS = 50


def measure(root: Path, requests: int) -> list[Figure]:
    """Load one table again and again over one connection."""
    directory = root_of(root, "load")
    with open_lake(directory) as lake:
        lake.catalog().create_namespace("db")
        make_table(lake.catalog(), "db.t", _SNAPSHOTS, 1)
    with served(directory) as catalog:
        taken = _requests(f"{catalog.url}{catalog.prefix}/namespaces/db/tables/t", catalog.token, requests)
    ordered = sorted(taken)
    tail = ordered[int(len(ordered) * 0.95)]
    return [
        figure(f"load a table of {_SNAPSHOTS} snapshots, p50", taken, "ms", "10 ms"),
        figure("  p95", [tail], "ms"),
    ]


def _requests(url: str, token: str, count: int) -> list[float]:
    taken = []
    with httpx.Client(headers={"Authorization": f"Bearer {token}"}) as client:
        for number in range(count + 5):
            start = time.perf_counter()
            client.get(url).raise_for_status()
            if number >= 5:
                taken.append((time.perf_counter() - start) * 1000)
    return taken
