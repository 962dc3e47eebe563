"""Encryption rules at Spark's doors: CREATE, CREATE … AS SELECT, ALTER TABLE, RENAME."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.rules import put_rules, rule
from tests.support.spark import CATALOG, SparkLake
from tests.support.spark_refusals import refused_as

_VIOLATION = "ENCRYPTION_POLICY_VIOLATION"
_SAFE = "TBLPROPERTIES ('encryption.mechanism' = 'envelope')"


@pytest.fixture
def ruled(spark_lake: SparkLake, namespace: str) -> Iterator[str]:
    """A namespace in which salaries are encrypted."""
    database = namespace.removeprefix(f"{CATALOG}.")
    put_rules(spark_lake.lake, rule("salaries", databases=[database], columns=["salary"]))
    yield namespace
    put_rules(spark_lake.lake)


@pytest.mark.parametrize(
    "columns", ["(id INT, Salary INT)", "(id INT, terms STRUCT<pay: ARRAY<STRUCT<salary: INT>>>)"]
)
def test_a_table_is_created_encrypted_or_not_at_all(spark_lake: SparkLake, ruled: str, columns: str) -> None:
    told = refused_as(_VIOLATION, spark_lake.spark, f"CREATE TABLE {ruled}.t {columns}")
    assert "Encryption rule 'salaries'" in told and "Set encryption.mechanism=envelope." in told
    spark_lake.rows(f"CREATE TABLE {ruled}.t {columns} {_SAFE}")


@pytest.mark.nightly
def test_a_select_brings_its_columns(spark_lake: SparkLake, ruled: str) -> None:
    query = "SELECT 1 AS id, 2 AS salary"
    refused_as(_VIOLATION, spark_lake.spark, f"CREATE TABLE {ruled}.t AS {query}")
    assert spark_lake.rows(f"SHOW TABLES IN {ruled}") == []
    spark_lake.rows(f"CREATE TABLE {ruled}.t {_SAFE} AS {query}")
    assert spark_lake.rows(f"SELECT * FROM {ruled}.t") == [(1, 2)]


@pytest.mark.nightly
def test_a_table_is_altered_and_renamed_within_the_rules(spark_lake: SparkLake, ruled: str) -> None:
    table, spark = f"{ruled}.t", spark_lake.spark
    spark_lake.rows(f"CREATE TABLE {table} (id INT, note STRING)")
    refused_as(_VIOLATION, spark, f"ALTER TABLE {table} ADD COLUMN SALARY INT")
    refused_as(_VIOLATION, spark, f"ALTER TABLE {table} RENAME COLUMN note TO salary")
    elsewhere = spark_lake.namespace()
    spark_lake.rows(f"CREATE TABLE {elsewhere}.paid (salary INT)")
    target = table.removeprefix(f"{CATALOG}.").replace(".t", ".paid")
    refused_as(_VIOLATION, spark, f"ALTER TABLE {elsewhere}.paid RENAME TO {target}")
    spark_lake.rows(f"ALTER TABLE {table} SET {_SAFE}")
    spark_lake.rows(f"ALTER TABLE {table} ADD COLUMN salary INT")
    spark_lake.rows(f"ALTER TABLE {table} RENAME COLUMN salary TO note2")
    plain = f"ALTER TABLE {table} SET TBLPROPERTIES ('encryption.mechanism' = 'plaintext')"
    assert "'note2', formerly 'salary'," in refused_as(_VIOLATION, spark, plain)
