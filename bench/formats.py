"""The cost of each kind of encryption: `python -m bench.formats [--scale S] [--runs N] [--table T]`.

Two tables: TPC-H's lineitem, and a wide one of strings. Budgets: reading with GCM, CTR and column keys at
most 1.10 times as long as the same rows in plaintext through Spark's V2 reader, and no longer than with
Parquet's own encryption; ORC encrypted at most 1.15 times Spark's reader of ORC in plaintext; writing at most
1.2 times; less than 0.1 % more bytes. Ratios are made within one run, round by round (`bench.rounds`); those
of reading are geometric means over the queries. Reading without Spark is measured by `bench.arrow`.

What `encryption.verify-digest` costs is measured too, of AES-CTR in both formats: `first-read` as it reads
what it has verified; to verify, the first time, costs it what it costs `always`. Whole files are hashed
whatever is asked, so that two queries are asked: a small one and that of every column.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pyspark.sql import SparkSession
from rich.console import Console

from bench import alone, spark_lineitem, spark_wide
from bench.report import Figure, at_most, figure, show
from bench.rounds import in_rounds, mean_of, ratios_of
from bench.samples import root_of
from bench.service import served
from bench.spark import ask
from bench.spark_session import session, versions
from bench.spark_sides import (
    CTR,
    GCM,
    KEYED,
    NAMESPACE,
    ORC,
    ORC_ENCRYPTED,
    ORC_PLAIN,
    PARQUET,
    PLAIN,
    STOCK,
    VERIFIED,
    Side,
    digests,
    formats,
)
from tests.support.lake import open_lake

READS, ORC_READS, WRITES, MORE_BYTES = 1.10, 1.15, 1.20, 0.1
_PARQUET_ENCRYPTED = (GCM, CTR, KEYED)
_ENCRYPTED = (*_PARQUET_ENCRYPTED, ORC_ENCRYPTED)
#: What each is compared with; what is left out is compared with Spark's own Parquet in plaintext.
_BASES = {ORC_PLAIN: ORC, ORC_ENCRYPTED: ORC}
_KEYS = ("first", "second", "third")
TABLES = ("lineitem", "wide")
#: How the names of the queries begin that are asked of files checked against their digests.
_OF_DIGESTS = ("sum of", "every column")


@dataclass(frozen=True)
class _Rows:
    """Rows that every contender keeps.

    Attributes:
        name: of the table, and of the view that they are in.
        queries: what is asked of them, by name.
    """

    name: str
    queries: Mapping[str, str]


def measure(
    console: Console, root: Path, scale: float, runs: int, tables: Collection[str] = TABLES
) -> tuple[list[Figure], dict[str, str]]:
    """Measure these tables, and print each part as it is known; and what they ran with."""
    lake = root_of(root, "lake")
    with open_lake(lake) as opened:
        for key in _KEYS:
            opened.kms.create_master_key(key)
    with served(lake) as service, session(service) as spark:
        about = versions(spark) | {"scale": f"{scale:g}", "runs": str(runs)}
        spark.sql(f"CREATE NAMESPACE {NAMESPACE}")
        figures = [each for table in tables for each in _table(console, spark, root, scale, table, runs)]
    return figures, about


def _table(
    console: Console, spark: SparkSession, root: Path, scale: float, table: str, runs: int
) -> list[Figure]:
    rows = _cached(spark, root, scale, table)
    warehouse = root / "lake" / "warehouse"
    columns = _column_keys(spark.table(table).columns)
    contenders = formats(spark, root_of(root, f"files-{table}"), warehouse, columns)
    figures = _measure(console, spark, contenders, rows, runs)
    verified = _digests(spark, digests(spark, warehouse), rows, runs)
    show(console, f"{table}: files checked against their digests", verified)
    spark.catalog.uncacheTable(table)
    return figures + verified


def _cached(spark: SparkSession, root: Path, scale: float, table: str) -> _Rows:
    """A table's rows in memory, in a view of its name."""
    if table == "lineitem":
        spark_lineitem.cached(spark, spark_lineitem.generate(root / "generated", scale), table)
        return _Rows(table, spark_lineitem.queries(scale))
    spark_wide.cached(spark, scale, table)
    return _Rows(table, spark_wide.queries())


def _measure(
    console: Console,
    spark: SparkSession,
    contenders: Mapping[str, Side],
    rows: _Rows,
    runs: int,
) -> list[Figure]:
    parts: list[tuple[str, Callable[[], list[Figure]]]] = [
        ("writing", lambda: _writes(contenders, rows.name, runs)),
        ("reading", lambda: _reads(spark, contenders, rows, runs)),
        ("bytes", lambda: _sizes(contenders, rows.name)),
    ]
    figures = []
    for title, part in parts:
        measured = part()
        show(console, f"{rows.name}: {title}", measured)
        figures += measured
    return figures


def _column_keys(columns: list[str]) -> str:
    """Every column under one of three keys."""
    groups = (",".join(columns[place :: len(_KEYS)]) for place in range(len(_KEYS)))
    return ";".join(f"{key}:{group}" for key, group in zip(_KEYS, groups, strict=True))


def _writes(contenders: Mapping[str, Side], source: str, runs: int) -> list[Figure]:
    """Whole tables written. The first, which does not count, is left."""
    for side in contenders.values():
        side.write(source, source)
    taken = in_rounds(
        {name: lambda side=side: side.write(source, "written") for name, side in contenders.items()},
        runs,
        after=lambda name: contenders[name].drop("written"),
        warm_up=0,
    )
    figures = [figure(f"{source}: write, {name}", seconds, "s") for name, seconds in taken.items()]
    for name in contenders:
        base = _BASES.get(name, PARQUET)
        if name not in (PARQUET, ORC):
            ratio = figure(f"{source}: write, {name} / {base}", ratios_of(taken, name, base), "times")
            figures.append(at_most(WRITES, ratio) if name in _ENCRYPTED else ratio)
    return figures


def _reads(spark: SparkSession, contenders: Mapping[str, Side], rows: _Rows, runs: int) -> list[Figure]:
    figures, ratios = _asked(spark, contenders, rows, _compared(contenders), runs)
    for (name, base), collected in ratios.items():
        ratio = mean_of(f"{rows.name}: {name} / {base}", collected)
        budget = {STOCK: 1, ORC: ORC_READS}.get(base, READS)
        figures.append(at_most(budget, ratio) if name in _ENCRYPTED else ratio)
    return figures


def _digests(
    spark: SparkSession, tables: Mapping[tuple[str, str], Side], rows: _Rows, runs: int
) -> list[Figure]:
    """Reading of files that are checked against their digests, beside the same without."""
    sides = {f"{name}, verified: {when}": side for (name, when), side in tables.items()}
    for side in sides.values():
        side.write(rows.name, rows.name)
    never, *others = VERIFIED
    pairs = [
        (f"{name}, verified: {when}", f"{name}, verified: {never}")
        for name in (CTR, ORC_ENCRYPTED)
        for when in others
    ]
    asked = {query: text for query, text in rows.queries.items() if query.startswith(_OF_DIGESTS)}
    _, ratios = _asked(spark, sides, _Rows(rows.name, asked), pairs, runs)
    return [mean_of(f"{rows.name}: {name} / {base}", each) for (name, base), each in ratios.items()]


def _asked(
    spark: SparkSession,
    contenders: Mapping[str, Side],
    rows: _Rows,
    compared: list[tuple[str, str]],
    runs: int,
) -> tuple[list[Figure], dict[tuple[str, str], list[float]]]:
    """How long each query takes each, and for each pair to be compared the ratios, query by query."""
    opened = {name: side.opened(rows.name) for name, side in contenders.items()}
    figures: list[Figure] = []
    ratios: dict[tuple[str, str], list[float]] = {pair: [] for pair in compared}
    for query, text in rows.queries.items():
        taken = ask(spark, opened, text, runs, warm_up=1)
        figures += [figure(f"{rows.name}: {query}, {name}", each, "s") for name, each in taken.items()]
        for (name, base), collected in ratios.items():
            collected.append(statistics.median(ratios_of(taken, name, base)))
    return figures, ratios


def _compared(contenders: Mapping[str, Side]) -> list[tuple[str, str]]:
    """Who is compared with whom."""
    pairs = [(name, _BASES.get(name, PARQUET)) for name in contenders if name not in (PARQUET, ORC)]
    return pairs + [(name, STOCK) for name in _PARQUET_ENCRYPTED]


def _sizes(contenders: Mapping[str, Side], table: str) -> list[Figure]:
    """Bytes of the files, and how many more encrypted tables have than the same in plaintext."""
    size = {name: sum(file.stat().st_size for file in side.files(table)) for name, side in contenders.items()}
    figures = [figure(f"{table}: files, {name}", [each / 1e6], "MB") for name, each in size.items()]
    for name in _ENCRYPTED:
        plain = ORC_PLAIN if name == ORC_ENCRYPTED else PLAIN
        more = 100 * (size[name] / size[plain] - 1)
        figures.append(at_most(MORE_BYTES, figure(f"{table}: {name}, more than {plain}", [more], "%")))
    return figures


def main() -> None:
    """Run this benchmark alone."""
    given = alone.given("What each way of encrypting costs", TABLES)
    alone.run(given, partial(measure, tables=[given.table] if given.table else TABLES))


if __name__ == "__main__":
    main()
