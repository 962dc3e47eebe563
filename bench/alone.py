"""Runs one benchmark by itself: parses its command line and stores its figures."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Collection
from pathlib import Path

from rich.console import Console

from bench.report import Figure, machine, write

Measure = Callable[[Console, Path, float, int], tuple[list[Figure], dict[str, str]]]


def given(description: str, tables: Collection[str] = ()) -> argparse.Namespace:
    """`scale` and `runs` of the command line, and `table`, if there are any to choose from."""
    arguments = argparse.ArgumentParser(description=description)
    arguments.add_argument("--scale", type=float, default=1, help="TPC-H scale factor; 1 is 6 million rows")
    arguments.add_argument("--runs", type=int, default=7, help="rounds that count")
    if tables:
        arguments.add_argument("--table", choices=tables, help="this one alone")
    return arguments.parse_args()


def run(options: argparse.Namespace, measure: Measure) -> None:
    """Measure in a directory that goes afterwards, and write the figures."""
    console = Console()
    with tempfile.TemporaryDirectory() as directory:
        figures, about = measure(console, Path(directory).resolve(), options.scale, options.runs)
    about = machine() | about
    console.print(", ".join(f"{name} {value}" for name, value in about.items()))
    console.print(f"written to {write(figures, about)}")
