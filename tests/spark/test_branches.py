"""Branches and tags: read and written by name, by option and by version; write-audit-publish."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.support.row_model import REPLACES
from tests.support.spark import SparkLake
from tests.support.spark_refusals import refusal, refused_as
from tests.support.spark_tables import create_table, stock_table
from tests.support.tables import ENCRYPTED

pytestmark = pytest.mark.core

PROTECTIONS: dict[str, dict[str, str]] = {
    "plaintext": {},
    "encrypted": ENCRYPTED | {"encryption.columns": "lakewarden:id"},
}


def _ids(spark_lake: SparkLake, source: str) -> list[int]:
    return sorted(row[0] for row in spark_lake.rows(f"SELECT id FROM {source}"))


@contextmanager
def _session(spark_lake: SparkLake, **settings: str) -> Iterator[None]:
    """Settings of Alice's session, `spark.wap.branch` as `branch`."""
    conf = spark_lake.spark.conf
    for name, value in settings.items():
        conf.set(f"spark.wap.{name}", value)
    try:
        yield
    finally:
        for name in settings:
            conf.unset(f"spark.wap.{name}")


def _table(spark_lake: SparkLake, name: str, **properties: str) -> str:
    """A table with the row 1 in its only snapshot."""
    create_table(spark_lake, name, "id INT, p STRING", properties, "p")
    spark_lake.rows(f"INSERT INTO {name} VALUES (1, 'a')")
    return name


@pytest.fixture(scope="module")
def encrypted(spark_lake: SparkLake) -> str:
    """An encrypted table with two branches and a tag on row 1; main has row 2 since."""
    return _branched(spark_lake, PROTECTIONS["encrypted"])


@pytest.fixture(scope="module")
def table(spark_lake: SparkLake) -> str:
    """The same in plaintext."""
    return _branched(spark_lake, PROTECTIONS["plaintext"])


def _branched(spark_lake: SparkLake, properties: dict[str, str]) -> str:
    name = _table(spark_lake, f"{spark_lake.namespace()}.t", **properties)
    for ref in ("BRANCH audit", "BRANCH other", "TAG first"):
        spark_lake.rows(f"ALTER TABLE {name} CREATE {ref}")
    spark_lake.rows(f"INSERT INTO {name} VALUES (2, 'a')")
    return name


def _reset(spark_lake: SparkLake, table: str) -> None:
    for name in ("audit", "other"):
        spark_lake.rows(
            f"ALTER TABLE {table} REPLACE BRANCH {name} AS OF VERSION {_first(spark_lake, table)}"
        )


def _first(spark_lake: SparkLake, table: str) -> int:
    return stock_table(spark_lake, table).snapshots()[0].snapshot_id


def test_statements_change_the_branch_that_they_name_alone(spark_lake: SparkLake, encrypted: str) -> None:
    table = encrypted
    _reset(spark_lake, table)
    audit = f"{table}.branch_audit"
    for statement, left in {
        f"INSERT INTO {audit} VALUES (3, 'b'), (4, 'b')": [1, 3, 4],
        f"UPDATE {audit} SET id = 5 WHERE id = 4": [1, 3, 5],
        f"DELETE FROM {audit} WHERE id = 3": [1, 5],
        f"MERGE INTO {audit} t USING (SELECT 5 id UNION ALL SELECT 6) s ON t.id = s.id"
        " WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT (id, p) VALUES (s.id, 'c')": [1, 6],
        f"DELETE FROM {audit} WHERE p = 'c'": [1],
        f"INSERT OVERWRITE {audit} VALUES (7, 'a')": [7],
        f"INSERT INTO {audit} REPLACE WHERE p = 'a' VALUES (8, 'a')": [8],
        **({f"INSERT INTO {audit} REPLACE USING (id, p) VALUES (8, 'a')": [8]} if REPLACES else {}),
    }.items():
        spark_lake.rows(statement)
        assert _ids(spark_lake, audit) == left, statement
    frame = spark_lake.spark.createDataFrame([(9, "z")], "id INT, p STRING")
    frame.writeTo(audit).append()
    frame.writeTo(table).option("branch", "audit").append()
    frame.write.option("branch", "audit").mode("append").saveAsTable(table)
    assert _ids(spark_lake, audit) == [8, 9, 9, 9]
    spark_lake.rows(f"TRUNCATE TABLE {audit}")
    assert [_ids(spark_lake, each) for each in (audit, f"{table}.branch_other", table)] == [[], [1], [1, 2]]


@pytest.mark.nightly
def test_merge_on_read_deletes_on_the_branch_alone(spark_lake: SparkLake, encrypted: str) -> None:
    table = encrypted
    _reset(spark_lake, table)
    spark_lake.rows(f"ALTER TABLE {table} SET TBLPROPERTIES ('write.delete.mode' = 'merge-on-read')")
    spark_lake.rows(f"INSERT INTO {table}.branch_audit VALUES (2, 'a'), (3, 'a')")
    spark_lake.rows(f"DELETE FROM {table}.branch_audit WHERE id = 3")
    assert (_ids(spark_lake, f"{table}.branch_audit"), _ids(spark_lake, table)) == ([1, 2], [1, 2])


@pytest.mark.nightly
def test_every_name_of_a_state_reads_it(spark_lake: SparkLake, table: str) -> None:
    _reset(spark_lake, table)
    spark_lake.rows(f"INSERT INTO {table}.branch_audit VALUES (3, 'b')")
    (first, at_ms), *_ = [(s.snapshot_id, s.timestamp_ms) for s in stock_table(spark_lake, table).snapshots()]
    named = {
        ".branch_audit": [1, 3],
        ".tag_first": [1],
        f".snapshot_id_{first}": [1],
        f".at_timestamp_{at_ms}": [1],
        " VERSION AS OF 'audit'": [1, 3],
        " VERSION AS OF 'first'": [1],
        ".branch_main": [1, 2],
        " WITH (branch = 'audit')": [1, 3],
        f" WITH (`snapshot-id` = '{first}')": [1],
    }
    assert {name: _ids(spark_lake, table + name) for name in named} == named
    options = {"branch": "audit", "tag": "first", "snapshot-id": first, "as-of-timestamp": at_ms}
    read = {
        name: sorted(row.id for row in spark_lake.spark.read.option(name, value).table(table).collect())
        for name, value in options.items()
    }
    assert read == {"branch": [1, 3], "tag": [1], "snapshot-id": [1], "as-of-timestamp": [1]}


@pytest.mark.nightly
def test_a_branch_has_the_current_schema_and_a_tag_that_of_its_snapshot(
    spark_lake: SparkLake, namespace: str
) -> None:
    table = _table(spark_lake, f"{namespace}.t")
    for ref in ("BRANCH audit", "TAG first"):
        spark_lake.rows(f"ALTER TABLE {table} CREATE {ref}")
    spark_lake.rows(f"ALTER TABLE {table} RENAME COLUMN p TO q")
    spark_lake.rows(f"ALTER TABLE {table} ADD COLUMN more INT")
    read = spark_lake.spark.sql
    for frame in (
        read(f"SELECT * FROM {table}.branch_audit"),
        read(f"SELECT * FROM {table} WITH (branch = 'audit')"),
        read(f"SELECT * FROM {table} VERSION AS OF 'audit'"),
    ):
        assert [row.asDict() for row in frame.collect()] == [{"id": 1, "q": "a", "more": None}]
    for name in (".tag_first", " WITH (tag = 'first')"):
        frame = read(f"SELECT * FROM {table}{name}")
        assert [row.asDict() for row in frame.collect()] == [{"id": 1, "p": "a"}]


WRITES = ["INSERT INTO {} VALUES (9, 'z')", "DELETE FROM {}", "UPDATE {} SET id = 9", "SELECT * FROM {}"]


def test_a_branch_that_does_not_exist_is_refused(spark_lake: SparkLake, table: str) -> None:
    spark = spark_lake.spark
    before = stock_table(spark_lake, table).metadata.snapshots
    for statement in WRITES:
        assert "'absent'" in refused_as("NO_SUCH_SNAPSHOT", spark, statement.format(f"{table}.branch_absent"))
    for name in (".tag_absent", ".snapshot_id_5", ".at_timestamp_5", " WITH (branch = 'absent')"):
        refused_as("NO_SUCH_SNAPSHOT", spark, f"SELECT * FROM {table}{name}")
    frame = spark.table(table)
    for name in ("absent", "first"):
        refusal(lambda name=name: frame.writeTo(table).option("branch", name).append())
    for name in (".tag_first", f".snapshot_id_{_first(spark_lake, table)}"):
        refused_as("NOT_SUPPORTED_YET", spark, WRITES[0].format(table + name))
    assert stock_table(spark_lake, table).metadata.snapshots == before
    refused_as("TABLE_OR_VIEW_NOT_FOUND", spark, f"SELECT * FROM {table}.branches_x")
    refused_as("TABLE_OR_VIEW_NOT_FOUND", spark, f"SELECT * FROM {table}x.branch_audit")


@pytest.mark.nightly
def test_two_states_in_one_statement_are_refused(spark_lake: SparkLake, table: str) -> None:
    for name in (
        ".branch_audit VERSION AS OF 'audit'",
        ".branch_audit WITH (branch = 'other')",
        ".branch_first",
        ".tag_audit",
        " WITH (branch = 'audit', tag = 'first')",
        " VERSION AS OF 'audit' WITH (tag = 'first')",
        " VERSION AS OF 'first' WITH (branch = 'audit')",
        " WITH (`snapshot-id` = 'x')",
        " WITH (`as-of-timestamp` = '99999999999999999999')",
    ):
        refused_as("REQUEST_INVALID", spark_lake.spark, f"SELECT * FROM {table}{name}")
    reader = spark_lake.spark.read.option("snapshot-id", 1).option("versionAsOf", 1)
    assert "[rule=time-travel]" in str(refusal(lambda: reader.table(table).collect()))
    both = spark_lake.spark.table(table).writeTo(f"{table}.branch_audit").option("branch", "other")
    assert "Name the branch once" in str(refusal(both.append))


@pytest.mark.nightly
def test_a_table_of_the_name_of_a_branch_is_not_taken_for_it(spark_lake: SparkLake, table: str) -> None:
    spark_lake.rows(f"CREATE NAMESPACE IF NOT EXISTS {table}")
    spark_lake.rows(f"CREATE TABLE {table}.branch_shadow (id INT)")
    spark_lake.rows(f"ALTER TABLE {table} CREATE BRANCH IF NOT EXISTS shadow")
    try:
        assert "ambiguous-name" in refused_as(
            "REQUEST_INVALID", spark_lake.spark, f"SELECT * FROM {table}.branch_shadow"
        )
    finally:
        spark_lake.rows(f"DROP TABLE {table}.branch_shadow")


@pytest.mark.nightly
def test_a_table_of_such_a_name_in_a_namespace_is_read(spark_lake: SparkLake, namespace: str) -> None:
    spark_lake.rows(f"CREATE NAMESPACE {namespace}.deep")
    spark_lake.rows(f"CREATE TABLE {namespace}.deep.branch_x AS SELECT 4 AS id")
    assert _ids(spark_lake, f"{namespace}.deep.branch_x") == [4]


@pytest.mark.nightly
def test_writers_to_different_branches_do_not_conflict(spark_lake: SparkLake, table: str) -> None:
    """Each reads its branch, the other one commits, then the first one commits."""
    _reset(spark_lake, table)
    spark = spark_lake.spark
    stale = spark.table(f"{table}.branch_audit").where("id = 1")
    stale.collect()
    spark_lake.rows(f"DELETE FROM {table}.branch_other")
    stale.writeTo(f"{table}.branch_audit").overwritePartitions()
    spark_lake.rows(f"UPDATE {table}.branch_audit SET id = 8")
    assert [_ids(spark_lake, f"{table}{name}") for name in (".branch_audit", ".branch_other", "")] == [
        [8],
        [],
        [1, 2],
    ]


def _staged(spark_lake: SparkLake, table: str) -> list[Any]:
    return [
        each
        for each in stock_table(spark_lake, table).metadata.snapshots
        if each.summary is not None and "wap.id" in each.summary.additional_properties
    ]


@pytest.mark.nightly
@pytest.mark.parametrize("protection", ["encrypted", pytest.param("plaintext", marks=pytest.mark.nightly)])
def test_an_audited_row_is_not_on_main(spark_lake: SparkLake, namespace: str, protection: str) -> None:
    table = _table(spark_lake, f"{namespace}.t", **PROTECTIONS[protection], **{"write.wap.enabled": "true"})
    frame = spark_lake.spark.createDataFrame([(3, "b")], "id INT, p STRING")
    with _session(spark_lake, branch="audit"):
        assert _ids(spark_lake, table) == [1]
        spark_lake.rows(f"INSERT INTO {table} VALUES (2, 'a')")
        assert _ids(spark_lake, table) == [1, 2]
        frame.writeTo(table).append()
        spark_lake.rows(f"UPDATE {table} SET id = 4 WHERE id = 3")
        spark_lake.rows(f"DELETE FROM {table} WHERE id = 1")
        spark_lake.rows(f"DELETE FROM {table} WHERE p = 'b'")
        assert (_ids(spark_lake, table), _ids(spark_lake, f"{table}.branch_main")) == ([2], [1])
        frame.writeTo(f"{table}.branch_main").append()
    assert _ids(spark_lake, table) == [1, 3]
    with _session(spark_lake, id="w1"):
        spark_lake.rows(f"INSERT INTO {table} VALUES (5, 'a')")
        spark_lake.rows(f"DELETE FROM {table} WHERE p = 'a'")
        spark_lake.rows(f"UPDATE {table} SET id = 6 WHERE id = 3")
        assert _ids(spark_lake, table) == [1, 3]
    assert len(_staged(spark_lake, table)) == 3
    assert _ids(spark_lake, f"{table}.snapshot_id_{_staged(spark_lake, table)[0].snapshot_id}") == [1, 3, 5]
    with _session(spark_lake, id="w1", branch="audit"):
        for statement in WRITES:
            assert "[rule=wap]" in refused_as("REQUEST_INVALID", spark_lake.spark, statement.format(table))
    created = f"CREATE TABLE {namespace}.u TBLPROPERTIES ('write.wap.enabled' = 'true') AS SELECT 1 AS id"
    with _session(spark_lake, id="w1"):
        assert "[rule=wap]" in refused_as("NOT_SUPPORTED_YET", spark_lake.spark, created)


@pytest.mark.nightly
def test_the_settings_have_no_effect_on_other_tables(spark_lake: SparkLake, namespace: str) -> None:
    table = _table(spark_lake, f"{namespace}.t")
    with _session(spark_lake, id="w1", branch="audit"):
        spark_lake.rows(f"INSERT INTO {table} VALUES (2, 'a')")
    assert (_ids(spark_lake, table), _staged(spark_lake, table)) == ([1, 2], [])


@pytest.mark.nightly
def test_cached_rows_of_a_branch_are_not_those_of_main(spark_lake: SparkLake, namespace: str) -> None:
    table = _table(spark_lake, f"{namespace}.t", **{"write.wap.enabled": "true"})
    with _session(spark_lake, branch="audit"):
        spark_lake.rows(f"INSERT INTO {table} VALUES (2, 'a')")
        spark_lake.rows(f"CACHE TABLE {table}")
        assert _ids(spark_lake, table) == [1, 2]
    try:
        assert _ids(spark_lake, table) == [1]
    finally:
        spark_lake.rows(f"UNCACHE TABLE IF EXISTS {table}")
