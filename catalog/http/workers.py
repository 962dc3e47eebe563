"""Supervises the worker processes of the service.

- The supervisor opens the listening socket, forks the workers and replaces those that end. It opens no
  database, KMS or storage, starts no thread, and sees no request. So nothing is shared by a fork that must
  not be: neither connections and locks, nor keys, tokens and random numbers.
- All workers accept from one socket: a connection goes to a worker that has time for it, and connections
  that wait outlive a worker that dies.
- The first worker is ready before the others are forked, so that a start that fails says so once.
- SIGTERM and SIGINT end all workers, which finish their requests in bounded time; then they are killed.
  A worker whose supervisor died ends in the same way.
- A worker that dies is replaced: at once, or after a growing time if it lived for less than a minute.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Final

from catalog.authorization.nonces import SharedNonces
from catalog.base.log_fields import fields
from catalog.http.tallies import SharedRows
from catalog.service.service_log import places

#: Libraries start threads when they are imported, unless these say otherwise. A lock that such a thread holds
#: during a fork would stay locked in the worker forever.
WITHOUT_THREADS: Final[Mapping[str, str]] = {
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
    "OPENBLAS_NUM_THREADS": "1",
}
#: What a worker needs, imported once before the fork.
_PRELOADED: Final = ("catalog.http.server", "catalog.service.services", "catalog.kms.registry")
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
#: More than a worker takes that finishes its requests and closes the catalog.
_STOP_S: Final = 60.0
_STOP_AGAIN_S: Final = 1.0
#: Seconds of life after which a worker counts as sound.
_SOUND_S: Final = 60.0
_FIRST_WAIT_S: Final = 0.5
_LONGEST_WAIT_S: Final = 30.0
_FORK_AGAIN_S: Final = 1.0

_log: Final = logging.getLogger("lakewarden.workers")


_Mask = set[int | signal.Signals]


@dataclass(frozen=True)
class Worker:
    """What a worker process gets from its supervisor.

    Attributes:
        number: from 0; the first one also writes the export files of the audit log, and archives it.
        workers: how many there are.
        listener: the socket that all accept from.
        connections: open connections, by address.
        bodies: bytes of request bodies, by user.
        nonces: of signed requests.
        directory: a private directory of the service, for as long as it runs.
        ready: is called when the worker accepts connections.
    """

    number: int
    workers: int
    listener: socket.socket
    connections: SharedRows
    bodies: SharedRows
    nonces: SharedNonces
    directory: Path
    ready: Callable[[], None]


def preload() -> None:
    """Import what the workers need.

    Raises:
        RuntimeError: a library started a thread; a fork would not be safe.
    """
    os.environ.update({name: value for name, value in WITHOUT_THREADS.items() if name not in os.environ})
    for name in _PRELOADED:
        import_module(name)
    _require_one_thread()


def _require_one_thread() -> None:
    tasks = Path("/proc/self/task")
    count = len(list(tasks.iterdir())) if tasks.is_dir() else threading.active_count()
    if count != 1:
        raise RuntimeError(f"the supervisor has {count} threads and cannot fork workers safely")


class Supervisor:
    """Runs the workers until a signal stops them.

    Args:
        run: serves in a worker process, and returns its exit code.
        listener: the listening socket.
        workers: how many processes serve.
        directory: a private directory.
    """

    def __init__(
        self, run: Callable[[Worker], int], listener: socket.socket, workers: int, directory: Path
    ) -> None:
        self._run = run
        self._listener = listener
        self._workers = workers
        self._directory = directory
        self._connections, self._bodies = SharedRows(workers), SharedRows(workers)
        self._nonces = SharedNonces(workers)
        self._numbers: dict[int, int] = {}
        self._begun: dict[int, float] = {}
        self._due: dict[int, float] = {}
        self._waits = dict.fromkeys(range(workers), 0.0)
        self._alive = os.pipe()

    def run(self, on_ready: Callable[[], None]) -> int:
        """Run the workers, and return the exit code of the service.

        Args:
            on_ready: called when the first worker accepts connections.
        """
        before = signal.pthread_sigmask(signal.SIG_BLOCK, (*_SIGNALS, signal.SIGCHLD))
        try:
            code = self._start(before)
            if code is None:
                on_ready()
                self._supervise(before)
                code = 0
            self._stop()
            return code
        finally:
            for each in self._alive:
                os.close(each)
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def _start(self, mask: _Mask) -> int | None:
        """Start all workers; return the exit code if the first one does not become ready."""
        ready, said = os.pipe()
        try:
            pid = self._fork(0, mask, said)
            os.close(said)
            # The pipe ends without a byte if the worker ends.
            if not os.read(ready, 1):
                code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                del self._numbers[pid]
                return code if code > 0 else 1
        finally:
            os.close(ready)
        for number in range(1, self._workers):
            self._fork(number, mask)
        return None

    def _supervise(self, mask: _Mask) -> None:
        """Replace workers that end, until a signal stops the service."""
        while True:
            wait = min(self._due.values(), default=time.monotonic() + 3600) - time.monotonic()
            found = signal.sigtimedwait((*_SIGNALS, signal.SIGCHLD), max(0.0, wait))
            if found is not None and found.si_signo in _SIGNALS:
                return
            self._bury()
            for number in [each for each, due in self._due.items() if due <= time.monotonic()]:
                self._replace(number, mask)

    def _replace(self, number: int, mask: _Mask) -> None:
        """Fork the worker again that is due; later, if the system has no process or memory left."""
        del self._due[number]
        try:
            self._fork(number, mask)
        except OSError as error:
            self._due[number] = time.monotonic() + _FORK_AGAIN_S
            _log.error("worker %d cannot be replaced: %s", number, error.strerror)

    def _bury(self) -> None:
        """Take note of workers that ended, and when they are replaced."""
        for number, pid, code in self._ended():
            lived = time.monotonic() - self._begun[number]
            wait = 0.0 if lived >= _SOUND_S else self._waits[number]
            self._waits[number] = min(_LONGEST_WAIT_S, max(_FIRST_WAIT_S, 2 * wait))
            self._due[number] = time.monotonic() + wait
            _log.error(
                "worker %d (process %d) ended with %s after %.0f s and is replaced in %.1f s",
                number,
                pid,
                _shown(code),
                lived,
                wait,
            )

    def _ended(self) -> list[tuple[int, int, int]]:
        """Forget workers that ended; return the number, process and exit code of each."""
        found = []
        for pid, number in list(self._numbers.items()):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                del self._numbers[pid]
                self._connections.clear(number)
                self._bodies.clear(number)
                found.append((number, pid, os.waitstatus_to_exitcode(status)))
        return found

    def _stop(self) -> None:
        """End all workers: they finish their requests; those that do not end in time are killed."""
        deadline = time.monotonic() + _STOP_S
        while self._numbers and time.monotonic() < deadline:
            # A worker that just starts can miss a signal.
            self._send(signal.SIGTERM)
            signal.sigtimedwait((signal.SIGCHLD,), _STOP_AGAIN_S)
            self._ended()
        if self._numbers:
            _log.error("%d workers did not end in %.0f s and are killed", len(self._numbers), _STOP_S)
            self._send(signal.SIGKILL)
            for pid in self._numbers:
                os.waitpid(pid, 0)

    def _send(self, number: signal.Signals) -> None:
        for pid in self._numbers:
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def _fork(self, number: int, mask: _Mask, said: int | None = None) -> int:
        _require_one_thread()
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            self._serve(number, mask, said)
        self._numbers[pid] = number
        self._begun[number] = time.monotonic()
        return pid

    def _serve(self, number: int, mask: _Mask, said: int | None) -> None:
        """Serve in the new process, and end it; nothing of the supervisor's stack runs on."""
        code = 1
        try:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            os.close(self._alive[1])
            threading.Thread(target=_end_with, args=(self._alive[0],), daemon=True).start()

            def ready() -> None:
                if said is not None:
                    os.write(said, b"1")
                    os.close(said)

            worker = Worker(
                number,
                self._workers,
                self._listener,
                self._connections,
                self._bodies,
                self._nonces,
                self._directory,
                ready,
            )
            code = self._run(worker)
        except BaseException as error:  # noqa: BLE001 - the process ends here, and the log has the reason
            # The message is not logged, because it can contain a secret.
            about = fields(error=type(error).__name__, places=places(error))
            _log.error("worker %d failed", number, extra=about)
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)


def _end_with(supervisor: int) -> None:
    """Stop this worker when its supervisor ends, whose end of the pipe is then closed."""
    os.read(supervisor, 1)
    while True:
        # A worker that just starts can miss a signal.
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(_STOP_AGAIN_S)


def _shown(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"
