"""TPC-H's 22 queries: `python -m bench.spark_tpch [--scale S] [--runs N]`.

Every contender has all eight tables, in the same number of files. Budgets, as times of Spark's V2 reader of
Parquet (geometric mean over the queries): 1.05 for plaintext tables of Lakewarden, 1.10 for encrypted ones.
Rounds are as in `bench.rounds`; the results must be equal.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

from bench import alone
from bench.report import Figure, at_most, figure, show
from bench.rounds import mean_of, ratios_of
from bench.samples import root_of
from bench.service import served
from bench.spark import ask_each
from bench.spark_lineitem import FILES, generate
from bench.spark_session import session, versions
from bench.spark_sides import ENCRYPTED, NAMESPACE, PARQUET, PLAIN, Side, sides
from bench.tpch_queries import QUERIES, TABLES
from tests.support.lake import open_lake

BUDGETS = {PLAIN: 1.05, ENCRYPTED: 1.10}
#: The other tables have one file each.
_LARGE = frozenset({"lineitem", "orders", "partsupp"})


def measure(console: Console, root: Path, scale: float, runs: int) -> tuple[list[Figure], dict[str, str]]:
    """Measure every query, and print each as it is known; and what they ran with."""
    lake = root_of(root, "lake")
    with open_lake(lake):
        pass
    with served(lake) as catalog, session(catalog) as spark:
        about = versions(spark) | {"scale": f"{scale:g}", "runs": str(runs)}
        spark.sql(f"CREATE NAMESPACE {NAMESPACE}")
        every = sides(spark, root_of(root, "parquet"), lake / "warehouse")
        contenders = {name: every[name] for name in (PARQUET, *BUDGETS)}
        with console.status("Writing the tables"):
            opened = _fill(spark, contenders, root / "generated", scale)
        return _ask(console, spark, opened, runs), about


def _fill(
    spark: SparkSession, contenders: Mapping[str, Side], generated: Path, scale: float
) -> dict[str, dict[str, str]]:
    """Write the tables with every contender.

    Returns:
        By contender, the names by which SQL asks its tables.
    """
    for table in TABLES:
        parts = FILES if table in _LARGE else 1
        spark.read.parquet(str(generate(generated, scale, table, parts))).repartition(
            parts
        ).createOrReplaceTempView("generated")
        for side in contenders.values():
            side.write("generated", table)
            assert len(side.files(table)) == parts
    return {name: {table: side.opened(table) for table in TABLES} for name, side in contenders.items()}


def _ask(
    console: Console, spark: SparkSession, opened: Mapping[str, Mapping[str, str]], runs: int
) -> list[Figure]:
    figures: list[Figure] = []
    ratios: dict[str, list[float]] = {name: [] for name in BUDGETS}
    table = Table(title=f"TPC-H: seconds of {PARQUET}, and times as long", title_justify="left")
    for column in ("query", PARQUET, *BUDGETS):
        table.add_column(column, justify="left" if column == "query" else "right")
    for query, text in QUERIES.items():
        with console.status(query):
            queries = {name: text.format(**tables) for name, tables in opened.items()}
            taken = ask_each(spark, queries, runs, warm_up=1)
        figures += [figure(f"{query}, {name}", seconds, "s") for name, seconds in taken.items()]
        for name in BUDGETS:
            ratios[name].append(statistics.median(ratios_of(taken, name, PARQUET)))
        base = f"{statistics.median(taken[PARQUET]):.3f} s"
        table.add_row(query, base, *(f"{ratios[name][-1]:.2f}" for name in BUDGETS))
    console.print(table)
    means = [
        at_most(limit, mean_of(f"TPC-H, {name} / {PARQUET}", ratios[name])) for name, limit in BUDGETS.items()
    ]
    show(console, "TPC-H: geometric mean over the queries", means)
    return figures + means


def main() -> None:
    """Run this benchmark alone."""
    alone.run(alone.given("TPC-H in Spark with Lakewarden, and alone"), measure)


if __name__ == "__main__":
    main()
