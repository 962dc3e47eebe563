"""Only the launch configuration says which catalogs there are and where they answer."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from spark_ext.configuration import CATALOG_CLASS, token_setting
from tests.support.lake import CAROL
from tests.support.spark import CATALOG, SparkLake
from tests.support.spark_refusals import active, refusal, refused_as

pytestmark = pytest.mark.core

LAKE = f"spark.sql.catalog.{CATALOG}"
OTHER_CLASS = "org.apache.spark.sql.execution.datasources.v2.jdbc.JDBCTableCatalog"
SINGLE_PASS = "spark.sql.analyzer.singlePassResolver.enabled"
NOT_TRUSTED = "CATALOG_NOT_TRUSTED"


@pytest.fixture
def session(spark_lake: SparkLake) -> SparkSession:
    """A session of its own, which may be spoilt."""
    return spark_lake.new_session()


@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize(
    ("setting", "value"),
    [
        pytest.param(f"{LAKE}.uri", "http://127.0.0.1:1", id="another address"),
        pytest.param(f"{LAKE}.URI", "http://127.0.0.1:1", id="another address in capitals"),
        pytest.param(LAKE, OTHER_CLASS, id="another class"),
        pytest.param(f"{LAKE}.insecure", "true", id="a further option"),
        pytest.param(f"{LAKE}.TOKEN", "lw_other", id="the token in capitals"),
        pytest.param("spark.sql.catalog.evil", CATALOG_CLASS, id="a later definition"),
        pytest.param("spark.sql.catalog.spark_catalog", CATALOG_CLASS, id="in place of Spark's own catalog"),
    ],
)
def test_override_by_a_session(session: SparkSession, setting: str, value: str) -> None:
    assert session.sql("SELECT 1").collect()
    session.conf.set(setting, value)
    refused_as(NOT_TRUSTED, session, f"SHOW NAMESPACES IN {CATALOG}")
    refused_as(NOT_TRUSTED, session, "SELECT 1")


@pytest.mark.nightly
@pytest.mark.parametrize("setting", [LAKE, f"{LAKE}.uri", f"{LAKE}.token"])
def test_override_in_sql_does_not_take_effect(session: SparkSession, setting: str) -> None:
    message = refused_as(NOT_TRUSTED, session, f"SET {setting}=hunter2")
    assert "hunter2" not in message
    assert session.sql(f"SHOW NAMESPACES IN {CATALOG}") is not None


@pytest.mark.nightly
@pytest.mark.parametrize("setting", [LAKE, f"{LAKE}.uri"])
def test_setting_taken_away_by_a_session(session: SparkSession, setting: str) -> None:
    session.conf.unset(setting)
    refused_as(NOT_TRUSTED, session, f"SHOW NAMESPACES IN {CATALOG}")


@pytest.mark.nightly
def test_override_after_the_catalog_was_used(session: SparkSession) -> None:
    assert session.sql(f"SHOW NAMESPACES IN {CATALOG}") is not None
    session.conf.set(f"{LAKE}.uri", "http://127.0.0.1:1")
    refused_as(NOT_TRUSTED, session, f"SHOW NAMESPACES IN {CATALOG}")


@pytest.mark.nightly
def test_override_met_by_data_frames(session: SparkSession, spark_lake: SparkLake, namespace: str) -> None:
    spark_lake.rows(f"CREATE TABLE {namespace}.t (id INT)")
    session.conf.set(LAKE, OTHER_CLASS)
    refusals = [
        refusal(lambda: session.table(f"{namespace}.t")),
        refusal(lambda: session.range(1).writeTo(f"{namespace}.t").append()),
        refusal(lambda: session.range(1).write.saveAsTable(f"{namespace}.u")),
        refusal(lambda: session.range(1).count()),
    ]
    assert {each.getCondition() for each in refusals} == {f"LAKEWARDEN.{NOT_TRUSTED}"}


@pytest.mark.nightly
def test_override_under_the_analyzer_that_runs_no_rules(session: SparkSession) -> None:
    session.conf.set(SINGLE_PASS, "true")
    assert session.sql("SELECT 1 AS one").collect()
    session.conf.set(LAKE, OTHER_CLASS)
    refused_as(NOT_TRUSTED, session, "SELECT 1 AS one")


def test_class_loaded_under_the_name_before_the_settings_were_put_back(session: SparkSession) -> None:
    with active(session):
        session.conf.set(LAKE, OTHER_CLASS)
        session.conf.set(f"{LAKE}.url", "jdbc:derby:memory:other")
        session.conf.set(f"{LAKE}.driver", "org.apache.derby.iapi.jdbc.AutoloadedDriver")
        if not isinstance(session, SparkSession):  # A request of Spark Connect is a plan, which is refused.
            error = refusal(lambda: session.catalog.setCurrentCatalog(CATALOG))
            assert error.getCondition() == f"LAKEWARDEN.{NOT_TRUSTED}"
            return
        session.catalog.setCurrentCatalog(CATALOG)
        session.sql("RESET")
    message = refused_as(NOT_TRUSTED, session, f"SHOW NAMESPACES IN {CATALOG}")
    assert "another class" in message


@pytest.mark.nightly
def test_later_definition_named_by_the_catalog_interface(session: SparkSession) -> None:
    with active(session):
        session.conf.set("spark.sql.catalog.evil", CATALOG_CLASS)
        session.conf.set("spark.sql.catalog.evil.uri", "http://127.0.0.1:1")
        error = refusal(lambda: session.catalog.setCurrentCatalog("evil"))
    assert error.getCondition() == f"LAKEWARDEN.{NOT_TRUSTED}"


@pytest.mark.nightly
@pytest.mark.parametrize("repair", [f"RESET {LAKE}.uri", "RESET"])
def test_session_that_is_set_right_again(session: SparkSession, repair: str, spark_lake: SparkLake) -> None:
    session.conf.set(f"{LAKE}.uri", "http://127.0.0.1:1")
    session.sql(repair)
    session.conf.set(token_setting(CATALOG), spark_lake.service.token(CAROL))
    assert session.sql(f"SHOW NAMESPACES IN {CATALOG}") is not None


@pytest.mark.nightly
def test_other_catalogs_are_a_sessions_own_affair(session: SparkSession) -> None:
    session.conf.set("spark.sql.catalog.mine", OTHER_CLASS)
    assert session.sql("SELECT 1").collect()


@pytest.mark.nightly
def test_refusal_names_the_setting_and_not_its_value(session: SparkSession) -> None:
    session.conf.set(f"{LAKE}.uri", "http://user:hunter2@127.0.0.1:1")
    message = refused_as(NOT_TRUSTED, session, "SELECT 1")
    assert f"{LAKE}.uri" in message
    assert "hunter2" not in message
