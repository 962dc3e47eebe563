"""The process of the service that a soak kills, pauses and measures."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import httpx

_START_S = 90.0


def free_port() -> int:
    """A port that is free now; the service keeps it over its restarts."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@dataclass
class ServiceProcess:
    """The service.

    Attributes:
        settings: environment variables without the prefix.
        clock: the file with the clock's offset.
        kms_url: the address of its KMS.
        log: what it logs.
        starts: how often it was started.
    """

    settings: dict[str, str]
    clock: Path
    kms_url: str
    log: Path
    starts: int = 0
    _process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.settings['HTTP__PORT']}"

    @property
    def pid(self) -> int:
        """The id of its process."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start it, and wait until it answers.

        Raises:
            RuntimeError: it does not.
        """
        kept = {name: value for name, value in os.environ.items() if not name.startswith("LAKEWARDEN_")}
        environment = kept | {f"LAKEWARDEN_{name}": value for name, value in self.settings.items()}
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.soak.server", str(self.clock), self.kms_url],
                env=environment,
                stdout=subprocess.DEVNULL,
                stderr=log,
            )
        self.starts += 1
        deadline = time.monotonic() + _START_S
        while not self._answers():
            self.require_alive()
            if time.monotonic() > deadline:
                raise RuntimeError("the service does not answer")
            time.sleep(0.1)

    def require_alive(self) -> None:
        """Raise if the process has ended by itself.

        Raises:
            RuntimeError: it has; the message has the end of its log.
        """
        if self._process is None or self._process.poll() is not None:
            raise RuntimeError(f"the service ended by itself: {self.log.read_text()[-3000:]}")

    def kill(self) -> None:
        """Kill it: no `finally`, no flush, no rollback of its own."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(30)

    def _answers(self) -> bool:
        try:
            return httpx.get(f"{self.url}/livez", timeout=2).status_code == 200
        except httpx.HTTPError:
            return False
