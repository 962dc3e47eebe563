"""Bounds of encrypted columns that Spark wrote: they spare files, and stand nowhere in plaintext."""

from __future__ import annotations

import base64
import logging
import struct
from collections.abc import Iterator

import pytest

from tests.support.canary import files_below, unpacked
from tests.support.reads import name_of
from tests.support.spark import SparkLake
from tests.support.spark_tables import create_table, planned_files
from tests.support.tables import ENCRYPTED

NUMBER, TIME, TEXT = 0x5EC12E7F00AA1133, 1_234_567_890_123_456, "canary-of-sealed-bounds"
#: Writers cut texts after 16 characters.
CUT = TEXT[:16]
SECRETS = {
    "number, as stored": struct.pack("<q", NUMBER),
    "number, big endian": struct.pack(">q", NUMBER),
    "number, in digits": str(NUMBER).encode(),
    "time, as stored": struct.pack("<q", TIME),
    "time, in digits": str(TIME).encode(),
    "time, as text": b"2009-02-13T23:31:30.123456",
    "double, as stored": struct.pack("<d", 12345.678901234),
    "double, in digits": b"12345.678901234",
    "text": CUT[:12].encode(),
    "text, UTF-16": CUT[:12].encode("utf-16-le"),
    "text, UTF-16, big endian": CUT[:12].encode("utf-16-be"),
}
COLUMNS = "id BIGINT, number BIGINT, at TIMESTAMP, price DOUBLE, name STRING"
ROWS = f"""SELECT /*+ COALESCE(1) */ id, {NUMBER} + id, timestamp_micros({TIME} + id), 12345.678901234D + id,
    concat('{TEXT}', id) FROM range(10)"""
GROUPS = {"encryption.columns": "bounds-of-one:number,name;bounds-of-two:at,price"}
#: Where the table lies that shows what is looked for.
IN_CLEAR = "bounds_in_plaintext"


def spelled(value: bytes) -> Iterator[bytes]:
    """A value as something may have written it."""
    yield value
    yield value.hex().encode()
    yield value.hex().upper().encode()
    yield repr(value)[2:-1].encode()
    for start in range(3):
        # Wherever it begins in what was encoded, without the digits that its neighbours have a part in: fewer
        # than these would be met by chance.
        encoded = base64.b64encode(bytes(start) + value)
        inner = encoded[-(-8 * start // 6) : 8 * (start + len(value)) // 6]
        yield inner
        yield inner.translate(bytes.maketrans(b"+/", b"-_"))


SPELLED = {name: list(spelled(value)) for name, value in SECRETS.items()}


def found_in(content: bytes) -> list[str]:
    return [name for name, spellings in SPELLED.items() if any(each in content for each in spellings)]


@pytest.fixture(scope="module")
def keys(spark_lake: SparkLake) -> None:
    for key in ("bounds-of-one", "bounds-of-two"):
        spark_lake.lake.kms.create_master_key(key)


def used(spark_lake: SparkLake, table: str) -> None:
    """Let the bounds of a table be asked for, and its keys be changed."""
    assert planned_files(spark_lake, table, filter={"type": "lt", "term": "number", "value": NUMBER}) == 0
    spark_lake.rows(f"SELECT * FROM {table} WHERE number > 5 AND name > 'canary'")
    spark_lake.lake.services.key_rotation.rotate(spark_lake.lake.caller("alice"), name_of(table))
    spark_lake.lake.services.key_rewrap.rewrap(spark_lake.lake.caller("alice"), name_of(table))


def searched(spark_lake: SparkLake) -> dict[str, list[str]]:
    """What is found of the secrets in everything below the lake, its database and audit trail included."""
    return {
        str(file.relative_to(spark_lake.lake.root)): found
        for file in files_below(spark_lake.lake.root)
        if IN_CLEAR not in file.parts and (found := found_in(unpacked(file)))
    }


def test_no_bound_of_an_encrypted_column_stands_anywhere_in_plaintext(
    spark_lake: SparkLake, namespace: str, keys: None, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    for mode, properties in {"uniform": ENCRYPTED, "groups": GROUPS}.items():
        table = f"{namespace}.{mode}"
        create_table(spark_lake, table, COLUMNS, properties)
        spark_lake.rows(f"INSERT INTO {table} {ROWS}")
        used(spark_lake, table)
    assert searched(spark_lake) == {}
    told = [each.getMessage() for each in caplog.records if not each.name.startswith("py4j")]
    assert found_in("\n".join(told).encode()) == []


@pytest.mark.nightly
def test_the_search_finds_bounds_that_stand_in_plaintext(spark_lake: SparkLake) -> None:
    spark_lake.rows(f"CREATE NAMESPACE IF NOT EXISTS lake.{IN_CLEAR}")
    table = f"lake.{IN_CLEAR}.t"
    create_table(spark_lake, table, COLUMNS)
    spark_lake.rows(f"INSERT INTO {table} {ROWS}")
    directory = spark_lake.lake.warehouse / IN_CLEAR
    metadata = [file for file in files_below(directory) if file.suffix == ".avro"]
    found = {name for file in metadata for name in found_in(unpacked(file))}
    assert found >= {"number, as stored", "time, as stored", "double, as stored", "text"}
    for name, value in SECRETS.items():
        padded = b"x" * 7 + value + b"yz"
        shown = [padded, padded.hex().encode(), base64.b64encode(padded), repr(padded).encode()]
        assert all(name in found_in(each) for each in shown), name


TYPES = """id BIGINT, i INT, f FLOAT, d DOUBLE, m DECIMAL(9,2), w DECIMAL(30,4), b BOOLEAN, day DATE,
    ts TIMESTAMP, wall TIMESTAMP_NTZ, s STRING, raw BINARY, who STRUCT<age: INT, name: STRING>"""
VALUES = """id, if(id % 3 = 0, null, cast(id as int)), cast(id as float),
    if(id = 35, double('NaN'), -cast(id as double)),
    cast(id as decimal(9,2)), cast(id as decimal(30,4)) / 100, id > 20,
    date_add(date'2020-01-01', cast(id as int)), timestamp_seconds(id * 86400),
    timestamp_ntz'2020-01-01 00:00:00',
    printf('%040d', id), cast(printf('%020d', id) as binary),
    named_struct('age', cast(id as int), 'name', if(id < 30, null, 'x'))"""
#: As `POST …/plan` takes them, and of five files with eight rows each how many are left.
FILTERS = [
    ({"type": "lt", "term": "id", "value": 8}, 1),
    ({"type": "eq", "term": "i", "value": 17}, 1),
    ({"type": "gt", "term": "f", "value": 30.5}, 2),
    ({"type": "lt", "term": "d", "value": -33.0}, 1),
    ({"type": "lt-eq", "term": "m", "value": "7.00"}, 1),
    ({"type": "gt-eq", "term": "w", "value": "0.2400"}, 2),
    ({"type": "eq", "term": "b", "value": False}, 3),
    ({"type": "eq", "term": "day", "value": "2020-01-20"}, 1),
    ({"type": "lt", "term": "ts", "value": "1970-01-02T00:00:00+00:00"}, 1),
    ({"type": "not-null", "term": "who.name"}, 2),
    ({"type": "is-null", "term": "i"}, 5),
    ({"type": "is-null", "term": "id"}, 0),
    ({"type": "eq", "term": "s", "value": f"{12:040d}"}, 5),
    ({"type": "gt", "term": "s", "value": "1"}, 0),
    ({"type": "eq", "term": "who.age", "value": 39}, 1),
]


@pytest.mark.nightly
@pytest.mark.parametrize("properties", [{}, ENCRYPTED])
def test_bounds_of_every_type_spare_files(
    spark_lake: SparkLake, namespace: str, properties: dict[str, str]
) -> None:
    """In clear and encrypted alike."""
    table = f"{namespace}.t"
    create_table(spark_lake, table, TYPES, properties)
    spark_lake.rows(f"INSERT INTO {table} SELECT {VALUES} FROM range(0, 40, 1, 5)")
    assert planned_files(spark_lake, table) == 5
    assert [planned_files(spark_lake, table, filter=each) for each, _ in FILTERS] == [n for _, n in FILTERS]
    assert spark_lake.rows(f"SELECT id FROM {table} WHERE m <= 7 AND d < -6")[0].id == 7
