"""Metrics and health of all workers of a service.

- Each worker publishes its snapshot every second, in a file of a private directory that the supervisor made,
  and before it answers `/metrics`. So whichever worker answers speaks for all, and no counter goes back.
- A worker that takes the place of another one continues its counters.
- Counters of a worker that does not publish any more stay. Its states and connections do not count.

A snapshot has series and states alone: no table, user, path, token or key.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from catalog.http.metrics import Series, Snapshot, state_index
from catalog.service.archive_state import ARCHIVE_PROBLEM

PUBLISH_S: Final = 1.0
#: Seconds after which a worker that published nothing does not count as running.
_SILENT_S: Final = 10.0
#: What an operator has to look at, by the state of another worker.
_PROBLEMS: Final = {
    state_index("lakewarden_policies_outdated"): (
        "Newer policies are not in force in another worker. The service log has the reason."
    ),
    state_index("lakewarden_audit_archive_failing"): ARCHIVE_PROBLEM,
}

_log: Final = logging.getLogger("lakewarden.workers")


class WorkerStates:
    """Publishes the snapshots of one worker, and reads those of the others; thread-safe.

    Args:
        directory: the private directory of the service.
        number: of this worker.
        workers: how many there are.
        seconds: a monotonic clock that all processes of the host share.
    """

    def __init__(
        self, directory: Path, number: int, workers: int, seconds: Callable[[], float] = time.monotonic
    ) -> None:
        self._files = [directory / f"worker-{each}.json" for each in range(workers)]
        self._number = number
        self._seconds = seconds
        self._lock = threading.Lock()
        former = self._read(number)
        self._counts, self._calls = Counter[Series](), Counter[Series]()
        if former is not None:
            self._counts.update(_series(former["counts"]))
            self._calls.update(_series(former["kms_calls"]))

    def publish(self, snapshot: Snapshot) -> None:
        """Publish what this worker shows.

        Raises:
            OSError: the file cannot be written.
        """
        document = {
            "at": self._seconds(),
            "counts": _pairs(_sum(self._counts, snapshot.counts)),
            "connections": snapshot.connections,
            "states": snapshot.states,
            "differences": snapshot.differences,
            "kms_calls": _pairs(_sum(self._calls, snapshot.kms_calls)),
            "circuit_open": snapshot.circuit_open,
        }
        file = self._files[self._number]
        with self._lock:
            new = file.with_suffix(".new")
            new.write_text(json.dumps(document))
            new.replace(file)

    def merged(self, snapshot: Snapshot) -> Snapshot:
        """Publish what this worker shows, and return the sum over all workers.

        Raises:
            OSError: the file cannot be written.
        """
        self.publish(snapshot)
        all_known = [found for each in range(len(self._files)) if (found := self._read(each)) is not None]
        running = [each for each in all_known if self._is_running(each)]
        return Snapshot(
            _total(_series(each["counts"]) for each in all_known),
            sum(each["connections"] for each in running),
            _worst([tuple(each["states"]) for each in running]),
            tuple(sorted({name for each in running for name in each["differences"]})),
            _total(_series(each["kms_calls"]) for each in all_known),
            any(each["circuit_open"] for each in running),
        )

    def problems(self) -> list[str]:
        """Return what an operator has to look at in other workers."""
        found = [self._read(each) for each in range(len(self._files)) if each != self._number]
        running = [each for each in found if each is not None and self._is_running(each)]
        problems = []
        if len(running) < len(found):
            problems.append(f"Only {len(running) + 1} of {len(self._files)} workers run.")
        return problems + [
            problem for state, problem in _PROBLEMS.items() if any(each["states"][state] for each in running)
        ]

    def _is_running(self, document: Mapping[str, Any]) -> bool:
        return bool(self._seconds() - document["at"] < _SILENT_S)

    def _read(self, number: int) -> dict[str, Any] | None:
        with suppress(FileNotFoundError):
            found: dict[str, Any] = json.loads(self._files[number].read_text())
            return found
        return None


class Publishing:
    """Publishes in a separate thread, for as long as the worker serves.

    Args:
        publish: publishes one snapshot.
    """

    def __init__(self, publish: Callable[[], None]) -> None:
        self._publish = publish
        self._ended = threading.Event()
        self._failing = False
        self._thread = threading.Thread(target=self._run, name="lakewarden-worker-states", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Publish for the last time, and stop."""
        self._ended.set()
        self._thread.join(PUBLISH_S)

    def _run(self) -> None:
        self._once()
        while not self._ended.wait(PUBLISH_S):
            self._once()
        self._once()

    def _once(self) -> None:
        try:
            self._publish()
        except OSError as error:
            if not self._failing:
                _log.error("the metrics of a worker cannot be published: %s", error.strerror)
            self._failing = True
        else:
            self._failing = False


def _worst(states: list[tuple[float, ...]]) -> tuple[float, ...]:
    """Return the greatest value of each state; of the revision in force, which is the last, the least."""
    *others, revisions = zip(*states, strict=True)
    return (*(max(each) for each in others), min(revisions))


def _sum(first: Mapping[Series, float], second: Mapping[Series, float]) -> Mapping[Series, float]:
    return _total((first, second))


def _total(each: Any) -> Mapping[Series, float]:
    total: Counter[Series] = Counter()
    for counts in each:
        total.update(counts)
    return total


def _pairs(counts: Mapping[Series, float]) -> list[Any]:
    return [[name, labels, value] for (name, labels), value in counts.items()]


def _series(pairs: list[Any]) -> dict[Series, float]:
    return {(name, tuple((key, value) for key, value in labels)): count for name, labels, count in pairs}
