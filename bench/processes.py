"""CPU time of processes, as Linux counts it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

_TICK_MS: Final = 1000 / os.sysconf("SC_CLK_TCK")


def descendants(process: int) -> Iterator[int]:
    """A process and those that it started: here this one, the catalog and Spark's JVM."""
    yield process
    for thread in Path(f"/proc/{process}/task").iterdir():
        with suppress(FileNotFoundError):  # the thread has ended
            for child in (thread / "children").read_text().split():
                yield from descendants(int(child))


def worked_ms(processes: Iterable[int]) -> float:
    """Return the CPU time of processes so far, in milliseconds, also of their threads that ended."""
    return sum(map(_ticks, processes)) * _TICK_MS


def _ticks(process: int) -> int:
    """User and system time (proc_pid_stat(5), fields 14 and 15)."""
    after_name = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return int(after_name[11]) + int(after_name[12])
