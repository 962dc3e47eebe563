"""Compares planning with pyiceberg's `plan_files`, on the same table in one run; plans large tables.

    python -m bench.plan --files 1000000

Budgets: cold (nothing decoded before) 60,000 files/s a core with digests and checks; warm under 0.3 s for
100,000. Of a large table, in time of the processor, for a million files: the first plan ever 17 s; a later
one in a fresh process 1.5 s; a filter on a column by which files are not ordered 1 s; a filter that 1,000
files match, on a column by which they are, 50 ms and 300 KB. Anonymous memory below 1 GB.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from pyiceberg.expressions import AlwaysTrue, BooleanExpression, GreaterThanOrEqual
from pyiceberg.table import StaticTable
from rich.console import Console

from bench.large_table import make_large
from bench.report import Figure, at_most, figure, seconds, show
from bench.samples import ROWS_A_FILE, make_table, root_of
from catalog.base.identifiers import table_name
from catalog.planning.plan import Plan
from catalog.planning.request import ScanRequest
from tests.support.lake import ALICE, Lake, open_lake

NAME = table_name(["db"], "t")


def measure(root: Path, files: int, runs: int) -> list[Figure]:
    """Plan a table of so many files, cold, warm and filtered, and the same with pyiceberg."""
    with open_lake(root_of(root, "plan"), CACHE__MANIFEST_BYTES=1 << 30) as lake:
        lake.catalog().create_namespace("db")
        table = make_table(lake.catalog(), "db.t", files, 10_000)
        some = GreaterThanOrEqual("id", (files - files // 100) * ROWS_A_FILE)
        stock = StaticTable.from_metadata(lake.services.loader.load(NAME).metadata_location)
        assert _plan(lake, AlwaysTrue()).files.num_rows == files == len(list(stock.scan().plan_files()))
        cold = _cold(lake, runs)
        warm = seconds(lambda: _plan(lake, AlwaysTrue()), runs)
        filtered = seconds(lambda: _plan(lake, some), runs)
        theirs = seconds(lambda: list(stock.scan().plan_files()), max(2, runs // 3))
        del table
    size = f"{files:,} files"
    return [
        figure(f"plan {size}, cold", cold, "s"),
        figure("  in files", [files / t for t in cold], "files/s", "60,000 files/s a core"),
        figure(f"plan {size}, warm", warm, "s", "0.3 s for 100,000"),
        figure(f"plan {size}, warm, 1 % match a filter", filtered, "s"),
        figure(f"pyiceberg plan_files, {size}", theirs, "s"),
        figure("  pyiceberg / cold", [a / b for a, b in zip(theirs, cold, strict=False)], "times"),
    ]


def _cold(lake: Lake, runs: int) -> list[float]:
    """Each run in a catalog that was just opened: nothing is decoded yet."""
    taken = []
    for _ in range(runs):
        lake.reopen()
        start = time.process_time()
        _plan(lake, AlwaysTrue())
        taken.append(time.process_time() - start)
    return taken


def _plan(lake: Lake, row_filter: BooleanExpression) -> Plan:
    return lake.services.planner.plan(lake.caller(ALICE), NAME, ScanRequest(filter=row_filter))


def measure_large(root: Path, files: int, runs: int, *, encrypted: bool = False) -> list[Figure]:
    """Plan a large table in processes of their own: the first ever, and later ones.

    Args:
        root: an empty directory.
        files: how many files the table has.
        runs: how many processes plan it later.
        encrypted: whether its files are; then no filter finds them.
    """
    lake = root_of(root, "large")
    with open_lake(lake) as opened:
        opened.catalog().create_namespace("db")
        make_large(opened, table_name(["db"], "large"), files, 10_000, encrypted=encrypted)
    [first] = _once(lake, "all")
    scans = ["all", "all"]
    if not encrypted:
        middle = files // 2
        scans += [f"{middle}:{middle + min(1000, files // 10)}"] * 2 + ["unclustered"] * 2
    later = [_once(lake, *scans) for _ in range(runs)]
    share, limit = files / 1_000_000, 20 if encrypted else 17
    size = f"{files:,} {'encrypted ' if encrypted else ''}files"
    figures = [
        at_most(limit * share, figure(f"{size}: first plan ever", [first["planned"]], "s")),
        figure("  in files", [files / first["planned"]], "files/s"),
        at_most(1.5 * share, figure("  first plan in a fresh process", _of(later, 0, "planned"), "s")),
        figure("  second plan in that process", _of(later, 1, "planned"), "s"),
        figure("  size of the answer, a file", [first["bytes"] / files], "bytes"),
    ]
    if not encrypted:
        figures += [
            at_most(
                50,
                figure("  1,000 files of a range", [1000 * each for each in _of(later, 3, "planned")], "ms"),
            ),
            at_most(
                300, figure("  size of that answer", [each / 1000 for each in _of(later, 3, "bytes")], "KB")
            ),
            at_most(share, figure("  unclustered filter, warm", _of(later, 5, "planned"), "s")),
        ]
    memory = [each["anonymous"] / 1_000_000 for each in (first, *(one for run in later for one in run))]
    return [*figures, at_most(1000, figure("  anonymous memory, greatest", [max(memory)], "MB"))]


def _of(runs: list[list[dict[str, Any]]], place: int, name: str) -> list[float]:
    return [run[place][name] for run in runs]


def _once(lake: Path, *scans: str) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "bench.plan_once", str(lake), "large", *scans]
    environment = os.environ | {"PYTHONPATH": str(Path.cwd())}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    return [json.loads(line) for line in done.stdout.splitlines()]


def main() -> None:
    """Plan a large table in plaintext, and an encrypted one."""
    arguments = argparse.ArgumentParser(description="Plans of large tables")
    arguments.add_argument("--files", type=int, default=100_000, help="data files of the planned tables")
    arguments.add_argument("--runs", type=int, default=3, help="processes that plan each table again")
    given = arguments.parse_args()
    for encrypted in (False, True):
        with tempfile.TemporaryDirectory() as directory:
            found = measure_large(Path(directory).resolve(), given.files, given.runs, encrypted=encrypted)
        show(Console(), "Plans of a large table", found)


if __name__ == "__main__":
    main()
