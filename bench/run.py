"""Run the benchmarks: ``python -m bench.run [--files N] [--scale S] [--quick]``."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from rich.console import Console

from bench import (
    access_tokens,
    appends,
    arrow,
    audit,
    commit,
    credentials,
    decision,
    keys,
    load,
    locations,
    plan,
    signing,
    spark,
    standard_plan,
    workers,
)
from bench.report import machine, show, write


def main() -> None:
    """Run every benchmark, print a table each, write one JSON file."""
    arguments = argparse.ArgumentParser(description="Lakewarden's benchmarks")
    arguments.add_argument("--files", type=int, default=100_000, help="data files of the planned table")
    arguments.add_argument("--scale", type=float, default=1, help="TPC-H scale factor of the tables in Spark")
    arguments.add_argument("--quick", action="store_true", help="fewer runs")
    given = arguments.parse_args()
    console = Console()
    runs = 3 if given.quick else 7
    figures = []
    for title, measure in (
        ("Allowed lists", lambda _: locations.measure(runs)),
        ("Row filters and masks", lambda _: decision.measure(runs)),
        ("Access tokens", lambda _: access_tokens.measure(runs)),
        ("loadTable over HTTP", lambda root: load.measure(root, 20 * runs)),
        ("Worker processes", lambda root: workers.measure(root, 100 * runs, given.files)),
        ("Commit checks", lambda root: commit.measure(root, runs)),
        ("Appends and small commits", lambda root: appends.measure(root, 2 * runs)),
        ("A flood of refusals", lambda root: audit.measure(root, 20_000 * runs, 200 * runs)),
        (f"Planning {given.files:,} files", lambda root: plan.measure(root, given.files, runs)),
        (f"Plans of a table of {given.files:,} files", lambda root: plan.measure_large(root, given.files, 3)),
        ("Plans for standard clients", lambda root: standard_plan.measure(root, 10 * runs)),
        ("Signed requests to S3", lambda root: signing.measure(root, 5 * runs)),
        ("Storage credentials", lambda root: credentials.measure(root, 20 * runs)),
        ("Keys of plans", lambda root: keys.measure(root, runs)),
    ):
        with console.status(title), tempfile.TemporaryDirectory() as directory:
            measured = measure(Path(directory).resolve())
        show(console, title, measured)
        figures += measured
    with console.status("Reading without Spark"), tempfile.TemporaryDirectory() as directory:
        measured = arrow.measure(Path(directory).resolve(), given.scale, runs)
    show(console, f"Reading lineitem at scale {given.scale:g} without Spark", measured)
    figures += measured
    with tempfile.TemporaryDirectory() as directory:
        measured, about = spark.measure(console, Path(directory).resolve(), given.scale, runs)
    console.print(f"written to {write(figures + measured, machine() | about)}")


if __name__ == "__main__":
    main()
