"""`lakewarden serve` in a process of its own."""

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

from tests.support.lake import Lake

_LAKEWARDEN = Path(sys.executable).with_name("lakewarden")
_PATIENCE_S = 60.0


@dataclass
class Serving:
    """A running process.

    Attributes:
        url: the address.
        process: the process.
        log: its standard error.
    """

    url: str
    process: subprocess.Popen[str]
    log: Path


@contextmanager
def serve(directory: Path, lake: Lake, **overrides: str) -> Iterator[Serving]:
    """Serve a catalog on a free port.

    Args:
        directory: the working directory, where the log is written.
        lake: the catalog.
        overrides: settings as environment variables without the prefix.
    """
    given = {
        "DATA_DIR": lake.root,
        "WAREHOUSE": f"file://{lake.root}/warehouse",
        "DATABASE__URL": lake.settings.database.url.get_secret_value(),
        "HTTP__PORT": 0,
    }
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LAKEWARDEN_")}
    environment = kept | {f"LAKEWARDEN_{name}": str(value) for name, value in (given | overrides).items()}
    log = directory / "stderr"
    with log.open("w") as errors:
        process = subprocess.Popen(
            [_LAKEWARDEN, "serve"],
            cwd=directory,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    try:
        assert process.stdout is not None
        ready, _, _ = select.select([process.stdout], [], [], _PATIENCE_S)
        found = re.search(r"http://\S+", process.stdout.readline() if ready else "")
        assert found, log.read_text()
        yield Serving(found[0], process, log)
    finally:
        process.kill()
        process.wait()
