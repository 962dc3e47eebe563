"""Faults of a soak, one after the other, with pauses in which everything can recover; chosen by a seed."""

from __future__ import annotations

import contextlib
import os
import random
import resource
import signal
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.soak.history import History, Span
from tests.soak.processes import ServiceProcess
from tests.soak.server import write_offset
from tests.support.fault_proxy import Fault, FaultProxy
from tests.support.outages import filled
from tests.support.postgres import PostgresServer

#: Seconds of a fault, and between two of them.
_FAULT_S = (1.0, 8.0)
_PAUSE_S = (3.0, 8.0)
#: Seconds by which the clock is stepped: signatures allow 30, and PostgreSQL's clock 60.
_STEPS_S = (-3600.0, -50.0, -10.0, 10.0, 50.0, 3600.0)
_KMS_FAULTS = (Fault.RESET, Fault.HANG, Fault.BROKEN, Fault.GARBAGE)
_LIMIT_BYTES = 4096


class Nemesis:
    """Causes faults.

    Args:
        service: the service.
        history: gets each fault.
        rng: chooses.
        kms: the way to the KMS.
        clock: the file with the clock's offset.
        disk: the directory of a small disk; None if no disk could be mounted.
        database: the server, or the file of SQLite.
    """

    def __init__(
        self,
        service: ServiceProcess,
        history: History,
        rng: random.Random,
        kms: FaultProxy,
        clock: Path,
        disk: Path | None,
        database: PostgresServer | Path,
    ) -> None:
        self._service = service
        self._history = history
        self._rng = rng
        self._kms = kms
        self._clock = clock
        self._disk = disk
        self._database = database
        restart = self._restart if isinstance(database, PostgresServer) else self._lock
        self.faults: Mapping[str, Callable[[], contextlib.AbstractContextManager[None]]] = {
            "kill": self._kill,
            "pause": self._pause,
            "database": restart,
            "disk": self._fill,
            "clock": self._step,
            "kms": self._no_kms,
        }

    def run(self, until: float, without: frozenset[str] = frozenset()) -> None:
        """Cause faults until a time; each kind comes once before any comes again."""
        left: list[str] = []
        while (now := time.monotonic()) < until:
            left = left or self._rng.sample(chosen := sorted(set(self.faults) - without), len(chosen))
            self._service.require_alive()
            name, start = left.pop(), now
            with self.faults[name]():
                self._wait(_FAULT_S, until)
            self._history.faults.append(Span(name, start, time.monotonic()))
            self._wait(_PAUSE_S, until)

    def _wait(self, bounds: tuple[float, float], until: float) -> None:
        time.sleep(max(0.0, min(self._rng.uniform(*bounds), until - time.monotonic())))

    @contextmanager
    def _kill(self) -> Iterator[None]:
        """The process is killed, and started again."""
        self._service.kill()
        yield
        self._service.start()

    @contextmanager
    def _pause(self) -> Iterator[None]:
        """The process stands still; its connections are open."""
        os.kill(self._service.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self._service.pid, signal.SIGCONT)

    @contextmanager
    def _restart(self) -> Iterator[None]:
        """PostgreSQL ends at once, without a checkpoint, and recovers when it starts again."""
        assert isinstance(self._database, PostgresServer)
        self._database.crash()
        try:
            yield
        finally:
            self._database.start()

    @contextmanager
    def _lock(self) -> Iterator[None]:
        """Another program holds SQLite's write lock."""
        assert isinstance(self._database, Path)
        holder = sqlite3.connect(self._database, isolation_level=None, timeout=30)
        with contextlib.closing(holder):
            # Beside a writer that is busy it can take a while.
            with contextlib.suppress(sqlite3.OperationalError):
                holder.execute("BEGIN IMMEDIATE")
            yield

    @contextmanager
    def _fill(self) -> Iterator[None]:
        """The disk of the database and the warehouse is full; without one, files cannot grow."""
        if self._disk is None:
            with _small_files(self._service.pid):
                yield
            return
        with filled(self._disk):
            yield
        if isinstance(self._database, PostgresServer) and not self._database.is_running():
            # PostgreSQL ends if its write-ahead log cannot grow.
            self._database.crash()
            self._database.start()

    @contextmanager
    def _step(self) -> Iterator[None]:
        """The clock of the service's host is stepped, and corrected again."""
        write_offset(self._clock, self._rng.choice(_STEPS_S))
        try:
            yield
        finally:
            write_offset(self._clock, 0.0)

    @contextmanager
    def _no_kms(self) -> Iterator[None]:
        """The KMS does not answer, or not as it should."""
        with self._kms.going_wrong(self._rng.choice(_KMS_FAULTS)):
            yield


@contextmanager
def _small_files(process: int) -> Iterator[None]:
    """No file of a process can grow beyond some bytes, as with a quota (RLIMIT_FSIZE)."""
    soft, hard = resource.prlimit(process, resource.RLIMIT_FSIZE)
    resource.prlimit(process, resource.RLIMIT_FSIZE, (_LIMIT_BYTES, hard))
    try:
        yield
    finally:
        resource.prlimit(process, resource.RLIMIT_FSIZE, (soft, hard))
