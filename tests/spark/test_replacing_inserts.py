"""INSERT INTO … REPLACE USING and REPLACE ON: rows of the table that match go, all rows of the query come.

The random statements of `test_row_commands` and `test_row_differential` have them, too.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.row_model import REPLACES
from tests.support.spark import SparkLake
from tests.support.spark_refusals import refusal, refused_as
from tests.support.spark_tables import create_table, stock_table
from tests.support.tables import ENCRYPTED

pytestmark = [pytest.mark.core, pytest.mark.skipif(not REPLACES, reason="Spark refuses it before 4.3.")]

#: What a statement leaves of (1, 'a'), (1, 'b'), (2, 'b'), (NULL, 'b') in a table partitioned by p.
STATEMENTS: dict[str, list[tuple[int | None, str | None]]] = {
    "INSERT INTO {} REPLACE USING (id) VALUES (1, 'z'), (1, 'z'), (7, 'z')": [
        (1, "z"),
        (1, "z"),
        (2, "b"),
        (7, "z"),
        (None, "b"),
    ],
    "INSERT INTO {} REPLACE USING (ID, p) SELECT 1, 'a' UNION ALL SELECT NULL, 'b'": [
        (1, "a"),
        (1, "b"),
        (2, "b"),
        (None, "b"),
        (None, "b"),
    ],
    "INSERT INTO {} BY NAME REPLACE USING (p) SELECT 'b' AS p, 9 AS id": [(1, "a"), (9, "b")],
    "INSERT INTO {} REPLACE USING (p) SELECT id + 10, p FROM {} WHERE p = 'b'": [
        (1, "a"),
        (11, "b"),
        (12, "b"),
        (None, "b"),
    ],
    "INSERT INTO {} REPLACE USING (p) SELECT 9, 'b' LIMIT 1": [(1, "a"), (9, "b")],
    "WITH q AS (SELECT 2 AS x, 'z' AS y) INSERT INTO {} REPLACE USING (id) SELECT x, y FROM q": [
        (1, "a"),
        (1, "b"),
        (2, "z"),
        (None, "b"),
    ],
    "INSERT INTO {} AS t REPLACE ON t.id <=> s.k (SELECT CAST(NULL AS INT) AS k, 'z' AS v) AS s": [
        (1, "a"),
        (1, "b"),
        (2, "b"),
        (None, "z"),
    ],
    "INSERT INTO {} t BY NAME REPLACE ON t.id < s.id AND t.p = 'b' (SELECT 'z' AS p, 2 AS id) s": [
        (1, "a"),
        (2, "b"),
        (2, "z"),
        (None, "b"),
    ],
    "INSERT INTO {} t REPLACE ON t.id = coalesce(s.k, raise_error('no key')) (SELECT 2 AS k, 'z') s": [
        (1, "a"),
        (1, "b"),
        (2, "z"),
        (None, "b"),
    ],
    "INSERT INTO {} REPLACE ON p = 'b' SELECT 9, 'z'": [(1, "a"), (9, "z")],
    "INSERT INTO {} REPLACE ON p = 'b' SELECT 9, 'z' WHERE false": [
        (1, "a"),
        (1, "b"),
        (2, "b"),
        (None, "b"),
    ],
    "INSERT INTO IDENTIFIER('{}') REPLACE ON true SELECT 9, 'z'": [(9, "z")],
}


@pytest.fixture(scope="module")
def table(spark_lake: SparkLake) -> str:
    """An encrypted table without rows, partitioned."""
    return _made(spark_lake, "copy-on-write")


def _made(spark_lake: SparkLake, mode: str) -> str:
    name = f"{spark_lake.namespace()}.t"
    properties = ENCRYPTED | {"encryption.columns": "lakewarden:id", "write.merge.mode": mode}
    create_table(spark_lake, name, "id INT, p STRING", properties, "p")
    return name


def _fill(spark_lake: SparkLake, table: str) -> None:
    spark_lake.rows(f"INSERT OVERWRITE {table} VALUES (1, 'a'), (1, 'b'), (2, 'b'), (NULL, 'b')")


def _rows(spark_lake: SparkLake, table: str) -> list[tuple[Any, ...]]:
    return sorted(map(tuple, spark_lake.rows(f"SELECT * FROM {table}")), key=str)


@pytest.mark.nightly
def test_rows_that_match_go_and_all_rows_come(spark_lake: SparkLake, table: str) -> None:
    for statement, left in STATEMENTS.items():
        _fill(spark_lake, table)
        before = len(stock_table(spark_lake, table).snapshots())
        spark_lake.rows(statement.replace("{}", table))
        assert _rows(spark_lake, table) == sorted(left, key=str), statement
        assert len(stock_table(spark_lake, table).snapshots()) - before == ("false" not in statement)


@pytest.mark.nightly
@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
def test_query_that_differs_each_time_deletes_and_inserts_the_same_rows(
    spark_lake: SparkLake, mode: str
) -> None:
    table = _made(spark_lake, mode)
    spark_lake.rows(f"INSERT OVERWRITE {table} SELECT id, 'old' FROM range(200)")
    for _ in range(2):
        spark_lake.rows(
            f"INSERT INTO {table} REPLACE USING (id) SELECT CAST(rand() * 200 AS INT), 'new' FROM range(50)"
        )
        rows = spark_lake.rows(f"SELECT id, count(DISTINCT p) AS kinds FROM {table} GROUP BY id")
        assert [row.kinds for row in rows] == [1] * 200


@pytest.mark.nightly
def test_columns_that_rows_bring_are_added(spark_lake: SparkLake) -> None:
    name = f"{spark_lake.namespace()}.t"
    spark_lake.rows(f"CREATE TABLE {name} (id INT NOT NULL, m MAP<STRING, INT>, d DOUBLE)")
    spark_lake.rows(f"INSERT INTO {name} VALUES (1, map('a', 1), -0.0D), (2, NULL, double('NaN'))")
    spark_lake.rows(f"INSERT INTO {name} REPLACE USING (d) VALUES (3, map('b', 2), 0.0D), (4, NULL, NULL)")
    spark_lake.rows(
        f"INSERT WITH SCHEMA EVOLUTION INTO {name} BY NAME REPLACE USING (id) SELECT 4 AS id, 'x' AS more"
    )
    found = spark_lake.rows(f"SELECT id, m, more FROM {name} ORDER BY id")
    assert found == [(2, None, None), (3, {"b": 2}, None), (4, None, "x")]
    refused_as(
        "NOT_NULL_ASSERT_VIOLATION",
        spark_lake.spark,
        f"INSERT INTO {name} REPLACE USING (d) VALUES (NULL, NULL, 0.0D, 'x')",
    )


@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize(
    ("statement", "condition"),
    [
        ("INSERT INTO {} REPLACE USING (nope) SELECT 1, 'a'", "REQUEST_INVALID"),
        ("INSERT INTO {} REPLACE USING (p) SELECT '1' AS p, 'a' AS id", "REQUEST_INVALID"),
        ("INSERT INTO {} BY NAME REPLACE USING (id) SELECT 'a' AS p", "REQUEST_INVALID"),
        ("INSERT INTO {} WITH ('branch' = 'x') REPLACE USING (id) SELECT 1, 'a'", "NOT_SUPPORTED_YET"),
        ("INSERT INTO {} WITH ('a' = 'b') REPLACE ON true SELECT 1, 'a'", "NOT_SUPPORTED_YET"),
        ("INSERT INTO {} REPLACE ON id IN (SELECT 1) SELECT 1, 'a'", "NOT_SUPPORTED_YET"),
        ("INSERT INTO {} REPLACE ON rand() < 2 SELECT 1, 'a'", "NOT_SUPPORTED_YET"),
        ("INSERT INTO {} t REPLACE ON t._file = 'x' SELECT 1, 'a'", "NOT_SUPPORTED_YET"),
        ("INSERT INTO {} REPLACE ON nope = 1 SELECT 1, 'a'", "UNRESOLVED_COLUMN.WITH_SUGGESTION"),
        ("INSERT INTO {} REPLACE ON id = 1 SELECT 1 AS id, 'a'", "AMBIGUOUS_REFERENCE"),
        ("INSERT INTO {} REPLACE USING (id) SELECT raise_error('broken'), 'a'", "USER_RAISED_EXCEPTION"),
        (
            "FROM (SELECT 1, 'a') INSERT INTO {} REPLACE USING (id) SELECT * "
            "INSERT INTO {} REPLACE USING (id) SELECT *",
            "UNSUPPORTED_FEATURE.TABLE_OPERATION",
        ),
        ("INSERT INTO {}.files REPLACE USING (file_path) SELECT * FROM {}.files", "NOT_SUPPORTED_YET"),
    ],
)
def test_statement_that_is_refused_changes_nothing(
    spark_lake: SparkLake, statement: str, condition: str
) -> None:
    name = f"{spark_lake.namespace()}.t"
    spark_lake.rows(f"CREATE TABLE {name} AS SELECT '1' AS id, 'a' AS p")
    before = stock_table(spark_lake, name).metadata_location
    refused_as(condition, spark_lake.spark, statement.replace("{}", name))
    assert stock_table(spark_lake, name).metadata_location == before


@pytest.mark.nightly
def test_tables_of_other_catalogs_are_left_to_spark(spark_lake: SparkLake) -> None:
    spark_lake.rows("CREATE TABLE spark_catalog.default.replacing (id INT) USING parquet")
    spark_lake.rows("CREATE TEMPORARY VIEW replacing_view AS SELECT 1 AS id")
    for name in ("spark_catalog.default.replacing", "replacing_view"):
        error = refusal(lambda each=name: spark_lake.rows(f"INSERT INTO {each} REPLACE USING (id) SELECT 1"))  # type: ignore[misc]
        assert not str(error.getCondition()).startswith("LAKEWARDEN")
