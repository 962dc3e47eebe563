"""What is not supported yet says so, and has no half effect."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.support.spark import SparkLake
from tests.support.spark_refusals import refusal, refused_as
from tests.support.spark_tables import stock_table
from tests.support.vectors import each_row

Check = Callable[[], None]

pytestmark = pytest.mark.core


@pytest.fixture(scope="module")
def table(spark_lake: SparkLake) -> str:
    """A table with two rows."""
    name = f"{spark_lake.namespace()}.t"
    spark_lake.rows(f"CREATE TABLE {name} AS SELECT CAST(id AS INT) AS id FROM range(2)")
    return name


@pytest.fixture
def unchanged(spark_lake: SparkLake, table: str) -> Iterator[Check]:
    """Checks that the namespace has this table alone, in the same state; in the end, that it has its rows."""
    namespace = table.rpartition(".")[0]
    before = stock_table(spark_lake, table).metadata_location

    def check() -> None:
        assert stock_table(spark_lake, table).metadata_location == before
        assert len(spark_lake.rows(f"SHOW TABLES IN {namespace}")) == 1

    yield check
    assert sorted(spark_lake.rows(f"SELECT * FROM {table}")) == [(0,), (1,)]


@each_row(
    "statement",
    [
        "REPLACE TABLE {} (id VARIANT)",
        "CREATE OR REPLACE TABLE {} USING csv AS SELECT 1 AS id",
        "CREATE TABLE {}_2 (id INT) USING avro",
        "CREATE TABLE {}_2 USING csv AS SELECT 1 AS id",
        "CREATE TABLE {}_2 (id INT) CLUSTER BY (id)",
        "CREATE TABLE {}_2 (id VARIANT)",
        "CREATE TABLE {}_2 (id INTERVAL DAY TO SECOND)",
        "ALTER TABLE {} ADD COLUMN v VARIANT",
        "ALTER TABLE {} ADD COLUMN v INTERVAL YEAR TO MONTH",
        "ALTER TABLE {} ADD COLUMN v INT DEFAULT 3",
        "ALTER TABLE {} ALTER COLUMN id SET DEFAULT 3",
        "ALTER TABLE {} ALTER COLUMN id SET NOT NULL",
        "ALTER TABLE {} DEFAULT COLLATION UTF8_LCASE",
    ],
)
def test_statement_is_refused_with_the_typed_error(
    spark_lake: SparkLake, table: str, unchanged: Check, statement: str
) -> None:
    message = refused_as("NOT_SUPPORTED_YET", spark_lake.spark, statement.format(table))
    assert "[rule=" in message
    unchanged()


@pytest.mark.nightly
@each_row(
    "statement",
    [
        "CREATE TABLE {}_2 (id INT DEFAULT 3)",
        "CREATE TABLE {}_2 (id TIME)",
        "ALTER TABLE {} ADD COLUMN at TIME",
        "ALTER TABLE {} REPLACE COLUMNS (id INT DEFAULT 3)",
        "BEGIN ALTER TABLE {} CREATE TAG x; END",
        "CREATE TABLE {}_2 (id INT, twice INT GENERATED ALWAYS AS (id * 2))",
        "CREATE TABLE {}_2 (id INT CHECK (id > 0))",
        "ALTER TABLE {} ADD CONSTRAINT positive CHECK (id > 0)",
        "ALTER TABLE {} ADD PARTITION (id = 1)",
        "ANALYZE TABLE {} COMPUTE STATISTICS",
    ],
)
def test_what_spark_itself_refuses(
    spark_lake: SparkLake, table: str, unchanged: Check, statement: str
) -> None:
    refusal(lambda: spark_lake.rows(statement.replace("{}", table)))
    unchanged()
