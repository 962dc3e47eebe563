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
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from catalog.base.durations import Histogram, summed
from catalog.http.metric_families import ARCHIVE_FAILING, FAMILIES, OUTDATED
from catalog.http.metrics import Snapshot
from catalog.http.series import Series
from catalog.service.archive_state import ARCHIVE_PROBLEM

PUBLISH_S: Final = 1.0
#: Seconds after which a worker that published nothing does not count as running.
_SILENT_S: Final = 10.0
#: What an operator has to look at, by the state of another worker.
_PROBLEMS: Final = {
    OUTDATED: ("Newer policies are not in force in another worker. The service log has the reason."),
    ARCHIVE_FAILING: ARCHIVE_PROBLEM,
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
        self._counts = {} if former is None else _series(former["counts"])
        self._durations = {} if former is None else _histograms(former["durations"])

    def publish(self, snapshot: Snapshot) -> None:
        """Publish what this worker shows.

        Raises:
            OSError: the file cannot be written.
        """
        document = {
            "at": self._seconds(),
            "counts": _pairs(_total((self._counts, snapshot.counts))),
            "durations": _pairs(summed((self._durations, snapshot.durations))),
            "gauges": _pairs(snapshot.gauges),
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
            summed(_histograms(each["durations"]) for each in all_known),
            _merged(_series(each["gauges"]) for each in running),
        )

    def problems(self) -> list[str]:
        """Return what an operator has to look at in other workers."""
        found = [self._read(each) for each in range(len(self._files)) if each != self._number]
        running = [each for each in found if each is not None and self._is_running(each)]
        problems = []
        if len(running) < len(found):
            problems.append(f"Only {len(running) + 1} of {len(self._files)} workers run.")
        return problems + [
            problem
            for name, problem in _PROBLEMS.items()
            if any(_series(each["gauges"])[name, ()] for each in running)
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


def _merged(gauges: Iterable[Mapping[Series, float]]) -> dict[Series, float]:
    """Return one value of each state, as its family says."""
    found: dict[Series, float] = {}
    for each in gauges:
        for series, value in each.items():
            merge = FAMILIES[series[0]].merge
            found[series] = merge(found[series], value) if series in found else value
    return found


def _total(all_counts: Iterable[Mapping[Series, float]]) -> Mapping[Series, float]:
    total: Counter[Series] = Counter()
    for counts in all_counts:
        total.update(counts)
    return total


def _pairs(values: Mapping[Series, object]) -> list[Any]:
    return [[name, labels, value] for (name, labels), value in values.items()]


def _series(pairs: list[Any]) -> dict[Series, Any]:
    return {(name, tuple((key, value) for key, value in labels)): found for name, labels, found in pairs}


def _histograms(pairs: list[Any]) -> dict[Series, Histogram]:
    return {series: Histogram(tuple(counts), total) for series, (counts, total) in _series(pairs).items()}
