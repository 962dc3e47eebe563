"""loadTable through the running service, on a table with history, one client. Budget: p50 under 10 ms."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import httpx

from bench.report import Figure, figure
from bench.samples import make_table, root_of
from tests.support.lake import open_lake

#: Serves the catalog in a process of its own, as it is served for real; prints its address and a token.
_SERVER = """
import sys
from pathlib import Path
from tests.support.lake import ALICE, Lake, lake_settings
from tests.support.service import running
from catalog.keys.local_kms import LocalKms
from catalog.keys.root_key import KeyFile
from catalog.warden import Warden
root = Path(sys.argv[1])
settings = lake_settings(root)
kms = LocalKms(settings.kms.options.keystore, KeyFile(settings.kms.options.key_file))
with Warden.open(settings, kms) as warden, running(Lake(root, settings, warden, kms)) as service:
    print(service.url + service.prefix, service.token(ALICE), flush=True)
    sys.stdin.read()
"""
_SNAPSHOTS = 50


def measure(root: Path, requests: int) -> list[Figure]:
    """Load one table again and again over one connection."""
    directory = root_of(root, "load")
    with open_lake(directory) as lake:
        lake.catalog().create_namespace("db")
        make_table(lake.catalog(), "db.t", _SNAPSHOTS, 1)
    with subprocess.Popen(
        [sys.executable, "-c", _SERVER, str(directory)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as server:
        assert server.stdin and server.stdout
        url, token = server.stdout.readline().split()
        taken = _requests(f"{url}/namespaces/db/tables/t", token, requests)
        server.stdin.close()
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
