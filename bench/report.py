"""Reports the results of a benchmark: a table for users, JSON for programs."""

from __future__ import annotations

import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.table import Table

RESULTS = Path("bench/results")


@dataclass(frozen=True)
class Figure:
    """One measured figure.

    Attributes:
        name: what was measured.
        value: the median.
        unit: its unit.
        low: the smallest value.
        high: the largest value.
        runs: how many values.
        budget: what it should keep to, in words; empty if there is no budget.
        met: whether it does, where that was decided.
    """

    name: str
    value: float
    unit: str
    low: float
    high: float
    runs: int
    budget: str = ""
    met: bool | None = None


def figure(name: str, values: Iterable[float], unit: str, budget: str = "") -> Figure:
    """The median of several values, with the range that they lie in."""
    taken = sorted(values)
    return Figure(name, statistics.median(taken), unit, taken[0], taken[-1], len(taken), budget)


def at_most(limit: float, measured: Figure) -> Figure:
    """The figure, checked against the largest value that it should have."""
    return replace(measured, budget=f"{limit:g} {measured.unit}", met=measured.value <= limit)


def seconds(run: Callable[[], object], times: int) -> list[float]:
    """How long each of several calls took, after one that does not count."""
    run()
    taken = []
    for _ in range(times):
        start = time.perf_counter()
        run()
        taken.append(time.perf_counter() - start)
    return taken


def show(console: Console, title: str, figures: Iterable[Figure]) -> None:
    """Print figures as a table."""
    table = Table(title=title, title_justify="left")
    for column in ("what", "median", "unit", "min", "max", "runs", "budget"):
        table.add_column(column, justify="left" if column in ("what", "unit", "budget") else "right")
    for each in figures:
        numbers = (
            f"{value:,.3g}" if value < 1000 else f"{value:,.0f}"
            for value in (each.value, each.low, each.high)
        )
        median, low, high = numbers
        kept = {None: "", True: " (met)", False: " (missed)"}[each.met]
        table.add_row(each.name, median, each.unit, low, high, str(each.runs), each.budget + kept)
    console.print(table)


def machine() -> dict[str, str]:
    """What a figure depends on beside the code: the machine, and the versions."""
    return {
        "machine": platform.machine(),
        "processor": _first("/proc/cpuinfo", "model name"),
        "cores": str(len(os.sched_getaffinity(0))),
        "memory": _first("/proc/meminfo", "MemTotal"),
        "system": platform.system(),
        "python": platform.python_version(),
    }


def _first(file: str, name: str) -> str:
    """The value of a name in one of the kernel's lists; empty where there is none."""
    lines = Path(file).read_text().splitlines() if Path(file).exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(name)), "")


def write(figures: Iterable[Figure], about: Mapping[str, str], directory: Path = RESULTS) -> Path:
    """Write figures as JSON, with what they depend on."""
    directory.mkdir(parents=True, exist_ok=True)
    now = datetime.now(UTC)
    path = directory / f"{now:%Y%m%dT%H%M%SZ}.json"
    document = {
        "at": now.isoformat(timespec="seconds"),
        **about,
        "figures": [asdict(each) for each in figures],
    }
    path.write_text(json.dumps(document, indent=2) + "\n")
    return path
