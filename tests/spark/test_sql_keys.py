"""CALL of the procedures on keys: the catalog is asked as the session's user, its answer shown as rows."""

from __future__ import annotations

import pytest

from catalog.base.identifiers import TableName
from tests.support.lake import ALICE, BOB, MASTER_KEY, policy, standard_policies, tables
from tests.support.spark import CATALOG, SparkLake
from tests.support.spark_refusals import refused_as

pytestmark = pytest.mark.core


@pytest.fixture
def table(spark_lake: SparkLake, namespace: str) -> str:
    """An encrypted table with a row, in two files."""
    name = f"{namespace}.t"
    spark_lake.rows(f"CREATE TABLE {name} (id INT) TBLPROPERTIES ('encryption.mechanism' = 'envelope')")
    spark_lake.rows(f"INSERT INTO {name} SELECT CAST(id AS INT) FROM range(1, 3, 1, 2)")
    return name


def _below(table: str) -> str:
    """The table's name without the catalog's."""
    return table.removeprefix(f"{CATALOG}.")


def _call(spark_lake: SparkLake, procedure: str, table: str, user: str = ALICE) -> list[tuple[object, ...]]:
    rows = spark_lake.rows(f"CALL {CATALOG}.system.{procedure}(table => '{table}')", user)
    return [tuple(row) for row in rows]


def _versions(spark_lake: SparkLake, table: str) -> dict[int, str]:
    """The versions of the table's one PEK, with their states."""
    namespace, _, name = _below(table).rpartition(".")
    services = spark_lake.lake.services
    record = services.loader.load(TableName((namespace,), name)).record
    return {pek.version: str(pek.state) for pek in services.keyring.records(record)}


def test_a_rotated_key_is_shown_with_both_versions(spark_lake: SparkLake, table: str) -> None:
    frame = spark_lake.spark.sql(f"CALL {CATALOG}.system.rotate_key(table => '{_below(table)}')")
    assert [(each.name, each.dataType.simpleString()) for each in frame.schema] == [
        ("id", "string"),
        ("master_key_id", "string"),
        ("version", "int"),
        ("previous_version", "int"),
    ]
    ((pek_id, master, version, previous),) = frame.collect()
    shown = spark_lake.rows(f"SHOW TBLPROPERTIES {table} ('encryption.pek-id')")
    assert (pek_id, master, version, previous) == (shown[0][1], MASTER_KEY, 2, 1)
    assert _versions(spark_lake, table) == {1: "decrypt-only", 2: "active"}
    spark_lake.rows(f"INSERT INTO {table} VALUES (3)")
    assert sorted(spark_lake.rows(f"SELECT * FROM {table}")) == [(1,), (2,), (3,)]


@pytest.mark.nightly
def test_one_call_is_one_rotation(spark_lake: SparkLake, table: str) -> None:
    frame = spark_lake.spark.sql(f"CALL {CATALOG}.system.rotate_key('{table}')")
    for _ in range(2):
        frame.collect()
    spark_lake.rows(f"EXPLAIN CALL {CATALOG}.system.rotate_key(table => '{_below(table)}')")
    assert sorted(_versions(spark_lake, table)) == [1, 2]


@pytest.mark.nightly
def test_rewrapped_branches_are_shown_and_readable(spark_lake: SparkLake, table: str) -> None:
    _call(spark_lake, "rotate_key", _below(table))
    ((branch, snapshot_id, manifests, files, lost),) = _call(spark_lake, "rewrap_keys", table)
    assert (branch, manifests > 0, files, lost) == ("main", True, 2, 0)
    loaded = spark_lake.lake.catalog().load_table(_below(table))
    assert loaded.metadata.current_snapshot_id == snapshot_id
    assert sorted(spark_lake.rows(f"SELECT * FROM {table}")) == [(1,), (2,)]
    assert _call(spark_lake, "rewrap_keys", _below(table)) == [("main", None, 0, 0, 0)]


@pytest.mark.nightly
def test_whoever_may_not_rotate_is_refused_by_name(spark_lake: SparkLake, table: str) -> None:
    """ALTER alone is not enough: `rotate` on the master key is needed too."""
    lake = spark_lake.lake
    for more in ([], [policy("bob-alters", tables("*"), {BOB: ["alter", "select"]})]):
        lake.set_policies([*standard_policies(), *more])
        try:
            for procedure in ("rotate_key", "rewrap_keys"):
                statement = f"CALL {CATALOG}.system.{procedure}(table => '{_below(table)}')"
                refused_as("NOT_AUTHORIZED", spark_lake.session(BOB), statement)
        finally:
            lake.set_policies(standard_policies())
    assert list(_versions(spark_lake, table)) == [1]


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("arguments", "condition"),
    [
        ("table => 'absent.t'", "TABLE_OR_VIEW_NOT_FOUND"),
        ("table => 'lake.absent.t'", "TABLE_OR_VIEW_NOT_FOUND"),
        ("table => 't'", "REQUEST_INVALID"),
        ("table => ''", "REQUEST_INVALID"),
        ("table => 'a..b'", "REQUEST_INVALID"),
        ("table => 'a.b; DROP TABLE c'", "REQUEST_INVALID"),
        ("table => CAST(NULL AS STRING)", "REQUEST_INVALID"),
        ("", "REQUIRED_PARAMETER_NOT_FOUND"),
        ("table => 'a.b', force => true", "UNRECOGNIZED_PARAMETER_NAME"),
    ],
)
def test_what_names_no_table_is_refused(spark_lake: SparkLake, arguments: str, condition: str) -> None:
    message = refused_as(condition, spark_lake.spark, f"CALL {CATALOG}.system.rotate_key({arguments})")
    assert ("[rule=identifier]" in message) is (condition == "REQUEST_INVALID")


@pytest.mark.nightly
def test_a_plaintext_table_has_no_key_to_rotate(spark_lake: SparkLake, namespace: str) -> None:
    spark_lake.rows(f"CREATE TABLE {namespace}.plain (id INT)")
    name = _below(f"{namespace}.plain")
    refused_as("REQUEST_INVALID", spark_lake.spark, f"CALL {CATALOG}.system.rotate_key(table => '{name}')")


@pytest.mark.nightly
def test_names_are_parsed_as_sql_does(spark_lake: SparkLake, namespace: str) -> None:
    spark_lake.rows(
        f"CREATE TABLE {namespace}.`a b` (id INT) TBLPROPERTIES ('encryption.mechanism' = 'envelope')"
    )
    ((_, _, version, _),) = _call(spark_lake, "ROTATE_KEY", f"{_below(namespace)}.`a b`")
    assert version == 2


@pytest.mark.nightly
def test_procedures_are_listed_and_others_are_refused(spark_lake: SparkLake, table: str) -> None:
    shown = {row[-1] for row in spark_lake.rows(f"SHOW PROCEDURES IN {CATALOG}.system")}
    assert {"rotate_key", "rewrap_keys", "rewrite_data_files"} <= shown
    for procedure in ("system.no_such_procedure", "rotate_key", "other.rotate_key"):
        statement = f"CALL {CATALOG}.{procedure}(table => '{_below(table)}')"
        assert "procedure" in refused_as("REQUEST_INVALID", spark_lake.spark, statement)
