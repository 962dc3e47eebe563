"""A user's token, once a session has it, is out of reach of SQL, the user's own included."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from spark_ext.configuration import token_setting
from tests.support.lake import ALICE, BOB
from tests.support.spark import CATALOG, SparkLake
from tests.support.spark_refusals import refused_as

TOKEN = token_setting(CATALOG)
HELD = "(held by the driver)"


def _first_statement(session: SparkSession, statement: str) -> str:
    """What a statement shows, or why it is refused."""
    try:
        return str([list(row) for row in session.sql(statement).collect()])
    except PySparkException as error:
        return str(error)


def test_a_token_is_taken_before_a_text_is_parsed(spark_lake: SparkLake) -> None:
    """`${…}` is substituted by the parser, in an expression too."""
    session = spark_lake.new_session()
    parser: Any = session._jsparkSession.sessionState().sqlParser()
    parser.parseExpression("1")
    assert session.conf.get(TOKEN) == HELD


@pytest.mark.nightly
@pytest.mark.parametrize(
    "statement",
    [f"SELECT '${{{TOKEN}}}'", f"SELECT '${{hiveconf:{TOKEN}}}'", f"SET {TOKEN}", "SET", "SET -v"],
)
def test_the_first_statement_of_a_session_does_not_see_its_token(
    spark_lake: SparkLake, statement: str
) -> None:
    session = spark_lake.new_session()
    session.conf.set("spark.sql.redaction.options.regex", "nothing")
    session.conf.set("spark.sql.redaction.string.regex", "nothing")
    assert spark_lake.service.token(ALICE) not in _first_statement(session, statement)


@pytest.mark.nightly
@pytest.mark.parametrize(
    "ask",
    [
        lambda session: session.range(1).selectExpr(f"'${{{TOKEN}}}'").collect(),
        lambda session: session.range(1).filter(f"'${{{TOKEN}}}' <> ''").explain(True),
        lambda session: session.catalog.listTables(f"{CATALOG}.db"),
        lambda session: session.read.table(f"{CATALOG}.db.absent"),
        lambda session: session.range(1).collect(),
    ],
    ids=["expression", "condition", "catalog", "table", "rows"],
)
def test_a_session_that_has_done_anything_does_not_show_its_token(
    spark_lake: SparkLake, capsys: pytest.CaptureFixture[str], ask: Callable[[SparkSession], Any]
) -> None:
    session, shown = spark_lake.new_session(), ""
    try:
        shown = str(ask(session))
    except PySparkException as error:
        shown = str(error)
    token = spark_lake.service.token(ALICE)
    assert token not in shown + capsys.readouterr().out
    assert session.conf.get(TOKEN) == HELD
    assert token not in str(session.conf.getAll)


@pytest.mark.nightly
def test_other_sessions_see_nothing_of_it(spark_lake: SparkLake) -> None:
    one, other = spark_lake.new_session(ALICE), spark_lake.new_session(BOB)
    one.sql(f"CREATE GLOBAL TEMPORARY VIEW shown AS SELECT '${{{TOKEN}}}' AS value")
    try:
        seen = [
            _first_statement(other, each) for each in ("SELECT * FROM global_temp.shown", "SET", "SET -v")
        ]
        assert spark_lake.service.token(ALICE) not in str(seen)
    finally:
        one.sql("DROP VIEW global_temp.shown")


def test_what_stands_in_its_place_is_no_token(spark_lake: SparkLake) -> None:
    spark_lake.rows(f"SHOW NAMESPACES IN {CATALOG}")
    thief = spark_lake.new_session(None)
    thief.conf.set(TOKEN, HELD)
    refused_as("NOT_AUTHENTICATED", thief, f"SHOW NAMESPACES IN {CATALOG}")


@pytest.mark.nightly
def test_a_session_whose_token_is_unset_is_nobodys(spark_lake: SparkLake) -> None:
    session = spark_lake.new_session()
    session.sql(f"SHOW NAMESPACES IN {CATALOG}").collect()
    session.conf.unset(TOKEN)
    refused_as("NOT_AUTHENTICATED", session, f"SHOW NAMESPACES IN {CATALOG}")
    session.conf.set(TOKEN, HELD)
    refused_as("NOT_AUTHENTICATED", session, f"SHOW NAMESPACES IN {CATALOG}")


@pytest.mark.nightly
def test_a_clone_of_a_session_has_its_token_and_takes_another(spark_lake: SparkLake, namespace: str) -> None:
    """Streaming queries and Spark Connect clone sessions."""
    session = spark_lake.new_session()
    session.sql(f"SHOW TABLES IN {namespace}").collect()
    clone: Any = session._jsparkSession.cloneSession()
    assert clone.sql(f"SHOW TABLES IN {namespace}").count() == 0
    clone.conf().set(TOKEN, spark_lake.service.token(BOB))
    with pytest.raises(Exception, match="NotAuthorized"):
        clone.sql(f"SHOW TABLES IN {namespace}").count()
    assert session.sql(f"SHOW TABLES IN {namespace}").collect() == []


@pytest.mark.nightly
def test_a_new_session_has_no_token_of_another(spark_lake: SparkLake) -> None:
    spark_lake.rows(f"SHOW NAMESPACES IN {CATALOG}")
    refused_as("NOT_AUTHENTICATED", spark_lake.new_session(None), f"SHOW NAMESPACES IN {CATALOG}")


@pytest.mark.nightly
def test_a_token_in_the_launch_configuration_is_refused(spark_lake: SparkLake) -> None:
    """Every session would have it."""
    java: Any = spark_lake.spark.sparkContext._jvm
    configuration = java.org.apache.spark.SparkConf(False).set(TOKEN, "lw_everybodys")
    with pytest.raises(Exception, match=r"CatalogNotTrusted: Spark was launched with") as caught:
        java.org.apache.spark.sql.lakewarden.catalog.LaunchedCatalog.all(configuration)
    assert "lw_everybodys" not in str(caught.value)
