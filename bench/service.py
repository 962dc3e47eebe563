"""Runs the catalog in a separate process, as in production."""

from __future__ import annotations

import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

_SERVER = """
import gc
import sys
from pathlib import Path
from tests.support.lake import ALICE, Lake, lake_settings
from tests.support.service import running
from catalog.kms.local import LocalKms
from catalog.kms.root_key import KeyFile
from catalog.service.services import Services
root = Path(sys.argv[1])
settings = lake_settings(root)
kms = LocalKms(settings.kms.options.keystore, KeyFile(settings.kms.options.key_file))
with Services.open(settings, kms) as services, running(Lake(root, settings, services, kms)) as service:
    engine = service.engine_token()
    print(service.url, service.prefix, service.token(ALICE), engine, flush=True)
    gc.freeze()  # as `lakewarden serve` does
    sys.stdin.read()
"""


@dataclass(frozen=True)
class Served:
    """A running catalog.

    Attributes:
        url: its address.
        prefix: where its Iceberg operations are.
        token: of a user who may do everything.
        engine_token: of an engine, for one start.
        process: the id of its process.
    """

    url: str
    prefix: str
    token: str = field(repr=False)
    engine_token: str = field(repr=False)
    process: int = field(default_factory=os.getpid)

    def kms_calls(self) -> int:
        """How often the catalog has asked its KMS."""
        asked = urllib.request.Request(
            f"{self.url}/metrics", headers={"Authorization": f"Bearer {self.token}"}
        )
        with urllib.request.urlopen(asked, timeout=30) as answer:
            lines = answer.read().decode().splitlines()
        return sum(int(line.split()[-1]) for line in lines if line.startswith("lakewarden_kms_calls_total{"))


@contextmanager
def served(directory: Path) -> Iterator[Served]:
    """Serve the catalog that `tests.support.lake.open_lake` made in a directory; it ends with its input."""
    with subprocess.Popen(
        [sys.executable, "-c", _SERVER, str(directory)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as server:
        assert server.stdout
        yield Served(*server.stdout.readline().split(), process=server.pid)
