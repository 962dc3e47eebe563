"""Row filters and masks in Spark: `python -m bench.restrictions [--scale S] [--runs N]`.

Two tables hold the same rows. A policy restricts one of them. The query of the other has the predicate or the
built-in expression of the policy in it. Both results must be equal.
Budgets: a row filter takes at most 1.05 times as long, a mask at most 1.10 times. Beside the time stands the
CPU time of Spark, which depends less on what else runs, and on how files are shared among the cores.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession
from rich.console import Console

from bench import alone
from bench.report import Figure, at_most, figure, show
from bench.rounds import ratios_of
from bench.samples import root_of
from bench.service import Served
from bench.spark import ask_each_by
from bench.spark_session import CATALOG, cpu_seconds, session, versions
from tests.support.lake import ALICE, open_lake, policies_without_code, policy
from tests.support.service import running

RESTRICTED, WRITTEN = "by a policy", "written by the user"
FILTER, MASK = 1.05, 1.10
#: Rows at scale 1.
_ROWS: Final = 12_000_000
_FILES: Final = 64
_TABLES: Final = {RESTRICTED: f"{CATALOG}.bench.restricted", WRITTEN: f"{CATALOG}.bench.plain"}


@dataclass(frozen=True)
class Pair:
    """A restriction, and what a user writes in its place.

    Attributes:
        name: what is compared.
        budget: how many times as long the restriction takes at most.
        policy: what restricts one table, beside the standard policies.
        restricted: the query under the restriction; `{table}` stands for the table.
        written: the query of a user who has none.
    """

    name: str
    budget: float
    policy: dict[str, Any]
    restricted: str
    written: str


def _filtered(condition: str) -> Pair:
    query = "SELECT sum(amount), max(note), count(*) FROM {table}"
    rule = {"policyType": 2, "rowFilterPolicyItems": [_item(rowFilterInfo={"filterExpr": condition})]}
    return Pair(condition, FILTER, _rule(rule), query, f"{query} WHERE {condition}")


def _masked(mask: str, column: str, expression: str) -> Pair:
    item = _item(dataMaskInfo={"dataMaskType": mask})
    rule = {"policyType": 1, "dataMaskPolicyItems": [item]}
    restricted, written = (
        f"SELECT max({each}) AS shown, sum(amount) FROM {{table}}"  # noqa: S608 - a constant
        for each in (column, expression)
    )
    return Pair(f"{mask} of {column}", MASK, _rule(rule, column=[column]), restricted, written)


def _item(**what: Any) -> dict[str, Any]:
    return {"users": [ALICE], "accesses": [{"type": "select", "isAllowed": True}], **what}


def _rule(rule: dict[str, Any], **resources: list[str]) -> dict[str, Any]:
    return policy("restricted", {"database": ["bench"], "table": ["restricted"], **resources}, {}, **rule)


PAIRS: Final = (
    _filtered("region = 'region-3'"),
    _filtered("amount < 0.5"),
    _filtered("id < 1000000"),
    _masked("MASK", "note", "mask(note)"),
    _masked("sha-256-global", "note", "sha2(note, 256)"),
    _masked("truncate-to-year", "day", "trunc(day, 'YEAR')"),
    _masked("replace-with-null", "note", "CAST(NULL AS STRING)"),
)


def measure(console: Console, root: Path, scale: float, runs: int) -> tuple[list[Figure], dict[str, str]]:
    """Measure each restriction beside what users write; and what it ran with."""
    rows, figures = int(scale * _ROWS), list[Figure]()
    with (
        open_lake(root_of(root, "lake"), policies=policies_without_code()) as lake,
        running(lake) as service,
        session(
            Served(service.url, service.prefix, service.token(ALICE), service.engine_token()), "2g"
        ) as spark,
    ):
        about = versions(spark) | {"rows": str(rows), "runs": str(runs)}
        spark.sql(f"CREATE NAMESPACE {CATALOG}.bench")
        for table in _TABLES.values():
            _fill(spark, table, rows)
        for pair in PAIRS:
            lake.set_policies([*policies_without_code(), pair.policy])
            figures += _measured(spark, pair, runs)
    show(console, "Row filters and masks", figures)
    return figures, about


def _fill(spark: SparkSession, table: str, rows: int) -> None:
    """Make one of the two tables. Amounts have so few bits that their sum is exact, in whatever order."""
    spark.sql(f"""
        CREATE TABLE {table} (id BIGINT, region STRING, amount DOUBLE, note STRING, day DATE)
        USING iceberg TBLPROPERTIES (
            'write.distribution-mode' = 'none', 'write.parquet.compression-codec' = 'zstd')""")
    spark.sql(f"""
        INSERT INTO {table} SELECT /*+ REPARTITION_BY_RANGE({_FILES}, id) */
            id, concat('region-', id % 8), pmod(xxhash64(id), 1 << 24) / (1 << 24),
            concat('Person ', id, '@example.com'), date_add(DATE'2000-01-01', CAST(id % 9000 AS INT))
        FROM range({rows})""")  # noqa: S608


def _measured(spark: SparkSession, pair: Pair, runs: int) -> Iterator[Figure]:
    asked = {RESTRICTED: pair.restricted, WRITTEN: pair.written}
    queries = {name: query.format(table=_TABLES[name]) for name, query in asked.items()}
    taken, used = ask_each_by([time.perf_counter, lambda: cpu_seconds(spark)], spark, queries, runs)
    yield from (figure(f"{pair.name}, {name}", seconds, "s") for name, seconds in taken.items())
    ratio = figure(f"  {RESTRICTED} / {WRITTEN}", ratios_of(taken, RESTRICTED, WRITTEN), "times")
    yield at_most(pair.budget, ratio)
    yield figure("  the same in CPU time", ratios_of(used, RESTRICTED, WRITTEN), "times")


def main() -> None:
    """Run this benchmark alone."""
    alone.run(alone.given("Row filters and masks in Spark"), measure)


if __name__ == "__main__":
    main()
