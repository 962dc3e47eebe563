"""Row filters and masks in Spark: `python -m bench.restrictions [--scale S] [--runs N]`.

Each is beside what a user without restrictions writes: the same predicate, the same built-in expression.
Budgets: a row filter takes at most 1.05 times as long, a mask at most 1.10 times.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession
from rich.console import Console

from bench import alone
from bench.report import Figure, at_most, figure, show
from bench.rounds import in_rounds, ratios_of
from bench.samples import root_of
from bench.service import Served
from bench.spark_session import CATALOG, session, versions
from policy.restrictions.predicate import Compare, Comparison, Literal, Predicate
from tests.support.lake import ALICE, open_lake
from tests.support.restrictions import restricted
from tests.support.service import running

TABLE: Final = f"{CATALOG}.bench.rows"
FILTER, MASK = 1.05, 1.10
#: Rows at scale 1.
_ROWS: Final = 12_000_000
_FILES: Final = 8


@dataclass(frozen=True)
class Pair:
    """A restriction, and what a user writes in its place.

    Attributes:
        name: what is compared.
        budget: how many times as long the restriction takes at most.
        query: the query under the restriction.
        written: the query of a user who has none.
        row_filter: the row filter; None for none.
        masks: the masks, by the field ids of the table.
    """

    name: str
    budget: float
    query: str
    written: str
    row_filter: Predicate | None = None
    mask: tuple[int, str] | None = None

    @contextmanager
    def restriction(self) -> Iterator[None]:
        """Plans have the restriction, for a while."""
        with ExitStack() as stack:
            masks = {} if self.mask is None else dict([self.mask])
            if self.row_filter is None:
                stack.enter_context(restricted(masks=masks))
            else:
                stack.enter_context(restricted(self.row_filter, masks))
            yield


def _filtered(name: str, condition: str, row_filter: Predicate) -> Pair:
    asked = f"SELECT sum(amount), max(note), count(*) FROM {TABLE}"  # noqa: S608
    return Pair(name, FILTER, asked, f"{asked} WHERE {condition}", row_filter=row_filter)


def _masked(name: str, column: tuple[int, str], action: str, expression: str) -> Pair:
    field_id, written = column
    asked = f"SELECT max({{}}), sum(amount) FROM {TABLE}"  # noqa: S608
    return Pair(name, MASK, asked.format(written), asked.format(expression), mask=(field_id, action))


REGION: Final = Compare(Comparison.EQ, 2, Literal("string", "region-3"))
AMOUNT: Final = Compare(Comparison.LT, 3, Literal("double", 0.5))
RANGE: Final = Compare(Comparison.LT, 1, Literal("long", 1_000_000))
PAIRS: Final = (
    _filtered("region = 'region-3'", "region = 'region-3'", REGION),
    _filtered("amount < 0.5", "amount < 0.5D", AMOUNT),
    _filtered("id < 1000000", "id < 1000000", RANGE),
    _masked("hive-mask of a text", (4, "note"), "hive-mask", "mask(note)"),
    _masked("sha-256-global of a text", (4, "note"), "sha-256-global", "sha2(note, 256)"),
    _masked("truncate-to-year of a day", (5, "day"), "truncate-to-year", "trunc(day, 'YEAR')"),
    _masked("replace-with-null of a text", (4, "note"), "replace-with-null", "CAST(NULL AS STRING)"),
)


def measure(console: Console, root: Path, scale: float, runs: int) -> tuple[list[Figure], dict[str, str]]:
    """Measure each restriction beside what users write; and what it ran with."""
    rows = int(scale * _ROWS)
    with (
        open_lake(root_of(root, "lake")) as lake,
        running(lake) as service,
        session(
            Served(service.url, service.prefix, service.token(ALICE), service.engine_token()), "2g"
        ) as spark,
    ):
        about = versions(spark) | {"rows": str(rows), "runs": str(runs)}
        _fill(spark, rows)
        figures = [each for pair in PAIRS for each in _measured(spark, pair, runs)]
    show(console, "Row filters and masks", figures)
    return figures, about


def _fill(spark: SparkSession, rows: int) -> None:
    spark.sql(f"CREATE NAMESPACE {CATALOG}.bench")
    spark.sql(f"""
        CREATE TABLE {TABLE} (id BIGINT, region STRING, amount DOUBLE, note STRING, day DATE)
        USING iceberg TBLPROPERTIES (
            'write.distribution-mode' = 'none', 'write.parquet.compression-codec' = 'zstd')""")
    spark.sql(f"""
        INSERT INTO {TABLE} SELECT /*+ REPARTITION_BY_RANGE({_FILES}, id) */
            id, concat('region-', id % 8), rand(1), concat('Person ', id, '@example.com'),
            date_add(DATE'2000-01-01', CAST(id % 9000 AS INT))
        FROM range({rows})""")  # noqa: S608


def _measured(spark: SparkSession, pair: Pair, runs: int) -> Iterator[Figure]:
    def restricted_query() -> object:
        with pair.restriction():
            return spark.sql(pair.query).collect()

    actions = {"restriction": restricted_query, "written": lambda: spark.sql(pair.written).collect()}
    taken = in_rounds(actions, runs)
    yield from (figure(f"{pair.name}, {name}", seconds, "s") for name, seconds in taken.items())
    ratio = figure("  restriction / written", ratios_of(taken, "restriction", "written"), "times")
    yield at_most(pair.budget, ratio)


def main() -> None:
    """Run this benchmark alone."""
    alone.run(alone.given("Row filters and masks in Spark"), measure)


if __name__ == "__main__":
    main()
