"""Files written anew by somebody who has the footer's data key, and not that of a column.

He may read the columns in clear, and write the table's directory. What he writes under a file's name is
refused where it would be read for a column that he has no key of, or have other rows than the table's.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import catalog
from catalog.client import footers, thrift
from catalog.client.encrypting import KeyedWriter
from catalog.client.footers import FileKeys
from catalog.client.scan import Scan
from policy.location import Location
from tests.support.lake import ALICE
from tests.support.spark import SparkLake
from tests.support.spark_refusals import refused_as
from tests.support.spark_tables import create_table, data_files, local_path, master_keys

Change = Callable[[thrift.Struct], None]
QUERIES = ("SELECT count(n), min(n), count(*) FROM {}", "SELECT sum(n) FROM {}", "SELECT id FROM {}")


def _list(kind: int, elements: list[object]) -> thrift.Value:
    return thrift.Value(thrift.LIST, thrift.Items(kind, elements))


def _name_stands_twice(footer: thrift.Struct) -> None:
    """The third column, `other`, gets the name of the second."""
    for element in footer.structs(2):
        if element.get(4, thrift.BINARY) == b"other":
            element.fields[4] = thrift.Value(thrift.BINARY, b"n")
    for group in footer.structs(4):
        for chunk in group.structs(1):
            told = chunk.get(3, thrift.STRUCT)
            if list(told.get(3, thrift.LIST).elements) == [b"other"]:
                told.fields[3] = _list(thrift.BINARY, [b"n"])


def _no_row_group(footer: thrift.Struct) -> None:
    footer.fields[3] = thrift.Value(thrift.I64, 0)
    footer.fields[4] = _list(thrift.STRUCT, [])


@pytest.fixture
def table(spark_lake: SparkLake, namespace: str) -> str:
    """A table whose column `n` has a key of its own; one file."""
    master_keys(spark_lake, "pii")
    name = f"{namespace}.t"
    clear = {"write.parquet.compression-codec": "uncompressed"}
    create_table(spark_lake, name, "id BIGINT, n BIGINT", {"encryption.columns": "pii:n"} | clear)
    spark_lake.rows(f"INSERT INTO {name} SELECT /*+ COALESCE(1) */ id, id * 7 FROM range(2000)")
    return name


def forge(spark_lake: SparkLake, table: str, patch: pytest.MonkeyPatch, change: Change) -> None:
    """Write the table's file anew, all in clear below a right footer, with its name and size."""
    mine = catalog.connect(spark_lake.service.url, spark_lake.service.token(ALICE))
    scan = mine.table(table.split(".", 1)[1]).scan()
    plan = scan._plan()
    (file,) = plan.files
    location = plan.location(file)
    keys = dataclasses.replace(plan.keys(file, location), columns={})
    path = local_path(data_files(spark_lake, table)[0])
    size, filling, seal = path.stat().st_size, [0], footers.sealed

    def sealed(metadata: thrift.Struct, *with_key: object) -> bytes:
        change(metadata)
        filler = {1: thrift.Value(thrift.BINARY, b"f"), 2: thrift.Value(thrift.BINARY, b"x" * filling[0])}
        metadata.fields[5] = _list(thrift.STRUCT, [thrift.Struct(filler)])
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
        writer = KeyedWriter(stream, rows.schema, keys, 1 << 20, {"compression": "none"})
        writer.write_batch(rows.to_batches()[0], len(rows))
        writer.close()
    return path.stat().st_size


@pytest.mark.parametrize(
    ("change", "rule"),
    [(_name_stands_twice, "field-id"), (_no_row_group, "record-count")],
    ids=["name twice", "no rows"],
)
def test_a_file_with_a_footer_of_somebody_elses_is_refused(
    spark_lake: SparkLake, table: str, monkeypatch: pytest.MonkeyPatch, change: Change, rule: str
) -> None:
    (honest,) = spark_lake.rows(QUERIES[0].format(table))
    assert tuple(honest) == (2000, 0, 2000)
    forge(spark_lake, table, monkeypatch, change)
    for query in QUERIES:
        assert f"rule={rule}" in refused_as("DECRYPTION_REFUSED", spark_lake.spark, query.format(table))
