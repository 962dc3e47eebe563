"""Plaintext columns, partitions and clusters of encrypted tables: what users get, and what storage shows."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc
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
PLAINTEXT = {"encryption.plaintext-columns": "day"}


def location(spark_lake: SparkLake, table: str) -> Path:
    """Where a table lies."""
    return Path(stock_table(spark_lake, table).location().removeprefix("file://"))


def keyless(file: Path) -> set[str]:
    """The columns whose values a reader without keys gets."""
    if file.suffix == ".orc":
        rows = orc.read_table(file)
        return {name for name in rows.column_names if rows[name].null_count < rows.num_rows}
    shown = set()
    for name in pq.read_schema(file).names:
        with suppress(OSError):
            pq.read_table(file, columns=[name], partitioning=None)
            shown.add(name)
    return shown


@pytest.mark.parametrize(
    "properties",
    [
        {"encryption.footer": "plaintext"},
        pytest.param({"write.format.default": "orc"}, marks=pytest.mark.nightly),
    ],
)
def test_a_plaintext_column_partitions_a_table_whose_later_columns_are_encrypted(
    spark_lake: SparkLake, namespace: str, properties: dict[str, str]
) -> None:
    table = f"{namespace}.t"
    create_table(spark_lake, table, "id BIGINT, day STRING", {**PLAINTEXT, **properties}, "day")
    spark_lake.rows(f"INSERT INTO {table} SELECT id, concat('d', id % 3) FROM range(9)")
    spark_lake.rows(f"ALTER TABLE {table} ADD COLUMNS (note STRING)")
    spark_lake.rows(f"INSERT INTO {table} VALUES (10, 'd1', 'x'), (11, 'd2', NULL)")
    day = {"type": "eq", "term": "day", "value": "d1"}
    assert planned_files(spark_lake, table, filter=day) == 2
    # One file without the value is skipped; what the files of before the column have of it is not known.
    assert planned_files(spark_lake, table, filter={"type": "eq", "term": "note", "value": "x"}) == 4
    assert {column for file in data_files(spark_lake, table) for column in keyless(local_path(file))} == {
        "day"
    }
    spark_lake.rows(f"UPDATE {table} SET note = 'changed' WHERE day = 'd1' AND id > 4")
    found = spark_lake.rows(f"SELECT id, note FROM {table} WHERE day = 'd1' ORDER BY id")
    assert [tuple(each) for each in found] == [(1, None), (4, None), (7, "changed"), (10, "changed")]


@pytest.mark.nightly
def test_partition_fields_of_plaintext_columns_come_and_go(spark_lake: SparkLake, namespace: str) -> None:
    table = f"{namespace}.evolving"
    create_table(spark_lake, table, "id BIGINT, day STRING", PLAINTEXT)
    spark_lake.rows(f"ALTER TABLE {table} ADD PARTITION FIELD truncate(day, 2)")
    spark_lake.rows(f"INSERT INTO {table} VALUES (1, 'd1x'), (2, 'd1y'), (3, 'd2x')")
    assert len(data_files(spark_lake, table)) == 2
    spark_lake.rows(f"DELETE FROM {table} WHERE day = 'd1y'")
    assert [each.id for each in spark_lake.rows(f"SELECT id FROM {table} ORDER BY id")] == [1, 3]
    for change, why in (
        ("ADD PARTITION FIELD id", "cannot partition a table: 'id'"),
        # Its values could be read in the order of the encrypted one.
        ("WRITE ORDERED BY id", "values of 'day' in the order"),
    ):
        assert why in refused_as(VIOLATION, spark_lake.spark, f"ALTER TABLE {table} {change}")


@pytest.mark.nightly
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


FILES, ROWS, PREFIX = 16, 400, "sealed-"


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


@pytest.mark.nightly
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
    assert planned_files(spark_lake, clustered, filter=some) <= 50 // (ROWS // FILES) + 2


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


@pytest.mark.nightly
def test_the_times_of_clustered_files_do_not_follow_their_values(
    spark_lake: SparkLake, clustered: str
) -> None:
    least = spark_lake.rows(f"SELECT _file, min(ssn) AS ssn FROM {clustered} GROUP BY _file ORDER BY ssn")
    times = [Path(each["_file"].removeprefix("file://")).stat().st_mtime_ns for each in least]
    places = [sorted(times).index(each) for each in times]
    distances = sum((place - expected) ** 2 for expected, place in enumerate(places))
    # Spearman's coefficient: by chance, it is beyond this once in a million times.
    assert abs(1 - 6 * distances / (FILES * (FILES**2 - 1))) < 0.9


@pytest.mark.nightly
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
