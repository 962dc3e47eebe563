"""Encrypted Parquet files end before their parts cannot be numbered, or a key was used too often."""

from __future__ import annotations

import json

import pytest
from pyspark.errors import AnalysisException

from policy.write_settings import write_settings
from tests.support.spark import SparkLake
from tests.support.spark_tables import create_table, data_files, local_path
from tests.support.tables import ENCRYPTED

#: What 15 bits count to, and how often NIST lets a key be used with random nonces.
ORDINALS, USES = 1 << 15, 1 << 32
#: A part of a file has at least its length and a nonce.
LEAST_PART = 16


def limits(spark_lake: SparkLake, **properties: str) -> tuple[int, int, int]:
    """The rows of a row group, and the rows and bytes of a file, where a table has these properties."""
    jvm = spark_lake.spark.sparkContext._jvm
    write = jvm.org.apache.spark.sql.lakewarden.write
    named = {
        f"write.{name.replace('__', '.').replace('_', '-')}": value for name, value in properties.items()
    }
    answer = json.dumps(write_settings(named, "db.t"))
    mapper = jvm.com.fasterxml.jackson.databind.ObjectMapper()
    found = write.ModuleLimits.of(write.WriteSettings.of(mapper.readTree(answer)))
    return found.rowsInGroup(), found.rowsInFile(), found.bytesInFile()


def test_the_limits_bind_no_table_of_usual_settings(spark_lake: SparkLake) -> None:
    in_group, in_file, size = limits(spark_lake)
    assert in_group > 300_000_000 and in_file > 10**12 and size == 512 * 1024 * 1024


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("properties", "in_group", "in_file"),
    [
        ({"parquet__page_row_limit": "1"}, ORDINALS // 2, (ORDINALS // 2) ** 2),
        ({"parquet__page_size_bytes": "1"}, ORDINALS // 2 * 100, (ORDINALS // 2) ** 2 * 100),
        ({"parquet__row_group_size_bytes": "1"}, None, ORDINALS // 2 * 100),
    ],
)
def test_many_small_pages_or_row_groups_are_counted_by_rows(
    spark_lake: SparkLake, properties: dict[str, str], in_group: int | None, in_file: int
) -> None:
    found = limits(spark_lake, **properties)
    assert in_group is None or found[0] == in_group
    assert found[1] == in_file


def test_no_file_is_so_large_that_its_keys_could_have_been_used_too_often(spark_lake: SparkLake) -> None:
    *_, size = limits(spark_lake, target_file_size_bytes=str(1 << 62))
    assert size <= USES * LEAST_PART // 2


@pytest.mark.nightly
def test_a_row_group_ends_before_its_pages_cannot_be_numbered(spark_lake: SparkLake, namespace: str) -> None:
    """Parquet's writer alone fails here: one page for each 100 rows are more than it can number."""
    table = f"{namespace}.t"
    properties = ENCRYPTED | {"write.parquet.page-row-limit": "1", "write.parquet.dict-size-bytes": "1"}
    create_table(spark_lake, table, "id BIGINT", properties)
    spark_lake.rows(f"INSERT INTO {table} SELECT id FROM range(0, 17000, 1, 1)")
    (file,) = data_files(spark_lake, table)
    assert len(file["split_offsets"]) == 2
    assert spark_lake.rows(f"SELECT count(*), sum(id) FROM {table}") == [(17000, sum(range(17000)))]


@pytest.mark.nightly
def test_bloom_filters_are_written_of_the_columns_that_the_table_names(
    spark_lake: SparkLake, namespace: str
) -> None:
    """Nested ones too; a boolean has none, and a name without a column is passed over."""
    sizes = []
    for place, columns in enumerate(
        (["id"], ["id", "tags.element", "s.x", "m.value"], ["id", "flag", "absent"])
    ):
        table = f"{namespace}.t{place}"
        wanted = {f"write.parquet.bloom-filter-enabled.column.{name}": "true" for name in columns}
        types = "id BIGINT, tags ARRAY<STRING>, s STRUCT<x: INT>, m MAP<STRING, STRING>, flag BOOLEAN"
        create_table(spark_lake, table, types, wanted | {"write.parquet.bloom-filter-max-bytes": "4096"})
        spark_lake.rows(
            f"INSERT INTO {table} VALUES (1, array('a'), named_struct('x', 1), map('k', 'v'), true)"
        )
        (file,) = data_files(spark_lake, table)
        sizes.append(local_path(file).stat().st_size)
    assert sizes[1] - sizes[0] > 3 * 4000
    assert abs(sizes[2] - sizes[0]) < 100


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("enabled.column.id", "maybe"),
        ("fpp.column.id", "1"),
        ("ndv.column.id", "0"),
        ("max-bytes", str(1 << 30)),
    ],
)
def test_a_bloom_filter_that_cannot_be_made_is_refused(
    spark_lake: SparkLake, namespace: str, name: str, value: str
) -> None:
    table = f"{namespace}.t"
    wanted = {"enabled.column.id": "true", name: value}
    properties = {f"write.parquet.bloom-filter-{n}": v for n, v in wanted.items()}
    with pytest.raises(AnalysisException, match="PropertyInvalid"):
        create_table(spark_lake, table, "id BIGINT", properties)
        spark_lake.rows(f"INSERT INTO {table} VALUES (1)")
