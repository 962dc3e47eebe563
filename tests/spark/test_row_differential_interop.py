"""Random statements leave the same rows in Lakewarden's plugin, in Iceberg's runtime and in plain Spark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random
from uuid import uuid4

import pytest

from tests.support.iceberg_spark import IcebergSpark, iceberg_spark
from tests.support.lake import ALICE
from tests.support.row_differential import FIRST, PARTITIONS
from tests.support.service import Service, open_service
from tests.support.spark import CATALOG

pytestmark = [pytest.mark.interop, pytest.mark.timeout(900)]

STATEMENTS = 14
MODES = {
    "copy-on-write": {},
    "merge-on-read": dict.fromkeys(("delete", "update", "merge"), "merge-on-read"),
}
FORMATS = ["parquet", "orc"]
COMPARE = """
import sys
sys.path.insert(0, root)
from tests.support.row_runtimes import compare
answer = compare(spark, catalogs, tables, seed, statements, modes)
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service."""
    with open_service(tmp_path_factory.mktemp("lake")) as running:
        yield running


@pytest.fixture(scope="module")
def spark(served: Service) -> Iterator[IcebergSpark]:
    """A Spark with both plugins."""
    with iceberg_spark(served, ALICE, beside=ALICE) as started:
        yield started


@pytest.mark.parametrize("seed", range(1))
@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("mode", MODES)
def test_random_statements_leave_the_rows_of_iceberg_s_runtime(
    spark: IcebergSpark, mode: str, form: str, seed: int
) -> None:
    name = f"n{uuid4().hex[:10]}"
    columns = ", ".join(f"{column} {kind}" for column, kind in FIRST.items())
    partition = Random(f"{mode} {form} {seed}").choice(PARTITIONS)
    properties = {"write.format.default": form} | {
        f"write.{each}.mode": how for each, how in MODES[mode].items()
    }
    listed = ", ".join(f"'{key}' = '{value}'" for key, value in properties.items())
    spark.sql(f"CREATE NAMESPACE {ALICE}.{name}")
    for table in (f"{CATALOG}.{name}.ours", f"{ALICE}.{name}.theirs"):
        spark.sql(
            f"CREATE TABLE {table} ({columns}) USING iceberg"
            f" {f'PARTITIONED BY ({partition})' if partition else ''} TBLPROPERTIES ({listed})"
        )
    alone = spark.run(
        COMPARE,
        root=str(Path.cwd()),
        catalogs=[CATALOG, ALICE],
        tables=[f"{name}.ours", f"{name}.theirs"],
        seed=f"{mode} {form} {seed}",
        statements=STATEMENTS,
        modes=MODES[mode],
    )
    # Infinity is no partition value of Lakewarden. REPLACE WHERE needs whole files, which may differ.
    known = ("[rule=partition-value]", "MERGE_CARDINALITY_VIOLATION")
    ours = [each for each in alone if each[0] == CATALOG and "REPLACE WHERE" not in each[1]]
    assert all(any(rule in error for rule in known) for _, _, error in ours), ours
