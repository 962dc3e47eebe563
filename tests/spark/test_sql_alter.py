"""ALTER TABLE: columns, properties, names."""

from __future__ import annotations

import pytest

from tests.support.lake import ALICE, BOB, CAROL
from tests.support.spark import CATALOG, SparkLake
from tests.support.spark_refusals import refused_as
from tests.support.spark_tables import data_files, stock_table

pytestmark = pytest.mark.core


@pytest.fixture
def empty(spark_lake: SparkLake, namespace: str) -> str:
    """A table without rows."""
    name = f"{namespace}.t"
    spark_lake.rows(f"CREATE TABLE {name} (id INT NOT NULL, name STRING, s STRUCT<x: INT, y: INT>)")
    return name


@pytest.fixture
def table(spark_lake: SparkLake, empty: str) -> str:
    """A table with two rows."""
    spark_lake.rows(
        f"INSERT INTO {empty} VALUES (1, 'a', named_struct('x', 10, 'y', 100)), "
        "(2, 'b', named_struct('x', 20, 'y', 200))"
    )
    return empty


def _columns(spark_lake: SparkLake, table: str) -> list[tuple[str, str]]:
    return [(row[0], row[1]) for row in spark_lake.rows(f"DESCRIBE {table}")]


def _properties(spark_lake: SparkLake, table: str) -> dict[str, str]:
    return {row[0]: row[1] for row in spark_lake.rows(f"SHOW TBLPROPERTIES {table}")}


def test_columns_are_added_where_they_are_wanted(spark_lake: SparkLake, table: str) -> None:
    spark_lake.rows(f"ALTER TABLE {table} ADD COLUMNS (z BIGINT COMMENT 'last', first DATE FIRST)")
    spark_lake.rows(f"ALTER TABLE {table} ADD COLUMN mid ARRAY<STRUCT<q: INT>> AFTER id")
    spark_lake.rows(f"ALTER TABLE {table} ADD COLUMN s.m INT FIRST")
    spark_lake.rows(f"ALTER TABLE {table} ADD COLUMN mid.element.r STRING")
    assert _columns(spark_lake, table) == [
        ("first", "date"),
        ("id", "int"),
        ("mid", "array<struct<q:int,r:string>>"),
        ("name", "string"),
        ("s", "struct<m:int,x:int,y:int>"),
        ("z", "bigint"),
    ]
    rows = spark_lake.rows(f"SELECT first, id, s.m, s.y, z FROM {table} WHERE s.y > 100")
    assert rows == [(None, 2, None, 200, None)]


@pytest.mark.nightly
def test_columns_are_renamed_moved_and_described(spark_lake: SparkLake, table: str) -> None:
    spark_lake.rows(f"ALTER TABLE {table} RENAME COLUMN name TO label")
    spark_lake.rows(f"ALTER TABLE {table} RENAME COLUMN s.x TO w")
    spark_lake.rows(f"ALTER TABLE {table} ALTER COLUMN s FIRST")
    spark_lake.rows(f"ALTER TABLE {table} ALTER COLUMN label AFTER s")
    spark_lake.rows(f"ALTER TABLE {table} ALTER COLUMN label COMMENT 'what it is called'")
    assert [name for name, _ in _columns(spark_lake, table)] == ["s", "label", "id"]
    assert spark_lake.rows(f"DESCRIBE {table}")[1][2] == "what it is called"
    assert spark_lake.rows(f"SELECT label, s.w FROM {table} WHERE label = 'b'") == [("b", 20)]


@pytest.mark.nightly
def test_dropped_column_that_is_added_again_is_empty(spark_lake: SparkLake, table: str) -> None:
    spark_lake.rows(f"ALTER TABLE {table} DROP COLUMNS (name, s.y)")
    spark_lake.rows(f"ALTER TABLE {table} ADD COLUMNS (name STRING, s.y INT)")
    rows = spark_lake.rows(f"SELECT id, name, s.x, s.y FROM {table} WHERE name IS NULL AND s.y IS NULL")
    assert sorted(rows) == [(1, None, 10, None), (2, None, 20, None)]
    spark_lake.rows(f"ALTER TABLE {table} DROP COLUMN IF EXISTS absent")


@pytest.mark.nightly
def test_columns_are_found_as_spark_compares_names(spark_lake: SparkLake, empty: str) -> None:
    spark_lake.rows(f"ALTER TABLE {empty} RENAME COLUMN NAME TO Label")
    spark_lake.rows(f"ALTER TABLE {empty} ADD COLUMN z INT AFTER ID")
    spark_lake.rows(f"ALTER TABLE {empty} DROP COLUMN S.X")
    assert _columns(spark_lake, empty) == [
        ("id", "int"),
        ("z", "int"),
        ("Label", "string"),
        ("s", "struct<y:int>"),
    ]


@pytest.mark.nightly
def test_types_widen(spark_lake: SparkLake, table: str) -> None:
    spark_lake.rows(f"ALTER TABLE {table} ALTER COLUMN id TYPE BIGINT")
    spark_lake.rows(f"INSERT INTO {table} VALUES (5000000000, 'c', NULL)")
    assert sorted(spark_lake.rows(f"SELECT id FROM {table}")) == [(1,), (2,), (5_000_000_000,)]
    refused_as(
        "NOT_SUPPORTED_CHANGE_COLUMN", spark_lake.spark, f"ALTER TABLE {table} ALTER COLUMN id TYPE INT"
    )


@pytest.mark.nightly
def test_not_null_is_dropped_and_not_set(spark_lake: SparkLake, table: str) -> None:
    spark_lake.rows(f"ALTER TABLE {table} ALTER COLUMN id DROP NOT NULL")
    spark_lake.rows(f"INSERT INTO {table} VALUES (NULL, 'c', NULL)")
    assert spark_lake.spark.table(table).where("id IS NULL").count() == 1
    refused_as("REQUEST_INVALID", spark_lake.spark, f"ALTER TABLE {table} ADD COLUMN must INT NOT NULL")
    refused_as("NOT_SUPPORTED_YET", spark_lake.spark, f"ALTER TABLE {table} ALTER COLUMN id SET DEFAULT 3")
    assert len(_columns(spark_lake, table)) == 3


@pytest.mark.nightly
def test_changes_of_one_statement_are_one_commit(spark_lake: SparkLake, empty: str) -> None:
    before = stock_table(spark_lake, empty).metadata_location
    alter = f"ALTER TABLE {empty} ADD COLUMNS (good INT, bad VARIANT)"
    refused_as("NOT_SUPPORTED_YET", spark_lake.spark, alter)
    assert stock_table(spark_lake, empty).metadata_location == before


@pytest.mark.nightly
def test_properties_are_set_and_unset(spark_lake: SparkLake, empty: str) -> None:
    spark_lake.rows(f"ALTER TABLE {empty} SET TBLPROPERTIES ('a' = '1', 'b' = '2')")
    spark_lake.rows(f"ALTER TABLE {empty} UNSET TBLPROPERTIES ('a')")
    spark_lake.rows(f"COMMENT ON TABLE {empty} IS 'mine'")
    shown = _properties(spark_lake, empty)
    assert shown["b"] == "2"
    assert "a" not in shown
    described = {row[0]: row[1] for row in spark_lake.rows(f"DESCRIBE EXTENDED {empty}")}
    assert described["Comment"] == "mine"


@pytest.mark.nightly
def test_widening_the_allowed_list_needs_storage_rights(spark_lake: SparkLake) -> None:
    spark_lake.rows(f"CREATE NAMESPACE IF NOT EXISTS {CATALOG}.bobs")
    spark_lake.rows(f"CREATE TABLE {CATALOG}.bobs.mine (id INT)", BOB)
    own = _properties(spark_lake, f"{CATALOG}.bobs.mine")["read.allowed.data.paths"]
    foreign = f"file://{spark_lake.lake.warehouse}/others"
    widen = (
        f"ALTER TABLE {CATALOG}.bobs.mine SET TBLPROPERTIES ('read.allowed.data.paths' = '{own}, {foreign}')"
    )
    refused_as("NOT_AUTHORIZED", spark_lake.session(BOB), widen)
    assert _properties(spark_lake, f"{CATALOG}.bobs.mine")["read.allowed.data.paths"] == own
    spark_lake.rows(widen, ALICE)
    shown = {row[0]: row[1] for row in spark_lake.rows(f"SHOW TBLPROPERTIES {CATALOG}.bobs.mine", BOB)}
    assert foreign in shown["read.allowed.data.paths"]


@pytest.mark.nightly
def test_encryption_is_switched_on_for_what_is_written_next(spark_lake: SparkLake, table: str) -> None:
    spark_lake.rows(f"ALTER TABLE {table} SET TBLPROPERTIES ('encryption.mechanism' = 'envelope')")
    spark_lake.rows(f"INSERT INTO {table} VALUES (3, 'c', NULL)")
    assert _properties(spark_lake, table)["encryption.mechanism"] == "envelope"
    assert sorted(spark_lake.rows(f"SELECT id, name FROM {table}")) == [(1, "a"), (2, "b"), (3, "c")]


@pytest.mark.nightly
def test_location_moves_by_policy(spark_lake: SparkLake) -> None:
    spark_lake.rows(f"CREATE NAMESPACE IF NOT EXISTS {CATALOG}.bobs")
    name, elsewhere = f"{CATALOG}.bobs.moved", f"file://{spark_lake.lake.root}/moved"
    spark_lake.rows(f"CREATE TABLE {name} (id INT)", BOB)
    location = stock_table(spark_lake, name).location()
    move = f"ALTER TABLE {name} SET LOCATION '{elsewhere}'"
    refused_as("NOT_AUTHORIZED", spark_lake.session(BOB), move)
    assert stock_table(spark_lake, name).location() == location
    spark_lake.rows(
        f"ALTER TABLE {name} SET TBLPROPERTIES ('read.allowed.data.paths' = '{location}, {elsewhere}')"
    )
    spark_lake.rows(move)
    spark_lake.rows(f"INSERT INTO {name} VALUES (1)", BOB)
    assert spark_lake.rows(f"SELECT * FROM {name}", BOB) == [(1,)]
    assert data_files(spark_lake, name)[0]["file_path"].startswith(elsewhere)


@pytest.mark.nightly
def test_whoever_may_only_read_changes_nothing(spark_lake: SparkLake) -> None:
    spark_lake.rows(f"CREATE NAMESPACE IF NOT EXISTS {CATALOG}.db")
    name = f"{CATALOG}.db.unchanged"
    spark_lake.rows(f"CREATE TABLE {name} (id INT)")
    carol = spark_lake.session(CAROL)
    for change in ("ADD COLUMN x INT", "SET TBLPROPERTIES ('a' = 'b')", "RENAME TO taken"):
        refused_as("NOT_AUTHORIZED", carol, f"ALTER TABLE {name} {change}")
    refused_as("NOT_AUTHORIZED", carol, f"DROP TABLE {name}")
    assert _columns(spark_lake, name) == [("id", "int")]


@pytest.mark.nightly
def test_table_is_renamed(spark_lake: SparkLake, table: str, namespace: str) -> None:
    spark_lake.rows(f"ALTER TABLE {table} RENAME TO u")
    assert [row[1] for row in spark_lake.rows(f"SHOW TABLES IN {namespace}")] == ["u"]
    other = spark_lake.namespace()
    spark_lake.rows(f"ALTER TABLE {namespace}.u RENAME TO {other.removeprefix(f'{CATALOG}.')}.v")
    assert spark_lake.rows(f"SHOW TABLES IN {namespace}") == []
    assert len(spark_lake.rows(f"SELECT * FROM {other}.v")) == 2


@pytest.mark.nightly
def test_table_is_not_renamed_to_what_is_taken_or_unclear(
    spark_lake: SparkLake, table: str, namespace: str
) -> None:
    spark_lake.rows(f"CREATE TABLE {namespace}.u (id INT)")
    alice = spark_lake.spark
    refused_as("TABLE_OR_VIEW_ALREADY_EXISTS", alice, f"ALTER TABLE {table} RENAME TO u")
    refused_as("REQUEST_INVALID", alice, f"ALTER TABLE {table} RENAME TO {namespace}.w")
    refused_as("SCHEMA_NOT_FOUND", alice, f"ALTER TABLE {table} RENAME TO absent.w")
    refused_as("TABLE_OR_VIEW_NOT_FOUND", alice, f"ALTER TABLE {namespace}.absent RENAME TO w")
    assert len(spark_lake.rows(f"SELECT * FROM {table}")) == 2
