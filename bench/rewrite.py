"""Migration: compares a rewrite by CALL with Spark's rewrite of the same rows in plaintext.

    python -m bench.rewrite [--scale S] [--runs N]

Spark reads TPC-H's lineitem from Parquet and writes it to Parquet again. Lakewarden's tables hold the same
rows in as many files, their properties were changed since, and `rewrite_data_files` writes them again, with
planning and commit in it. There is no budget. Rounds are as in `bench.rounds`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession
from rich.console import Console

from bench import alone, spark_lineitem
from bench.report import Figure, figure, show
from bench.rounds import in_rounds, ratios_of
from bench.samples import root_of
from bench.service import served
from bench.spark_session import CATALOG, session, versions
from bench.spark_sides import NAMESPACE, PARQUET, Side, lake_table, spark_files
from tests.support.lake import open_lake

_TABLE = "moved"
_PLAIN = {"encryption.mechanism": "plaintext"}
_GCM = {"encryption.mechanism": "envelope", "encryption.algorithm": "AES_GCM_V1"}
_KEYED = {"encryption.columns": "first:l_comment,l_extendedprice,l_orderkey"}
#: What the properties were when the files were written, and what they are when these are rewritten.
CHANGES: Mapping[str, tuple[Mapping[str, str], Mapping[str, str]]] = {
    "plaintext to GCM": (_PLAIN, _GCM),
    "GCM to column keys": (_GCM, _KEYED),
    "GCM to plaintext": (_GCM, _PLAIN),
}


@dataclass(frozen=True)
class _Migration:
    """One change of properties.

    Attributes:
        before: the table as it is written.
        after: the properties that it gets.
    """

    spark: SparkSession
    before: Side
    after: Mapping[str, str]

    def prepare(self) -> None:
        """A table whose files are not as its properties say."""
        self.before.write("lineitem", _TABLE)
        listed = ", ".join(f"'{name}' = '{value}'" for name, value in self.after.items())
        self.spark.sql(f"ALTER TABLE {self.before.opened(_TABLE)} SET TBLPROPERTIES ({listed})")

    def run(self) -> None:
        """Rewrite it."""
        table = self.before.opened(_TABLE).removeprefix(f"{CATALOG}.")
        (done,) = self.spark.sql(f"CALL {CATALOG}.system.rewrite_data_files(table => '{table}')").collect()
        assert (done["rewritten_files"], done["left_files"]) == (spark_lineitem.FILES, 0)

    def renew(self) -> None:
        """Another one in its place."""
        self.before.drop(_TABLE)
        self.prepare()


def measure(console: Console, root: Path, scale: float, runs: int) -> tuple[list[Figure], dict[str, str]]:
    """Measure every change, and print what came of it; and what it ran with."""
    lake = root_of(root, "lake")
    with open_lake(lake) as opened:
        opened.kms.create_master_key("first")
    with served(lake) as service, session(service) as spark:
        about = versions(spark) | {"scale": f"{scale:g}", "runs": str(runs)}
        spark.sql(f"CREATE NAMESPACE {NAMESPACE}")
        rows = spark_lineitem.cached(spark, spark_lineitem.generate(root / "generated", scale), "lineitem")
        plain = spark_files(spark, root_of(root, "files"))
        plain.write("lineitem", "lineitem")
        size = sum(file.stat().st_size for file in plain.files("lineitem"))
        # So large that about as many files come as go: by default one would, at the hands of one task.
        files = {"write.target-file-size-bytes": str(5 * size // (4 * spark_lineitem.FILES))}
        migrations = {
            name: _Migration(
                spark, lake_table(spark, lake / "warehouse", f"t{number}", before), files | after
            )
            for number, (name, (before, after)) in enumerate(CHANGES.items())
        }
        figures = _measure(plain, migrations, rows.count(), size, runs)
    show(console, "Rewriting lineitem", figures)
    return figures, about


def _measure(
    plain: Side, migrations: Mapping[str, _Migration], rows: int, size: int, runs: int
) -> list[Figure]:
    source = plain.opened("lineitem")
    for migration in migrations.values():
        migration.prepare()
    actions = {name: migration.run for name, migration in migrations.items()}
    taken = in_rounds(
        {PARQUET: lambda: plain.write(source, "again"), **actions},
        runs,
        after=lambda name: plain.drop("again") if name == PARQUET else migrations[name].renew(),
    )
    figures = []
    for name, seconds in taken.items():
        figures.append(figure(f"rewrite, {name}", seconds, "s"))
        figures.append(figure("  rows", [rows / each for each in seconds], "rows/s"))
        figures.append(figure("  of the bytes in plaintext", [size / each / 1e6 for each in seconds], "MB/s"))
    return figures + [
        figure(f"{name} / {PARQUET}", ratios_of(taken, name, PARQUET), "times") for name in actions
    ]


def main() -> None:
    """Run this benchmark alone."""
    alone.run(alone.given("Rewriting a table to other properties"), measure)


if __name__ == "__main__":
    main()
