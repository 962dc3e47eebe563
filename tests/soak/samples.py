"""Samples of a process and of the database while a soak runs, and what they grow."""

from __future__ import annotations

import contextlib
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

#: Seconds between two samples.
EVERY_S = 2.0


@dataclass(frozen=True)
class Sample:
    """One sample.

    Attributes:
        at: when it was taken.
        pid: the process.
        rss: its resident memory in bytes.
        descriptors: its open files.
        threads: its threads.
        database: bytes of the database.
        requests: how many requests were answered since the beginning.
    """

    at: float
    pid: int
    rss: int
    descriptors: int
    threads: int
    database: int
    requests: int


@dataclass
class Sampler:
    """Takes samples in a thread.

    Attributes:
        pid: the id of the process.
        database: the bytes of the database.
        requests: the number of requests.
    """

    pid: Callable[[], int]
    database: Callable[[], int]
    requests: Callable[[], int]
    samples: list[Sample] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Take samples until `stop`."""
        while not self._stop.wait(EVERY_S):
            # A process can end, and the database be down, at any moment.
            with contextlib.suppress(OSError, RuntimeError):
                self.samples.append(self._sample())

    def stop(self) -> None:
        """End `run`."""
        self._stop.set()

    def _sample(self) -> Sample:
        pid = self.pid()
        status = dict(
            line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line
        )
        if "VmRSS" not in status:
            raise OSError("the process has ended")
        return Sample(
            time.monotonic(),
            pid,
            int(status["VmRSS"].split()[0]) * 1024,
            len(list(Path(f"/proc/{pid}/fd").iterdir())),
            int(status["Threads"]),
            self.database(),
            self.requests(),
        )


def longest_life(samples: Sequence[Sample]) -> list[Sample]:
    """The samples of the process that lived longest, without its first fifth, in which caches fill."""
    lives: dict[int, list[Sample]] = {}
    for each in samples:
        lives.setdefault(each.pid, []).append(each)
    life = max(lives.values(), key=len, default=[])
    return life[len(life) // 5 :]


def slope(values: Sequence[tuple[float, float]]) -> float:
    """The growth of a value for each unit of another one, by least squares; 0 for less than two."""
    if len({x for x, _ in values}) < 2:
        return 0.0
    return float(statistics.linear_regression(*zip(*values, strict=True)).slope)


def halves(values: Sequence[float]) -> tuple[float, float]:
    """The medians of the first half and of the second one."""
    middle = len(values) // 2
    return statistics.median(values[:middle] or [0.0]), statistics.median(values[middle:] or [0.0])
