"""What a benchmark measured: a table for people, JSON for machines."""

from __future__ import annotations

import json
import platform
import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
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
    """

    name: str
    value: float
    unit: str
    low: float
    high: float
    runs: int
    budget: str = ""


def figure(name: str, values: Iterable[float], unit: str, budget: str = "") -> Figure:
    """The median of several values, with the range that they lie in."""
    taken = sorted(values)
    return Figure(name, statistics.median(taken), unit, taken[0], taken[-1], len(taken), budget)


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
        table.add_row(each.name, median, each.unit, low, high, str(each.runs), each.budget)
    console.print(table)


def write(figures: Iterable[Figure], directory: Path = RESULTS) -> Path:
    """Write figures as JSON, with the machine that they were measured on."""
    directory.mkdir(parents=True, exist_ok=True)
    now = datetime.now(UTC)
    path = directory / f"{now:%Y%m%dT%H%M%SZ}.json"
    machine = {
        "machine": platform.machine(),
        "python": platform.python_version(),
        "system": platform.system(),
    }
    document = {
        "at": now.isoformat(timespec="seconds"),
        **machine,
        "figures": [asdict(each) for each in figures],
    }
    path.write_text(json.dumps(document, indent=2) + "\n")
    return path
