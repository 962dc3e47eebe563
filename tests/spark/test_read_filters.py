"""Filters leave out files, row groups and pages, and never a wanted row."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from catalog.writes.new_files import NewFile
from tests.support.reads import data_files, name_of, publish, refused, with_ids
from tests.support.spark import SparkLake
from tests.support.tables import Engine

NAN = math.nan
COLUMNS = (
    "id INT, i INT, l BIGINT, f FLOAT, x DOUBLE, s STRING, d DATE, t TIMESTAMP, n TIMESTAMP_NTZ, "
    "p DECIMAL(9,2), w DECIMAL(30,2), flag BOOLEAN, st STRUCT<a: INT, b: STRING>"
)


def rows(first: int) -> pa.Table:
    """Eight rows around every odd value, NULL among them."""
    wide = pa.struct(
        [pa.field("a", pa.int32(), metadata=_id(14)), pa.field("b", pa.string(), metadata=_id(15))]
    )
    numbers = [-1, 0, 1, 5, 2**31 - 1, -(2**31), None, 7]
    floats = [NAN, 0.0, -0.0, 1.5, math.inf, -math.inf, None, 2.5]
    texts = ["", "a", "ab", "b", "ÿ", "\U0001f600", None, "abc"]
    days = [date(1, 1, 1), date(1582, 10, 7), date(1969, 12, 31), date(1970, 1, 1), date(2024, 2, 29),
            date(9999, 12, 31), None, date(2000, 1, 1)]  # fmt: skip
    times = [
        None if day is None else datetime(day.year, day.month, day.day, 23, 59, 59, 999_999) for day in days
    ]
    money = [Decimal("-1.50"), Decimal("0.00"), Decimal("9999999.99"), Decimal("1.25"), Decimal("1.20"),
             Decimal("-9999999.99"), None, Decimal("3.00")]  # fmt: skip
    made = {
        "id": pa.array(range(first, first + 8), pa.int32()),
        "i": pa.array(numbers, pa.int32()),
        "l": pa.array([None if each is None else each * 2**31 for each in numbers], pa.int64()),
        "f": pa.array(floats, pa.float32()),
        "x": pa.array(floats, pa.float64()),
        "s": pa.array(texts),
        "d": pa.array(days, pa.date32()),
        "t": pa.array([each and each.replace(tzinfo=UTC) for each in times], pa.timestamp("us", "UTC")),
        "n": pa.array(times, pa.timestamp("us")),
        "p": pa.array(money, pa.decimal128(9, 2)),
        "w": pa.array([each and each * 10**20 for each in money], pa.decimal128(30, 2)),
        "flag": pa.array([True, False, None, True, False, True, None, False]),
        "st": pa.array([None if each is None else {"a": each, "b": None} for each in numbers], wide),
    }
    return with_ids(pa.table(made))


def _id(number: int) -> dict[str, str]:
    return {"PARQUET:field_id": str(number)}


@pytest.fixture(scope="module")
def table(spark_lake: SparkLake) -> str:
    """A table of a file of PyArrow's and one of Spark's; `plain_rows` has the same rows in memory."""
    name = f"{spark_lake.namespace()}.t"
    session = spark_lake.session()
    spark_lake.rows(f"CREATE TABLE {name} ({COLUMNS}) USING iceberg")
    # Two rows a row group: statistics tell of them, where a filter asks.
    _publish_in_groups(spark_lake, name, rows(0), 2)
    unread = session.table(name).localCheckpoint()
    again = unread.selectExpr("id + 100 AS id", *unread.columns[1:])
    again.coalesce(1).sortWithinPartitions("id").writeTo(name).append()
    everything = session.table(name).localCheckpoint()
    assert everything.count() == 16
    everything.createOrReplaceTempView("plain_rows")
    return name


def _publish_in_groups(spark_lake: SparkLake, table: str, arrow: pa.Table, size: int) -> None:
    """Commit a plaintext file with row groups of so many rows."""
    engine = Engine.begin(spark_lake.lake, name_of(table))
    path = engine.path()
    local = Path(path.removeprefix("file://"))
    local.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(arrow, local, row_group_size=size, store_schema=False)
    engine.append(
        NewFile(path, "parquet", record_count=arrow.num_rows, file_size_in_bytes=local.stat().st_size)
    )


CONDITIONS = [
    *(f"{column} {operator} {value}" for column in ("f", "x") for operator in ("<", ">=")
      for value in ("double('NaN')", "0.0d", "-0.0d", "1.5d")),
    *(f"{column} = {value}" for column in ("f", "x") for value in ("double('NaN')", "0.0d", "-0.0d", "1.5d")),
    "x > double('infinity')", "x <=> NULL", "NOT (x < 1.5)", "x IN (double('NaN'), 0.0d)",
    "x <= double('NaN')",
    "id IS NOT NULL", "i IS NOT NULL", "id IS NOT NULL AND i > 5 OR i IS NULL",
    "i = 5", "i > 5", "i <= -2147483648", "i IN (1, 7, NULL)", "i NOT IN (1, 7)", "i <> 5", "i IS NULL",
    "NOT (i > 1 AND l > 1)", "i = 5 OR s = 'a'", "l > 10737418240", "l >= 9223372036854775807",
    "i > 3000000000",
    "s = ''", "s LIKE 'a%'", "s LIKE 'ÿ%'", "s >= 'b'", "s < 'a'", "s LIKE '%b'", "s = 'ÿ'", "s > 'ÿ'",
    # Days that the calendar of before does not have.
    "d = DATE'1582-10-07'", "d >= DATE'1582-10-06'", "d > DATE'1582-10-06'", "d IN (DATE'1582-10-07')",
    "t >= TIMESTAMP'1582-10-07 00:00:00Z'", "t = TIMESTAMP'1582-10-07 23:59:59.999999Z'",
    "d < DATE'1582-10-15'", "d = DATE'0001-01-01'", "d >= DATE'9999-12-31'", "d = DATE'1969-12-31'",
    "t < TIMESTAMP'1582-10-15 00:00:00Z'", "t = TIMESTAMP'1969-12-31 23:59:59.999999Z'",
    "t > TIMESTAMP'9999-12-31 00:00:00Z'", "n = TIMESTAMP_NTZ'2000-01-01 23:59:59.999999'",
    "n <= TIMESTAMP_NTZ'0001-01-01 23:59:59.999999'",
    "p = 1.2", "p < 0", "p > 1.205", "p IN (1.25, 3)", "p >= 9999999.99", "w = 125000000000000000000",
    "w < 0", "flag", "NOT flag", "flag IS NULL", "flag = false OR i = 1",
    "st.a = 5", "st.a IS NULL", "st IS NOT NULL", "st.b IS NULL", "st.a > 0 AND x < 100",
]  # fmt: skip


@pytest.fixture(scope="module")
def wanted(spark_lake: SparkLake, table: str) -> dict[str, list[int]]:
    """By condition the ids of the rows that meet it, as Spark says without any scan of files."""
    answers = ", ".join(f"({condition}) AS c{number}" for number, condition in enumerate(CONDITIONS))
    rows = spark_lake.session().sql(f"SELECT id, {answers} FROM plain_rows ORDER BY id").collect()
    return {
        condition: [row["id"] for row in rows if row[f"c{number}"]]
        for number, condition in enumerate(CONDITIONS)
    }


@pytest.mark.nightly
@pytest.mark.parametrize("condition", CONDITIONS)
def test_no_wanted_row_is_left_out(spark_lake, table, wanted, condition):
    found = spark_lake.rows(f"SELECT id FROM {table} WHERE {condition}")
    assert sorted(row.id for row in found) == wanted[condition]


@pytest.fixture(scope="module")
def halves(spark_lake: SparkLake) -> str:
    """A table of one file whose second row group is destroyed, so that reading it would fail."""
    name = f"{spark_lake.namespace()}.halves"
    spark_lake.rows(f"CREATE TABLE {name} (was INT, s STRING, st STRUCT<a: INT>, half INT) USING iceberg")
    inner = pa.struct([pa.field("a", pa.int32(), metadata=_id(5))])
    numbers = list(range(2000))
    made = pa.table({
        "was": pa.array(numbers, pa.int32()),
        "s": [f"{number:05}" for number in numbers],
        "st": pa.array([{"a": number} for number in numbers], inner),
        "half": pa.array([number if number < 1000 else None for number in numbers], pa.int32()),
    })  # fmt: skip
    _publish_in_groups(spark_lake, name, with_ids(made), 1000)
    (path,) = data_files(spark_lake, name)
    group = pq.read_metadata(path).row_group(1)
    data = bytearray(path.read_bytes())
    for column in range(group.num_columns):
        chunk = group.column(column)
        start = min(filter(None, (chunk.data_page_offset, chunk.dictionary_page_offset)))
        data[start : start + chunk.total_compressed_size] = b"\xff" * chunk.total_compressed_size
    path.write_bytes(data)
    spark_lake.rows(f"ALTER TABLE {name} RENAME COLUMN was TO now")
    return name


@pytest.mark.parametrize(
    "condition",
    [
        "now < 1000",
        "s = '00007'",
        "st.a <= 5",
        pytest.param("s LIKE '000%'", marks=pytest.mark.nightly),
        pytest.param("now IN (3, 4)", marks=pytest.mark.nightly),
        pytest.param("half IS NOT NULL", marks=pytest.mark.nightly),
    ],
)
def test_row_groups_without_a_wanted_row_are_not_read(spark_lake, halves, condition):
    assert (
        spark_lake.rows(f"SELECT min(now), max(s), max(st.a) FROM {halves} WHERE {condition}")[0][0]
        is not None
    )


@pytest.mark.nightly
def test_row_groups_with_a_wanted_row_are_read(spark_lake, halves):
    refused(spark_lake, f"SELECT sum(now) FROM {halves} WHERE now < 1001", "DATA_FILE_DAMAGED", "data-file")


@pytest.mark.nightly
def test_files_without_a_wanted_row_are_not_opened(spark_lake, namespace):
    table = f"{namespace}.t"
    spark_lake.rows(f"CREATE TABLE {table} (id INT, s STRING) USING iceberg")
    for first in (0, 100):
        spark_lake.rows(f"INSERT INTO {table} SELECT CAST(id AS INT), 'x' FROM range({first}, {first + 10})")
    gone = next(
        path for path in data_files(spark_lake, table) if 100 in pq.read_table(path)["id"].to_pylist()
    )
    gone.unlink()
    assert spark_lake.rows(f"SELECT sum(id) FROM {table} WHERE id < 100") == [(45,)]
    refused(spark_lake, f"SELECT sum(id) FROM {table} WHERE id <= 100", "DATA_FILE_MISSING", "data-file")


@pytest.mark.nightly
def test_large_files_are_split_and_small_ones_put_together_without_losing_rows(spark_lake, namespace):
    table, session = f"{namespace}.t", spark_lake.session()
    spark_lake.rows(f"CREATE TABLE {table} (id INT) USING iceberg")
    for first in (0, 1000):
        made = with_ids(pa.table({"id": pa.array(range(first, first + 1000), pa.int32())}))
        _publish_in_groups(spark_lake, table, made, 10)
    publish(spark_lake, table, with_ids(pa.table({"id": pa.array([], pa.int32())})))
    for most, cost in (("1k", "1"), ("128m", "4m")):
        session.conf.set("spark.sql.files.maxPartitionBytes", most)
        session.conf.set("spark.sql.files.openCostInBytes", cost)
        try:
            parts = session.table(table).rdd.getNumPartitions()
            counted = spark_lake.rows(f"SELECT count(*), count(DISTINCT id), sum(id) FROM {table}")
        finally:
            session.conf.unset("spark.sql.files.maxPartitionBytes")
            session.conf.unset("spark.sql.files.openCostInBytes")
        assert counted == [(2000, 2000, 1999000)]
        assert (parts > 5) == (most == "1k")
