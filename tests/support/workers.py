"""`lakewarden serve` with two worker processes."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.lake import open_lake
from tests.support.served_processes import serve
from tests.support.service import Service


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
    with (
        open_lake(root, **overrides) as lake,
        serve(root, lake, **{"HTTP__WORKERS": "2"} | overrides) as serving,
    ):
        yield Workers(Service(serving.url, lake), serving.process, serving.log)
