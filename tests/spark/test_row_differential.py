"""Random statements give the rows that plain Spark makes of the same, in each protection and mode."""

from __future__ import annotations

import re
from collections.abc import Mapping
from random import Random

import pytest

from tests.support.row_differential import FIRST, PARTITIONS, Table
from tests.support.spark import SparkLake
from tests.support.spark_tables import create_table, master_keys, stock_table
from tests.support.tables import ENCRYPTED

pytestmark = pytest.mark.nightly

MERGE_ON_READ = {f"write.{each}.mode": "merge-on-read" for each in ("delete", "update", "merge")}
ORC = {"write.format.default": "orc"}
#: Properties, and the columns that are encrypted and so partition no table.
PROTECTIONS: Mapping[str, tuple[Mapping[str, str], str]] = {
    "plaintext": ({}, ""),
    "uniform": (ENCRYPTED, "*"),
    "column keys": ({"encryption.columns": "pii:id,s,f,ts,st"}, "id,s,f,ts,st"),
    "ORC": (ORC, ""),
    "ORC column keys": (ORC | {"encryption.columns": "pii:id,s,dt,ts"}, "id,s,dt,ts"),
}
STATEMENTS = 14
SEEDS = range(3)

#: What can be refused, with nothing changed: what needs whole files, and changes that do not fit the table.
#: NaN and infinity are no partition values.
REFUSED = {"INSERT INTO … REPLACE WHERE", "ALTER TABLE"}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("merge_on_read", [False, True], ids=["copy-on-write", "merge-on-read"])
@pytest.mark.parametrize("protection", PROTECTIONS)
def test_random_statements_give_the_rows_of_plain_spark(
    spark_lake: SparkLake, namespace: str, protection: str, merge_on_read: bool, seed: int
) -> None:
    random = Random(f"{protection} {merge_on_read} {seed}")
    properties, encrypted = PROTECTIONS[protection]
    master_keys(spark_lake, "pii")
    columns = ", ".join(f"{name} {kind}" for name, kind in FIRST.items())
    modes = MERGE_ON_READ if merge_on_read else {}
    create_table(
        spark_lake, f"{namespace}.t", columns, {**properties, **modes}, _partition(random, encrypted)
    )
    table = Table(
        spark_lake.new_session(),
        f"{namespace}.t",
        random,
        modes={name.split(".")[1]: mode for name, mode in modes.items()},
    )
    table.insert()
    for _ in range(STATEMENTS):
        head = stock_table(spark_lake, table.name).current_snapshot()
        table.remember(None if head is None else head.snapshot_id)
        table.step()
    refused = {statement for statement, error in table.refused if "[rule=partition-value]" not in error}
    assert refused <= REFUSED, table.refused


def _partition(random: Random, encrypted: str) -> str | None:
    hidden = FIRST.keys() if encrypted == "*" else set(encrypted.split(","))
    return random.choice([each for each in PARTITIONS if not hidden & set(re.findall(r"\w+", each or ""))])
