"""Pages of Parquet files have as many rows as the table says; dictionaries are given up before they end."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from tests.support.spark import SparkLake
from tests.support.spark_tables import create_table, data_files, local_path

ROWS = 130_000
COLUMNS = "few STRING, own BIGINT, turning BIGINT, empty STRING, several ARRAY<BIGINT>"
#: Few values; one for each row; one for each row at first, and few later; none; two for each row.
VALUES = f"""
    SELECT concat('c', id % 4), id * 7919, if(id < 30000, id * 7919, 0), CAST(NULL AS STRING),
           array(id, id + {ROWS})
    FROM range(0, {ROWS}, 1, 1)"""


def written(spark_lake: SparkLake, properties: dict[str, str]) -> list[tuple[list[int], bool]]:
    """Of each column of a file with one row group: with which rows its pages begin, and whether it has a
    dictionary."""
    table = f"{spark_lake.namespace()}.t"
    create_table(spark_lake, table, COLUMNS, properties)
    spark_lake.rows(f"INSERT INTO {table} {VALUES}")
    (file,) = data_files(spark_lake, table)
    jvm: Any = spark_lake.spark.sparkContext._jvm
    hadoop = jvm.org.apache.parquet.hadoop
    path = jvm.org.apache.hadoop.fs.Path(str(local_path(file)))
    opened = hadoop.ParquetFileReader.open(
        hadoop.util.HadoopInputFile.fromPath(path, jvm.org.apache.hadoop.conf.Configuration())
    )
    try:
        (group,) = opened.getRowGroups()
        return [
            (first_rows(opened.readOffsetIndex(column)), column.hasDictionaryPage())
            for column in group.getColumns()
        ]
    finally:
        opened.close()


def first_rows(index: Any) -> list[int]:
    return [index.getFirstRowIndex(page) for page in range(index.getPageCount())]


@pytest.fixture(scope="module")
def usual(spark_lake: SparkLake) -> list[tuple[list[int], bool]]:
    """A file of a table that says nothing of its pages."""
    return written(spark_lake, {})


def test_pages_have_as_many_rows_in_every_column(usual: list[tuple[list[int], bool]]) -> None:
    """Whether values are few or distinct; the first page is no shorter."""
    few, own, turning, empty, _ = (rows for rows, _ in usual)
    assert few == own == turning == empty == [0, 50_000, 100_000]


@pytest.mark.nightly
def test_a_dictionary_is_given_up_before_the_first_page_ends(usual: list[tuple[list[int], bool]]) -> None:
    """By all the values of its first page, `turning` would have one."""
    assert [dictionary for _, dictionary in usual] == [True, False, False, False, False]


@pytest.mark.nightly
def test_pages_are_as_the_table_says(spark_lake: SparkLake) -> None:
    few, own, *_ = written(spark_lake, {"write.parquet.page-row-limit": "1000"})
    assert few[0] == own[0] == list(range(0, ROWS, 1000))
    few, own, *_ = written(spark_lake, {"write.parquet.page-size-bytes": "100000"})
    assert max(later - row for row, later in pairwise(own[0])) <= 100_000 / 8
