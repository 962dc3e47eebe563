"""Metadata tables have the columns and rows of Iceberg's own Spark runtime for the same plaintext table."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from catalog.metadata_tables.kinds import OF_SNAPSHOT, MetadataTable
from tests.support.iceberg_spark import IcebergSpark, iceberg_spark
from tests.support.lake import ALICE
from tests.support.spark import SparkLake

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

HISTORY = [
    "CREATE TABLE {t} (id BIGINT NOT NULL COMMENT 'its number', part STRING, price DECIMAL(9,2), x DOUBLE,"
    " f FLOAT, at TIMESTAMP, local TIMESTAMP_NTZ, day DATE, flag BOOLEAN, bytes BINARY, n INT,"
    " person STRUCT<name: STRING, tags: ARRAY<STRING>>, props MAP<STRING, INT>)"
    " USING iceberg PARTITIONED BY (part, days(at)) TBLPROPERTIES ('write.delete.mode' = 'merge-on-read')",
    "INSERT INTO {t} VALUES (1, 'a', 1.50, double('NaN'), float('-0.0'), TIMESTAMP '1969-12-31 23:59:59.5',"
    " TIMESTAMP_NTZ '0001-01-01 00:00:00', DATE '1582-10-04', true, X'00ff', -5,"
    " named_struct('name', 'Ann', 'tags', array('x', NULL)), map('k', 1)),"
    " (2, 'a', -0.01, double('Infinity'), NULL, TIMESTAMP '1969-12-31 12:00:00', NULL, NULL, NULL, NULL,"
    " NULL, NULL, NULL)",
    "INSERT INTO {t} (id, part, x) VALUES (3, NULL, 2.5), (4, 'b é', NULL)",
    "ALTER TABLE {t} CREATE TAG v1",
    "ALTER TABLE {t} ADD PARTITION FIELD bucket(4, id)",
    "ALTER TABLE {t} RENAME COLUMN x TO y",
    "INSERT INTO {t} (id, part, y) VALUES (5, 'b', 1.0), (6, 'c', 0.5), (7, 'c', 0.25)",
    "DELETE FROM {t} WHERE id = 1",
    "DELETE FROM {t} WHERE id = 6",
    "ALTER TABLE {t} CREATE BRANCH audit",
    "INSERT INTO {t}.branch_audit (id, part) VALUES (8, 'd')",
    "DELETE FROM {t} WHERE part = 'b'",
    "ALTER TABLE {t} DROP COLUMN f",
    "ALTER TABLE {t} DROP PARTITION FIELD days(at)",
    "ALTER TABLE {t} ADD PARTITION FIELD truncate(2, part)",
    "INSERT INTO {t} (id, part) VALUES (9, 'e')",
]
#: What both Sparks are asked for: the columns, and the rows in any order, as maps can be.
LOOK = """
import json
spark.conf.set("spark.sql.session.timeZone", "UTC")
frame = spark.sql(statement)
rows = [json.dumps(json.loads(row), sort_keys=True) for row in frame.toJSON().collect()]
answer = [frame.schema.json(), sorted(rows)]
"""


@pytest.fixture(scope="module")
def iceberg(spark_lake: SparkLake) -> Iterator[IcebergSpark]:
    """Iceberg's runtime on the same service."""
    with iceberg_spark(spark_lake.service, ALICE) as started:
        yield started


@pytest.fixture(scope="module")
def table(spark_lake: SparkLake, iceberg: IcebergSpark) -> str:
    """A plaintext table with every kind of change in its history, without a catalog's name."""
    name = f"{spark_lake.namespace().split('.')[1]}.t"
    iceberg.sql(*(each.replace("{t}", f"{ALICE}.{name}") for each in HISTORY))
    return name


def ours(spark_lake: SparkLake, statement: str) -> Any:
    names: dict[str, Any] = {"spark": spark_lake.new_session(), "statement": statement}
    exec(LOOK, names)
    return names["answer"]


def comparable(schema: str) -> Any:
    """Columns without what Iceberg notes for itself, and without what it requires of one that can be null."""
    found = json.loads(schema.replace('"__metadata_col":true,', ""))
    for column in found["fields"]:
        if column["name"] == "partition_summaries":
            del column["type"]["elementType"]["fields"][1]["nullable"]
    return found


@pytest.mark.parametrize("version", ["", " VERSION AS OF 'v1'", " VERSION AS OF 'audit'"])
@pytest.mark.parametrize("kind", list(MetadataTable))
def test_metadata_tables_are_those_of_iceberg(
    spark_lake: SparkLake, iceberg: IcebergSpark, table: str, kind: MetadataTable, version: str
) -> None:
    if version and kind not in OF_SNAPSHOT:
        pytest.skip("of all snapshots")
    statement = f"SELECT * FROM {{}}.{table}.{kind}{version}"
    columns, rows = ours(spark_lake, statement.format("lake"))
    their_columns, their_rows = iceberg.run(LOOK, statement=statement.format(ALICE))
    assert comparable(columns) == comparable(their_columns)
    assert rows == their_rows
    assert rows or version
