"""What is revoked refuses a DataFrame that has run before, once its plan is no longer valid."""

from __future__ import annotations

import time

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from catalog.settings.catalog import Settings
from policy.principal import Principal
from policy.restrictions.predicate import Compare, Comparison, Literal
from spark_ext.configuration import token_setting
from tests.support.lake import CAROL, standard_policies
from tests.support.reads import denied
from tests.support.restrictions import restricted
from tests.support.spark import CATALOG, SparkLake
from tests.support.spark_connect import ConnectLake

pytestmark = pytest.mark.core

ROWS = [(0,), (1,), (2,)]
#: Seconds; the plans of these tests grow old sooner than others, so that each test can wait for it.
VALID_S = 0.1


@pytest.fixture(autouse=True)
def plans_grow_old(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Settings, "plan_valid_ms", round(VALID_S * 1000))


@pytest.fixture
def run_before(spark_lake: SparkLake) -> DataFrame:
    """Carol's DataFrame of an encrypted table in the database that she reads; it has run once."""
    spark_lake.rows("CREATE NAMESPACE IF NOT EXISTS lake.db")
    spark_lake.rows("DROP TABLE IF EXISTS lake.db.revoked")
    spark_lake.rows(
        "CREATE TABLE lake.db.revoked USING iceberg TBLPROPERTIES ('encryption.mechanism'='envelope') "
        "AS SELECT id FROM range(0, 3, 1, 1)"
    )
    rows = spark_lake.session(CAROL).table("lake.db.revoked").select("id")
    assert rows.collect() == ROWS
    return rows


def until_the_plan_is_old() -> None:
    time.sleep(VALID_S * 1.2)


def refusal(rows: DataFrame) -> str:
    with pytest.raises(PySparkException) as caught:
        rows.collect()
    return str(caught.value)


def test_a_kept_plan_goes_on_while_nothing_is_revoked(run_before: DataFrame) -> None:
    until_the_plan_is_old()
    assert run_before.collect() == ROWS


def test_a_right_that_was_revoked(spark_lake: SparkLake, run_before: DataFrame) -> None:
    spark_lake.lake.set_policies([each for each in standard_policies() if each["name"] != "carol-reads"])
    try:
        until_the_plan_is_old()
        assert "NotAuthorized" in refusal(run_before)
    finally:
        spark_lake.lake.set_policies(standard_policies())
    assert run_before.collect() == ROWS


@pytest.mark.nightly
def test_a_right_on_a_metadata_table_that_was_revoked(spark_lake: SparkLake, run_before: DataFrame) -> None:
    files = spark_lake.session(CAROL).table("lake.db.revoked.files").select("record_count")
    before = files.collect()
    assert before and files.collect() == before
    spark_lake.lake.set_policies([each for each in standard_policies() if each["name"] != "carol-reads"])
    try:
        until_the_plan_is_old()
        assert "NotAuthorized" in refusal(files)
    finally:
        spark_lake.lake.set_policies(standard_policies())


@pytest.mark.nightly
def test_a_column_that_is_shown_through_a_mask_now(spark_lake: SparkLake, run_before: DataFrame) -> None:
    spark_lake.lake.kms.create_master_key("revoked-pii")
    spark_lake.rows(
        "CREATE TABLE lake.db.masked_later USING iceberg TBLPROPERTIES ("
        "'encryption.columns' = 'revoked-pii:n', 'encryption.masks' = 'nullify:n') "
        "AS SELECT id, id AS n FROM lake.db.revoked"
    )
    carol = spark_lake.session(CAROL)
    rows, others = (carol.table("lake.db.masked_later").select(name) for name in ("n", "id"))
    assert rows.collect() == others.collect() == ROWS
    with denied(spark_lake, "n"):
        until_the_plan_is_old()
        if isinstance(spark_lake, ConnectLake):  # Each run has a plan of its own there.
            assert rows.collect() == [(None,)] * len(ROWS)
        else:
            assert "TableChanged" in refusal(rows)
        assert others.collect() == ROWS
        assert carol.table("lake.db.masked_later").select("n").collect() == [(None,)] * len(ROWS)
    assert rows.collect() == ROWS


@pytest.mark.nightly
@pytest.mark.parametrize("masks", [{}, {1: "mask-to-fixed-value"}], ids=["filter", "mask"])
def test_another_row_filter_or_mask(
    spark_lake: SparkLake, run_before: DataFrame, masks: dict[int, str]
) -> None:
    hidden = Compare(Comparison.LT, 1, Literal("long", 3 if masks else 1))
    with restricted(hidden, masks):
        until_the_plan_is_old()
        if isinstance(spark_lake, ConnectLake):
            assert run_before.collect() == ([(0,)] * 3 if masks else [(0,)])
        else:
            said = refusal(run_before)
            assert "TableChanged" in said and "for you" in said
    assert run_before.collect() == ROWS


@pytest.mark.nightly
def test_files_that_are_checked_against_their_digests_by_now(
    spark_lake: SparkLake, run_before: DataFrame
) -> None:
    spark_lake.rows("ALTER TABLE lake.db.revoked SET TBLPROPERTIES ('encryption.verify-digest' = 'always')")
    until_the_plan_is_old()
    if isinstance(spark_lake, ConnectLake):
        assert run_before.collect() == ROWS
    else:
        assert "TableChanged" in refusal(run_before)
    assert spark_lake.session(CAROL).table("lake.db.revoked").select("id").collect() == ROWS


@pytest.mark.nightly
def test_a_location_that_was_taken_from_the_list(spark_lake: SparkLake, run_before: DataFrame) -> None:
    nothing = {"set": {"read.allowed.data.paths": "[]"}, "force": True}
    with spark_lake.service.client() as alice:
        assert alice.patch("/admin/v1/tables/db/revoked", json=nothing).status_code == 200
    until_the_plan_is_old()
    assert "LocationNotAllowed" in refusal(run_before)


@pytest.mark.nightly
def test_a_token_that_was_revoked(spark_lake: SparkLake, run_before: DataFrame) -> None:
    tokens = spark_lake.lake.services.tokens
    issued = tokens.issue(Principal(CAROL), "user", None)
    session = spark_lake.new_session(None)
    session.conf.set(token_setting(CATALOG), issued.text)
    rows = session.table("lake.db.revoked").select("id")
    assert rows.collect() == ROWS
    tokens.revoke(issued.id)
    until_the_plan_is_old()
    assert "NotAuthenticated" in refusal(rows)
    assert run_before.collect() == ROWS


def test_a_table_that_was_dropped(spark_lake: SparkLake, run_before: DataFrame) -> None:
    spark_lake.rows("DROP TABLE lake.db.revoked")
    until_the_plan_is_old()
    unknown = "TABLE_OR_VIEW_NOT_FOUND" if isinstance(spark_lake, ConnectLake) else "NoSuchTable"
    assert unknown in refusal(run_before)


@pytest.mark.nightly
def test_a_plan_that_was_made_long_before_its_first_run(spark_lake: SparkLake, run_before: DataFrame) -> None:
    carol = spark_lake.session(CAROL)
    # Spark asks how large both sides of a join are before it runs anything.
    rows = carol.table("lake.db.revoked").join(carol.table("lake.db.revoked"), "id")
    rows.explain()
    spark_lake.lake.set_policies([each for each in standard_policies() if each["name"] != "carol-reads"])
    try:
        until_the_plan_is_old()
        assert "NotAuthorized" in refusal(rows)
    finally:
        spark_lake.lake.set_policies(standard_policies())
