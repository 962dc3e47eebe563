"""Overwrites and deletes of whole files: by condition, by partition, of everything."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql.functions import col

from tests.support.spark import SparkLake
from tests.support.spark_refusals import refusal
from tests.support.spark_tables import create_table, stock_table
from tests.support.tables import ENCRYPTED

pytestmark = pytest.mark.core

#: What a statement leaves of (1, 'a'), (2, 'b'), (3, 'b') in a table partitioned by p.
STATEMENTS = {
    "INSERT OVERWRITE {} VALUES (9, 'a')": [(9, "a")],
    "INSERT OVERWRITE {} PARTITION (p = 'a') SELECT 9": [(2, "b"), (3, "b"), (9, "a")],
    "INSERT OVERWRITE {} PARTITION (p = 'z') SELECT 9": [(1, "a"), (2, "b"), (3, "b"), (9, "z")],
    "INSERT OVERWRITE {} BY NAME SELECT 'b' AS p, 9 AS id": [(9, "b")],
    "INSERT OVERWRITE {} SELECT * FROM {} WHERE id > 1": [(2, "b"), (3, "b")],
    "INSERT INTO {} REPLACE WHERE p = 'b' VALUES (9, 'b')": [(1, "a"), (9, "b")],
    "INSERT INTO {} REPLACE WHERE P = 'b' VALUES (9, 'b')": [(1, "a"), (9, "b")],
    "INSERT INTO {} REPLACE WHERE p = 'b' SELECT 9, 'b' WHERE false": [(1, "a")],
    "DELETE FROM {} WHERE p = 'b'": [(1, "a")],
    "DELETE FROM {} WHERE p = 'b' AND id >= 2": [(1, "a")],
    "DELETE FROM {} WHERE p = 'b' AND p LIKE '%z'": [(1, "a"), (2, "b"), (3, "b")],
    "DELETE FROM {} WHERE id = length(p) OR p IS NULL": [(2, "b"), (3, "b")],
    "DELETE FROM {} WHERE false": [(1, "a"), (2, "b"), (3, "b")],
    "DELETE FROM {}": [],
    "TRUNCATE TABLE {}": [],
}
#: Other spellings and values of statements that are tried in each run.
AT_NIGHT = {
    "INSERT OVERWRITE {} PARTITION (p = 'z') SELECT 9",
    "INSERT OVERWRITE {} BY NAME SELECT 'b' AS p, 9 AS id",
    "INSERT INTO {} REPLACE WHERE P = 'b' VALUES (9, 'b')",
    "INSERT INTO {} REPLACE WHERE p = 'b' SELECT 9, 'b' WHERE false",
    "DELETE FROM {} WHERE p = 'b' AND id >= 2",
    "DELETE FROM {} WHERE false",
    "DELETE FROM {}",
}


@pytest.fixture(scope="module")
def table(spark_lake: SparkLake) -> str:
    """An encrypted table without rows, partitioned."""
    name = f"{spark_lake.namespace()}.t"
    create_table(
        spark_lake, name, "id INT, p STRING", ENCRYPTED | {"encryption.columns": "lakewarden:id"}, "p"
    )
    return name


def _filled(spark_lake: SparkLake, table: str) -> None:
    spark_lake.rows(f"INSERT OVERWRITE {table} VALUES (1, 'a'), (2, 'b'), (3, 'b')")


def _rows(spark_lake: SparkLake, table: str) -> list[tuple[Any, ...]]:
    return sorted(map(tuple, spark_lake.rows(f"SELECT * FROM {table}")))


@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize(
    "statement",
    [pytest.param(each, marks=pytest.mark.nightly) if each in AT_NIGHT else each for each in STATEMENTS],
)
def test_statement_leaves_the_other_rows(spark_lake: SparkLake, table: str, statement: str) -> None:
    _filled(spark_lake, table)
    spark_lake.rows(statement.format(table, table))
    assert _rows(spark_lake, table) == STATEMENTS[statement]


FRAMES: dict[str, Callable[[Any, str], Any]] = {
    "dynamic mode": lambda frame, table: frame.writeTo(table).overwritePartitions(),
    "option": lambda frame, table: frame.write.option("overwrite-mode", "dynamic").insertInto(
        table, overwrite=True
    ),
    "condition": lambda frame, table: frame.writeTo(table).overwrite(col("p") == "a"),
}


@pytest.mark.nightly
@pytest.mark.parametrize(
    "write",
    [
        pytest.param(FRAMES["dynamic mode"], id="dynamic mode"),
        pytest.param(FRAMES["option"], id="option", marks=pytest.mark.nightly),
        pytest.param(FRAMES["condition"], id="condition"),
    ],
)
def test_data_frame_overwrites_a_partition(
    spark_lake: SparkLake, table: str, write: Callable[[Any, str], Any]
) -> None:
    _filled(spark_lake, table)
    write(spark_lake.spark.createDataFrame([(9, "a")], "id INT, p STRING"), table)
    assert _rows(spark_lake, table) == [(2, "b"), (3, "b"), (9, "a")]
    summary = stock_table(spark_lake, table).current_snapshot().summary
    assert summary.operation.value == "overwrite"


@pytest.mark.nightly
def test_dynamic_mode_of_the_session_overwrites_partitions(spark_lake: SparkLake, table: str) -> None:
    _filled(spark_lake, table)
    session = spark_lake.new_session()
    session.sql("SET spark.sql.sources.partitionOverwriteMode=dynamic")
    session.sql(f"INSERT OVERWRITE {table} VALUES (9, 'b')")
    assert _rows(spark_lake, table) == [(1, "a"), (9, "b")]


def test_overwrite_with_an_isolation_level_sees_what_came_since(spark_lake: SparkLake, table: str) -> None:
    _filled(spark_lake, table)
    base = stock_table(spark_lake, table).current_snapshot().snapshot_id
    spark_lake.rows(f"INSERT INTO {table} VALUES (4, 'a')")
    frame = spark_lake.spark.createDataFrame([(9, "b")], "id INT, p STRING")

    def write(part: str) -> Any:
        writer = frame.writeTo(table).option("validate-from-snapshot-id", str(base))
        return writer.option("isolation-level", "serializable").overwrite(col("p") == part)

    error = refusal(lambda: write("a"))
    assert error.getCondition() == "LAKEWARDEN.CONCURRENT_MODIFICATION"
    write("b")
    assert _rows(spark_lake, table) == [(1, "a"), (4, "a"), (9, "b")]


@pytest.mark.nightly
def test_options_become_entries_of_the_summary(spark_lake: SparkLake, table: str) -> None:
    frame = spark_lake.spark.createDataFrame([(9, "b")], "id INT, p STRING")
    frame.writeTo(table).option("snapshot-property.job", "nightly").append()
    assert stock_table(spark_lake, table).current_snapshot().summary["job"] == "nightly"


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("options", "condition"),
    [
        ({"overwrite-mode": "some"}, "REQUEST_INVALID"),
        ({"isolation-level": "none"}, "REQUEST_INVALID"),
        ({"validate-from-snapshot-id": "1"}, "REQUEST_INVALID"),
        ({"write-format": "orc"}, "NOT_SUPPORTED_YET"),
    ],
)
def test_options_without_effect_are_refused(
    spark_lake: SparkLake, table: str, options: dict[str, str], condition: str
) -> None:
    frame = spark_lake.spark.createDataFrame([(9, "b")], "id INT, p STRING")
    error = refusal(lambda: frame.write.options(**options).insertInto(table, overwrite=True))
    assert error.getCondition() == f"LAKEWARDEN.{condition}", error
