"""What manifests say of the files of plaintext tables that Spark wrote, and what plans make of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from pyiceberg.conversions import from_bytes
from pyiceberg.types import DecimalType, PrimitiveType

from tests.support.spark import SparkLake
from tests.support.spark_tables import create_table, data_files, local_path, planned_files, stock_table

FILL = 3_000


def _fill(
    spark_lake: SparkLake, table: str, columns: str, query: str, properties: Mapping[str, str] | None = None
) -> list[dict[str, Any]]:
    create_table(spark_lake, table, columns, properties)
    spark_lake.rows(f"INSERT INTO {table} {query}")
    return data_files(spark_lake, table)


def _bounds(spark_lake: SparkLake, table: str, file: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Lower and upper bound by column, as values."""
    schema = stock_table(spark_lake, table).schema()
    upper = dict(file["upper_bounds"])
    found = {}
    for field_id, lower in file["lower_bounds"]:
        kind = schema.find_type(field_id)
        assert isinstance(kind, PrimitiveType)
        values = from_bytes(kind, lower), from_bytes(kind, upper[field_id]) if field_id in upper else None
        found[schema.find_column_name(field_id) or ""] = values
    return found


def test_counts_sizes_and_splits_are_those_of_the_file(spark_lake: SparkLake, namespace: str) -> None:
    query = "SELECT /*+ COALESCE(1) */ id, if(id % 2 = 0, null, 'x'), array(id, null) FROM range(10)"
    (file,) = _fill(spark_lake, f"{namespace}.t", "id BIGINT, s STRING, l ARRAY<BIGINT>", query)
    path = local_path(file)
    assert (file["record_count"], file["file_size_in_bytes"]) == (10, path.stat().st_size)
    assert dict(file["value_counts"]) == {1: 10, 2: 10}
    assert dict(file["null_value_counts"]) == {1: 0, 2: 5}
    assert set(dict(file["column_sizes"])) == {1, 2, 4}
    assert file["split_offsets"] == [4]


@pytest.mark.nightly
def test_bounds_are_the_least_and_greatest_values(spark_lake: SparkLake, namespace: str) -> None:
    """Over several row groups, nested columns too; none below lists."""
    table = f"{namespace}.t"
    columns = """id BIGINT, i INT, f FLOAT, d DOUBLE, m DECIMAL(9,2), w DECIMAL(18,3), h DECIMAL(30,4),
        b BOOLEAN, day DATE, ts TIMESTAMP, wall TIMESTAMP_NTZ, s STRING, raw BINARY, who STRUCT<age: INT>,
        l ARRAY<INT>"""
    query = f"""SELECT /*+ COALESCE(1) */ id, cast(id as int) - 1500, cast(id as float), -cast(id as double),
        cast(id - 7 as decimal(9,2)), cast(-id as decimal(18,3)), cast(id as decimal(30,4)) / 100, id > 2,
        date_add(date'1970-01-01', cast(id as int) - 1), timestamp_micros(id),
        timestamp_ntz'1970-01-01 00:00:01', printf('%04d', id), cast(printf('%04d', id) as binary),
        named_struct('age', cast(id as int)), array(cast(id as int)) FROM range({FILL})"""
    # Row groups are looked at after so many rows at the earliest, hence many.
    (file,) = _fill(spark_lake, table, columns, query, {"write.parquet.row-group-size-bytes": "1"})
    found = {name: tuple(map(str, values)) for name, values in _bounds(spark_lake, table, file).items()}
    assert found == {
        "id": ("0", "2999"),
        "i": ("-1500", "1499"),
        "f": ("0.0", "2999.0"),
        "d": ("-2999.0", "-0.0"),
        "m": ("-7.00", "2992.00"),
        "w": ("-2999.000", "0.000"),
        "h": ("0.0000", "29.9900"),
        "b": ("False", "True"),
        "day": ("-1", "2998"),
        "ts": ("0", "2999"),
        "wall": ("1000000", "1000000"),
        "s": ("0000", "2999"),
        "raw": ("b'0000'", "b'2999'"),
        "who.age": ("0", "2999"),
    }
    assert len(file["split_offsets"]) > 1


@pytest.mark.nightly
def test_bounds_of_long_texts_are_cut_and_still_hold(spark_lake: SparkLake, namespace: str) -> None:
    cut = [
        ("'0123456789abcdef'", "0123456789abcdef", "0123456789abcdef"),
        ("'0123456789abcdefg'", "0123456789abcdef", "0123456789abcdeg"),
        ("concat(repeat('é', 16), 'x')", "é" * 16, "é" * 15 + "ê"),
        (
            "concat(repeat('a', 15), decode(X'ED9FBF', 'utf-8'), 'x')",
            "a" * 15 + "\ud7ff",
            "a" * 15 + "\ue000",
        ),
        (
            "concat(repeat('a', 15), decode(X'F48FBFBF', 'utf-8'), 'x')",
            "a" * 15 + "\U0010ffff",
            "a" * 14 + "b",
        ),
        ("repeat(decode(X'F48FBFBF', 'utf-8'), 17)", "\U0010ffff" * 16, None),
    ]
    columns = ", ".join(f"s{number} STRING" for number in range(len(cut)))
    query = f"SELECT {', '.join(value for value, _, _ in cut)}"
    (file,) = _fill(spark_lake, f"{namespace}.t", columns, query)
    lower, upper = dict(file["lower_bounds"]), dict(file["upper_bounds"])
    found = [(value, lower.get(field), upper.get(field)) for field, (value, _, _) in enumerate(cut, 1)]
    assert found == [(value, least.encode(), most and most.encode()) for value, least, most in cut]


@pytest.mark.nightly
def test_bounds_of_long_bytes_are_cut_and_still_hold(spark_lake: SparkLake, namespace: str) -> None:
    value = "unhex(concat(repeat('00', 14), '01ff', '05'))"
    (file,) = _fill(
        spark_lake, f"{namespace}.t", "b BINARY, c BINARY", f"SELECT {value}, unhex(repeat('ff', 17))"
    )
    assert dict(file["lower_bounds"]) == {1: b"\0" * 14 + b"\x01\xff", 2: b"\xff" * 16}
    assert dict(file["upper_bounds"]) == {1: b"\0" * 14 + b"\x02"}


@pytest.mark.nightly
def test_nan_leaves_no_bounds_and_is_found_by_what_it_is_greater_than(
    spark_lake: SparkLake, namespace: str
) -> None:
    table = f"{namespace}.t"
    query = "SELECT /*+ COALESCE(1) */ if(id = 1, double('nan'), double(id)), cast(id as float) FROM range(3)"
    (file,) = _fill(spark_lake, table, "d DOUBLE, f FLOAT", query)
    assert set(dict(file["lower_bounds"])) == set(dict(file["upper_bounds"])) == {2}
    assert planned_files(spark_lake, table, filter={"type": "gt", "term": "d", "value": 100.0}) == 1
    assert planned_files(spark_lake, table, filter={"type": "gt", "term": "f", "value": 100.0}) == 0


@pytest.mark.nightly
def test_a_column_of_nulls_has_counts_and_no_bounds(spark_lake: SparkLake, namespace: str) -> None:
    table = f"{namespace}.t"
    (file,) = _fill(spark_lake, table, "id INT, s STRING", "SELECT 1, null")
    assert dict(file["null_value_counts"]) == {1: 0, 2: 1}
    assert set(dict(file["lower_bounds"])) == {1}
    assert planned_files(spark_lake, table, filter={"type": "not-null", "term": "s"}) == 0


@pytest.mark.nightly
def test_a_text_that_is_no_utf8_has_no_bounds(spark_lake: SparkLake, namespace: str) -> None:
    (file,) = _fill(spark_lake, f"{namespace}.t", "s STRING", "SELECT cast(X'ff00' as string)")
    assert dict(file["lower_bounds"]) == {}


@pytest.mark.nightly
def test_filters_drop_files_by_their_bounds(spark_lake: SparkLake, namespace: str) -> None:
    table = f"{namespace}.t"
    create_table(spark_lake, table, "id BIGINT, m DECIMAL(20,2), s STRING")
    spark_lake.rows(f"INSERT INTO {table} SELECT id, id / 4, printf('%03d', id) FROM range(0, 300, 1, 3)")
    assert planned_files(spark_lake, table) == 3
    assert planned_files(spark_lake, table, filter={"type": "eq", "term": "id", "value": 150}) == 1
    assert planned_files(spark_lake, table, filter={"type": "lt", "term": "m", "value": "25.00"}) == 1
    assert planned_files(spark_lake, table, filter={"type": "starts-with", "term": "s", "value": "2"}) == 1


@pytest.mark.nightly
def test_a_decimal_bound_has_the_fewest_bytes(spark_lake: SparkLake, namespace: str) -> None:
    (file,) = _fill(spark_lake, f"{namespace}.t", "m DECIMAL(38,2)", "SELECT cast(1.28 as decimal(38,2))")
    assert dict(file["lower_bounds"]) == {1: b"\x00\x80"}
    assert from_bytes(DecimalType(38, 2), dict(file["upper_bounds"])[1]) is not None
