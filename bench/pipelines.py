"""Audits a simulated lake on executors of their own: ``python -m bench.pipelines [--tables N] [--files N]``.

Budgets: planning a lake of 10,000 tables and 1,000,000 files takes at most 60 s; a core audits the paths and
manifests of 50,000 files a second; the driver stays below 2 GB; two executors are 1.8 times as fast as one.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console

from bench.report import Figure, at_most, figure, machine, show, write
from bench.service import Served, served
from bench.simulated_lake import simulate
from tests.support.lake import open_lake

#: Runs in a process of its own, since the master of a JVM is fixed.
_RUN = """
import json, sys, time
from pathlib import Path
from pyspark.sql import SparkSession
from lakewarden import configure, pipelines

uri, token, executors = json.load(sys.stdin)
builder = SparkSession.builder.appName("bench").master(f"local-cluster[{executors},1,1024]")
for name, value in {
    "spark.driver.host": "127.0.0.1", "spark.driver.memory": "1g", "spark.ui.enabled": "false",
    "spark.log.level": "ERROR", "spark.sql.defaultCatalog": "lake", "spark.ui.showConsoleProgress": "false",
}.items():
    builder = builder.config(name, value)
spark = configure(builder, uri=uri, token=token).getOrCreate()
spark.range(100).repartition(8).count()

def most_memory(process):
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024

def busy():
    executors = spark._jsc.sc().statusStore().executorList(False)
    found = [executors.apply(each) for each in range(executors.size())]
    return sum(each.totalDuration() for each in found if each.id() != "driver") / 1000

begun = time.perf_counter()
planned = pipelines.audit(spark, footers=0.0, dry_run=True, show=False)
planning = time.perf_counter() - begun
before = busy()
report = pipelines.audit(spark, footers=0.0, fresh=True, show=False)
jvm = spark._jvm.java.lang.ProcessHandle.current().pid()
print(json.dumps({
    "planning": planning, "state": report.state, "seconds": report.seconds, "found": dict(report.found),
    "items": report.items, "counts": report.counts, "busy": busy() - before,
    "memory": most_memory("self") + most_memory(jvm),
}))
spark.stop()
"""


def measure(root: Path, tables: int, files: int, executors: tuple[int, ...] = (1, 2)) -> list[Figure]:
    """Audit a lake with executors of one core each.

    Args:
        root: an empty directory, or one with the lake of an earlier run.
        tables: how many tables.
        files: data files of each.
        executors: how many executors, run by run.
    """
    if not (root / "lake").exists():
        (root / "lake").mkdir()
        with open_lake(root / "lake") as lake:
            simulate(lake, tables, files)
    with served(root / "lake") as service:
        runs = {count: _run(service, count) for count in executors}
    return [each for count, run in runs.items() for each in _figures(count, run, tables * files)] + [
        figure(
            f"{count} executors / {executors[0]}, time of the audit without planning",
            [_auditing(runs[executors[0]]) / _auditing(runs[count])],
            "times",
            "1.8 times for twice the executors",
        )
        for count in executors[1:]
    ]


def _run(service: Served, executors: int) -> dict[str, Any]:
    ran = subprocess.run(
        [sys.executable, "-c", _RUN],
        input=json.dumps([service.url, service.token, executors]),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env=os.environ | {"PYSPARK_PYTHON": sys.executable},
    )
    run: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    assert run["state"] == "complete" and not run["found"], run
    return run


def _auditing(run: dict[str, Any]) -> float:
    return float(run["seconds"] - run["planning"])


def _figures(executors: int, run: dict[str, Any], files: int) -> list[Figure]:
    name = f"audit of {files:,} files, {executors} executors"
    return [
        at_most(60, figure(f"{name}: planning", [run["planning"]], "s")),
        figure(f"{name}: all", [run["seconds"]], "s"),
        figure("  in files, a second of a busy core", [files / run["busy"]], "files/s", "50,000 files/s"),
        at_most(2048, figure("  memory of the driver, Python and JVM", [run["memory"]], "MiB")),
    ]


def main() -> None:
    """Measure, print a table, write JSON."""
    arguments = argparse.ArgumentParser(description="Audits a simulated lake")
    arguments.add_argument("--tables", type=int, default=10_000)
    arguments.add_argument("--files", type=int, default=100, help="data files of each table")
    arguments.add_argument("--directory", type=Path, help="keep the lake here, and use it again")
    given = arguments.parse_args()
    console = Console()
    if given.directory is not None:
        measured = measure(given.directory, given.tables, given.files)
    else:
        with tempfile.TemporaryDirectory() as directory:
            measured = measure(Path(directory).resolve(), given.tables, given.files)
    show(console, "Auditing a lake", measured)
    console.print(f"written to {write(measured, machine())}")


if __name__ == "__main__":
    main()
