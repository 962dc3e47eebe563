"""Small commits: CPU time and transactions of an append, and how many a service takes in a second.

An append adds one file to a plaintext table. Its CPU time is that of this process, which is the catalog. Over
HTTP, it is that of the process of the service. The clients run in this process, on the same cores.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

import httpx
from sqlalchemy import event

from bench.processes import worked_ms
from bench.report import Figure, at_most, figure
from bench.samples import root_of
from tests.support.http_calls import written_file
from tests.support.lake import ALICE, Lake, open_lake
from tests.support.tables import Engine, append_files, make, named
from tests.support.workers import Workers, workers

#: The numbers of snapshots of the tables that are appended to.
SNAPSHOTS: Final = (1, 100, 1_000)
_WRITERS: Final = 32
_BUDGET_MS: Final = 8.0


def measure(root: Path, runs: int) -> list[Figure]:
    """Measure appends in one process, then commits over HTTP.

    Args:
        root: an empty directory.
        runs: how many appends to a table, and how many commits of each writer.
    """
    with open_lake(root_of(root, "appends")) as lake:
        lake.catalog().create_namespace("db")
        alone = [each for count in SNAPSHOTS for each in _alone(lake, count, runs)]
    with workers(root_of(root, "served"), HTTP__WORKERS="1") as running:
        running.service.lake.catalog().create_namespace("db")
        return [*alone, *_one_table(running, runs), *_many_tables(running, runs)]


def _alone(lake: Lake, snapshots: int, runs: int) -> Iterator[Figure]:
    name, transactions, worked = named(f"of_{snapshots}"), list[object](), list[float]()
    note = transactions.append
    make(lake, name)
    for _ in range(snapshots):
        append_files(lake, name)
    event.listen(lake.services.engine, "commit", note)
    for _ in range(runs):
        engine = Engine.begin(lake, name)
        file = engine.file()
        transactions.clear()
        start = time.process_time()
        engine.append(file)
        worked.append((time.process_time() - start) * 1000)
    event.remove(lake.services.engine, "commit", note)
    yield at_most(_BUDGET_MS, figure(f"CPU time of an append to {snapshots:,} snapshots", worked, "ms"))
    yield figure("  transactions of the database", [len(transactions)], "")


def _one_table(running: Workers, runs: int) -> Iterator[Figure]:
    make(running.service.lake, named("one"))

    def append(client: httpx.Client, _: int) -> int:
        answer, busy = _sent(client, "/engine/v1/tables/db/one/writes", None)
        begun = answer.json()
        body = {"operation": "append", "added": [written_file(begun)]}
        return busy + _sent(client, f"/engine/v1/writes/{begun['write-id']}/commit", body)[1]

    yield from _together(running, f"appends by {_WRITERS} writers to one table", append, runs)


def _many_tables(running: Workers, runs: int) -> Iterator[Figure]:
    for number in range(_WRITERS):
        make(running.service.lake, named(f"many_{number}"))

    def commit(client: httpx.Client, number: int) -> int:
        update = {"action": "set-properties", "updates": {"at": str(time.time_ns())}}
        url = f"{running.service.prefix}/namespaces/db/tables/many_{number}"
        return _sent(client, url, {"requirements": [], "updates": [update]})[1]

    yield from _together(running, f"commits to {_WRITERS} tables, a writer each", commit, runs)


def _sent(client: httpx.Client, url: str, body: dict[str, Any] | None) -> tuple[httpx.Response, int]:
    """Send a request until it is accepted; return the answer, and how often the service was too busy (503).

    Another refusal, such as a conflict, ends the benchmark.
    """
    for busy in itertools.count():
        answer = client.post(url, json=body)
        if answer.status_code != HTTPStatus.SERVICE_UNAVAILABLE:
            return answer.raise_for_status(), busy
    raise AssertionError


def _together(
    running: Workers, what: str, commit: Callable[[httpx.Client, int], int], runs: int
) -> Iterator[Figure]:
    """Commit with all writers at once."""
    busy: list[int] = []
    running.service.token(ALICE)

    def write(number: int) -> list[float]:
        taken = []
        with running.service.client() as client:
            for _ in range(runs):
                start = time.perf_counter()
                busy.append(commit(client, number))
                taken.append((time.perf_counter() - start) * 1000)
        return taken

    before, start = worked_ms([running.supervisor.pid]), time.perf_counter()
    with ThreadPoolExecutor(_WRITERS) as pool:
        taken = [each for some in pool.map(write, range(_WRITERS)) for each in some]
    elapsed = time.perf_counter() - start
    yield figure(what, [len(taken) / elapsed], "/s")
    yield figure("  elapsed time of one", taken, "ms")
    yield figure("  answers 503, sent again", [sum(busy)], "")
    yield figure(
        "  CPU time of the service", [(worked_ms([running.supervisor.pid]) - before) / len(taken)], "ms"
    )
