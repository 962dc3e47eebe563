"""Runs `lakewarden serve` on a catalog in a database, and reads what its process used."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx

_LAKEWARDEN = Path(sys.executable).with_name("lakewarden")
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Process:
    """A running service.

    Attributes:
        url: where its Iceberg operations are.
        pid: its process.
        started_s: seconds from its start to its first answer.
        started_cpu_s: the CPU time of that.
        client: sends requests of an administrator to `url`.
    """

    url: str
    pid: int
    started_s: float
    started_cpu_s: float
    client: httpx.Client = field(repr=False)

    def cpu_s(self) -> float:
        """The CPU time that the process used (proc_pid_stat(5), fields 14 and 15)."""
        return _cpu_s(self.pid)

    def memory_mb(self) -> float:
        """The memory that the process holds, in MB."""
        lines = Path(f"/proc/{self.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:")) / 1000


@contextmanager
def serving(root: Path, database: str, catalog: str, token: str, **settings: str) -> Iterator[Process]:
    """Serve the catalog that `tests.support.lake.open_lake` made in a directory, as in production."""
    given = {
        "DATA_DIR": str(root),
        "WAREHOUSE": f"file://{root}/warehouse",
        "DATABASE__URL": database,
        "HTTP__PORT": "0",
        **settings,
    }
    environment = os.environ | {f"LAKEWARDEN_{name}": value for name, value in given.items()}
    with (root / "log").open("w") as log:
        start = time.perf_counter()
        server = subprocess.Popen(
            [_LAKEWARDEN, "serve"], cwd=root, env=environment, stdout=subprocess.PIPE, stderr=log, text=True
        )
    try:
        assert server.stdout
        found = re.search(r"http://\S+", server.stdout.readline())
        assert found, (root / "log").read_text()
        url = f"{found[0].rstrip('/')}/v1/{catalog}"
        with httpx.Client(headers={"Authorization": f"Bearer {token}"}, timeout=60) as client:
            client.get(f"{url}/namespaces", params={"pageToken": "", "pageSize": 1}).raise_for_status()
            took = time.perf_counter() - start
            yield Process(url, server.pid, took, _cpu_s(server.pid), client)
    finally:
        server.terminate()
        server.wait()


def _cpu_s(pid: int) -> float:
    after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(after_name[11]) + int(after_name[12])) * _TICK_S
