"""The service in one process and in two workers: CPU time of a request, requests a second, and how long light
requests take beside plans of a large table.

CPU time is that of all processes of the service. The clients run in this process, on the same cores.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

import httpx

from bench.large_table import make_large
from bench.processes import worked_ms
from bench.report import Figure, at_most, figure
from bench.samples import make_table, root_of
from catalog.base.identifiers import TableName
from tests.support.service import Service
from tests.support.workers import Workers, workers

_CLIENTS: Final = 4
_BATCHES: Final = 5
_FILES_A_MANIFEST: Final = 10_000
#: Plans decode each manifest again, so that they are heavy.
_COLD: Final = {"CACHE__MANIFEST_BYTES": "0", "CACHE__DIRECTORY_BYTES": "0"}


def measure(root: Path, requests: int, files: int) -> list[Figure]:
    """Measure one process, then two workers.

    Args:
        root: an empty directory.
        requests: how many a batch, of all clients together.
        files: of the large table.
    """
    alone = _measured(root_of(root, "one"), 1, requests, files)
    beside = _measured(root_of(root, "two"), 2, requests, files)
    more = [
        two / one
        for one, two in zip(alone["CPU time of a request"], beside["CPU time of a request"], strict=True)
    ]
    figures = [
        figure(f"{name}, {count}", values, unit)
        for name, unit in _UNITS.items()
        for count, found in (("one process", alone), ("two workers", beside))
        for values in (found[name],)
    ]
    return [*figures, at_most(1.1, figure("CPU time of a request, two workers / one process", more, ""))]


_UNITS: Final = {
    "CPU time of a request": "ms",
    "requests a second": "/s",
    "p99 of light requests": "ms",
    "p99 beside heavy plans": "ms",
}


def _measured(root: Path, count: int, requests: int, files: int) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {name: [] for name in _UNITS}
    with workers(root, HTTP__WORKERS=str(count), **_COLD) as running:
        catalog = running.service.lake.catalog()
        catalog.create_namespace("db")
        make_table(catalog, "db.small", 1, 1)
        make_large(running.service.lake, TableName(("db",), "large"), files, _FILES_A_MANIFEST)
        _light(running.service, requests)
        for _ in range(_BATCHES):
            worked, start = _worked_ms(running), time.perf_counter()
            taken = _light(running.service, requests)
            found["requests a second"].append(len(taken) / (time.perf_counter() - start))
            found["CPU time of a request"].append((_worked_ms(running) - worked) / len(taken))
            found["p99 of light requests"].append(_p99(taken))
            with _heavy(running.service):
                found["p99 beside heavy plans"].append(_p99(_light(running.service, requests)))
    return found


def _light(service: Service, requests: int) -> list[float]:
    """Load a small table with several clients; return the milliseconds of each request."""
    with ThreadPoolExecutor(_CLIENTS) as pool:
        every = pool.map(partial(_loads, service), [requests // _CLIENTS] * _CLIENTS)
        return [each for taken in every for each in taken]


def _loads(service: Service, count: int) -> list[float]:
    taken = []
    with service.client() as client:
        for _ in range(count):
            start = time.perf_counter()
            client.get(f"{service.prefix}/namespaces/db/tables/small").raise_for_status()
            taken.append((time.perf_counter() - start) * 1000)
    return taken


@contextmanager
def _heavy(service: Service) -> Iterator[None]:
    """Plan the large table again and again, for as long as the block lasts."""
    ended = threading.Event()

    def plan() -> None:
        with service.client() as client:
            while not ended.is_set():
                url = f"{service.prefix}/namespaces/db/tables/large/plan"
                client.post(url, json={}, timeout=httpx.Timeout(120)).raise_for_status()

    thread = threading.Thread(target=plan)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _worked_ms(running: Workers) -> float:
    return worked_ms([running.supervisor.pid, *running.pids()])


def _p99(taken: list[float]) -> float:
    return sorted(taken)[int(len(taken) * 0.99)]
