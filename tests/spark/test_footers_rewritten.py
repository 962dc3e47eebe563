"""Files from before there were digests of footers, rewritten by a user who has the footer's key.

The user has no column's key, can read the columns in plaintext, and can write the table's directory. What
they write under a file's name is refused where it would be read for a column without its key, or have other
rows than the table's.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pyarrow as pa
import pytest

from catalog.client import footers, thrift
from catalog.client.encrypting import KeyedWriter
from catalog.client.footers import FileKeys
from catalog.client.scan import Scan
from catalog.writes import data_files
from policy.location.location import Location
from tests.support.forged_footers import Edit, decimal, element, forged_in_size, listed, structure, typed
from tests.support.spark import SparkLake
from tests.support.spark_refusals import refused_as
from tests.support.spark_tables import client_scan, create_table, master_keys, only_file

QUERIES = ("SELECT count(n), min(n), count(*) FROM {}", "SELECT sum(n) FROM {}", "SELECT id FROM {}")


@pytest.fixture(autouse=True)
def before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Key metadata as it was then."""
    monkeypatch.setattr(data_files, "_footer_digest", lambda *_: None)


def _name_stands_twice(footer: thrift.Struct) -> None:
    """The third column, `other`, gets the name of the second."""
    element(footer, b"other").fields[4] = thrift.Value(thrift.BINARY, b"n")
    for group in footer.structs(4):
        for chunk in group.structs(1):
            told = chunk.get(3, thrift.STRUCT)
            if list(told.get(3, thrift.LIST).elements) == [b"other"]:
                told.fields[3] = listed(thrift.BINARY, [b"n"])


def _no_row_group(footer: thrift.Struct) -> None:
    footer.fields[3] = thrift.Value(thrift.I64, 0)
    footer.fields[4] = listed(thrift.STRUCT, [])


def _left_out(footer: thrift.Struct) -> None:
    """The last column, `at`, is gone from the schema and from every row group."""
    columns = footer.structs(2)
    columns[0].fields[5] = thrift.Value(thrift.I32, len(columns) - 2)
    footer.fields[2] = listed(thrift.STRUCT, columns[:-1])
    for group in footer.structs(4):
        group.fields[1] = listed(thrift.STRUCT, group.structs(1)[:-1])
    footer.fields.pop(7, None)


def _another_scale(footer: thrift.Struct) -> None:
    """What is 1.20 would be 120."""
    decimal(footer, b"price", 7, 0)


def _another_unit(footer: thrift.Struct) -> None:
    """Microseconds would be milliseconds."""
    unit = structure({1: structure({})})
    typed(footer, b"at", 9, {8: structure({1: thrift.Value(thrift.TRUE, True), 2: unit})})


def _by_an_old_spark(footer: thrift.Struct) -> None:
    said = {1: b"org.apache.spark.version", 2: b"2.4.0"}
    fields = {number: thrift.Value(thrift.BINARY, text) for number, text in said.items()}
    footer.fields[5] = listed(thrift.STRUCT, [thrift.Struct(fields)])


@pytest.fixture
def table(spark_lake: SparkLake, namespace: str) -> str:
    """A table whose column `n` has a key of its own; one file."""
    master_keys(spark_lake, "pii")
    name = f"{namespace}.t"
    clear = {"write.parquet.compression-codec": "uncompressed"}
    create_table(spark_lake, name, "id BIGINT, n BIGINT", {"encryption.columns": "pii:n"} | clear)
    spark_lake.rows(f"INSERT INTO {name} SELECT /*+ COALESCE(1) */ id, id * 7 FROM range(2000)")
    return name


def forge(spark_lake: SparkLake, table: str, patch: pytest.MonkeyPatch, change: Edit) -> None:
    """Write the table's file anew, all in plaintext below a right footer, with its name and size."""
    scan = client_scan(spark_lake, table)
    plan = scan._plan()
    (file,) = plan.files
    location = plan.location(file)
    keys = dataclasses.replace(plan.keys(file, location), columns={})
    path = only_file(spark_lake, table)
    size, filling, seal = path.stat().st_size, [0], footers.sealed

    def sealed(metadata: thrift.Struct, *with_key: object) -> bytes:
        change(metadata)
        filler = {1: thrift.Value(thrift.BINARY, b"f"), 2: thrift.Value(thrift.BINARY, b"x" * filling[0])}
        metadata.fields[5] = listed(thrift.STRUCT, [thrift.Struct(filler)])
        metadata.fields = dict(sorted(metadata.fields.items()))
        return seal(metadata, *with_key)

    patch.setattr(footers, "sealed", sealed)
    fields = [
        pa.field(name, pa.int64(), metadata={"PARQUET:field_id": str(field_id)})
        for name, field_id in (("id", 1), ("n", 2), ("other", 99))
    ]
    rows = pa.table([[1, 2], [-666, 666], [-666, 666]], schema=pa.schema(fields))
    while (missing := size - _write(scan, location, keys, path, rows)) != 0:
        filling[0] += missing


def _write(scan: Scan, location: Location, keys: FileKeys, path: Path, rows: pa.Table) -> int:
    """Write a file over another one; its size."""
    path.unlink()
    with scan.storage.open_output(location) as stream:
        writer = KeyedWriter(stream, rows.schema, keys, {"compression": "none"})
        writer.write_table(rows, len(rows))
        writer.close()
    return path.stat().st_size


@pytest.mark.parametrize(
    ("change", "rule"),
    [(_left_out, "column-key"), (_another_scale, "column-type"), (_another_unit, "column-type")],
)
def test_a_column_with_a_key_that_is_left_out_or_described_otherwise(
    spark_lake: SparkLake, namespace: str, change: Edit, rule: str
) -> None:
    master_keys(spark_lake, "pii")
    name = f"{namespace}.t"
    columns = "id BIGINT, price DECIMAL(9, 2), at TIMESTAMP"
    create_table(spark_lake, name, columns, {"encryption.columns": "pii:price,at"})
    spark_lake.rows(f"INSERT INTO {name} VALUES (1, 1.20, TIMESTAMP '2024-01-01 00:00:00')")
    query = f"SELECT price, at FROM {name}"
    assert str(spark_lake.rows(query)[0][0]) == "1.20"
    only_file(spark_lake, name).write_bytes(forged_in_size(client_scan(spark_lake, name), change))
    assert f"rule={rule}" in refused_as("DECRYPTION_REFUSED", spark_lake.spark, query)


def test_dates_under_a_key_are_not_of_another_calendar(spark_lake: SparkLake, namespace: str) -> None:
    """Of a file that an old Spark says to have written, dates of long ago would be others."""
    master_keys(spark_lake, "pii")
    name = f"{namespace}.t"
    create_table(spark_lake, name, "id BIGINT, born DATE", {"encryption.columns": "pii:born"})
    spark_lake.rows(f"INSERT INTO {name} VALUES (1, DATE '1000-01-01')")
    only_file(spark_lake, name).write_bytes(forged_in_size(client_scan(spark_lake, name), _by_an_old_spark))
    assert [str(each.born) for each in spark_lake.rows(f"SELECT born FROM {name}")] == ["1000-01-01"]


@pytest.mark.parametrize(
    ("change", "rule"),
    [(_name_stands_twice, "field-id"), (_no_row_group, "record-count")],
    ids=["name twice", "no rows"],
)
def test_a_file_with_a_footer_of_somebody_elses_is_refused(
    spark_lake: SparkLake, table: str, monkeypatch: pytest.MonkeyPatch, change: Edit, rule: str
) -> None:
    (honest,) = spark_lake.rows(QUERIES[0].format(table))
    assert tuple(honest) == (2000, 0, 2000)
    forge(spark_lake, table, monkeypatch, change)
    for query in QUERIES:
        assert f"rule={rule}" in refused_as("DECRYPTION_REFUSED", spark_lake.spark, query.format(table))
