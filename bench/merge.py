"""MERGE beside Iceberg's Spark runtime: `python -m bench.merge [--scale S] [--runs N]`.

Both work on PySpark 4.1.4, on plaintext tables of one catalog, in JVMs with the same options. Iceberg's
runtime uses the catalog by the REST protocol. A MERGE updates rows of one file in a hundred, and inserts as
many.
Budget: Lakewarden takes at most 1.15 times as long as Iceberg's runtime. `make interop` fetches the runtime
and that PySpark:

    PYTHONPATH=.venv/spark-4.1.4 .venv/bin/python -m bench.merge
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from rich.console import Console

from bench import alone
from bench.report import Figure, at_most, figure, show
from bench.rounds import in_rounds, ratios_of
from bench.samples import root_of
from bench.service import Served
from bench.spark_session import CATALOG, launch, session, versions
from tests.support.iceberg_spark import iceberg_spark
from tests.support.lake import ALICE, open_lake
from tests.support.service import running

LAKEWARDEN, ICEBERG = "Lakewarden", "Iceberg"
BUDGET: Final = 1.15
FILES: Final = 100
#: Rows of a file at scale 1.
_ROWS: Final = 100_000
_MEMORY: Final = "1g"
_MODES: Final = ("copy-on-write", "merge-on-read")


def measure(console: Console, root: Path, scale: float, runs: int) -> tuple[list[Figure], dict[str, str]]:
    """Measure MERGE in both modes; and what it ran with."""
    rows = int(scale * _ROWS)
    figures: list[Figure] = []
    with (
        open_lake(root_of(root, "lake")) as lake,
        running(lake) as service,
        iceberg_spark(service, ALICE, settings=launch(_MEMORY)) as stock,
        session(
            Served(service.url, service.prefix, service.token(ALICE), service.engine_token()), _MEMORY
        ) as spark,
    ):
        about = versions(spark) | {"rows a file": str(rows), "runs": str(runs)}
        run: dict[str, Callable[[str], object]] = {
            LAKEWARDEN: lambda statement: spark.sql(statement).collect(),
            ICEBERG: lambda statement: stock.sql(statement),
        }
        catalogs = {LAKEWARDEN: CATALOG, ICEBERG: ALICE}
        run[LAKEWARDEN](f"CREATE NAMESPACE {CATALOG}.bench")
        for mode in _MODES:
            tables = {name: f"{catalogs[name]}.bench.{name}_{mode}".replace("-", "_") for name in run}
            for name, table in tables.items():
                for statement in _filled(table, mode, rows):
                    run[name](statement)
            merges = {name: _Merges(run[name], table, rows) for name, table in tables.items()}
            taken = in_rounds({name: each.next for name, each in merges.items()}, runs)
            figures += [figure(f"{mode}, {name}", seconds, "s") for name, seconds in taken.items()]
            ratio = figure(f"  {LAKEWARDEN} / {ICEBERG}", ratios_of(taken, LAKEWARDEN, ICEBERG), "times")
            figures.append(at_most(BUDGET, ratio))
    show(console, f"MERGE of one file in {FILES}", figures)
    return figures, about


def _filled(table: str, mode: str, rows: int) -> tuple[str, str]:
    """The statements that make a table with as many files, clustered by id."""
    return (
        f"""
        CREATE TABLE {table} (id BIGINT, amount DOUBLE, note STRING) USING iceberg TBLPROPERTIES (
            'write.merge.mode' = '{mode}', 'write.distribution-mode' = 'none',
            'write.merge.distribution-mode' = 'none', 'write.parquet.compression-codec' = 'zstd')""",
        f"""
        INSERT INTO {table} SELECT /*+ REPARTITION_BY_RANGE({FILES}, id) */
            id, rand(1), sha2(CAST(id AS STRING), 256) FROM range({FILES * rows})""",  # noqa: S608
    )


class _Merges:
    """Merges into one table, each into the next file."""

    def __init__(self, run: Callable[[str], object], table: str, rows: int) -> None:
        self._run, self._table, self._rows = run, table, rows
        self._done = 0

    def next(self) -> None:
        """Update a tenth of a file's rows, and insert as many."""
        first = self._done * self._rows
        self._done += 1
        tenth = self._rows // 10
        self._run(
            f"""
            MERGE INTO {self._table} t USING (
                SELECT IF(id % 2 = 0, {first} + id, {-first} - id - 1) AS id, 0.5D AS amount
                FROM range({2 * tenth})) s
            ON t.id = s.id WHEN MATCHED THEN UPDATE SET amount = s.amount
            WHEN NOT MATCHED THEN INSERT (id, amount, note) VALUES (s.id, s.amount, 'new')"""  # noqa: S608
        )


def main() -> None:
    """Run this benchmark alone."""
    alone.run(alone.given("MERGE beside Iceberg's Spark runtime"), measure)


if __name__ == "__main__":
    main()
