"""Compares planning with pyiceberg's `plan_files`, on the same table in one run.

Budgets: cold (nothing decoded before) 60,000 files/s a core with digests and checks; warm under 0.3 s for
100,000.
"""

from __future__ import annotations

import time
from pathlib import Path

from pyiceberg.expressions import AlwaysTrue, BooleanExpression, GreaterThanOrEqual
from pyiceberg.table import StaticTable

from bench.report import Figure, figure, seconds
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
