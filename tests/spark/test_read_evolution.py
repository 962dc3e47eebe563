"""Columns renamed, swapped, dropped, added again, widened: right rows and right filters, in old files too."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest
from pyspark.sql import Row

from tests.support.reads import publish, refused, with_ids
from tests.support.spark import SparkLake

pytestmark = pytest.mark.core

COLUMNS = (
    "a INT, b STRING, s STRUCT<x: INT, y: STRING>, l ARRAY<STRUCT<p: INT, q: INT>>, "
    "m MAP<STRING, STRUCT<u: INT, v: INT>>, f FLOAT, d DECIMAL(9,2)"
)
OLD = (
    "(1, 'one', named_struct('x', 10, 'y', 'ten'), array(named_struct('p', 1, 'q', 2)), "
    "map('k', named_struct('u', 1, 'v', 2)), 1.5f, 1.25), (2, 'two', NULL, NULL, NULL, NULL, NULL)"
)
CHANGES = [
    "RENAME COLUMN a TO t",
    "RENAME COLUMN b TO a",
    "RENAME COLUMN t TO b",
    "RENAME COLUMN s.x TO t",
    "RENAME COLUMN s.y TO x",
    "RENAME COLUMN s.t TO y",
    "RENAME COLUMN l.element.p TO r",
    "DROP COLUMN l.element.q",
    "ADD COLUMN l.element.q INT",
    "RENAME COLUMN m.value.u TO w",
    "ALTER COLUMN b TYPE BIGINT",
    "ALTER COLUMN f TYPE DOUBLE",
    "ALTER COLUMN d TYPE DECIMAL(18,2)",
    "ADD COLUMN c INT FIRST",
]
NEW = (
    "SELECT 7 AS c, 3L AS b, 'drei' AS a, named_struct('y', 30, 'x', 'thirty') AS s, "
    "array(named_struct('r', 3, 'q', 4)) AS l, map('k', named_struct('w', 3, 'v', 4)) AS m, "
    "2.5d AS f, CAST(3.25 AS DECIMAL(18,2)) AS d"
)


KINDS = [
    "iceberg envelope",
    "orc envelope",
    pytest.param("iceberg plaintext", marks=pytest.mark.nightly),
    pytest.param("orc plaintext", marks=pytest.mark.nightly),
]


@pytest.fixture(scope="module", params=KINDS)
def table(spark_lake: SparkLake, request: pytest.FixtureRequest) -> str:
    """A table with a file of before and one of after the changes."""
    name = f"{spark_lake.namespace()}.t"
    file_format, mechanism = request.param.split()
    properties = f"TBLPROPERTIES ('encryption.mechanism'='{mechanism}')"
    spark_lake.rows(f"CREATE TABLE {name} ({COLUMNS}) USING {file_format} {properties}")
    spark_lake.rows(f"INSERT INTO {name} VALUES {OLD}")
    for change in CHANGES:
        spark_lake.rows(f"ALTER TABLE {name} {change}")
    spark_lake.rows(f"INSERT INTO {name} BY NAME {NEW}")
    return name


def test_rows_of_all_ages_stand_under_todays_names(spark_lake, table):
    assert spark_lake.rows(f"SELECT * FROM {table} ORDER BY b") == [
        (None, 1, "one", Row(y=10, x="ten"), [Row(r=1, q=None)], {"k": Row(w=1, v=2)}, 1.5, Decimal("1.25")),
        (None, 2, "two", None, None, None, None, None),
        (7, 3, "drei", Row(y=30, x="thirty"), [Row(r=3, q=4)], {"k": Row(w=3, v=4)}, 2.5, Decimal("3.25")),
    ]


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("condition", "found"),
    [
        ("a = 'one'", [1]),
        ("a = 'drei' OR b = 1", [1, 3]),
        ("b = 2", [2]),
        ("b > 1", [2, 3]),
        ("c IS NULL", [1, 2]),
        ("c = 7", [3]),
        ("s.y = 10", [1]),
        ("s.x = 'ten'", [1]),
        ("s.x LIKE 'th%'", [3]),
        ("s IS NULL", [2]),
        ("f > 1 AND d = 1.25", [1]),
        ("f = 2.5", [3]),
        ("d IN (1.25, 3.25)", [1, 3]),
    ],
)
def test_filters_mean_todays_columns(spark_lake, table, condition, found):
    assert [row.b for row in spark_lake.rows(f"SELECT b FROM {table} WHERE {condition} ORDER BY b")] == found


@pytest.mark.nightly
def test_parts_of_nested_columns_are_found_by_id(spark_lake, table):
    assert spark_lake.rows(f"SELECT l.r, l.q, m['k'].w, s.y FROM {table} WHERE b <> 2 ORDER BY b") == [
        ([1], [None], 1, 10),
        ([3], [4], 3, 30),
    ]


@pytest.mark.parametrize("mechanism", ["plaintext", "envelope"])
def test_a_column_dropped_and_added_again_has_no_old_values(spark_lake, namespace, mechanism):
    table = f"{namespace}.t"
    properties = f"TBLPROPERTIES ('encryption.mechanism'='{mechanism}')"
    spark_lake.rows(f"CREATE TABLE {table} (a INT, b STRING, s STRUCT<x: INT>) USING iceberg {properties}")
    spark_lake.rows(f"INSERT INTO {table} VALUES (1, 'one', named_struct('x', 1)), (2, 'two', NULL)")
    for change in ("DROP COLUMN b", "ADD COLUMN b STRING", "ADD COLUMN s.y INT", "DROP COLUMN s.x"):
        spark_lake.rows(f"ALTER TABLE {table} {change}")
    counts = (f"SELECT count(*) FROM {table} WHERE {each}" for each in ("b IS NULL", "b = 'one'"))
    assert sorted(spark_lake.rows(" UNION ALL ".join(counts))) == [(0,), (2,)]
    # A struct of which the file has no field any more is there all the same; one that was NULL still is.
    assert spark_lake.rows(f"SELECT a, b, s, s IS NULL FROM {table} ORDER BY a") == [
        (1, None, Row(y=None), False),
        (2, None, None, True),
    ]


@pytest.mark.nightly
def test_an_earlier_snapshot_is_read_with_its_own_columns(spark_lake, namespace):
    table = f"{namespace}.t"
    spark_lake.rows(f"CREATE TABLE {table} (a INT, b STRING) USING iceberg")
    spark_lake.rows(f"INSERT INTO {table} VALUES (1, 'one')")
    snapshot = (
        spark_lake.lake.catalog().load_table(table.removeprefix("lake.")).current_snapshot().snapshot_id
    )
    for change in ("DROP COLUMN b", "RENAME COLUMN a TO b"):
        spark_lake.rows(f"ALTER TABLE {table} {change}")
    spark_lake.rows(f"INSERT INTO {table} VALUES (2)")
    assert spark_lake.rows(f"SELECT * FROM {table} VERSION AS OF {snapshot}") == [(1, "one")]
    assert spark_lake.rows(f"SELECT * FROM {table} VERSION AS OF {snapshot} WHERE b = 'one'") == [(1, "one")]
    assert spark_lake.rows(f"SELECT b FROM {table} ORDER BY b") == [(1,), (2,)]


@pytest.mark.nightly
def test_a_file_without_a_required_column_is_refused(spark_lake, namespace):
    table = f"{namespace}.t"
    spark_lake.rows(f"CREATE TABLE {table} (id BIGINT NOT NULL, name STRING) USING iceberg")
    publish(spark_lake, table, with_ids(pa.table({"name": ["a"]}), {"name": 2}))
    refused(spark_lake, f"SELECT id FROM {table}", "DATA_FILE_DAMAGED", "required-column")


@pytest.mark.nightly
def test_a_null_in_a_required_column_is_not_read_as_a_value(spark_lake, namespace):
    table = f"{namespace}.t"
    spark_lake.rows(f"CREATE TABLE {table} (id BIGINT NOT NULL) USING iceberg")
    rows = pa.table({"id": pa.array([1, None, 3], pa.int64())})
    publish(spark_lake, table, with_ids(rows, {"id": 1}))
    refused(spark_lake, f"SELECT sum(id) FROM {table}", "DATA_FILE_DAMAGED", "required-column")


@pytest.mark.nightly
def test_a_partition_value_that_the_file_lacks_is_not_taken_for_null(spark_lake, namespace):
    table = f"{namespace}.t"
    spark_lake.rows(f"CREATE TABLE {table} (id BIGINT, name STRING) USING iceberg PARTITIONED BY (name)")
    rows = with_ids(pa.table({"id": pa.array([1], pa.int64())}))
    publish(spark_lake, table, rows, partition={"name": "a"})
    refused(spark_lake, f"SELECT * FROM {table}", "NOT_SUPPORTED_YET", "absent-column")
    assert spark_lake.rows(f"SELECT id FROM {table}") == [(1,)]
