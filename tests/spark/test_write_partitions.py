"""Partitioned tables: rows lie where their values say, plans find them by any transform."""

from __future__ import annotations

import datetime
import re
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import VoidTransform
from pyiceberg.types import IntegerType, NestedField, StringType
from pyspark.errors import PySparkException

from policy.location.location import Location
from tests.support.spark import SparkLake
from tests.support.spark_tables import create_table, data_files, planned_files, stock_table
from tests.support.vectors import each_row

ODD_VALUES = [
    "..",
    "../../etc",
    "a/b\\c",
    "%2e%2e/x",
    " ",
    "",
    "+",
    "a b=c,d;e",
    "{x,..}",
    "100%",
    "line\nfeed\u2028",
    "北京 é 𝄞 \u202e",
    "\u2024\u2024",
    "x" * 5_000,
    "null",
]


def _partitions(spark_lake: SparkLake, table: str) -> list[Any]:
    """The partition of each file."""
    return [file["partition"] for file in data_files(spark_lake, table)]


#: Type, transform, values of the rows (null for the others), a filter, and how many of the files it leaves.
PARTITIONED = [
    ("BIGINT", "v", ["1L", "2L", "3L"], {"type": "eq", "value": 2}, 1),
    ("STRING", "v", ["'a'", "'b'", "null"], {"type": "is-null"}, 1),
    ("BOOLEAN", "v", ["true", "false", "null"], {"type": "eq", "value": True}, 1),
    ("DECIMAL(9,2)", "v", ["1.10BD", "2.00BD", "-0.5BD"], {"type": "lt", "value": "0.00"}, 1),
    ("DOUBLE", "v", ["1.5D", "-0.0D", "1e300D"], {"type": "gt", "value": 2.0}, 1),
    ("BINARY", "v", ["X'00'", "X''", "null"], {"type": "is-null"}, 1),
    ("DATE", "v", ["date'1500-02-28'", "date'2024-01-01'"], {"type": "eq", "value": "2024-01-01"}, 1),
    (
        "TIMESTAMP",
        "v",
        ["timestamp'2024-01-01 00:00:00.000001Z'", "timestamp'1969-12-31 23:59:59.9Z'"],
        {"type": "eq", "value": "2024-01-01T00:00:00.000001+00:00"},
        1,
    ),
    (
        "TIMESTAMP_NTZ",
        "v",
        ["timestamp_ntz'2024-01-01 00:00:00.1'", "timestamp_ntz'0999-12-31 23:59:59'"],
        {"type": "lt", "value": "1000-01-01T00:00:00"},
        1,
    ),
    ("BIGINT", "bucket(64, v)", ["1L", "2L", "3L"], {"type": "eq", "value": 2}, 1),
    ("STRING", "bucket(64, v)", ["'a'", "'b'", "'c'"], {"type": "in", "values": ["a", "b"]}, 2),
    ("INT", "truncate(10, v)", ["-1", "5", "15"], {"type": "lt", "value": 0}, 1),
    ("STRING", "truncate(v, 2)", ["'abc'", "'abd'", "'b'"], {"type": "starts-with", "value": "ab"}, 2),
    (
        "DATE",
        "years(v)",
        ["date'2023-12-31'", "date'2024-01-01'"],
        {"type": "gt-eq", "value": "2024-01-01"},
        1,
    ),
    (
        "DATE",
        "months(v)",
        ["date'1969-12-31'", "date'1970-01-01'"],
        {"type": "lt", "value": "1970-01-01"},
        1,
    ),
    (
        "TIMESTAMP_NTZ",
        "days(v)",
        ["timestamp_ntz'1969-12-31 23:59:59'", "timestamp_ntz'1970-01-01 00:00:00'"],
        {"type": "lt", "value": "1969-12-31T23:59:59.5"},
        1,
    ),
    (
        "TIMESTAMP",
        "hours(v)",
        ["timestamp'2024-01-01 00:59:59Z'", "timestamp'2024-01-01 01:00:00Z'"],
        {"type": "gt-eq", "value": "2024-01-01T01:00:00+00:00"},
        1,
    ),
]


@pytest.fixture(scope="module")
def partitioned(spark_lake: SparkLake) -> str:
    """A table with a column for each of `PARTITIONED`, partitioned by all of them; each row has its file."""
    table = f"{spark_lake.namespace()}.t"
    columns = ", ".join(f"v{place} {kind}" for place, (kind, *_) in enumerate(PARTITIONED))
    parts = [re.sub(r"\bv\b", f"v{place}", transform) for place, (_, transform, *_) in enumerate(PARTITIONED)]
    create_table(spark_lake, table, f"id INT, {columns}", partitioned_by=", ".join(parts))
    filled = zip_longest(*(values for _, _, values, *_ in PARTITIONED), fillvalue="null")
    rows = ", ".join(f"({id}, {', '.join(values)})" for id, values in enumerate(filled))
    spark_lake.rows(f"INSERT INTO {table} VALUES {rows}")
    return table


@each_row("place, term, files", [(place, *row[3:]) for place, row in enumerate(PARTITIONED)])
def test_plans_find_rows_by_the_partition(
    spark_lake: SparkLake, partitioned: str, place: int, term: dict[str, Any], files: int
) -> None:
    """A filter finds all that it wants in as few files as there are."""
    assert planned_files(spark_lake, partitioned, filter={**term, "term": f"v{place}"}) == files


@pytest.mark.nightly
def test_a_standard_client_finds_all_rows(spark_lake: SparkLake, partitioned: str) -> None:
    found = stock_table(spark_lake, partitioned).scan().to_arrow()
    assert sorted(found["id"].to_pylist()) == [0, 1, 2]
    partitions = _partitions(spark_lake, partitioned)
    assert planned_files(spark_lake, partitioned) == len(partitions) == 3
    assert sorted(each["v12_trunc"] for each in partitions) == ["ab", "ab", "b"]


@pytest.mark.nightly
def test_partition_values_are_those_of_the_rows(spark_lake: SparkLake, namespace: str) -> None:
    """Days are those of UTC, whatever the session's time zone is."""
    table = f"{namespace}.t"
    columns = "id BIGINT, s STRING, ts TIMESTAMP, who STRUCT<age: INT>"
    parts = "bucket(4, id), s, days(ts), truncate(who.age, 10)"
    create_table(spark_lake, table, columns, partitioned_by=parts)
    session = spark_lake.new_session()
    session.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    session.sql(
        f"""INSERT INTO {table} VALUES (34, 'a', timestamp'2024-02-29 23:00:00Z', named_struct('age', 17)),
        (34, null, null, null)"""
    )
    bucket = 2017239379 % 4
    assert sorted(_partitions(spark_lake, table), key=str) == sorted(
        [
            {"id_bucket": bucket, "s": "a", "ts_day": datetime.date(2024, 2, 29), "who.age_trunc": 10},
            {"id_bucket": bucket, "s": None, "ts_day": None, "who.age_trunc": None},
        ],
        key=str,
    )


@pytest.mark.nightly
def test_rows_of_a_partition_come_together(spark_lake: SparkLake, namespace: str) -> None:
    """One file a partition, however the rows come."""
    table = f"{namespace}.t"
    create_table(spark_lake, table, "id BIGINT, part BIGINT", partitioned_by="bucket(3, part)")
    spark_lake.rows(f"INSERT INTO {table} SELECT /*+ REPARTITION(4) */ id, id % 50 FROM range(1000)")
    partitions = _partitions(spark_lake, table)
    assert len(partitions) == len({str(each) for each in partitions}) == 3


@pytest.mark.nightly
@pytest.mark.parametrize("fan_out", [pytest.param("true", marks=pytest.mark.nightly), "false"])
def test_rows_that_come_unsorted_lie_in_their_partitions(
    spark_lake: SparkLake, namespace: str, fan_out: str
) -> None:
    """More partitions than files may be open: some have several files, none has a foreign row."""
    table = f"{namespace}.t"
    asked = {"write.distribution-mode": "none", "write.spark.fanout.enabled": fan_out}
    create_table(spark_lake, table, "id BIGINT, part STRING", asked, "part")
    spark_lake.rows(
        f"INSERT INTO {table} SELECT /*+ COALESCE(1) */ id, cast(id % 40 as string) FROM range(80)"
    )
    loaded = stock_table(spark_lake, table)
    assert loaded.scan().to_arrow().num_rows == 80
    files = data_files(spark_lake, table)
    for file in files:
        lower, upper = dict(file["lower_bounds"])[2], dict(file["upper_bounds"])[2]
        assert lower == upper == file["partition"]["part"].encode()
    assert len(files) == 40 if fan_out == "false" else len(files) > 40


@pytest.mark.nightly
def test_odd_values_make_plain_directories(spark_lake: SparkLake, namespace: str) -> None:
    """Whatever a row holds, its file lies below the write's directory, where every reader finds it."""
    table = f"{namespace}.t"
    create_table(spark_lake, table, "id INT, v STRING", partitioned_by="v")
    rows = pa.table({"id": pa.array(range(len(ODD_VALUES)), pa.int32()), "v": ODD_VALUES})
    frame = spark_lake.spark.createDataFrame(rows)
    frame.writeTo(table).append()
    files = data_files(spark_lake, table)
    assert sorted(file["partition"]["v"] for file in files) == sorted(ODD_VALUES)
    root = spark_lake.lake.warehouse / namespace.removeprefix("lake.")
    for file in files:
        location = Location.parse(file["file_path"])
        assert location.segments[-2].startswith("v=")
        assert Path(location.canonical.removeprefix("file://")).resolve().is_relative_to(root.resolve())
    assert stock_table(spark_lake, table).scan().to_arrow()["v"].to_pylist().count("..") == 1


@pytest.mark.nightly
def test_a_value_that_json_has_no_number_for_is_refused(spark_lake: SparkLake, namespace: str) -> None:
    table = f"{namespace}.t"
    create_table(spark_lake, table, "v DOUBLE", partitioned_by="v")
    with pytest.raises(PySparkException, match="NotSupportedYet"):
        spark_lake.rows(f"INSERT INTO {table} VALUES (double('nan'))")
    assert _partitions(spark_lake, table) == []


@pytest.mark.nightly
def test_a_removed_partition_field_is_written_as_nothing(spark_lake: SparkLake, namespace: str) -> None:
    """Iceberg's void transform: the field stays in the spec, without values."""
    table = f"{namespace}.t"
    spec = PartitionSpec(PartitionField(2, 1000, VoidTransform(), "v"), spec_id=0)
    schema = Schema(NestedField(1, "id", IntegerType()), NestedField(2, "v", StringType()))
    spark_lake.service.iceberg().create_table(table.removeprefix("lake."), schema, partition_spec=spec)
    spark_lake.rows(f"INSERT INTO {table} VALUES (1, 'a'), (2, 'b')")
    assert all(each == {"v": None} for each in _partitions(spark_lake, table))
    assert sorted(stock_table(spark_lake, table).scan().to_arrow()["v"].to_pylist()) == ["a", "b"]
