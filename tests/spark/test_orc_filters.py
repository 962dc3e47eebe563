"""Filters leave out groups of rows inside ORC files, and never a wanted row."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow.orc import ORCFile, write_table

from catalog.writes.new_files import NewFile
from tests.support.reads import data_files, name_of, refused
from tests.support.spark import SparkLake
from tests.support.spark_plans import explained
from tests.support.spark_tables import create_table
from tests.support.spark_tables import data_files as entries
from tests.support.tables import Engine
from tests.support.vectors import each_row

pytestmark = pytest.mark.core

ORC = {"write.format.default": "orc"}
COLUMNS = """id INT, k INT, l BIGINT, b BOOLEAN, d DATE, t TIMESTAMP, n TIMESTAMP_NTZ, p DECIMAL(9,2),
    w DECIMAL(38,2), s STRING"""
GROUP = 10000
AGAIN = 100000
ODD = f"(id = {GROUP} + 7 OR id >= {4 * GROUP})"
#: Each group of rows that ORC keeps bounds of is some years, and some amounts, after the one before; but one
#: row of the second, and the whole of the last, are from before ORC's calendar, with NULL in them.
ROWS = f"""SELECT id, v AS k, v * 4294967296 AS l, if(id % 5 = 0, null, g % 2 = 0) AS b,
    if(odd, date'1400-01-01', date_add(date'1582-10-15', v * 30)) AS d,
    if(odd, timestamp'1400-01-01 12:00:00Z', timestamp_micros((v - 1500) * bigint(1000000000) * 8640)) AS t,
    if(odd, null, cast(timestamp_micros((v - 1500) * bigint(1000000000) * 864) AS timestamp_ntz)) AS n,
    cast((v - 1500) / 7 AS decimal(9,2)) AS p,
    if(odd, cast(concat('-', repeat('9', 36), '.99') AS decimal(38,2)), cast(v AS decimal(38,2))) AS w,
    cast(v AS string) AS s
    FROM (SELECT *, id div {GROUP} AS g, int((id div {GROUP}) * 1000 + id % 900) AS v, {ODD} AS odd
          FROM (SELECT cast(id AS int) AS id FROM range(0, {5 * GROUP}, 1, 1)))"""

VALUES = {
    "d": ["date'1400-01-01'", "date'1400-01-05'", "date'1399-12-28'", "date'1582-10-15'", "date'1664-12-02'",
          "date'1900-01-01'"],
    "t": ["timestamp'1400-01-01 12:00:00Z'", "timestamp'1400-01-08 00:00:00Z'",
          "timestamp'1399-12-24 00:00:00Z'", "timestamp'1582-10-17 00:00:00Z'",
          "timestamp_micros(-500 * bigint(1000000000) * 8640)", "timestamp'1970-01-01 00:00:00Z'",
          "timestamp_micros(500 * bigint(1000000000) * 8640)", "timestamp'4000-02-29 23:59:59.999999Z'"],
    "n": ["timestamp_ntz'1969-12-31 23:59:50'", "timestamp_ntz'1970-01-01 00:00:00'",
          "cast(timestamp_micros(500 * bigint(1000000000) * 864) AS timestamp_ntz)"],
    "p": ["-214.29", "-214.28", "cast(100 / 7 AS decimal(9,2))", "71.425"],
    "w": ["1", "1899", "-999999999999999999999999999999999999.99", "999999999999999999999999999999999999.99"],
    "k": ["899", "950"],
    "l": ["4294967296"],
    "s": ["'1500'"],
}  # fmt: skip
OPERATORS = [("=", ">="), ("<",), ("<=>", ">"), ("<=",)]
CONDITIONS = [
    *(f"{column} {operator} {value}" for column, values in VALUES.items()
      for place, value in enumerate(values) for operator in OPERATORS[place % 4]),
    *(f"{column} IN ({values[0]}, {values[-1]}, NULL)" for column, values in VALUES.items()),
    "d BETWEEN date'1600-01-01' AND date'1700-01-01'", "NOT (p > 100 OR t < timestamp'1700-01-01 00:00:00Z')",
    "n IS NULL", "n IS NOT NULL", "NOT b", "b = true AND d > date'1800-01-01'",
    "d = date'1600-01-01' OR p > 100", "n IS NULL AND w < 0",
]  # fmt: skip


def land_from_pyarrow(spark_lake: SparkLake, table: str) -> None:
    """The rows in a file that ORC's other implementation wrote."""
    rows = spark_lake.session().sql(ROWS).toArrow()
    fields = [field.with_metadata({"iceberg.id": str(number)}) for number, field in enumerate(rows.schema, 1)]
    engine = Engine.begin(spark_lake.lake, name_of(table))
    path = engine.path()
    local = Path(path.removeprefix("file://"))
    local.parent.mkdir(parents=True, exist_ok=True)
    write_table(rows.cast(pa.schema(fields)), local, row_index_stride=GROUP)
    size = local.stat().st_size
    engine.append(NewFile(path, "orc", record_count=rows.num_rows, file_size_in_bytes=size))


@pytest.fixture(scope="module")
def table(spark_lake: SparkLake) -> str:
    """A table of a file of PyArrow's, a plaintext and an encrypted one, with the same rows but for ids."""
    name = f"{spark_lake.namespace()}.t"
    create_table(spark_lake, name, COLUMNS, ORC)
    land_from_pyarrow(spark_lake, name)
    spark_lake.rows(f"INSERT INTO {name} {ROWS}")
    spark_lake.rows(f"ALTER TABLE {name} SET TBLPROPERTIES ('encryption.mechanism' = 'envelope')")
    spark_lake.rows(f"INSERT INTO {name} SELECT id + {AGAIN}, * EXCEPT (id) FROM ({ROWS})")
    assert len(data_files(spark_lake, name)) == 3
    return name


@pytest.mark.nightly
def test_no_wanted_row_is_left_out(spark_lake: SparkLake, table: str) -> None:
    """By every condition as many rows, and the same, as Spark finds without any file."""
    session = spark_lake.session()
    told = ", ".join(f"count_if({each}), sum(if({each}, id, 0))" for each in CONDITIONS)
    (wanted,) = session.sql(f"SELECT {told} FROM ({ROWS})").collect()
    for start in range(0, len(CONDITIONS), 20):
        some = CONDITIONS[start : start + 20]
        asked = " UNION ALL ".join(
            f"SELECT {number} AS number, count(*), coalesce(sum(id), 0) FROM {table} WHERE {each}"
            for number, each in enumerate(some)
        )
        found = sorted(map(tuple, session.sql(asked).collect()))
        for (number, count, ids), condition in zip(found, some, strict=True):
            rows, their_ids = wanted[2 * (start + number) : 2 * (start + number) + 2]
            assert (condition, count, ids) == (condition, 3 * rows, 3 * their_ids + rows * AGAIN)


@pytest.mark.nightly
def test_footers_of_every_writer_tell_what_the_rows_do(spark_lake: SparkLake, table: str) -> None:
    session = spark_lake.session()
    ends = ", ".join(f"{function}({column})" for column in "kbdplw" for function in ("min", "max"))
    told = f"{ends}, count(*), count(b), count(n), count(s)"
    asked = session.sql(f"SELECT {told} FROM {table}")
    assert "PushedAggregation: [min(k)" in explained(asked)
    *wanted, rows, flags, moments, texts = session.sql(f"SELECT {told} FROM ({ROWS})").first()
    assert asked.collect() == [(*wanted, 3 * rows, 3 * flags, 3 * moments, 3 * texts)]


@pytest.fixture(scope="module")
def halves(spark_lake: SparkLake) -> str:
    """A table of one file whose stripes after the first group of rows cannot be read any more."""
    name = f"{spark_lake.namespace()}.halves"
    create_table(spark_lake, name, COLUMNS, ORC | {"write.orc.stripe-size-bytes": "1000"})
    spark_lake.rows(f"INSERT INTO {name} {ROWS.replace(ODD, 'false')}")
    (entry,) = entries(spark_lake, name)
    (path,) = data_files(spark_lake, name)
    data, file, rows = bytearray(path.read_bytes()), ORCFile(path), 0
    for number, (start, end) in enumerate(pairwise(entry["split_offsets"])):
        if rows >= GROUP:
            middle = range(start + 6 * (end - start) // 10, start + 8 * (end - start) // 10)
            data[middle.start : middle.stop] = b"\xff" * len(middle)
        rows += file.read_stripe(number, columns=["id"]).num_rows
    path.write_bytes(data)
    return name


IN_WHOLE_STRIPES = [
    "k < 500",
    "d <= date'1600-01-01'",
    "d IN (date_add(date'1582-10-15', 30), date'1600-01-01')",
    "p < -100",
    "w = 17.00",
    "t < timestamp'1700-01-01 00:00:00Z'",
    "n < timestamp_ntz'1945-01-01 00:00:00'",
]


@pytest.mark.nightly
def test_stripes_without_a_wanted_row_are_not_read(spark_lake: SparkLake, halves: str) -> None:
    asked = " UNION ALL ".join(
        f"SELECT {place} AS place, xxhash64(*) AS hash FROM {halves} WHERE {condition}"
        for place, condition in enumerate(IN_WHOLE_STRIPES)
    )
    found = spark_lake.rows(f"SELECT place, bit_xor(hash) FROM ({asked}) GROUP BY place")
    assert {row.place for row in found} == {*range(len(IN_WHOLE_STRIPES))}


@each_row("condition", IN_WHOLE_STRIPES)
def test_stripes_with_a_wanted_row_are_read(spark_lake: SparkLake, halves: str, condition: str) -> None:
    every = f"SELECT * FROM {halves} WHERE NOT ({condition})"
    refused(spark_lake, every, "DATA_FILE_DAMAGED", "data-file")
