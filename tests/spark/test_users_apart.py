"""Several users in one Spark: what is kept for one is never handed to another."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from tests.support.lake import ALICE, BOB, CAROL, policy, standard_policies, tables
from tests.support.spark import CATALOG, SparkLake

NOT_AUTHORIZED = "LAKEWARDEN.NOT_AUTHORIZED"


@pytest.fixture(scope="module")
def database(spark_lake: SparkLake) -> str:
    """A namespace of Alice's, whose tables Carol can read and Bob cannot."""
    made = spark_lake.namespace()
    name = made.removeprefix(f"{CATALOG}.")
    reading = policy(f"carol-{name}", tables(name), {CAROL: ["select"]})
    spark_lake.lake.set_policies([*standard_policies(), reading])
    return made


@pytest.fixture(scope="module")
def shared_table(spark_lake: SparkLake, database: str) -> str:
    """An encrypted table that no test changes."""
    return _made(spark_lake, f"{database}.shared")


@pytest.fixture
def own_table(spark_lake: SparkLake, database: str) -> str:
    """An encrypted table that a test can change."""
    return _made(spark_lake, f"{database}.t{uuid4().hex[:10]}")


def _made(spark_lake: SparkLake, table: str) -> str:
    properties = "TBLPROPERTIES ('encryption.mechanism' = 'envelope')"
    spark_lake.rows(f"CREATE TABLE {table} {properties} AS SELECT id, id * 10 AS value FROM range(4)")
    return table


@pytest.fixture
def view() -> str:
    """A name for a view."""
    return f"v{uuid4().hex[:10]}"


@pytest.fixture(autouse=True)
def nothing_stays_cached(spark_lake: SparkLake) -> Iterator[None]:
    """The tests share a Spark."""
    yield
    spark_lake.spark.catalog.clearCache()


def _ids(session: SparkSession, table: str) -> list[int]:
    return sorted(row.id for row in session.sql(f"SELECT id FROM {table}").collect())


def _assert_refused(session: SparkSession, table: str) -> None:
    with pytest.raises(AnalysisException) as refused:
        _ids(session, table)
    assert refused.value.getCondition() == NOT_AUTHORIZED, refused.value


@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize("cached", [False, True], ids=["plain", "cached"])
@pytest.mark.parametrize("inner", ["(SELECT * FROM {view})", "range(4) WHERE id IN (SELECT id FROM {view})"])
def test_a_global_view_of_a_frame_gives_nothing_to_whoever_has_no_right(
    spark_lake: SparkLake, shared_table: str, view: str, inner: str, cached: bool
) -> None:
    alice = spark_lake.session(ALICE)
    frame = alice.table(shared_table).filter("value > 0")
    if cached:
        frame.cache().count()
    frame.createGlobalTempView(view)
    asked = inner.format(view=f"global_temp.{view}")
    assert _ids(alice, asked) == [1, 2, 3]
    _assert_refused(spark_lake.session(BOB), asked)


@pytest.mark.nightly
@pytest.mark.parametrize("kind", ["GLOBAL TEMPORARY VIEW", "VIEW"])
def test_a_view_in_sql_is_read_with_the_rights_of_whoever_reads(
    spark_lake: SparkLake, shared_table: str, view: str, kind: str
) -> None:
    name = f"global_temp.{view}" if kind.startswith("GLOBAL") else f"spark_catalog.default.{view}"
    made = view if kind.startswith("GLOBAL") else name
    spark_lake.session(ALICE).sql(f"CREATE {kind} {made} AS SELECT * FROM {shared_table}")
    assert _ids(spark_lake.session(CAROL), name) == [0, 1, 2, 3]
    _assert_refused(spark_lake.session(BOB), name)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("change", "ids"),
    [
        ("INSERT INTO {table} VALUES (9, 90)", [0, 1, 2, 3, 9]),
        ("ALTER TABLE {table} ADD COLUMN more STRING", [0, 1, 2, 3]),
        pytest.param("REFRESH TABLE {table}", [0, 1, 2, 3], marks=pytest.mark.nightly),
    ],
)
def test_what_one_user_cached_is_in_nobodys_way(
    spark_lake: SparkLake, own_table: str, change: str, ids: list[int]
) -> None:
    """Spark would build it again as the user of the change, and fail when the change is there already."""
    alice, carol = spark_lake.session(ALICE), spark_lake.session(CAROL)
    carol.sql(f"CACHE TABLE {own_table}")
    carol.sql(f"SELECT sum(value) FROM {own_table} JOIN {own_table} USING (id, value)").cache().collect()
    alice.sql(f"CACHE TABLE {own_table}")
    alice.sql(change.format(table=own_table))
    assert _ids(carol, own_table) == _ids(alice, own_table) == ids


@pytest.mark.nightly
def test_an_insert_reads_and_writes_for_its_own_user(spark_lake: SparkLake, shared_table: str) -> None:
    own = f"{CATALOG}.bobs.t{uuid4().hex[:10]}"
    spark_lake.rows(f"CREATE NAMESPACE IF NOT EXISTS {CATALOG}.bobs")
    spark_lake.rows(f"CREATE TABLE {own} (id BIGINT, value BIGINT)", BOB)
    with pytest.raises(AnalysisException) as refused:
        spark_lake.rows(f"INSERT INTO {own} SELECT * FROM {shared_table}", BOB)
    assert refused.value.getCondition() == NOT_AUTHORIZED
    assert _ids(spark_lake.session(BOB), own) == []


@pytest.mark.nightly
def test_users_work_at_the_same_time_each_with_his_own_rights(spark_lake: SparkLake, own_table: str) -> None:
    def of_alice(number: int) -> list[int]:
        spark_lake.rows(f"INSERT INTO {own_table} VALUES ({100 + number}, 0)", ALICE)
        return _ids(spark_lake.session(ALICE), own_table)

    def of_carol(_: int) -> list[int]:
        return _ids(spark_lake.session(CAROL), own_table)

    def of_bob(_: int) -> list[int]:
        _assert_refused(spark_lake.session(BOB), own_table)
        return []

    work = [(each, number) for number in range(3) for each in (of_alice, of_bob, of_carol)]
    with ThreadPoolExecutor(6) as threads:
        answers = list(threads.map(lambda order: order[0](order[1]), work))
    assert all(answer == [] or answer[:4] == [0, 1, 2, 3] for answer in answers)
    assert _ids(spark_lake.session(CAROL), own_table) == [0, 1, 2, 3, 100, 101, 102]
