"""Floods the audit log with refusals: records, bytes, and the effect on other requests.

`python -m bench.audit [--refusals N] [--requests N]` runs it alone.
"""

from __future__ import annotations

import argparse
import itertools
import resource
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
from rich.console import Console
from sqlalchemy import Engine, func, select

from bench.report import Figure, at_most, figure, show
from bench.samples import make_table, root_of
from bench.service import served
from catalog.audit.trail import AuditRecord, AuditTrail
from catalog.db.engine import open_database, read
from catalog.db.migrate import upgrade
from catalog.db.schema import lw_audit
from policy.decision import Reason
from tests.support.lake import open_lake

_USERS = 100
_THREADS = 4
_GRANTS = 300
_CLIENTS = 16


def measure(root: Path, refusals: int, requests: int) -> list[Figure]:
    """Refusals appended to the audit log itself, then requests that are refused, with and without a token."""
    return [*_trail(root_of(root, "audit"), refusals), *_http(root_of(root, "flood"), requests)]


def _trail(directory: Path, refusals: int) -> list[Figure]:
    engine = open_database(f"sqlite:///{directory}/lakewarden.db")
    upgrade(engine)
    trail = AuditTrail(engine)
    quiet = _grants(trail)
    before, memory = _bytes(directory), _memory()
    start = time.perf_counter()
    with _meanwhile(lambda number: trail.append([_refusal(number)]), refusals, _THREADS):
        busy = _grants(trail)
    taken = time.perf_counter() - start
    trail.close()
    rows, decisions = _refused(engine)
    grown = (_bytes(directory) - before) / 1024
    engine.dispose()
    assert decisions == refusals
    windows = 1 + taken // 60
    return [
        at_most(66 * _USERS * windows, figure(f"{refusals:,} refusals: records", [rows], "records")),
        figure("  the database grew by", [grown], "KiB"),
        figure("  memory grew by", [(_memory() - memory) / 1024], "MiB"),
        figure("  refusals a second", [refusals / taken], "/s"),
        figure("  a grant's record before", quiet, "ms"),
        figure("  a grant's record meanwhile", busy, "ms"),
    ]


def _http(directory: Path, requests: int) -> list[Figure]:
    with open_lake(directory) as lake:
        lake.catalog().create_namespace("db")
        make_table(lake.catalog(), "db.t", 5, 1)
    with served(directory) as catalog:
        tables = f"{catalog.url}{catalog.prefix}/namespaces/db/tables"
        with httpx.Client(headers={"Authorization": f"Bearer {catalog.token}"}, timeout=60) as client:
            quiet = _loads(client, f"{tables}/t")
            flood = httpx.Client(timeout=60, limits=httpx.Limits(max_connections=_CLIENTS))
            start = time.perf_counter()
            with flood, _meanwhile(lambda number: flood.get(f"{tables}/x{number}"), requests, _CLIENTS):
                busy = _loads(client, f"{tables}/t")
            taken = time.perf_counter() - start
    return [
        figure(f"{requests:,} requests without a token", [requests / taken], "/s"),
        figure("  loadTable of others before", quiet, "ms"),
        figure("  loadTable of others meanwhile", busy, "ms"),
    ]


def _refusal(number: int) -> AuditRecord:
    """Most of them differ from all others."""
    user = f"user-{number % _USERS}"
    reason = Reason("policy-no-match", f"No policy grants select on table db.t{number} to {user!r}.")
    return AuditRecord(user, "spark", "table.load", f"db.t{number}", False, (reason,), f"r{number}", number)


def _grants(trail: AuditTrail) -> list[float]:
    reasons = (Reason("policy-allow", "Policy p grants it.", "p", "policyItems[0]"),)
    taken = []
    for number in range(_GRANTS):
        start = time.perf_counter()
        trail.append([AuditRecord("ann", "spark", "table.load", "db.t", True, reasons, "q", number)])
        taken.append((time.perf_counter() - start) * 1000)
    return taken


def _loads(client: httpx.Client, url: str) -> list[float]:
    taken = []
    for _ in range(_GRANTS // 5):
        start = time.perf_counter()
        client.get(url).raise_for_status()
        taken.append((time.perf_counter() - start) * 1000)
    return taken


@contextmanager
def _meanwhile(one: Callable[[int], object], count: int, threads: int) -> Iterator[None]:
    """Do something so many times, while the block runs and until it is done."""
    numbers = itertools.count()

    def work() -> None:
        while (number := next(numbers)) < count:
            one(number)

    workers = [threading.Thread(target=work) for _ in range(threads)]
    for worker in workers:
        worker.start()
    yield
    for worker in workers:
        worker.join()


def _refused(engine: Engine) -> tuple[int, int]:
    query = select(func.count(), func.sum(lw_audit.c.decisions)).where(lw_audit.c.allowed.is_(False))
    with read(engine) as connection:
        rows, decisions = connection.execute(query).one()
    return int(rows), int(decisions)


def _bytes(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.glob("lakewarden.db*"))


def _memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def main() -> None:
    """Run it alone, and print a table."""
    arguments = argparse.ArgumentParser(description="A flood of refusals")
    arguments.add_argument("--refusals", type=int, default=1_000_000)
    arguments.add_argument("--requests", type=int, default=5_000)
    given = arguments.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        show(
            Console(),
            "A flood of refusals",
            measure(Path(directory).resolve(), given.refusals, given.requests),
        )


if __name__ == "__main__":
    main()
