"""Tables that let stock readers in: stock Spark and PyArrow read what Spark wrote, with keys from the door.

The clients are those of docs/stock-readers.md. Readers of ours go on believing the manifest alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.lake import ALICE, BOB, CAROL, policy, standard_policies
from tests.support.spark import SparkLake
from tests.support.spark_tables import create_table, data_files
from tests.support.stock_readers import with_pyarrow, with_spark

pytestmark = pytest.mark.core

STOCK = {"encryption.stock-readers": "true"}
COLUMN_KEYS = {**STOCK, "encryption.columns": "pii:ssn;hr:salary"}
COLUMNS = "id BIGINT, name STRING, ssn STRING, salary BIGINT"
ROWS = "SELECT id, concat('n', id), concat('s', id), id * 10 FROM range(0, 4, 1, 2)"
ALL = ["id", "name", "ssn", "salary"]


@pytest.fixture(scope="module")
def tables(spark_lake: SparkLake) -> Iterator[dict[str, list[str]]]:
    """The files of a table under one key and of one with column keys. Carol may not have the salaries."""
    for key in ("pii", "hr"):
        spark_lake.lake.kms.create_master_key(key)
    spark_lake.rows("CREATE NAMESPACE IF NOT EXISTS lake.stock")
    files = {}
    for name, properties in {"whole": STOCK, "keyed": COLUMN_KEYS}.items():
        create_table(spark_lake, f"lake.stock.{name}", COLUMNS, properties)
        spark_lake.rows(f"INSERT INTO lake.stock.{name} {ROWS}")
        files[name] = paths(spark_lake, f"lake.stock.{name}")
    read = {"database": ["stock"], "table": ["*"], "column": ["id", "name", "ssn"]}
    rules = [
        policy("stock-carol", read, {CAROL: ["select"]}),
        policy("stock-keys", {"key": ["lakewarden", "pii", "hr"]}, {CAROL: ["release"]}),
        policy("stock-bob", {**read, "column": ["*"]}, {BOB: ["select"]}),
    ]
    spark_lake.lake.set_policies([*standard_policies(), *rules])
    yield files
    spark_lake.lake.set_policies(standard_policies())


def paths(spark_lake: SparkLake, table: str) -> list[str]:
    """Where a table's files lie."""
    return sorted(file["file_path"].removeprefix("file://") for file in data_files(spark_lake, table))


def expected(columns: list[str]) -> list[list[Any]]:
    rows = [{"id": n, "name": f"n{n}", "ssn": f"s{n}", "salary": n * 10} for n in range(4)]
    return [[row[column] for column in columns] for row in rows]


def arrow_rows(spark_lake: SparkLake, user: str, files: list[str], columns: list[str]) -> list[list[Any]]:
    token = spark_lake.service.token(user)
    first, rows = with_pyarrow(spark_lake.service.url, token, files, columns)
    assert 0 < first.num_rows < 4
    return sorted([list(row.values()) for row in rows.to_pylist()])


@pytest.mark.parametrize("table", ["whole", "keyed"])
def test_stock_pyarrow_reads_with_keys_from_the_door(
    spark_lake: SparkLake, tables: dict[str, list[str]], table: str
) -> None:
    assert arrow_rows(spark_lake, ALICE, tables[table], ALL) == expected(ALL)


def test_stock_pyarrow_gets_the_columns_that_its_user_may_have(
    spark_lake: SparkLake, tables: dict[str, list[str]]
) -> None:
    mine = ["id", "name", "ssn"]
    assert arrow_rows(spark_lake, CAROL, tables["keyed"], mine) == expected(mine)
    with pytest.raises(OSError, match="salary"):
        arrow_rows(spark_lake, CAROL, tables["keyed"], ["salary"])
    # One key opens everything: who may not have a column has none.
    with pytest.raises((OSError, PermissionError), match="carol may not do this"):
        arrow_rows(spark_lake, CAROL, tables["whole"], ["id"])
    # Bob may select all and release nothing.
    with pytest.raises((OSError, PermissionError), match="bob may not do this"):
        arrow_rows(spark_lake, BOB, tables["keyed"], ["id"])


@pytest.mark.slow
def test_stock_spark_reads_with_keys_from_the_door(
    spark_lake: SparkLake, tables: dict[str, list[str]], tmp_path: Path
) -> None:
    token = spark_lake.service.token
    mine = ["id", "name", "ssn"]
    whole, keyed, some, salaries, denied, released = with_spark(
        tmp_path,
        spark_lake.service.url,
        [
            (token(ALICE), tables["whole"], ALL),
            (token(ALICE), tables["keyed"], ALL),
            (token(CAROL), tables["keyed"], mine),
            (token(CAROL), tables["keyed"], ["salary"]),
            (token(CAROL), tables["whole"], ["id"]),
            (token(BOB), tables["keyed"], ["id"]),
        ],
    )
    assert (whole, keyed, some) == (expected(ALL), expected(ALL), expected(mine))
    assert "salary" in salaries
    assert "carol may not do this" in denied
    assert "bob may not do this" in released
