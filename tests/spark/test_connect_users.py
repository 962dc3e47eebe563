"""Users with tokens of their own on one Spark Connect server share nothing."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import uuid4

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from sqlalchemy import func, select

from catalog.db.engine import read
from catalog.db.schema import lw_audit
from policy.principal import Principal
from spark_ext.configuration import token_setting
from tests.support.lake import ALICE, BOB, policy, standard_policies
from tests.support.spark import CATALOG, SparkLake
from tests.support.spark_connect import ConnectLake, remote_session
from tests.support.spark_refusals import refusal, refused_as

pytestmark = pytest.mark.connect

TOKEN = token_setting(CATALOG)


@pytest.fixture
def alice(spark_lake: SparkLake) -> SparkSession:
    return spark_lake.new_session(ALICE)


@pytest.fixture
def bob(spark_lake: SparkLake) -> SparkSession:
    return spark_lake.new_session(BOB)


@pytest.fixture
def table(spark_lake: SparkLake, namespace: str) -> str:
    """An encrypted table of Alice's, that Bob cannot read."""
    properties = "TBLPROPERTIES ('encryption.mechanism' = 'envelope')"
    spark_lake.rows(f"CREATE TABLE {namespace}.t {properties} AS SELECT id FROM range(4)")
    return f"{namespace}.t"


def _condition(action: Callable[[], object]) -> str | None:
    found: str | None = refusal(action).getCondition()
    return found


def test_what_a_session_defines_stays_in_it(
    alice: SparkSession, bob: SparkSession, spark_lake: SparkLake, table: str
) -> None:
    alice.table(table).createTempView("mine")
    alice.sql("DECLARE VARIABLE own INT DEFAULT 7").collect()
    alice.catalog.setCurrentCatalog(CATALOG)
    alice.conf.set("spark.sql.shuffle.partitions", "7")
    assert alice.sql("SELECT count(*), min(session.own) FROM mine").first() == (4, 7)
    for other in (bob, spark_lake.new_session(ALICE)):
        assert _condition(other.table("mine").collect) == "TABLE_OR_VIEW_NOT_FOUND"
        assert _condition(other.sql("SELECT 1").select(f.expr("session.own")).collect) == (
            "UNRESOLVED_COLUMN.WITH_SUGGESTION"
        )
        assert other.catalog.currentCatalog() == "spark_catalog"
        assert other.conf.get("spark.sql.shuffle.partitions") != "7"


def test_a_catalog_that_a_session_defines_is_in_nobody_elses_way(
    alice: SparkSession, bob: SparkSession, table: str
) -> None:
    alice.conf.set("spark.sql.catalog.other", "lakewarden.spark.LakewardenCatalog")
    refused_as("CATALOG_NOT_TRUSTED", alice, f"SELECT * FROM {table}")
    assert bob.sql("SELECT 1").collect() == [(1,)]
    assert _condition(bob.table("other.d.t").collect) == "REQUIRES_SINGLE_PART_NAMESPACE"


def test_plans_and_cached_rows_of_one_serve_no_other(
    alice: SparkSession, bob: SparkSession, table: str
) -> None:
    view = f"v{uuid4().hex[:10]}"
    frame = alice.table(table).cache()
    frame.createGlobalTempView(view)
    try:
        assert (frame.count(), alice.table(f"global_temp.{view}").count()) == (4, 4)
        refused_as("NOT_AUTHORIZED", bob, f"SELECT * FROM {table}")
        refused_as("NOT_AUTHORIZED", bob, f"SELECT * FROM global_temp.{view}")
        refused_as("NOT_AUTHORIZED", bob, f"SELECT * FROM range(4) WHERE id IN (SELECT id FROM {table})")
        replayed = type(frame)(frame._plan, bob)  # type: ignore[call-arg]
        assert _condition(replayed.collect) == "LAKEWARDEN.NOT_AUTHORIZED"
    finally:
        alice.catalog.dropGlobalTempView(view)
        frame.unpersist()


def _shown(ask: Callable[[], object]) -> str:
    try:
        return str(ask())
    except PySparkException as error:
        return str(error)


def test_tokens_are_shown_to_nobody(alice: SparkSession, bob: SparkSession, spark_lake: SparkLake) -> None:
    tokens = {spark_lake.service.token(user) for user in (ALICE, BOB)}
    for session in (alice, bob):
        asked = {
            "setting": lambda session=session: session.conf.get(TOKEN),
            "settings": lambda session=session: session.conf.getAll,
            "expression": lambda session=session: session.range(1).selectExpr(f"'${{{TOKEN}}}'").collect(),
            "SET": lambda session=session: session.sql(f"SET {TOKEN}").collect(),
            "SET -v": lambda session=session: session.sql("SET -v").collect(),
        }
        for name, ask in asked.items():
            text = _shown(ask)
            assert not any(token in text for token in tokens), name


def _decisions(spark_lake: SparkLake, user: str) -> int:
    counted = select(func.count()).where(lw_audit.c.principal == user)
    with read(spark_lake.lake.services.engine) as connection:
        return int(connection.execute(counted).scalar_one())


def test_a_refused_statement_takes_no_other_token(
    alice: SparkSession, bob: SparkSession, spark_lake: SparkLake, table: str
) -> None:
    statements = (
        f"SELECT * FROM {table}",
        f"INSERT INTO {table} VALUES (9)",
        f"DELETE FROM {table}",
        f"SELECT (SELECT max(id) FROM {table})",
        f"CALL {CATALOG}.system.rotate_key('{table.removeprefix(f'{CATALOG}.')}')",
    )
    assert alice.table(table).count() == 4
    before = _decisions(spark_lake, ALICE)
    for statement in statements:
        refused_as("NOT_AUTHORIZED", bob, statement)
    assert _decisions(spark_lake, ALICE) == before

    def read_as_alice(_: int) -> int:
        return alice.table(table).filter("id >= 0").count()

    def read_as_bob(number: int) -> int:
        refused_as("NOT_AUTHORIZED", bob, statements[number % len(statements)])
        return 4

    work = [(each, number) for number in range(5) for each in (read_as_alice, read_as_bob)]
    with ThreadPoolExecutor(4) as threads:
        assert set(threads.map(lambda order: order[0](order[1]), work)) == {4}


def test_functions_stay_in_their_session(alice: SparkSession, bob: SparkSession) -> None:
    alice.udf.register("of_alice", lambda number: number + 7, "long")
    assert alice.sql("SELECT of_alice(1L)").first() == (8,)
    refused_as("UNRESOLVED_ROUTINE", bob, "SELECT of_alice(1L)")


def _imported(session: SparkSession, module: str) -> str:
    """What a module says in Python workers of a session, or `missing`."""

    def imported(_: int) -> str:
        try:
            return str(importlib.import_module(module).WHO)
        except ImportError:
            return "missing"

    frame = session.range(0, 4, 1, 2).select(f.udf(imported, "string")("id").alias("who"))
    (found,) = {row.who for row in frame.collect()}
    return str(found)


def test_modules_stay_in_their_session(
    alice: SparkSession, bob: SparkSession, spark_lake: SparkLake, tmp_path: Path
) -> None:
    """Both users have `engine:code`, and workers that have imported a module are used again."""
    code = policy("bob-code", {"engine": ["spark"]}, {BOB: ["code"]})
    spark_lake.lake.set_policies([*standard_policies(), code])
    module = f"of_alice_{uuid4().hex[:10]}"
    (tmp_path / f"{module}.py").write_text("WHO = 'alice'\n")
    try:
        alice.addArtifacts(str(tmp_path / f"{module}.py"), pyfile=True)
        for _ in range(2):
            assert _imported(alice, module) == "alice"
            assert _imported(bob, module) == "missing"
            assert _imported(spark_lake.new_session(ALICE), module) == "missing"
    finally:
        spark_lake.lake.set_policies(standard_policies())


def test_an_ended_session_forgets_its_token(spark_lake: SparkLake, tmp_path: Path) -> None:
    assert isinstance(spark_lake, ConnectLake)
    issued = spark_lake.lake.services.tokens.issue(Principal(ALICE), "user", None).text
    session = remote_session(spark_lake.address, ALICE)
    session.conf.set(TOKEN, issued)
    session.sql(f"SHOW NAMESPACES IN {CATALOG}").collect()
    assert issued.encode() in spark_lake.heap(tmp_path)
    ended = session.session_id  # type: ignore[attr-defined]
    session.stop()
    next_one = remote_session(spark_lake.address, ALICE)
    refused_as("NOT_AUTHENTICATED", next_one, f"SHOW NAMESPACES IN {CATALOG}")
    next_one.stop()
    again = remote_session(f"{spark_lake.address}/;session_id={ended}", ALICE)
    for action in (again.range(1).collect, lambda: again.conf.set("spark.sql.warehouse.dir", "x")):
        error = refusal(action)
        assert error.getCondition() == "INVALID_HANDLE.SESSION_CLOSED"
        assert error.getSqlState() is not None
    assert issued.encode() not in spark_lake.heap(tmp_path)
