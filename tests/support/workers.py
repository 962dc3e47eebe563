"""`lakewarden serve` with two worker processes."""

from __future__ import annotations

import os
import re
import select
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.lake import open_lake
from tests.support.service import Service

_LAKEWARDEN = Path(sys.executable).with_name("lakewarden")
_PATIENCE_S = 60.0


@dataclass
class Workers:
    """A service with workers.

    Attributes:
        service: what clients see.
        supervisor: its process.
        log: its standard error.
    """

    service: Service
    supervisor: subprocess.Popen[str]
    log: Path

    def pids(self) -> set[int]:
        """Return the processes of the workers that run."""
        children = Path(f"/proc/{self.supervisor.pid}/task/{self.supervisor.pid}/children")
        return {int(each) for each in children.read_text().split()}


@contextmanager
def workers(root: Path, **overrides: str) -> Iterator[Workers]:
    """Serve a new catalog with two workers."""
    with open_lake(root, **overrides) as lake:
        given = {
            "DATA_DIR": root,
            "WAREHOUSE": f"file://{root}/warehouse",
            "DATABASE__URL": lake.settings.database.url.get_secret_value(),
            "HTTP__PORT": 0,
            "HTTP__WORKERS": 2,
        }
        kept = {name: value for name, value in os.environ.items() if not name.startswith("LAKEWARDEN_")}
        environment = kept | {f"LAKEWARDEN_{name}": str(value) for name, value in (given | overrides).items()}
        log = root / "stderr"
        with log.open("w") as errors:
            supervisor = subprocess.Popen(
                [_LAKEWARDEN, "serve"],
                cwd=root,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        try:
            assert supervisor.stdout is not None
            ready, _, _ = select.select([supervisor.stdout], [], [], _PATIENCE_S)
            found = re.search(r"http://\S+", supervisor.stdout.readline() if ready else "")
            assert found, log.read_text()
            yield Workers(Service(found[0], lake), supervisor, log)
        finally:
            supervisor.kill()
            supervisor.wait()
