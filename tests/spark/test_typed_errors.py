"""Every failure of a statement is a typed PySpark exception with condition, SQLSTATE and parameters."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import IllegalArgumentException, PySparkException

from catalog.base import errors as catalog_errors
from policy import errors as policy_errors
from spark_ext.jar import SOURCES
from spark_ext.spark_errors import PREFIX, condition, sql_states
from tests.support.lake import BOB
from tests.support.reads import data_files, replaced
from tests.support.spark import SparkLake
from tests.support.spark_connect import ConnectLake
from tests.support.spark_refusals import refusal

pytestmark = pytest.mark.core

_PAGE = Path(__file__).parents[2] / "docs" / "spark.md"
#: Classes of the tree that no answer has: those above others, and those of other interfaces.
_ABOVE = {"LakewardenError", "InvalidInput", "Refused", "Unavailable", "NoSuchPlan", "NoSuchPlanTask"}


def test_each_error_has_a_sql_state_that_the_page_shows() -> None:
    python = {
        name
        for module in (policy_errors, catalog_errors)
        for name, kind in vars(module).items()
        if isinstance(kind, type) and issubclass(kind, policy_errors.LakewardenError)
    }
    scala = {
        kind
        for source in SOURCES.rglob("*.scala")
        for kind in re.findall(r'new LakewardenException\(\s*"(\w+)"', source.read_text())
    }
    states = sql_states()
    assert len(scala) > 10
    assert {condition(each) for each in (python - _ABOVE) | scala} - states.keys() == set()
    section = _PAGE.read_text().split("## Errors\n")[1].split("\n## ")[0]
    shown = {
        name: state
        for state, names in re.findall(r"^\| `(\w{5})` \| .* \| (.*) \|$", section, re.MULTILINE)
        for name in re.findall(r"`(\w+)`", names)
    }
    assert shown == states


def _own(error: PySparkException) -> tuple[str, str | None]:
    """Condition and SQLSTATE of an error of Lakewarden, which has a message and parameters."""
    name, parameters = str(error.getCondition()), error.getMessageParameters() or {}
    assert name.startswith(PREFIX), f"{type(error)}: {error}"
    assert parameters["problem"] in str(error) and error.getMessage() in str(error)
    return name.removeprefix(PREFIX), error.getSqlState()


@pytest.mark.nightly
def test_damaged_file_is_refused_the_same_wherever_it_is_read(spark_lake: SparkLake, namespace: str) -> None:
    spark, rows = spark_lake.spark, "SELECT id, concat('n', id) AS name FROM range(0, 50, 1, 1)"
    for name in ("t", "sound"):
        spark_lake.rows(
            f"CREATE TABLE {namespace}.{name} TBLPROPERTIES ('encryption.mechanism' = 'envelope') AS {rows}"
        )
    t, sound = f"{namespace}.t", f"{namespace}.sound"
    (path,) = data_files(spark_lake, t)
    data = path.read_bytes()
    reads: dict[str, Callable[[], object]] = {
        "collect": lambda: spark.table(t).collect(),
        "local iterator": lambda: list(spark.table(t).toLocalIterator()),
        "scalar subquery": lambda: spark_lake.rows(
            f"SELECT * FROM {sound} WHERE id = (SELECT max(id + 1) FROM {t})"
        ),
        "INSERT": lambda: spark_lake.rows(f"INSERT INTO {sound} TABLE {t}"),
        "CREATE TABLE AS": lambda: spark_lake.rows(f"CREATE TABLE {t}_2 AS TABLE {t}"),
        "UPDATE": lambda: spark_lake.rows(f"UPDATE {t} SET name = 'x' WHERE name = 'n1'"),
        "MERGE": lambda: spark_lake.rows(
            f"MERGE INTO {sound} a USING {t} b ON a.id = b.id WHEN MATCHED THEN UPDATE SET name = b.name"
        ),
    }
    with replaced(path, data[:60] + bytes([data[60] ^ 1]) + data[61:]):
        for name, read in reads.items():
            assert _own(refusal(read)) == ("DECRYPTION_REFUSED", "42501"), name
    assert spark_lake.rows(f"SELECT count(*) FROM {sound} JOIN {t} USING (id, name)") == [(50,)]


def test_each_kind_of_failure_is_typed(spark_lake: SparkLake, namespace: str) -> None:
    t, spark = f"{namespace}.t", spark_lake.spark
    spark_lake.rows(f"CREATE TABLE {t} (id BIGINT)")
    own = {
        "CALL lake.system.rotate_key(table => 'nope')": ("REQUEST_INVALID", "22023"),
        f"CREATE TABLE {t}_2 (id VARIANT)": ("NOT_SUPPORTED_YET", "0A000"),
        f"CREATE TABLE {t}_2 (id INT) USING avro": ("NOT_SUPPORTED_YET", "0A000"),
        f"ALTER TABLE {t} ALTER COLUMN id TYPE STRING": ("REQUEST_INVALID", "22023"),
        f"ALTER TABLE {t} SET TBLPROPERTIES ('write.distribution-mode' = 'x')": ("PROPERTY_INVALID", "22023"),
        f"SELECT * FROM {t} VERSION AS OF 1": ("NO_SUCH_SNAPSHOT", "42704"),
        "SELECT lake.system.bucket(0, 1)": ("REQUEST_INVALID", "22023"),
        f"CALL lake.system.add_files('{t}', 'parquet.``')": ("REQUEST_INVALID", "22023"),
    }
    if not spark.version.startswith("4.1"):
        changes = f"SELECT * FROM {t} CHANGES FROM TIMESTAMP timestamp_millis(1)"
        own[changes] = ("REQUEST_INVALID", "22023")
    for statement, expected in own.items():
        assert _own(refusal(lambda s=statement: spark_lake.rows(s))) == expected, statement
    denied = refusal(lambda: spark_lake.rows(f"SELECT * FROM {t}", BOB))
    assert _own(denied) == ("NOT_AUTHORIZED", "42501")
    assert {"table": t.removeprefix("lake."), "rule": "policy-no-match"}.items() <= (
        denied.getMessageParameters() or {}
    ).items()
    of_spark = {
        f"SELECT * FROM {t}_nope": ("TABLE_OR_VIEW_NOT_FOUND", "42P01"),
        f"CALL lake.system.rotate_key(table => '{t.removeprefix('lake.')}_nope')": (
            "TABLE_OR_VIEW_NOT_FOUND",
            "42P01",
        ),
        f"CREATE TABLE {t} (id INT)": ("TABLE_OR_VIEW_ALREADY_EXISTS", "42P07"),
        f"INSERT INTO {t} SELECT raise_error('boom')": ("USER_RAISED_EXCEPTION", "P0001"),
        "SELECT (SELECT max(raise_error('boom' || id)) FROM range(1))": ("USER_RAISED_EXCEPTION", "P0001"),
        "SELECT (SELECT id FROM range(2))": ("SCALAR_SUBQUERY_TOO_MANY_ROWS", "21000"),
        "SET CATALOG nope": ("CATALOG_NOT_FOUND", "42P08"),
    }
    for statement, expected in of_spark.items():
        error = refusal(lambda s=statement: spark_lake.rows(s))
        assert (error.getCondition(), error.getSqlState()) == expected, statement
    assert spark.table(t).count() == 0


@pytest.mark.nightly
def test_storage_that_takes_no_file_is_named(spark_lake: SparkLake, namespace: str) -> None:
    table = f"{namespace}.t"
    spark_lake.rows(f"CREATE TABLE {table} (id BIGINT)")
    (location,) = spark_lake.rows(f"SHOW TBLPROPERTIES {table} ('read.allowed.data.paths')")
    directory = Path(location.value.removeprefix("file://")) / "data"
    directory.parent.mkdir(parents=True, exist_ok=True)
    directory.write_text("a file where a directory must be")
    for statement in (f"INSERT INTO {table} VALUES (1)", f"INSERT OVERWRITE {table} SELECT 1"):
        error: Any = refusal(lambda s=statement: spark_lake.rows(s))
        assert _own(error) == ("STORAGE_UNAVAILABLE", "58030")
        if isinstance(spark_lake, ConnectLake):
            continue
        # Spark's Thrift server shows the last one in the chain of causes.
        last = spark_lake.spark._jvm.org.apache.commons.lang3.exception.ExceptionUtils.getRootCause(
            error._origin
        )
        assert (last or error._origin).getSqlState() == "58030"


@pytest.mark.nightly
def test_errors_that_spark_leaves_untyped_have_general_conditions(
    spark_lake: SparkLake, namespace: str
) -> None:
    spark_lake.rows(f"CREATE TABLE {namespace}.t (id BIGINT)")
    without_a_state = refusal(
        lambda: spark_lake.rows(f"ALTER TABLE {namespace}.t PARTITION (id = 1) SET LOCATION 'file:///x'")
    )
    assert str(without_a_state.getCondition()).startswith("_LEGACY_ERROR_TEMP_")
    assert without_a_state.getSqlState() == "HY000" and "v2 tables" in without_a_state.getMessage()
    untyped = refusal(lambda: spark_lake.rows(f"SELECT /*+ REPARTITION(0) */ * FROM {namespace}.t"))
    assert isinstance(untyped, IllegalArgumentException)
    assert (untyped.getCondition(), untyped.getSqlState()) == ("LEGACY", "HY000")
    assert "must be positive" in untyped.getMessage() and untyped.getMessageParameters() is not None


@pytest.mark.nightly
def test_what_ended_a_stream_is_typed(spark_lake: SparkLake, namespace: str, tmp_path: Path) -> None:
    source, target = f"{namespace}.source", f"{namespace}.target"
    spark_lake.rows(f"CREATE TABLE {source} AS SELECT 1 AS id")
    spark_lake.rows(f"CREATE TABLE {target} (id INT)")
    rows = spark_lake.spark.readStream.table(source).selectExpr("CAST(id / (id - 1) AS INT) AS id")
    writer = rows.writeStream.trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).toTable(target)
    ended = [refusal(query.awaitTermination)]
    if isinstance(spark_lake, ConnectLake):  # PySpark's client makes that exception without its condition.
        assert "(STREAM_FAILED)" in str(query.exception())
    else:
        ended.append(query.exception())
    for error in ended:
        assert (error.getCondition(), error.getSqlState()) == ("STREAM_FAILED", "XXKST")
        assert "DIVIDE_BY_ZERO" in (error.getMessageParameters() or {})["message"]
