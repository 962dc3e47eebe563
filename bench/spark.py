"""Compares Lakewarden with Spark's Parquet and with Parquet's encryption: `python -m bench.spark`.

Budgets: encrypted scans at most 1.10 times Spark's V2 Parquet reader on the same rows in plaintext (geometric
mean over the queries), and no slower than Spark with `PropertiesDrivenCryptoFactory`; writes at most 1.10
times Spark's own; less than 50 ms more for a small query. Every round asks all contenders, each round
beginning with the next one, so that a machine that becomes slower does so for all; a ratio is the median of
those of the rounds.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

from bench import alone
from bench.report import Figure, at_most, figure, show
from bench.rounds import Taken, in_rounds, in_rounds_by, mean_of, ratios_of
from bench.samples import root_of
from bench.service import Served, served
from bench.spark_lineitem import FILES, cached, generate, queries
from bench.spark_session import session, versions
from bench.spark_sides import ENCRYPTED, NAMESPACE, PARQUET, PLAIN, STOCK, STOCK_V1, Side, sides
from tests.support.lake import open_lake

READS, WRITES, SMALL_MS = 1.10, 1.10, 50.0


def measure(console: Console, root: Path, scale: float, runs: int) -> tuple[list[Figure], dict[str, str]]:
    """Measure scans, small queries and writes, and print each as it is known; and what they ran with."""
    lake = root_of(root, "lake")
    with open_lake(lake):
        pass
    begun = time.monotonic()
    with served(lake) as catalog, session(catalog) as spark:
        about = versions(spark) | {"lineitem scale": f"{scale:g}", "runs": str(runs)}
        spark.sql(f"CREATE NAMESPACE {NAMESPACE}")
        cached(spark, generate(root / "generated", scale), "rows")
        spark.table("rows").limit(100).coalesce(1).cache().createOrReplaceTempView("few")
        contenders = sides(spark, root_of(root, "parquet"), lake / "warehouse")
        written = _writes(contenders, runs)
        show(console, f"Writes of lineitem at scale {scale:g}", written)
        scanned = _scans(console, spark, contenders, queries(scale), runs)
        small = _small(spark, contenders, 6 * runs)
        show(console, "Small query: 100 rows in one file", small)
        asked = [_kms_calls(catalog, time.monotonic() - begun)]
        show(console, "Calls to the KMS in the whole run", asked)
    return written + scanned + small + asked, about


def _kms_calls(catalog: Served, seconds: float) -> Figure:
    """The more tables were made, and the more often their keys were too old, the more calls there are."""
    return figure(f"calls to the KMS in {seconds / 60:.0f} min", [catalog.kms_calls()], "calls")


def _writes(contenders: Mapping[str, Side], runs: int) -> list[Figure]:
    """Whole tables written. V1 and V2 are readers: of the two, one writes."""
    writers = {name: contenders[name] for name in (PARQUET, STOCK, PLAIN, ENCRYPTED)}
    taken = in_rounds(
        {name: lambda side=side: side.write("rows", "written") for name, side in writers.items()},
        runs,
        after=lambda name: writers[name].drop("written"),
    )
    figures = [figure(f"write, {name}", seconds, "s") for name, seconds in taken.items()]
    ratios = {
        name: figure(f"  {name} / {PARQUET}", ratios_of(taken, name, PARQUET), "times") for name in writers
    }
    return [*figures, ratios[STOCK], *(at_most(WRITES, ratios[name]) for name in (PLAIN, ENCRYPTED))]


def _scans(
    console: Console, spark: SparkSession, contenders: Mapping[str, Side], asked: Mapping[str, str], runs: int
) -> list[Figure]:
    opened = _fill(contenders, "rows", "lineitem", FILES)
    figures = [_size(name, side) for name, side in contenders.items()]
    ratios: dict[str, list[float]] = {name: [] for name in contenders}
    beside_stock: dict[str, list[float]] = {STOCK: [], STOCK_V1: []}
    table = Table(title=f"Scans: seconds of {PARQUET}, and times as long", title_justify="left")
    for column in ("query", *contenders):
        table.add_column(column, justify="left" if column == "query" else "right")
    for query, text in asked.items():
        taken = ask(spark, opened, text, runs)
        figures += [figure(f"{query}, {name}", seconds, "s") for name, seconds in taken.items()]
        for name in contenders:
            ratios[name].append(statistics.median(ratios_of(taken, name, PARQUET)))
        for name, collected in beside_stock.items():
            collected.append(statistics.median(ratios_of(taken, ENCRYPTED, name)))
        base = f"{statistics.median(taken[PARQUET]):.3f} s"
        table.add_row(query, base, *(f"{ratios[name][-1]:.2f}" for name in contenders if name != PARQUET))
    console.print(table)
    means = [mean_of(f"{name} / {PARQUET}", ratios[name]) for name in contenders if name != PARQUET]
    means[-1] = at_most(READS, means[-1])
    means += [at_most(1, mean_of(f"{ENCRYPTED} / {name}", each)) for name, each in beside_stock.items()]
    show(console, "Scans: geometric mean over the queries", means)
    return figures + means


def _small(spark: SparkSession, contenders: Mapping[str, Side], runs: int) -> list[Figure]:
    opened = _fill({name: contenders[name] for name in (PARQUET, PLAIN, ENCRYPTED)}, "few", "small", 1)
    taken = ask(spark, opened, "SELECT * FROM {table} WHERE l_linenumber = 1", runs)
    figures = [
        figure(f"small query, {name}", [t * 1000 for t in seconds], "ms") for name, seconds in taken.items()
    ]
    for name in (PLAIN, ENCRYPTED):
        more = [(ours - theirs) * 1000 for ours, theirs in zip(taken[name], taken[PARQUET], strict=True)]
        figures.append(at_most(SMALL_MS, figure(f"  {name} - {PARQUET}", more, "ms")))
    return figures


def _fill(contenders: Mapping[str, Side], source: str, table: str, files: int) -> dict[str, str]:
    """Write the rows with every contender; what SQL asks each by."""
    for side in contenders.values():
        side.write(source, table)
        assert len(side.files(table)) == files
    return {name: side.opened(table) for name, side in contenders.items()}


def _size(name: str, side: Side) -> Figure:
    return figure(f"files, {name}", [sum(file.stat().st_size for file in side.files("lineitem")) / 1e6], "MB")


def ask(spark: SparkSession, opened: Mapping[str, str], text: str, runs: int, warm_up: int = 2) -> Taken:
    """Ask every contender one query of its `{table}`; their results must be equal."""
    queries = {name: text.format(table=table) for name, table in opened.items()}
    return ask_each(spark, queries, runs, warm_up)


def ask_each(spark: SparkSession, queries: Mapping[str, str], runs: int, warm_up: int = 2) -> Taken:
    """Run each contender's query; their results must be equal."""
    (taken,) = ask_each_by([time.perf_counter], spark, queries, runs, warm_up)
    return taken


def ask_each_by(
    clocks: Sequence[Callable[[], float]],
    spark: SparkSession,
    queries: Mapping[str, str],
    runs: int,
    warm_up: int = 2,
) -> list[Taken]:
    """The same by several clocks."""
    answers: dict[str, list[Any]] = {}

    def answer(name: str) -> None:
        answers[name] = spark.sql(queries[name]).collect()

    asked = {name: lambda name=name: answer(name) for name in queries}
    taken = in_rounds_by(clocks, asked, runs, warm_up=warm_up)
    first, *others = (sorted(map(str, each)) for each in answers.values())
    assert all(each == first for each in others), f"the results differ: {queries}"
    return taken


def main() -> None:
    """Run this benchmark alone."""
    alone.run(alone.given("Spark with Lakewarden, and alone"), measure)


if __name__ == "__main__":
    main()
