"""Each session asks the catalog as its own user, and nothing kept for one answers for another."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from spark_ext.configuration import token_setting
from tests.support.lake import ALICE, BOB, CAROL, policy, standard_policies, tables
from tests.support.spark import CATALOG, SparkLake
from tests.support.spark_plans import is_cached
from tests.support.spark_refusals import active, refusal, refused_as

pytestmark = pytest.mark.core

TOKEN = token_setting(CATALOG)


def _carols_table(spark_lake: SparkLake, name: str) -> str:
    """A table of Alice's that Carol may read and Bob may not."""
    spark_lake.rows(f"CREATE NAMESPACE IF NOT EXISTS {CATALOG}.db")
    spark_lake.rows(f"CREATE TABLE {CATALOG}.db.{name} AS SELECT id FROM range(3)")
    return f"{CATALOG}.db.{name}"


def _is_cached(session: SparkSession, table: str) -> bool:
    return is_cached(session.sql(f"SELECT * FROM {table}"))


def test_session_without_a_token(spark_lake: SparkLake, namespace: str) -> None:
    nobody = spark_lake.new_session(None)
    message = refused_as("NOT_AUTHENTICATED", nobody, f"SHOW TABLES IN {namespace}")
    assert TOKEN in message


@pytest.mark.nightly
def test_token_that_is_not_valid(spark_lake: SparkLake, namespace: str) -> None:
    session = spark_lake.new_session(None)
    session.conf.set(TOKEN, "lw_0123456789")
    message = refused_as("NOT_AUTHENTICATED", session, f"SHOW TABLES IN {namespace}")
    assert "lw_0123456789" not in message


@pytest.mark.nightly
def test_token_that_smuggles_a_header(spark_lake: SparkLake, namespace: str) -> None:
    session = spark_lake.new_session(None)
    token = spark_lake.service.token(ALICE)
    session.conf.set(TOKEN, f"{token}\r\nX-Other: 1")
    error = refusal(lambda: session.sql(f"SHOW TABLES IN {namespace}").collect())
    assert error.getCondition() == "LAKEWARDEN.NOT_AUTHENTICATED"
    assert token not in str(error)


@pytest.mark.nightly
def test_token_is_read_at_each_request(spark_lake: SparkLake, namespace: str) -> None:
    session = spark_lake.new_session(BOB)
    refused_as("NOT_AUTHORIZED", session, f"SHOW TABLES IN {namespace}")
    session.conf.set(TOKEN, spark_lake.service.token(ALICE))
    assert session.sql(f"SHOW TABLES IN {namespace}").collect() == []


@pytest.mark.nightly
def test_spark_masks_the_token(spark_lake: SparkLake) -> None:
    token = spark_lake.service.token(ALICE)
    for statement in (f"SET {TOKEN}", "SET", "SET -v"):
        assert token not in str(spark_lake.rows(statement)), statement


@pytest.mark.nightly
def test_each_user_sees_what_is_theirs(spark_lake: SparkLake) -> None:
    table = _carols_table(spark_lake, "theirs")
    assert len(spark_lake.rows(f"SELECT * FROM {table}", CAROL)) == 3
    refused_as("NOT_AUTHORIZED", spark_lake.session(BOB), f"SELECT * FROM {table}")
    refused_as("NOT_AUTHORIZED", spark_lake.session(CAROL), f"INSERT INTO {table} VALUES (4)")


@pytest.mark.nightly
def test_whether_a_table_exists_is_told_to_those_with_a_right_on_it(spark_lake: SparkLake) -> None:
    table = _carols_table(spark_lake, "told")
    bob = spark_lake.session(BOB)
    there = refused_as("NOT_AUTHORIZED", bob, f"SELECT * FROM {table}")
    absent = refused_as("NOT_AUTHORIZED", bob, f"SELECT * FROM {CATALOG}.db.absent")
    assert there.replace("told", "absent") == absent
    refused_as("NOT_AUTHORIZED", bob, f"DROP TABLE IF EXISTS {CATALOG}.db.absent")
    refused_as("NOT_AUTHORIZED", bob, f"CREATE TABLE IF NOT EXISTS {table} (id INT)")


@pytest.mark.nightly
def test_cached_table_answers_for_nobody_else(spark_lake: SparkLake) -> None:
    table = _carols_table(spark_lake, "cached")
    spark_lake.rows(f"CACHE TABLE {table}")
    try:
        assert _is_cached(spark_lake.session(ALICE), table)
        assert not _is_cached(spark_lake.session(CAROL), table)
        assert len(spark_lake.rows(f"SELECT * FROM {table}", CAROL)) == 3
        refused_as("NOT_AUTHORIZED", spark_lake.session(BOB), f"SELECT * FROM {table}")
    finally:
        spark_lake.rows(f"UNCACHE TABLE {table}")


def test_cached_table_does_not_outlive_the_policies_it_was_read_by(spark_lake: SparkLake) -> None:
    table = _carols_table(spark_lake, "outlived")
    spark_lake.rows(f"CACHE TABLE {table}", CAROL)
    assert _is_cached(spark_lake.session(CAROL), table)
    try:
        spark_lake.lake.set_policies([*standard_policies(), policy("more", tables("more"), {CAROL: ["all"]})])
        assert not _is_cached(spark_lake.session(CAROL), table)
        spark_lake.lake.set_policies(standard_policies()[:-2])
        refused_as("NOT_AUTHORIZED", spark_lake.session(CAROL), f"SELECT * FROM {table}")
    finally:
        spark_lake.lake.set_policies(standard_policies())
        spark_lake.spark.catalog.clearCache()


@pytest.mark.nightly
def test_session_asks_as_itself_while_another_is_active(spark_lake: SparkLake) -> None:
    """Spark asks the catalog of Bob's session for these while Alice's is the thread's active one."""
    table = _carols_table(spark_lake, "asked_for")
    bob = spark_lake.new_session(BOB)
    bob.catalog.setCurrentCatalog(CATALOG)
    frame = bob.range(1)
    with active(spark_lake.spark):
        for ask, action in (
            (lambda: bob.catalog.setCurrentDatabase("db"), "namespace.load"),
            (lambda: bob.catalog.listTables(f"{CATALOG}.db"), "table.list"),
            (lambda: bob.catalog.getTable(table), "table.load"),
            (lambda: bob.table(table), "table.load"),
            (lambda: frame.write.insertInto(table), "table.load"),
            (lambda: frame.write.mode("append").saveAsTable(table), "table.load"),
        ):
            error = refusal(ask)
            assert error.getCondition() == "LAKEWARDEN.NOT_AUTHORIZED"
            assert f"bob is not authorized ({action})" in str(error)


@pytest.mark.nightly
def test_views_in_spark_hold_neither_token_nor_rights(spark_lake: SparkLake) -> None:
    table = _carols_table(spark_lake, "behind_a_view")
    view = "spark_catalog.default.behind"
    spark_lake.rows(f"CREATE VIEW {view} AS SELECT * FROM {table}")
    try:
        described = str(
            spark_lake.rows(f"DESCRIBE EXTENDED {view}") + spark_lake.rows(f"SHOW CREATE TABLE {view}")
        )
        assert spark_lake.service.token(ALICE) not in described
        assert len(spark_lake.rows(f"SELECT * FROM {view}", CAROL)) == 3
        refused_as("NOT_AUTHORIZED", spark_lake.session(BOB), f"SELECT * FROM {view}")
    finally:
        spark_lake.rows(f"DROP VIEW {view}")


def test_data_frame_is_not_read_on_by_the_sessions_next_user(spark_lake: SparkLake) -> None:
    table = _carols_table(spark_lake, "handed_on")
    snapshot = spark_lake.lake.catalog().load_table(("db", "handed_on")).metadata.current_snapshot_id
    session = spark_lake.new_session(ALICE)
    frames = [session.table(table), session.read.option("versionAsOf", snapshot).table(table)]
    for frame in frames:
        assert frame.cache().count() == 3
    session.conf.set(TOKEN, spark_lake.service.token(BOB))
    for frame in frames:
        error = refusal(frame.count)
        assert error.getCondition() == "LAKEWARDEN.NOT_AUTHORIZED"
    session.catalog.clearCache()


@pytest.mark.nightly
def test_data_frame_survives_a_renewed_token(spark_lake: SparkLake) -> None:
    table = _carols_table(spark_lake, "renewed")
    session = spark_lake.new_session(CAROL)
    frame = session.table(table)
    renewed = spark_lake.lake.services.tokens.issue(spark_lake.lake.caller(CAROL).principal, "user", None)
    session.conf.set(TOKEN, renewed.text)
    assert frame.count() == 3
