"""Run a soak: ``python -m tests.soak --minutes N [--database sqlite|postgres] [--seed S]``.

A real service, clients, and faults, one after the other; then a check of everything that the clients were
told (`checker`). In the last third no process is killed, so that one of them lives long enough to see what
grows.
"""

from __future__ import annotations

import argparse
import os
import random
import secrets
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from sqlalchemy import or_, select

from catalog.audit.verify import verify
from catalog.db.engine import read
from catalog.db.schema import lw_audit
from policy.principal import Principal
from tests.soak.checker import Finding, check, check_audit
from tests.soak.clients import Client, World
from tests.soak.history import Kind, Operation
from tests.soak.nemesis import Nemesis
from tests.soak.processes import ServiceProcess, free_port
from tests.soak.report import Soak, print_report, write_report
from tests.soak.samples import Sampler
from tests.soak.server import write_offset
from tests.support.crash import assert_sound
from tests.support.fault_proxy import FaultProxy, fault_proxy, listening
from tests.support.http_kms import DIALECT, KmsServer
from tests.support.lake import ALICE, Lake, open_lake
from tests.support.outages import small_disk
from tests.support.postgres import PostgresServer, find_binaries

RESULTS = Path("bench/results")
#: The size of the disk that is filled.
_DISK = "3g"
_READY_S = 60.0
#: A KMS is called often, and its outages are short: the key of a table is asked for again soon. The cache of
#: manifests is so small that it is full after some minutes; what grows then is no cache.
_SETTINGS = {
    "KMS__PEK_TTL_S": "5",
    "KMS__CALLS__OPEN_S": "1",
    "CACHE__MANIFEST_BYTES": str(4 * 1024**2),
}


def main() -> int:
    """Run the soak that the command line describes."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--database", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--seed", type=int, default=None, help="chooses what clients do, and the faults")
    parser.add_argument("--clients", type=int, default=6)
    parser.add_argument("--pause", type=float, default=0.2, help="seconds between two operations of a client")
    given = parser.parse_args()
    seed = secrets.randbits(32) if given.seed is None else given.seed
    console = Console()
    console.print(f"seed {seed}, {given.database}, {given.minutes:g} minutes")
    with tempfile.TemporaryDirectory(prefix="lw-", dir="/tmp") as directory, ExitStack() as stack:
        disk = _disk(stack, Path(directory))
        about = {
            "at": datetime.now(UTC).isoformat(timespec="seconds"),
            "seed": str(seed),
            "database": given.database,
            "minutes": str(given.minutes),
            "clients": str(given.clients),
            "pause": str(given.pause),
            "full-disk": "a small file system" if disk else "a limit of the size of files",
        }
        soak = _run(Path(directory), disk, given, seed, about, stack)
    results = RESULTS / f"soak-{given.database}-{datetime.now(UTC):%Y%m%dT%H%M%SZ}"
    results.mkdir(parents=True)
    print_report(console, soak)
    console.print(f"written to {write_report(soak, results)}")
    return 0 if soak.passed else 1


def _disk(stack: ExitStack, directory: Path) -> Path | None:
    """Mount a small disk on the directory, where that is permitted."""
    directory.chmod(0o755)
    if os.geteuid() != 0:
        return None
    stack.enter_context(small_disk(directory, _DISK))
    return directory


@contextmanager
def _postgres(directory: Path) -> Iterator[PostgresServer]:
    """A server on the disk, whose commits survive its end."""
    binaries = find_binaries()
    if binaries is None:
        sys.exit("PostgreSQL is not installed.")
    tempfile.tempdir = str(directory)
    server = PostgresServer(binaries, keeps_commits=True)
    tempfile.tempdir = None
    server.start()
    try:
        yield server
    finally:
        server.remove()


def _run(
    directory: Path,
    disk: Path | None,
    given: argparse.Namespace,
    seed: int,
    about: dict[str, str],
    stack: ExitStack,
) -> Soak:
    settings, server = dict(_SETTINGS), None
    if given.database == "postgres":
        server = stack.enter_context(_postgres(directory))
        settings["DATABASE__URL"] = server.create_database()
    root, clock = directory / "lake", directory / "clock"
    root.mkdir()
    write_offset(clock, 0.0)
    with open_lake(root, **settings) as lake:
        lake.catalog().create_namespace("soak")
        token = lake.services.tokens.issue(Principal(ALICE), "user", None).text
        kms_url, proxy = _kms(stack, lake)
        settings |= {"DATA_DIR": str(root), "WAREHOUSE": f"file://{root}/warehouse"}
        settings |= {"HTTP__PORT": str(free_port())}
        service = ServiceProcess(settings, clock, kms_url, directory / "service.log")
        service.start()
        try:
            return _soak(lake, server, service, proxy, disk, given, seed, about, token)
        finally:
            service.kill()


def _kms(stack: ExitStack, lake: Lake) -> tuple[str, FaultProxy]:
    """A KMS behind HTTP, and a way to it on which things go wrong."""
    upstream = stack.enter_context(listening(KmsServer(lake.kms).answer))
    return stack.enter_context(fault_proxy(upstream, DIALECT))


def _soak(
    lake: Lake,
    server: PostgresServer | None,
    service: ServiceProcess,
    proxy: FaultProxy,
    disk: Path | None,
    given: argparse.Namespace,
    seed: int,
    about: dict[str, str],
    token: str,
) -> Soak:
    world = World(service.url, token)
    file = Path(str(lake.services.engine.url.database))
    clients = [Client(world, random.Random(f"{seed}-{n}"), given.pause) for n in range(given.clients)]
    url = lake.settings.database.url.get_secret_value()
    sampler = Sampler(
        lambda: service.pid,
        lambda: _bytes_of(file) if server is None else server.size(url),
        lambda: world.answered,
    )
    nemesis = Nemesis(service, world.history, random.Random(seed), proxy, service.clock, disk, server or file)
    threads = [threading.Thread(target=each.run, daemon=True) for each in (*clients, sampler)]
    for thread in threads:
        thread.start()
    begin, whole_s = time.monotonic(), given.minutes * 60
    nemesis.run(begin + whole_s * 2 / 3)
    nemesis.run(begin + whole_s, frozenset({"kill"}))
    ready = _ready_after(clients[0])
    world.stop.set()
    sampler.stop()
    for thread in threads:
        thread.join(60)
    names = {each.name for each in world.history.operations}
    for name in sorted(names):
        clients[0].load_named(name)
    return Soak(
        about | {"starts": str(service.starts), "requests": str(world.answered)},
        world.history,
        sampler.samples,
        [*check(world.history.operations), *_audit(lake, world.history.operations)],
        [str(each) for each in verify(lake.services.engine)],
        _soundness(lake),
        ready,
    )


def _bytes_of(file: Path) -> int:
    """The bytes of a SQLite database, with its log."""
    return sum(each.stat().st_size for each in (file, Path(f"{file}-wal")) if each.exists())


def _ready_after(client: Client) -> float | None:
    """How long the catalog needs after the last fault until it serves everything."""
    start = time.monotonic()
    while time.monotonic() - start < _READY_S:
        if client.is_ready():
            return time.monotonic() - start
        time.sleep(0.2)
    return None


def _audit(lake: Lake, operations: list[Operation]) -> list[Finding]:
    """Grants that were acknowledged, and are not recorded: a change as begun, or as granted."""
    columns = lw_audit.c
    ours = select(columns.request_id, columns.allowed).where(
        or_(columns.allowed, columns.begun), columns.request_id.startswith("soak-")
    )
    with read(lake.services.engine) as connection:
        found = connection.execute(ours).all()
    granted = {row.request_id for row in found if row.allowed}
    recorded = {row.request_id for row in found}
    reads = [each for each in operations if each.kind is Kind.READ]
    changes = [each for each in operations if each.kind is not Kind.READ]
    return [*check_audit(reads, granted.__contains__), *check_audit(changes, recorded.__contains__)]


def _soundness(lake: Lake) -> str:
    """What does not hold together in the database; empty if all does."""
    try:
        assert_sound(lake)
    except AssertionError as error:
        return f"the database is not sound: {error}"
    return ""


if __name__ == "__main__":
    sys.exit(main())
