"""What one user read is nobody else's, and no setting of a session turns a check off."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

from tests.support.lake import ALICE, BOB, CAROL, policy, standard_policies
from tests.support.reads import as_agreed, data_files, publish, refused, with_ids
from tests.support.spark import SparkLake
from tests.support.spark_plans import is_cached

pytestmark = pytest.mark.core

ROWS = with_ids(pa.table({"id": pa.array(range(100), pa.int64()), "name": [f"n{i}" for i in range(100)]}))


@pytest.fixture(scope="module")
def table(spark_lake: SparkLake) -> str:
    """An encrypted table that Carol may read, in the database of which she may read all."""
    spark_lake.rows("CREATE NAMESPACE IF NOT EXISTS lake.db")
    name = "lake.db.read_by_users"
    spark_lake.rows(
        f"CREATE TABLE {name} (id BIGINT, name STRING) USING iceberg "
        "TBLPROPERTIES ('encryption.mechanism'='envelope')"
    )
    publish(spark_lake, name, ROWS, as_agreed)
    return name


@contextmanager
def policies(spark_lake: SparkLake, *more: dict[str, Any], without: str = "") -> Iterator[None]:
    """Other policies for a while: some added, or the one of a name left out."""
    kept = [each for each in standard_policies() if each["name"] != without]
    spark_lake.lake.set_policies([*kept, *more])
    try:
        yield
    finally:
        spark_lake.lake.set_policies(standard_policies())


def denied(table: str, column: str, user: str) -> dict[str, Any]:
    """A policy that denies a user a column."""
    _, database, name = table.split(".")
    items = [{"users": [user], "accesses": [{"type": "select", "isAllowed": True}]}]
    resources = {"database": [database], "table": [name], "column": [column]}
    return policy("denied", resources, {}, denyPolicyItems=items)


def test_users_scan_the_same_file_at_once(spark_lake, table):
    def scan(user: str) -> list[Any]:
        return spark_lake.new_session(user).sql(f"SELECT sum(id), max(name) FROM {table}").collect()

    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(scan, [ALICE, CAROL] * 4))
    assert answers == [[(4950, "n99")]] * 8
    with pytest.raises(PySparkException, match="NotAuthorized"):
        scan(BOB)


@pytest.mark.nightly
def test_what_one_user_cached_is_not_served_to_another(spark_lake, table):
    cached = spark_lake.session(ALICE).table(table).cache()
    try:
        assert cached.count() == 100
        refused(spark_lake, f"SELECT * FROM {table}", "NOT_AUTHORIZED", "policy-no-match", BOB)
        with policies(spark_lake, denied(table, "name", CAROL)):
            assert len(spark_lake.rows(f"SELECT id FROM {table}", CAROL)) == 100
            with pytest.raises(PySparkException, match="NotAuthorized"):
                spark_lake.rows(f"SELECT * FROM {table}", CAROL)
            assert not is_cached(spark_lake.session(CAROL).table(table).select("id"))
        assert not is_cached(spark_lake.session(CAROL).table(table))
    finally:
        cached.unpersist(blocking=True)


@pytest.mark.nightly
def test_what_a_user_cached_is_not_served_under_other_policies(spark_lake, table):
    spark_lake.rows(f"CACHE TABLE {table}", CAROL)
    try:
        assert spark_lake.rows(f"SELECT count(*) FROM {table}", CAROL) == [(100,)]
        with (
            policies(spark_lake, without="carol-reads"),
            pytest.raises(PySparkException, match="NotAuthorized"),
        ):
            spark_lake.rows(f"SELECT * FROM {table}", CAROL)
        with (
            policies(spark_lake, denied(table, "name", CAROL)),
            pytest.raises(PySparkException, match="NotAuthorized"),
        ):
            spark_lake.rows(f"SELECT max(name) FROM {table}", CAROL)
    finally:
        spark_lake.rows(f"UNCACHE TABLE {table}", CAROL)


@pytest.mark.nightly
def test_a_view_of_one_user_reads_with_the_rights_of_the_one_who_asks(spark_lake, table):
    spark_lake.session(ALICE).table(table).createOrReplaceGlobalTempView("alices")
    try:
        assert spark_lake.rows("SELECT count(*) FROM global_temp.alices", ALICE) == [(100,)]
        with pytest.raises(PySparkException) as caught:
            spark_lake.rows("SELECT count(*) FROM global_temp.alices", BOB)
        assert caught.value.getCondition().startswith("LAKEWARDEN.")
    finally:
        spark_lake.session(ALICE).catalog.dropGlobalTempView("alices")


SETTINGS = {
    "parquet.crypto.factory.class": "org.apache.parquet.crypto.keytools.PropertiesDrivenCryptoFactory",
    "spark.hadoop.parquet.crypto.factory.class": "no.such.Factory",
    "parquet.read.support.class": "no.such.ReadSupport",
    "fs.file.impl": "no.such.FileSystem",
    "spark.hadoop.fs.file.impl": "no.such.FileSystem",
    "parquet.encryption.plaintext.footer": "true",
    "spark.sql.files.ignoreCorruptFiles": "true",
    "spark.sql.files.ignoreMissingFiles": "true",
    "spark.sql.parquet.binaryAsString": "true",
    "spark.sql.parquet.int96AsTimestamp": "false",
    "spark.sql.parquet.fieldId.read.enabled": "true",
    "spark.sql.parquet.fieldId.read.ignoreMissing": "true",
    "spark.sql.parquet.enableVectorizedReader": "false",
    "spark.sql.parquet.enableNestedColumnVectorizedReader": "false",
    "spark.sql.parquet.datetimeRebaseModeInRead": "LEGACY",
    "spark.sql.parquet.inferTimestampNTZ.enabled": "false",
    "spark.sql.parquet.mergeSchema": "true",
    "spark.sql.caseSensitive": "true",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.optimizer.nestedSchemaPruning.enabled": "false",
}


def test_no_setting_of_a_session_turns_a_check_off_or_changes_a_row(spark_lake, namespace, table):
    odd = f"{namespace}.odd"
    spark_lake.rows(
        f"CREATE TABLE {odd} (b BINARY, d DATE, t TIMESTAMP, n TIMESTAMP_NTZ, s STRUCT<a: INT>) USING iceberg"
    )
    spark_lake.rows(
        f"INSERT INTO {odd} VALUES (X'61', DATE'1000-01-01', TIMESTAMP'1000-01-01 00:00:00Z', "
        "TIMESTAMP_NTZ'1000-01-01 00:00:00', named_struct('a', 1))"
    )
    session = spark_lake.new_session()
    shown = f"SELECT hex(b), string(d), unix_micros(t), string(n), s.a FROM {odd}"
    before = session.sql(shown).collect()
    for name, value in SETTINGS.items():
        session.conf.set(name, value)
    assert (
        session.sql(shown).collect()
        == before
        == [("61", "1000-01-01", -30610224000000000, "1000-01-01 00:00:00", 1)]
    )
    summed = f"SELECT sum(id), max(name) FROM {table}"
    assert session.sql(summed).collect() == [(4950, "n99")]
    (path,) = data_files(spark_lake, table)
    honest = path.read_bytes()
    path.write_bytes(honest[:200] + bytes([honest[200] ^ 1]) + honest[201:])
    try:
        with pytest.raises(PySparkException, match="DecryptionRefused"):
            session.sql(summed).collect()
    finally:
        path.write_bytes(honest)


@pytest.mark.nightly
def test_rows_too_wide_for_batches_are_the_same(spark_lake, table):
    session = spark_lake.new_session()
    session.conf.set("spark.sql.codegen.maxFields", "1")
    assert session.sql(f"SELECT sum(id), max(name) FROM {table} WHERE id > 5").collect() == [(4935, "n99")]


@pytest.mark.nightly
@pytest.mark.parametrize("rows", ["-5", "0", "1", "2147483647"])
def test_no_size_of_batches_loses_rows_or_looks_like_damage(spark_lake, table, rows):
    session = spark_lake.new_session()
    session.conf.set("spark.sql.parquet.columnarReaderBatchSize", rows)
    assert session.sql(f"SELECT sum(id), max(name) FROM {table}").collect() == [(4950, "n99")]


@pytest.mark.nightly
def test_an_option_without_effect_is_refused(spark_lake, table):
    with pytest.raises(PySparkException, match="NotSupportedYet"):
        spark_lake.session().read.option("locality", "true").table(table).collect()


def test_nothing_secret_stands_in_the_plan_of_a_query(spark_lake, table):
    session = spark_lake.session()
    frame = session.sql(f"SELECT * FROM {table} WHERE id > 3")
    assert len(frame.collect()) == 96
    texts = [frame._jdf.queryExecution().explainString(mode) for mode in _explain_modes(session)]
    texts.append(str([str(part) for part in _partitions(frame)]))
    for text in texts:
        assert "Secret(" not in text
        assert "wrapped" not in text.lower()
    assert "GuardedPartition(file:///" in texts[-1]


def _explain_modes(session: Any) -> list[Any]:
    execution = session.sparkContext._jvm.org.apache.spark.sql.execution
    return [
        execution.ExplainMode.fromString(name)
        for name in ("simple", "extended", "codegen", "cost", "formatted")
    ]


def _partitions(frame: Any) -> list[Any]:
    scan = frame._jdf.queryExecution().executedPlan().collectLeaves().head()
    return list(scan.batch().planInputPartitions())
