"""Iceberg's statements in Spark: what each makes of the table's metadata, as pyiceberg reads it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow.parquet as pq
import pytest
from pyiceberg.table import Table

from tests.support.lake import CAROL, MASTER_KEY
from tests.support.spark import CATALOG, SparkLake
from tests.support.spark_refusals import refused_as
from tests.support.spark_tables import data_files, local_path, stock_table

pytestmark = pytest.mark.core

_DAY = 86_400_000


@pytest.fixture(scope="module")
def table(spark_lake: SparkLake) -> str:
    """A table with one snapshot, which the statements below alter one after the other."""
    name = f"{spark_lake.namespace()}.t"
    spark_lake.rows(
        f"CREATE TABLE {name} (id BIGINT NOT NULL, ts TIMESTAMP, `Odd ``name` STRING, f DOUBLE NOT NULL, "
        "s STRUCT<x: INT, y: INT> NOT NULL)"
    )
    spark_lake.rows(f"INSERT INTO {name} SELECT id, NULL, 'a', 0, named_struct('x', 1, 'y', 2) FROM range(2)")
    return name


def _partitioning(table: Table) -> list[str]:
    return [f"{each.field_id} {each.name} = {each.transform}" for each in table.spec().fields]


def _order(table: Table) -> list[str]:
    column = table.schema().find_column_name
    return [
        f"{each.transform}({column(each.source_id)}) {each.direction.name} {each.null_order.name}"
        for each in table.sort_order().fields
    ]


def _refs(table: Table) -> dict[str, tuple[str, int, int | None, int | None, int | None]]:
    return {
        name: (
            ref.snapshot_ref_type.value,
            table.metadata.snapshots.index(table.snapshot_by_id(ref.snapshot_id)),  # type: ignore[arg-type]
            ref.max_ref_age_ms,
            ref.min_snapshots_to_keep,
            ref.max_snapshot_age_ms,
        )
        for name, ref in table.metadata.refs.items()
        if name != "main"
    }


PARTITIONING = [
    ("ADD PARTITION FIELD bucket(16, id)", ["1000 id_bucket_16 = bucket[16]"]),
    ("ADD PARTITION FIELD days(ts) AS day", ["1000 id_bucket_16 = bucket[16]", "1001 day = day"]),
    ("DROP PARTITION FIELD id_bucket_16", ["1001 day = day"]),
    ("REPLACE PARTITION FIELD day WITH hours(TS)", ["1002 ts_hour = hour"]),
    ("drop\n partition -- of the time\n field /* by its */ hour(ts);", []),
    ("ADD PARTITION FIELD truncate(`Odd ``name`, 4) as `a b`", ["1003 a b = truncate[4]"]),
    ("DROP PARTITION FIELD truncate(4, `Odd ``name`)", []),
    ("ADD PARTITION FIELD s.x", ["1004 s.x = identity"]),
    ("REPLACE PARTITION FIELD s.x WITH s.x AS sx", ["1004 sx = identity"]),
    ("DROP PARTITION FIELD s.x", []),
    ("ADD PARTITION FIELD BUCKET(16, ID)", ["1000 id_bucket_16 = bucket[16]"]),
    ("DROP PARTITION FIELD bucket(16, id)", []),
]

ORDER = [
    ("WRITE ORDERED BY id", ["identity(id) ASC NULLS_FIRST"], "range"),
    ("WRITE LOCALLY ORDERED BY id DESC", ["identity(id) DESC NULLS_LAST"], "range"),
    (
        "WRITE ORDERED BY (bucket(4, id) ASC NULLS LAST, s.Y DESC NULLS FIRST)",
        ["bucket[4](id) ASC NULLS_LAST", "identity(s.y) DESC NULLS_FIRST"],
        "range",
    ),
    ("WRITE DISTRIBUTED BY PARTITION", [], "hash"),
    ("WRITE UNORDERED", [], "none"),
    (
        "WRITE DISTRIBUTED BY PARTITION LOCALLY ORDERED BY days(ts), id",
        ["day(ts) ASC NULLS_FIRST", "identity(id) ASC NULLS_FIRST"],
        "hash",
    ),
    ("WRITE LOCALLY ORDERED BY id DISTRIBUTED BY PARTITION", ["identity(id) ASC NULLS_FIRST"], "hash"),
    ("WRITE UNORDERED", [], "none"),
]

IDENTIFIERS = [
    ("SET IDENTIFIER FIELDS id", {"id"}),
    ("DROP IDENTIFIER FIELDS ID", set()),
    ("SET IDENTIFIER FIELDS `id`", {"id"}),
    ("DROP IDENTIFIER FIELDS id", set[str]()),
]

REFS = [
    ("CREATE BRANCH b", {"b": ("branch", 1, None, None, None)}),
    ("CREATE BRANCH IF NOT EXISTS b RETAIN 9 DAYS", {"b": ("branch", 1, None, None, None)}),
    (
        "CREATE OR REPLACE BRANCH b RETAIN 2 DAYS WITH SNAPSHOT RETENTION 3 SNAPSHOTS 4 DAYS",
        {"b": ("branch", 1, 2 * _DAY, 3, 4 * _DAY)},
    ),
    (
        "REPLACE BRANCH b AS OF VERSION {first} WITH SNAPSHOT RETENTION 5 SNAPSHOTS",
        {"b": ("branch", 0, 2 * _DAY, 5, 4 * _DAY)},
    ),
    ("DROP BRANCH b", {}),
    ("DROP BRANCH IF EXISTS b", {}),
    ("CREATE TAG `v 1` AS OF VERSION {first} RETAIN 120 MINUTES", {"v 1": ("tag", 0, 7_200_000, None, None)}),
    ("REPLACE TAG `v 1`", {"v 1": ("tag", 1, 7_200_000, None, None)}),
    ("CREATE TAG IF NOT EXISTS `v 1` AS OF VERSION {first}", {"v 1": ("tag", 1, 7_200_000, None, None)}),
    ("DROP TAG `v 1`", {}),
    ("DROP TAG IF EXISTS `v 1`", {}),
    (
        "CREATE OR REPLACE BRANCH c WITH SNAPSHOT RETENTION 1 HOURS",
        {"c": ("branch", 1, None, None, 3_600_000)},
    ),
    ("DROP BRANCH c", {}),
]


def test_partition_fields(spark_lake: SparkLake, table: str) -> None:
    for statement, expected in PARTITIONING:
        spark_lake.rows(f"ALTER TABLE {table} {statement}")
        assert _partitioning(stock_table(spark_lake, table)) == expected, statement


@pytest.mark.nightly
def test_order_and_distribution_of_writes(spark_lake: SparkLake, table: str) -> None:
    for statement, expected, distribution in ORDER:
        spark_lake.rows(f"ALTER TABLE {table} {statement}")
        found = stock_table(spark_lake, table)
        assert _order(found) == expected, statement
        assert found.properties["write.distribution-mode"] == distribution, statement


@pytest.mark.nightly
def test_identifier_fields(spark_lake: SparkLake, table: str) -> None:
    for statement, expected in IDENTIFIERS:
        spark_lake.rows(f"ALTER TABLE {table} {statement}")
        assert stock_table(spark_lake, table).schema().identifier_field_names() == expected, statement


@pytest.mark.nightly
def test_branches_and_tags(spark_lake: SparkLake, table: str) -> None:
    spark_lake.rows(f"INSERT INTO {table} SELECT 7, NULL, 'a', 0, named_struct('x', 1, 'y', 2)")
    first = stock_table(spark_lake, table).metadata.snapshots[0].snapshot_id
    for statement, expected in REFS:
        spark_lake.rows(f"ALTER TABLE {table} {statement.format(first=first)}")
        assert _refs(stock_table(spark_lake, table)) == expected, statement


@pytest.mark.nightly
def test_statement_that_cannot_be_carried_out_changes_nothing(spark_lake: SparkLake, table: str) -> None:
    before = stock_table(spark_lake, table).metadata_location
    for condition, statement in (
        ("REQUEST_INVALID", "ADD PARTITION FIELD absent"),
        ("REQUEST_INVALID", "DROP PARTITION FIELD absent"),
        ("REQUEST_INVALID", "DROP PARTITION FIELD bucket(3, id)"),
        ("REQUEST_INVALID", "ADD PARTITION FIELD days(id)"),
        ("REQUEST_INVALID", "WRITE ORDERED BY absent"),
        ("REQUEST_INVALID", "WRITE ORDERED BY s"),
        ("REQUEST_INVALID", "SET IDENTIFIER FIELDS f"),
        ("REQUEST_INVALID", "SET IDENTIFIER FIELDS id, s.x"),
        ("REQUEST_INVALID", "DROP IDENTIFIER FIELDS id"),
        ("REQUEST_INVALID", "CREATE BRANCH main"),
        ("REQUEST_INVALID", "CREATE TAG x AS OF VERSION 77"),
        ("REQUEST_INVALID", "REPLACE BRANCH x"),
        ("REQUEST_INVALID", "DROP TAG main"),
        ("REQUEST_INVALID", "DROP BRANCH main"),
        ("REQUEST_INVALID", "DROP BRANCH x"),
        ("PARSE_SYNTAX_ERROR", "ADD PARTITION FIELD zorder(id)"),
        ("PARSE_SYNTAX_ERROR", "ADD PARTITION FIELD bucket(0, id)"),
        ("PARSE_SYNTAX_ERROR", "ADD PARTITION FIELD id,"),
        ("PARSE_SYNTAX_ERROR", "WRITE"),
        ("PARSE_SYNTAX_ERROR", "WRITE UNORDERED ORDERED BY id"),
        ("PARSE_SYNTAX_ERROR", "SET IDENTIFIER FIELDS"),
        ("PARSE_SYNTAX_ERROR", "CREATE TAG x WITH SNAPSHOT RETENTION 3 SNAPSHOTS"),
        ("PARSE_SYNTAX_ERROR", "REPLACE TAG IF EXISTS x"),
        ("PARSE_SYNTAX_ERROR", "CREATE BRANCH x RETAIN 99999999999999999 DAYS"),
        ("PARSE_SYNTAX_ERROR", "DROP BRANCH x; DROP BRANCH y"),
        ("PARSE_SYNTAX_ERROR", "CREATE BRANCH 'x'"),
    ):
        refused_as(condition, spark_lake.spark, f"ALTER TABLE {table} {statement}")
    spark_lake.rows(f"EXPLAIN EXTENDED ALTER TABLE {table} CREATE BRANCH never")
    assert stock_table(spark_lake, table).metadata_location == before


@pytest.fixture
def current(spark_lake: SparkLake, table: str) -> Iterator[str]:
    """The table's name where its namespace is the current one."""
    catalog, namespace, name = table.split(".")
    spark_lake.rows(f"USE {catalog}.{namespace}")
    yield name
    spark_lake.rows("USE spark_catalog.default")


@pytest.mark.nightly
def test_name_stands_for_the_table_that_spark_means(spark_lake: SparkLake, current: str, table: str) -> None:
    catalog, namespace, name = table.split(".")
    for spelled in (current, f"{namespace}.{name}", f"`{catalog}`.`{namespace}` . {name}"):
        spark_lake.rows(f"ALTER TABLE {spelled} CREATE TAG x")
        spark_lake.rows(f"/* as /* well */ */ alter -- \\\n still a comment\n TABLE {spelled} DROP TAG x ;; ")
    refused_as("TABLE_OR_VIEW_NOT_FOUND", spark_lake.spark, f"ALTER TABLE {current}x CREATE TAG x")


@pytest.mark.nightly
def test_statements_of_other_catalogs_are_left_to_the_next_parser(spark_lake: SparkLake, table: str) -> None:
    for text in (
        "ALTER TABLE spark_catalog.default.t ADD PARTITION FIELD id",
        "ALTER TABLE t CREATE BRANCH b",
        "EXPLAIN ALTER TABLE default.t WRITE UNORDERED",
        "ALTER TABLE IDENTIFIER('lake.n.t') DROP TAG x",
        f"EXPLAIN EXPLAIN ALTER TABLE {table} DROP TAG x",
    ):
        message = refused_as("PARSE_SYNTAX_ERROR", spark_lake.spark, text)
        assert "unknown transform" not in message
    for statement in (
        "ADD COLUMN partition INT",
        "DROP COLUMN partition",
        "SET TBLPROPERTIES ('x' = 'WRITE')",
    ):
        spark_lake.rows(f"ALTER TABLE {table} {statement}")


@pytest.mark.nightly
def test_privileges_are_those_of_the_catalog(spark_lake: SparkLake) -> None:
    spark_lake.rows(f"CREATE NAMESPACE IF NOT EXISTS {CATALOG}.db")
    name = f"{CATALOG}.db.iceberg_ddl"
    spark_lake.rows(f"CREATE TABLE {name} AS SELECT 1 AS id")
    for statement in (
        "ADD PARTITION FIELD id",
        "WRITE ORDERED BY id",
        "CREATE BRANCH b",
        "CREATE TAG b",
        "DROP TAG IF EXISTS b",
    ):
        refused_as("NOT_AUTHORIZED", spark_lake.session(CAROL), f"ALTER TABLE {name} {statement}")


@pytest.mark.nightly
def test_encrypted_columns_neither_partition_nor_sort(spark_lake: SparkLake, namespace: str) -> None:
    name = f"{namespace}.secret"
    spark_lake.rows(
        f"CREATE TABLE {name} (id INT, pay INT) TBLPROPERTIES ('encryption.columns' = '{MASTER_KEY}:pay')"
    )
    for statement in ("ADD PARTITION FIELD pay", "WRITE ORDERED BY pay", "WRITE LOCALLY ORDERED BY id, pay"):
        refused_as("ENCRYPTION_POLICY_VIOLATION", spark_lake.spark, f"ALTER TABLE {name} {statement}")
    spark_lake.rows(f"ALTER TABLE {name} ADD PARTITION FIELD id")


#: The order, how many files a write makes of three partitions, and by what the rows of a file are sorted.
WRITES: list[tuple[str, int | None, Callable[[int], object]]] = [
    ("WRITE ORDERED BY id DESC NULLS FIRST", None, lambda number: -number),
    (
        "WRITE DISTRIBUTED BY PARTITION LOCALLY ORDERED BY truncate(10, id), id DESC",
        3,
        lambda number: (number // 10, -number),
    ),
    ("WRITE ORDERED BY part DESC, id", None, lambda number: number),
]


@pytest.mark.nightly
def test_writes_follow_order_and_distribution(spark_lake: SparkLake, namespace: str) -> None:
    """The rows of a file lie in the table's order, and the file names the order."""
    name = f"{namespace}.ordered"
    rows = "SELECT /*+ REPARTITION(3) */ id * 7919 % 100 AS id, id % 3 AS part FROM range(100)"
    spark_lake.rows(f"CREATE TABLE {name} (id BIGINT, part BIGINT) PARTITIONED BY (part)")
    known: set[str] = set()
    for statement, files, key in WRITES:
        spark_lake.rows(f"ALTER TABLE {name} {statement}")
        spark_lake.rows(f"INSERT INTO {name} {rows}")
        written = [each for each in data_files(spark_lake, name) if each["file_path"] not in known]
        known.update(each["file_path"] for each in written)
        order_id = stock_table(spark_lake, name).metadata.default_sort_order_id
        assert order_id > 0
        assert {each["sort_order_id"] for each in written} == {order_id}, statement
        assert files in (None, len(written)), statement
        for each in written:
            found = pq.read_table(local_path(each), columns=["id"])["id"].to_pylist()
            assert found == sorted(found, key=key), statement
    spark_lake.rows(f"ALTER TABLE {name} WRITE UNORDERED")
    spark_lake.rows(f"INSERT INTO {name} {rows}")
    orders = {
        each["sort_order_id"] for each in data_files(spark_lake, name) if each["file_path"] not in known
    }
    assert orders <= {None, 0}


@pytest.mark.nightly
def test_columns_are_replaced(spark_lake: SparkLake, namespace: str) -> None:
    name = f"{namespace}.replaced"
    spark_lake.rows(f"CREATE TABLE {name} AS SELECT 1 AS id, 'a' AS name")
    spark_lake.rows(f"ALTER TABLE {name} REPLACE COLUMNS (name STRING, more INT)")
    assert spark_lake.rows(f"SELECT * FROM {name}") == [(None, None)]
    assert {each.field_id for each in stock_table(spark_lake, name).schema().fields} == {3, 4}
