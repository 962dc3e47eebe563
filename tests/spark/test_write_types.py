"""Files of plaintext tables are Iceberg files: standard readers read every type, every level has its id."""

from __future__ import annotations

import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.table import Table

from tests.support.spark import SparkLake
from tests.support.spark_tables import create_table, local_path, stock_table
from tests.support.tables import ENCRYPTED

pytestmark = pytest.mark.core

COLUMNS = """
    flag BOOLEAN, tiny TINYINT, small SMALLINT, whole INT NOT NULL, big BIGINT, single FLOAT, double DOUBLE,
    money DECIMAL(9,2), sum DECIMAL(18,4), huge DECIMAL(38,10), name STRING, short CHAR(3), longer VARCHAR(9),
    raw BINARY, day DATE, moment TIMESTAMP, wall TIMESTAMP_NTZ,
    tags ARRAY<STRING>, grid ARRAY<ARRAY<INT>>, ages MAP<STRING, INT>,
    who STRUCT<name: STRING, born: STRUCT<day: DATE, at: TIMESTAMP>>,
    deep MAP<STRING, ARRAY<STRUCT<x: DOUBLE, labels: MAP<INT, TIMESTAMP>>>>
"""
ROW = """
    true, 1Y, -2S, 3, 4000000000L, 1.5F, -2.25D,
    12.34BD, 12345678901234.5678BD, -1234567890123456789012345678.0123456789BD,
    'né€𝄞', 'ab', 'longer', X'00ff', date'1500-02-28', timestamp'2024-02-29 10:00:00.123456',
    timestamp_ntz'1969-12-31 23:59:59.999999',
    array('a', null), array(array(1, null), array()), map('k', 1, 'l', null),
    named_struct('name', 'n',
        'born', named_struct('day', date'2000-01-01', 'at', timestamp'1900-01-01 00:00:00')),
    map('k', array(named_struct('x', 1.5D, 'labels', map(7, timestamp'2024-01-01 00:00:00.000001'))))
"""
NULLS = "null, null, null, 5" + ", null" * 18
UTC = ZoneInfo("UTC")
EXPECTED: dict[str, Any] = {
    "flag": True,
    "tiny": 1,
    "small": -2,
    "whole": 3,
    "big": 4_000_000_000,
    "single": 1.5,
    "double": -2.25,
    "money": Decimal("12.34"),
    "sum": Decimal("12345678901234.5678"),
    "huge": Decimal("-1234567890123456789012345678.0123456789"),
    "name": "né€𝄞",
    "short": "ab",
    "longer": "longer",
    "raw": b"\x00\xff",
    "day": datetime.date(1500, 2, 28),
    "moment": datetime.datetime(2024, 2, 29, 10, 0, 0, 123456, tzinfo=UTC),
    "wall": datetime.datetime(1969, 12, 31, 23, 59, 59, 999999),
    "tags": ["a", None],
    "grid": [[1, None], []],
    "ages": [("k", 1), ("l", None)],
    "who": {
        "name": "n",
        "born": {"day": datetime.date(2000, 1, 1), "at": datetime.datetime(1900, 1, 1, tzinfo=UTC)},
    },
    "deep": [
        (
            "k",
            [{"x": 1.5, "labels": [(7, datetime.datetime(2024, 1, 1, 0, 0, 0, 1, tzinfo=UTC))]}],
        )
    ],
}

#: Settings by which a session can make Spark's own writer produce other files.
HOSTILE = {
    "spark.sql.parquet.datetimeRebaseModeInWrite": "LEGACY",
    "spark.sql.parquet.fieldId.write.enabled": "false",
    "spark.sql.parquet.int96RebaseModeInWrite": "LEGACY",
    "spark.sql.parquet.outputTimestampType": "INT96",
    "spark.sql.parquet.writeLegacyFormat": "true",
    "parquet.crypto.factory.class": "org.apache.parquet.crypto.keytools.PropertiesDrivenCryptoFactory",
    "parquet.encryption.kms.client.class": "org.apache.parquet.crypto.keytools.mocks.InMemoryKMS",
    "parquet.encryption.uniform.key": "k",
}


@pytest.fixture(scope="module", params=["plain", "hostile"])
def written(request: pytest.FixtureRequest, spark_lake: SparkLake) -> Table:
    """A table as pyiceberg has it, written by a session as it comes, and by one that asks for other files."""
    session = spark_lake.new_session()
    session.conf.set("spark.sql.session.timeZone", "UTC")
    if request.param == "hostile":
        for name, value in HOSTILE.items():
            session.conf.set(name, value)
    table = f"{spark_lake.namespace()}.t"
    session.sql(f"CREATE TABLE {table} ({COLUMNS}) USING iceberg")
    session.sql(f"INSERT INTO {table} VALUES ({ROW}), ({NULLS})").collect()
    return stock_table(spark_lake, table)


def files_of(table: Table) -> list[Path]:
    """Its data files."""
    return [local_path(file) for file in table.inspect.files().to_pylist()]


def test_pyiceberg_reads_every_type(written: Table) -> None:
    rows = sorted(written.scan().to_arrow().to_pylist(), key=lambda row: row["whole"])
    assert rows == [EXPECTED, {name: 5 if name == "whole" else None for name in EXPECTED}]


@pytest.mark.nightly
def test_pyarrow_reads_every_type(written: Table) -> None:
    rows = [row for file in files_of(written) for row in pq.read_table(file).to_pylist()]
    assert EXPECTED in rows and len(rows) == 2


@pytest.mark.nightly
def test_every_level_has_the_field_id_of_the_tables_schema(written: Table) -> None:
    for file in files_of(written):
        ids = _parquet_ids(pq.ParquetFile(file).schema_arrow)
        assert ids == _iceberg_ids(written.schema())


@pytest.mark.nightly
def test_times_are_microseconds_and_columns_without_null_are_required(written: Table) -> None:
    for file in files_of(written):
        leaves = pq.ParquetFile(file).schema
        columns = {leaves.column(place).path: leaves.column(place) for place in range(len(leaves))}
        assert columns["whole"].max_definition_level == 0
        assert columns["big"].max_definition_level == 1
        for name in ("moment", "wall", "who.born.at"):
            assert columns[name].physical_type == "INT64"
            assert "timeUnit=microseconds" in str(columns[name].logical_type)


@pytest.mark.nightly
def test_files_say_nothing_of_sparks_own_schema(written: Table) -> None:
    for file in files_of(written):
        notes = pq.ParquetFile(file).metadata.metadata
        assert not any(b"row.metadata" in name for name in notes or {})


@pytest.mark.nightly
@pytest.mark.parametrize("properties", [{}, ENCRYPTED], ids=["plain", "encrypted"])
def test_spark_reads_what_it_wrote(spark_lake: SparkLake, namespace: str, properties: dict[str, str]) -> None:
    table = f"{namespace}.t"
    create_table(spark_lake, table, COLUMNS, properties)
    spark_lake.rows(f"INSERT INTO {table} VALUES ({ROW}), ({NULLS})")
    expected = spark_lake.rows(f"SELECT {ROW}")[0]
    full, nulls = spark_lake.rows(f"SELECT * FROM {table} ORDER BY whole")
    assert tuple(full) == tuple(expected)
    assert tuple(nulls) == tuple(5 if name == "whole" else None for name in EXPECTED)


def _iceberg_ids(schema: Schema) -> dict[str, int]:
    return {schema.find_column_name(field_id) or "": field_id for field_id in schema.field_ids}


def _parquet_ids(schema: Any) -> dict[str, int]:
    found: dict[str, int] = {}
    for field in schema:
        _collect(field, field.name, found)
    return found


def _collect(field: Any, path: str, found: dict[str, int]) -> None:
    found[path] = int(field.metadata[b"PARQUET:field_id"])
    kind = str(field.type)
    if kind.startswith("list"):
        _collect(field.type.value_field, f"{path}.element", found)
    elif kind.startswith("map"):
        _collect(field.type.key_field, f"{path}.key", found)
        _collect(field.type.item_field, f"{path}.value", found)
    elif kind.startswith("struct"):
        for inner in field.type:
            _collect(inner, f"{path}.{inner.name}", found)
