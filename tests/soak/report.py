"""The report of a soak: tables for users, JSON for programs, and a picture of the samples."""

from __future__ import annotations

import json
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.report import Figure, at_most, figure, machine, show
from tests.soak.checker import Finding
from tests.soak.history import History, Outcome, Span
from tests.soak.samples import Sample, halves, longest_life, slope

#: Memory, descriptors and threads are flat if the second half of the longest life has at most so much more.
FLAT = 1.05
_MIB = 1024**2
_WIDTH, _HEIGHT = 900, 120
_COLORS = {
    "kill": "#d62728",
    "pause": "#9467bd",
    "database": "#ff7f0e",
    "disk": "#8c564b",
    "clock": "#17becf",
    "kms": "#2ca02c",
}


@dataclass(frozen=True)
class Soak:
    """What a soak found.

    Attributes:
        about: how it was run.
        history: what the clients were told, and the faults.
        samples: of the process and the database.
        findings: what cannot have happened.
        audit_problems: what `audit verify` found.
        sound: whether the database holds together, in words; empty if it does.
        ready: how long after the last fault the catalog was ready, in seconds; None if it was not.
    """

    about: Mapping[str, str]
    history: History
    samples: Sequence[Sample]
    findings: Sequence[Finding]
    audit_problems: Sequence[str]
    sound: str
    ready: float | None

    @property
    def passed(self) -> bool:
        """Whether nothing is wrong."""
        errors = any(each.error for each in self.history.operations)
        return not (self.findings or self.audit_problems or self.sound or errors or self.ready is None)


def figures_of(soak: Soak) -> list[Figure]:
    """What the process and the database grow."""
    life = longest_life(soak.samples)
    found = [
        _half("resident memory", life, lambda each: each.rss / _MIB, "MiB"),
        _half("open files", life, lambda each: each.descriptors, ""),
        _half("threads", life, lambda each: each.threads, ""),
    ]
    if len(life) > 1:
        requests = [float(each.requests) for each in life]
        memory = slope(list(zip(requests, (each.rss / 1024 for each in life), strict=True)))
        found.append(figure("resident memory of a request", [memory], "KiB"))
    whole = [(float(each.requests), float(each.database)) for each in soak.samples]
    if whole:
        found.append(figure("database of a request", [slope(whole) / 1024], "KiB"))
        commits = sum(
            each.outcome is Outcome.OK and each.value is not None for each in soak.history.operations
        )
        grown = whole[-1][1] - whole[0][1]
        found.append(
            figure("database of a commit, with all that is read", [grown / max(1, commits) / 1024], "KiB")
        )
    calm = [
        each for each in soak.history.operations if not _during(each.start, each.end, soak.history.faults)
    ]
    if calm:
        found.append(figure("an operation without a fault", [each.seconds * 1000 for each in calm], "ms"))
    return found


def _half(name: str, life: Sequence[Sample], of: Callable[[Sample], float], unit: str) -> Figure:
    """The median of the second half of a life, compared with that of the first one."""
    values = [of(each) for each in life]
    first, second = halves(values)
    known = figure(name, values or [0.0], unit)
    return at_most(round(first * FLAT + 1, 1), Figure(**{**asdict(known), "value": second}))


def _during(start: float, end: float, faults: Iterable[Span]) -> bool:
    """Whether an operation overlaps a fault, or the time in which the service recovers."""
    return any(start < each.end + 5 and each.start < end for each in faults)


def print_report(console: Console, soak: Soak) -> None:
    """Print what the clients were told, what grew, and what is wrong."""
    show(console, "Growth, in the longest life of a process", figures_of(soak))
    table = Table(title="Operations", title_justify="left")
    for column in ("what", *Outcome, "longest (s)"):
        table.add_column(column)
    kinds = Counter((each.kind, each.outcome) for each in soak.history.operations)
    for kind in sorted({kind for kind, _ in kinds}):
        longest = max(each.seconds for each in soak.history.operations if each.kind is kind)
        table.add_row(kind, *(str(kinds[kind, each]) for each in Outcome), f"{longest:.1f}")
    console.print(table)
    counted = Counter(each.name for each in soak.history.faults)
    console.print("faults: " + ", ".join(f"{name} {count}" for name, count in sorted(counted.items())))
    errors = Counter(each.error for each in soak.history.operations if each.error)
    for error, count in errors.most_common():
        console.print(f"not expected: {error} ({count} times)")
    for finding in soak.findings:
        console.print(f"[bold]{finding.rule}[/bold] {finding.where}: {finding.what}")
    for problem in (*soak.audit_problems, *([soak.sound] if soak.sound else [])):
        console.print(problem)
    ready = "never" if soak.ready is None else f"{soak.ready:.1f} s after the last fault"
    console.print(f"ready: {ready}")
    console.print("passed" if soak.passed else "FAILED")


def write_report(soak: Soak, directory: Path) -> Path:
    """Write the report as JSON, the history as lines of JSON, and the picture."""
    document: dict[str, Any] = {
        **soak.about,
        **machine(),
        "passed": soak.passed,
        "operations": Counter(f"{each.kind} {each.outcome}" for each in soak.history.operations),
        "faults": Counter(each.name for each in soak.history.faults),
        "errors": Counter(each.error for each in soak.history.operations if each.error),
        "findings": [asdict(each) for each in soak.findings],
        "audit": list(soak.audit_problems),
        "sound": soak.sound,
        "ready": soak.ready,
        "figures": [asdict(each) for each in figures_of(soak)],
        "samples": [asdict(each) for each in soak.samples],
    }
    path = directory / "report.json"
    path.write_text(json.dumps(document, indent=2) + "\n")
    soak.history.write(directory / "history.jsonl")
    (directory / "samples.svg").write_text(picture(soak.samples, soak.history.faults))
    return path


def picture(samples: Sequence[Sample], faults: Sequence[Span]) -> str:
    """Draw the samples over time as SVG, with the faults behind them."""
    lines: dict[str, list[float]] = {
        "resident memory (MiB)": [each.rss / _MIB for each in samples],
        "open files": [each.descriptors for each in samples],
        "threads": [each.threads for each in samples],
        "database (MiB)": [each.database / _MIB for each in samples],
        "requests": [each.requests for each in samples],
    }
    times = [each.at for each in samples] or [0.0]
    begin, span = times[0], max(times[-1] - times[0], 1.0)
    height = _HEIGHT * len(lines) + 30
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" font-family="sans" '
        'font-size="11">'
    ]
    for fault in faults:
        left, right = ((at - begin) / span * _WIDTH for at in (fault.start, fault.end))
        parts.append(
            f'<rect x="{left:.1f}" y="0" width="{max(right - left, 1):.1f}" height="{_HEIGHT * len(lines)}" '
            f'fill="{_COLORS.get(fault.name, "#999")}" opacity="0.2"><title>{fault.name}</title></rect>'
        )
    for number, (name, values) in enumerate(lines.items()):
        parts += _line(name, [(at - begin) / span for at in times], values, number * _HEIGHT)
    for number, (name, color) in enumerate(_COLORS.items()):
        parts.append(f'<text x="{10 + number * 90}" y="{height - 10}" fill="{color}">{name}</text>')
    return "\n".join([*parts, "</svg>\n"])


def _line(name: str, places: Sequence[float], values: Sequence[float], top: int) -> list[str]:
    highest, lowest = max(values, default=0.0), min(values, default=0.0)
    span = max(highest - lowest, 1e-9)
    points = " ".join(
        f"{place * _WIDTH:.1f},{top + _HEIGHT - 10 - (value - lowest) / span * (_HEIGHT - 30):.1f}"
        for place, value in zip(places, values, strict=False)
    )
    middle = statistics.median(values) if values else 0.0
    label = f"{name}: {lowest:,.0f} to {highest:,.0f}, median {middle:,.0f}"
    return [
        f'<text x="5" y="{top + 14}">{label}</text>',
        f'<polyline points="{points}" fill="none" stroke="#1f77b4" stroke-width="1.2"/>',
    ]
