"""Sealed clustering: how many files a filter reads of a table that is sorted by an encrypted column.

    python -m bench.clustering [--scale S] [--runs N]

The same rows are written to two tables with as many files: one in plaintext, partitioned by the column, and
one that encrypts every column. That one is given the column as its sort order (`WRITE ORDERED BY`), and is
compacted by it (`rewrite_data_files` with `sort`). Then the same point and range filters are planned on both.
Budget: on the sealed table, a filter reads at most two files more.

At scale 1 there are 6 million rows, in random order. `runs` times 20 filters of each kind are planned, drawn
by a fixed seed. No file is opened, and nothing is timed.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession
from rich.console import Console

import lakewarden
from bench import alone
from bench.report import Figure, at_most, figure, show
from bench.samples import root_of
from bench.service import Served, served
from bench.spark_session import CATALOG, session, versions
from tests.support.lake import open_lake
from tests.support.tables import ENCRYPTED

FILES: Final = 64
BUDGET: Final = 2
_ROWS: Final = 6_000_000
_FILTERS: Final = 20
_WIDTH: Final = 1_000


@dataclass(frozen=True)
class Column:
    """A column that clusters a table.

    Attributes:
        kind: its type in SQL.
        value: what a row has, from a number `k` below `FILES` times `_WIDTH`.
        partition: what the table in plaintext is partitioned by.
        literal: such a value in a filter.
    """

    kind: str
    value: str
    partition: str
    literal: Callable[[int], str]


COLUMNS: Final = {
    "number": Column("BIGINT", "k", f"truncate({_WIDTH}, c)", str),
    "text": Column("STRING", "printf('key-%06d', k)", "truncate(7, c)", lambda k: f"'key-{k:06d}'"),
    "few values": Column("BIGINT", f"k div {_WIDTH}", "c", lambda k: str(k // _WIDTH)),
}


def measure(console: Console, root: Path, scale: float, runs: int) -> tuple[list[Figure], dict[str, str]]:
    """Count the files of each filter, and print what came of it; and what it ran with."""
    lake = root_of(root, "lake")
    with open_lake(lake):
        pass
    with served(lake) as service, session(service) as spark:
        about = versions(spark) | {"scale": f"{scale:g}", "runs": str(runs)}
        spark.sql(f"CREATE NAMESPACE {CATALOG}.sales")
        spark.conf.set("spark.sql.shuffle.partitions", FILES)
        spark.conf.set("spark.sql.adaptive.coalescePartitions.enabled", "false")
        rows = max(int(_ROWS * scale), FILES * _WIDTH)
        found = [
            each
            for name, column in COLUMNS.items()
            for each in _measure(spark, service, name.replace(" ", "_"), column, rows, runs)
        ]
    show(console, "Files that a filter reads", found)
    return found, about


def _measure(
    spark: SparkSession, service: Served, name: str, column: Column, rows: int, runs: int
) -> list[Figure]:
    _write(spark, f"{name}_shown", column, rows, partition=column.partition)
    _write(spark, f"{name}_sealed", column, rows)
    _sort(spark, service, f"sales.{name}_sealed")
    counts = {each: _counter(service, f"sales.{name}_{each}") for each in ("shown", "sealed")}
    every = {each: count(None) for each, count in counts.items()}
    figures = [figure(f"{name}: all files, {each}", [number], "files") for each, number in every.items()]
    draw = random.Random(FILES)
    for kind, filters in (
        ("point", [_point(draw, column) for _ in range(_FILTERS * runs)]),
        ("range", [_range(draw, column) for _ in range(_FILTERS * runs)]),
    ):
        asked = [(counts["shown"](each), counts["sealed"](each)) for each in filters]
        more = max(sealed - shown for shown, sealed in asked)
        figures.append(
            figure(f"{name}: {kind}, partitioned in plaintext", [one for one, _ in asked], "files")
        )
        figures.append(figure(f"{name}: {kind}, sealed", [other for _, other in asked], "files"))
        figures.append(at_most(BUDGET, figure(f"{name}: {kind}, most more", [more], "files")))
    return figures


def _write(spark: SparkSession, name: str, column: Column, rows: int, partition: str | None = None) -> None:
    """A table of these rows: partitioned in plaintext, or encrypted and sorted."""
    table = f"{CATALOG}.sales.{name}"
    listed = ", ".join(f"'{key}' = '{value}'" for key, value in ({} if partition else ENCRYPTED).items())
    clauses = f"PARTITIONED BY ({partition})" if partition else f"TBLPROPERTIES ({listed})"
    spark.sql(f"CREATE TABLE {table} (id BIGINT, c {column.kind}) USING iceberg {clauses}")
    values = f"SELECT id, pmod(hash(id), {FILES * _WIDTH}) AS k FROM range({rows})"  # noqa: S608
    spark.sql(f"INSERT INTO {table} SELECT id, {column.value} FROM ({values})")  # noqa: S608


def _sort(spark: SparkSession, service: Served, table: str) -> None:
    """Compact a table into `FILES` files, sorted by the column."""
    spark.sql(f"ALTER TABLE {CATALOG}.{table} WRITE ORDERED BY c")
    files = lakewarden.connect(service.url, service.token).table(table).scan()._plan().files
    size = -(-sum(file.size for file in files) // FILES)
    # A writer counts what it holds in memory, uncompressed: without this, it would end small files early.
    options = (
        f"map('rewrite-all', 'true', 'target-file-size-bytes', '{size}', 'max-file-size-bytes', '{2**40}')"
    )
    arguments = f"table => '{table}', strategy => 'sort', options => {options}"
    spark.sql(f"CALL {CATALOG}.system.rewrite_data_files({arguments})").collect()


def _counter(service: Served, table: str) -> Callable[[str | None], int]:
    """Counts the files of a plan for a filter."""
    known = lakewarden.connect(service.url, service.token).table(table)
    return lambda wanted: len(known.scan(wanted)._plan().files)


def _point(draw: random.Random, column: Column) -> str:
    return f"c = {column.literal(draw.randrange(FILES * _WIDTH))}"


def _range(draw: random.Random, column: Column) -> str:
    """Of up to a fourth of the values."""
    low = draw.randrange(FILES * _WIDTH)
    high = min(low + draw.randrange(FILES * _WIDTH // 4), FILES * _WIDTH - 1)
    return f"c >= {column.literal(low)} and c <= {column.literal(high)}"


def main() -> None:
    """Run this benchmark alone."""
    alone.run(alone.given("Filters on a column that clusters a table"), measure)


if __name__ == "__main__":
    main()
