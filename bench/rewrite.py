"""Migration and compaction: compares a rewrite by CALL with Spark's rewrite of the same rows in plaintext.

    python -m bench.rewrite [--scale S] [--runs N]

Spark reads TPC-H's lineitem from Parquet and writes it to Parquet again. Lakewarden's tables hold the same
rows in as many files, and `rewrite_data_files` writes them again, with planning and commit in it. The
properties of a table that migrates were changed since it was written. A table that is compacted has many
small files, and so has what Spark reads beside it. Budget: a compaction takes at most 1.10 times as long as
Spark. Migrations have no budget. Rounds are as in `bench.rounds`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession
from rich.console import Console

from bench import alone, spark_lineitem
from bench.report import Figure, at_most, figure, show
from bench.rounds import in_rounds, ratios_of
from bench.samples import root_of
from bench.service import served
from bench.spark_session import CATALOG, session, versions
from bench.spark_sides import NAMESPACE, PARQUET, Side, lake_table, spark_files
from tests.support.lake import open_lake

_Change = tuple[Mapping[str, str], Mapping[str, str]]
_TABLE = "moved"
_PLAIN = {"encryption.mechanism": "plaintext"}
_GCM = {"encryption.mechanism": "envelope", "encryption.algorithm": "AES_GCM_V1"}
_KEYED = {"encryption.columns": "first:l_comment,l_extendedprice,l_orderkey"}
#: What the properties were when the files were written, and what they are when these are rewritten.
CHANGES: Mapping[str, _Change] = {
    "plaintext to GCM": (_PLAIN, _GCM),
    "GCM to column keys": (_GCM, _KEYED),
    "GCM to plaintext": (_GCM, _PLAIN),
}
#: The properties of tables that are compacted.
COMPACTED: Mapping[str, Mapping[str, str]] = {"compaction, plaintext": _PLAIN, "compaction, GCM": _GCM}
SMALL_FILES: Final = 64
BUDGET: Final = 1.10


@dataclass(frozen=True)
class _Rewrite:
    """A table, and what is done before it is rewritten.

    Attributes:
        before: the table as it is written.
        source: the view that it is written from.
        files: how many files it has.
        after: the properties that it gets.
    """

    spark: SparkSession
    before: Side
    source: str
    files: int
    after: Mapping[str, str]

    def prepare(self) -> None:
        """A table whose files are not as its properties say."""
        self.before.write(self.source, _TABLE)
        listed = ", ".join(f"'{name}' = '{value}'" for name, value in self.after.items())
        self.spark.sql(f"ALTER TABLE {self.before.opened(_TABLE)} SET TBLPROPERTIES ({listed})")

    def run(self) -> None:
        """Rewrite it."""
        table = self.before.opened(_TABLE).removeprefix(f"{CATALOG}.")
        (done,) = self.spark.sql(f"CALL {CATALOG}.system.rewrite_data_files(table => '{table}')").collect()
        assert (done["rewritten_data_files_count"], done["left_files"]) == (self.files, 0)

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
        plain = spark_files(spark, root_of(root, "files"))
        for view, parts in (("lineitem", spark_lineitem.FILES), ("small", SMALL_FILES)):
            generated = spark_lineitem.generate(root / f"generated_{view}", scale, parts=parts)
            spark_lineitem.cached(spark, generated, view, parts)
            plain.write(view, view)
        # As many tasks on both sides, and so as many files.
        spark.conf.set("spark.sql.files.minPartitionNum", spark_lineitem.FILES)
        size = sum(file.stat().st_size for file in plain.files("lineitem"))
        # So large that as many files come, at the hands of as many tasks: by default one would.
        files = {"write.target-file-size-bytes": str(51 * size // (50 * spark_lineitem.FILES))}

        tables = partial(_rewrites, spark, lake / "warehouse", files)
        migrations = _measure(
            plain, "lineitem", tables("lineitem", spark_lineitem.FILES, CHANGES), size, runs
        )
        compacted = {name: (properties, {}) for name, properties in COMPACTED.items()}
        compactions = [
            at_most(BUDGET, each) if each.unit == "times" else each
            for each in _measure(plain, "small", tables("small", SMALL_FILES, compacted), size, runs)
        ]
    show(console, "Rewriting lineitem", migrations)
    show(console, f"Compacting lineitem in {SMALL_FILES} files", compactions)
    return migrations + compactions, about


def _rewrites(
    spark: SparkSession,
    warehouse: Path,
    properties: Mapping[str, str],
    source: str,
    number: int,
    changes: Mapping[str, _Change],
) -> dict[str, _Rewrite]:
    """Tables of a view with as many files, which get these properties and those of the change."""
    return {
        name: _Rewrite(
            spark, lake_table(spark, warehouse, f"{source}{at}", before), source, number, properties | after
        )
        for at, (name, (before, after)) in enumerate(changes.items())
    }


def _measure(
    plain: Side, source: str, rewrites: Mapping[str, _Rewrite], size: int, runs: int
) -> list[Figure]:
    opened = plain.opened(source)
    for each in rewrites.values():
        each.prepare()
    actions = {name: each.run for name, each in rewrites.items()}
    taken = in_rounds(
        {PARQUET: lambda: plain.write(opened, "again"), **actions},
        runs,
        after=lambda name: plain.drop("again") if name == PARQUET else rewrites[name].renew(),
    )
    figures = []
    for name, seconds in taken.items():
        figures.append(figure(f"{source}, {name}", seconds, "s"))
        figures.append(figure("  of the bytes in plaintext", [size / each / 1e6 for each in seconds], "MB/s"))
    return figures + [
        figure(f"{name} / {PARQUET}", ratios_of(taken, name, PARQUET), "times") for name in actions
    ]


def main() -> None:
    """Run this benchmark alone."""
    alone.run(alone.given("Rewriting a table to other properties"), measure)


if __name__ == "__main__":
    main()
