"""Plaintext columns, partitions and clusters of encrypted tables: what users get, and what storage shows."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import Row

import lakewarden
from tests.support.canary import files_below, unpacked
from tests.support.lake import ALICE
from tests.support.spark import CATALOG, SparkLake
from tests.support.spark_refusals import refused_as
from tests.support.spark_tables import (
    client_scan,
    create_table,
    data_files,
    local_path,
    planned_files,
    stock_table,
)
from tests.support.tables import ENCRYPTED

pytestmark = pytest.mark.core

VIOLATION = "ENCRYPTION_POLICY_VIOLATION"
SECRET = "canary-of-a-later-column"
PLAINTEXT = {"encryption.plaintext-columns": "day"}


def write_format(file_format: str) -> dict[str, str]:
    return {"write.format.default": file_format}


def location(spark_lake: SparkLake, table: str) -> Path:
    """Where a table lies."""
    return Path(stock_table(spark_lake, table).location().removeprefix("file://"))


@pytest.mark.parametrize("file_format", ["parquet", "orc"])
def test_a_plaintext_column_partitions_a_table_whose_later_columns_are_encrypted(
    spark_lake: SparkLake, namespace: str, file_format: str
) -> None:
    table = f"{namespace}.t"
    create_table(
        spark_lake, table, "id BIGINT, day STRING", {**PLAINTEXT, **write_format(file_format)}, "day"
    )
    spark_lake.rows(f"INSERT INTO {table} SELECT id, concat('d', id % 3) FROM range(9)")
    spark_lake.rows(f"ALTER TABLE {table} ADD COLUMNS (note STRING)")
    spark_lake.rows(f"INSERT INTO {table} VALUES (10, 'd1', '{SECRET}'), (11, 'd2', NULL)")
    assert planned_files(spark_lake, table) == 5
    day = {"type": "eq", "term": "day", "value": "d1"}
    assert planned_files(spark_lake, table, filter=day) == 2
    # One file without the value is skipped; what the files of before the column have of it is not known.
    assert planned_files(spark_lake, table, filter={"type": "eq", "term": "note", "value": SECRET}) == 4
    files = files_below(location(spark_lake, table))
    content = b"".join(map(unpacked, files))
    assert any("day=d1" in str(each) for each in files) and SECRET.encode() not in content
    assert spark_lake.rows(f"SELECT id, note FROM {table} WHERE day = 'd1' ORDER BY id DESC LIMIT 2") == [
        Row(id=10, note=SECRET),
        Row(id=7, note=None),
    ]
    spark_lake.rows(f"UPDATE {table} SET note = 'changed' WHERE day = 'd1' AND id > 4")
    spark_lake.rows(f"DELETE FROM {table} WHERE day = 'd0'")
    spark_lake.rows(f"ALTER TABLE {table} DROP PARTITION FIELD day")
    spark_lake.rows(f"ALTER TABLE {table} ADD PARTITION FIELD truncate(day, 2)")
    spark_lake.rows(f"INSERT INTO {table} VALUES (12, 'd1x', NULL)")
    found = spark_lake.rows(f"SELECT id, note FROM {table} WHERE day LIKE 'd1%' ORDER BY id")
    notes = [(1, None), (4, None), (7, "changed"), (10, "changed"), (12, None)]
    assert [tuple(each) for each in found] == notes
    by_note = f"ALTER TABLE {table} ADD PARTITION FIELD note"
    assert "cannot partition a table: 'note'" in refused_as(VIOLATION, spark_lake.spark, by_note)
    # Its values could be read in the order of the encrypted one.
    by_id = f"ALTER TABLE {table} WRITE ORDERED BY id"
    assert "values of 'day' in the order" in refused_as(VIOLATION, spark_lake.spark, by_id)


def test_partition_values_of_an_encrypted_column_are_plaintext_by_property_alone(
    spark_lake: SparkLake, namespace: str
) -> None:
    table = f"{namespace}.shown"
    statement = (
        f"CREATE TABLE {table} (id BIGINT, day STRING) USING iceberg PARTITIONED BY (day) TBLPROPERTIES "
    )
    sealed = statement + "('encryption.mechanism' = 'envelope')"
    assert "cannot partition a table: 'day'" in refused_as(VIOLATION, spark_lake.spark, sealed)
    spark_lake.rows(statement + "('encryption.partition-values' = 'plaintext')")
    shown = dict(map(tuple, spark_lake.rows(f"SHOW TBLPROPERTIES {table}")))
    assert shown["encryption.partition-values"] == "plaintext"
    spark_lake.rows(f"INSERT INTO {table} SELECT id, concat('d', id % 3) FROM range(9)")
    spark_lake.rows(
        f"MERGE INTO {table} USING (SELECT 1L AS id) AS s ON {table}.id = s.id WHEN MATCHED THEN DELETE"
    )
    assert planned_files(spark_lake, table, filter={"type": "eq", "term": "day", "value": "d1"}) == 1
    assert [each.id for each in spark_lake.rows(f"SELECT id FROM {table} WHERE day = 'd1' ORDER BY id")] == [
        4,
        7,
    ]
    spark_lake.rows(f"INSERT OVERWRITE {table} PARTITION (day = 'd1') SELECT 20L")
    assert client_scan(spark_lake, table).to_arrow().num_rows == 7


FILES, ROWS, PREFIX = 8, 400, "sealed-"


@pytest.fixture(scope="module")
def clustered(spark_lake: SparkLake) -> str:
    """A table without plaintext values, whose files are clustered by an encrypted column."""
    table = f"{spark_lake.namespace()}.clustered"
    create_table(spark_lake, table, "id BIGINT, ssn STRING", ENCRYPTED)
    spark_lake.rows(f"ALTER TABLE {table} WRITE ORDERED BY ssn, id DESC")
    session = spark_lake.new_session()
    session.conf.set("spark.sql.shuffle.partitions", FILES)
    session.conf.set("spark.sql.adaptive.coalescePartitions.enabled", "false")
    session.sql(
        f"INSERT INTO {table} SELECT id, printf('{PREFIX}%06d', id * 7919 % {ROWS}) FROM range({ROWS})"
    )
    return table


def test_sealed_bounds_skip_files_of_a_clustered_table(spark_lake: SparkLake, clustered: str) -> None:
    assert planned_files(spark_lake, clustered) == FILES
    for value in (0, 1, 57, 200, ROWS - 1):
        point = {"type": "eq", "term": "ssn", "value": f"{PREFIX}{value:06d}"}
        assert planned_files(spark_lake, clustered, filter=point) == 1
        found = spark_lake.rows(f"SELECT count(*) AS n FROM {clustered} WHERE ssn = '{PREFIX}{value:06d}'")
        assert found == [Row(n=1)]
    between = [
        {"type": "gt-eq", "term": "ssn", "value": f"{PREFIX}000100"},
        {"type": "lt", "term": "ssn", "value": f"{PREFIX}000150"},
    ]
    some = {"type": "and", "left": between[0], "right": between[1]}
    assert planned_files(spark_lake, clustered, filter=some) <= 1 + 2


def test_nothing_in_storage_shows_the_order_of_clustered_files(spark_lake: SparkLake, clustered: str) -> None:
    files = data_files(spark_lake, clustered)
    names = [local_path(each).name for each in files]
    assert all(re.fullmatch(r"[0-9a-f]{32}\.parquet", each) for each in names)
    # Random names: whatever order the entries had, that of the names tells nothing of it.
    assert names == sorted(names)
    assert len({local_path(each).parent for each in files}) == 1
    for each in files:
        assert each["partition"] == {} and each["sort_order_id"] == 1
        assert not each["lower_bounds"] and not each["upper_bounds"] and not each["column_sizes"]
    content = b"".join(map(unpacked, files_below(location(spark_lake, clustered))))
    assert b"sort-orders" in content and PREFIX.encode() not in content


def test_the_python_client_names_and_lists_files_as_randomly(spark_lake: SparkLake, namespace: str) -> None:
    table = f"{namespace}.client"
    create_table(spark_lake, table, "id BIGINT, day STRING", PLAINTEXT, "day")
    mine = lakewarden.connect(spark_lake.service.url, spark_lake.service.token(ALICE))
    rows = pa.table({"id": range(40), "day": [f"d{number // 5}" for number in range(40)]})
    mine.table(table.removeprefix(f"{CATALOG}.")).append(rows)
    names = [local_path(each).name for each in data_files(spark_lake, table)]
    assert len(names) == 8 and names == sorted(names)
    assert all(re.fullmatch(r"[0-9a-f]{32}\.parquet", each) for each in names)
    assert sorted(each.id for each in spark_lake.rows(f"SELECT id FROM {table} WHERE day = 'd2'")) == [
        *range(10, 15)
    ]
