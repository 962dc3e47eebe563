"""Writes that fail: nothing of them is seen, and what is left of them lies where it is cleaned up."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, PySparkException
from sqlalchemy import func, select

from catalog.db.engine import read
from catalog.db.schema import lw_write
from policy.errors import CommitStateUnknown, LakewardenError, StateUnavailable
from tests.support.lake import CAROL
from tests.support.spark import CATALOG, SparkLake
from tests.support.spark_tables import create_table, stock_table
from tests.support.tables import ENCRYPTED

Commit = Callable[..., Any]


def _left(spark_lake: SparkLake, table: str) -> list[Path]:
    """The files in a table's data directory."""
    location = stock_table(spark_lake, table).location().removeprefix("file://")
    return [path for path in Path(location).joinpath("data").rglob("*") if path.is_file()]


def _writes(spark_lake: SparkLake) -> int:
    with read(spark_lake.lake.services.engine) as connection:
        return connection.scalar(select(func.count()).select_from(lw_write)) or 0


@pytest.mark.parametrize("properties", [{}, ENCRYPTED], ids=["plain", "encrypted"])
def test_a_task_that_fails_leaves_no_rows_and_no_files(
    spark_lake: SparkLake, namespace: str, properties: dict[str, str]
) -> None:
    """It fails after rows and whole files were written."""
    table = f"{namespace}.t"
    create_table(spark_lake, table, "id BIGINT", {**properties, "write.target-file-size-bytes": "1"})
    query = "SELECT if(id = 19000, raise_error('broken'), id) FROM range(0, 20000, 1, 1)"
    with pytest.raises(PySparkException, match="broken"):
        spark_lake.rows(f"INSERT INTO {table} {query}")
    assert stock_table(spark_lake, table).current_snapshot() is None
    assert _left(spark_lake, table) == []


@pytest.mark.nightly
def test_a_null_where_the_table_has_none_is_refused(spark_lake: SparkLake, namespace: str) -> None:
    """On the top level and inside; Spark does it, since the table shows its columns as required."""
    table = f"{namespace}.t"
    create_table(spark_lake, table, "id INT NOT NULL, who STRUCT<name: STRING NOT NULL>")
    for row in (
        "cast(null as int), named_struct('name', 'n')",
        "1, named_struct('name', cast(null as string))",
    ):
        with pytest.raises(PySparkException, match="NOT_NULL_ASSERT_VIOLATION"):
            spark_lake.rows(f"INSERT INTO {table} SELECT {row}")
    spark_lake.rows(f"INSERT INTO {table} SELECT 1, cast(null as struct<name: string>)")
    assert stock_table(spark_lake, table).scan().to_arrow().to_pylist() == [{"id": 1, "who": None}]


@pytest.mark.nightly
@pytest.mark.parametrize("published", [True, False])
@pytest.mark.parametrize("problem", [CommitStateUnknown, StateUnavailable])
def test_a_commit_whose_answer_is_lost_is_asked_again(
    spark_lake: SparkLake,
    namespace: str,
    monkeypatch: pytest.MonkeyPatch,
    published: bool,
    problem: type[LakewardenError],
) -> None:
    """Committing twice is one commit."""
    table = f"{namespace}.t"
    create_table(spark_lake, table, "id INT")
    writes, lost = spark_lake.lake.services.writes, []
    commit = writes.commit

    def once(*given: Any) -> Any:
        if lost:
            return commit(*given)
        lost.append(True)
        if published:
            commit(*given)
        raise problem("The answer is lost.")

    monkeypatch.setattr(writes, "commit", once)
    spark_lake.rows(f"INSERT INTO {table} VALUES (1)")
    loaded = stock_table(spark_lake, table)
    assert len(loaded.snapshots()) == 1
    assert loaded.scan().to_arrow()["id"].to_pylist() == [1]


@pytest.mark.nightly
def test_a_commit_that_is_refused_leaves_nothing(
    spark_lake: SparkLake, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user is told the catalog's reason; the write is given up."""
    table = f"{namespace}.t"
    create_table(spark_lake, table, "id INT")

    def never(*_: Any) -> Any:
        raise StateUnavailable("The database does not answer.")

    monkeypatch.setattr(spark_lake.lake.services.writes, "commit", never)
    with pytest.raises(AnalysisException, match="StateUnavailable"):
        spark_lake.rows(f"INSERT INTO {table} VALUES (1)")
    assert stock_table(spark_lake, table).current_snapshot() is None
    assert _left(spark_lake, table) == []


@pytest.mark.nightly
def test_a_write_begins_when_it_is_carried_out(spark_lake: SparkLake, namespace: str) -> None:
    """Neither planning nor explaining one makes anything at the catalog."""
    table = f"{namespace}.t"
    create_table(spark_lake, table, "id INT")
    before = _writes(spark_lake)
    plan = spark_lake.rows(f"EXPLAIN EXTENDED INSERT INTO {table} VALUES (1)")[0][0]
    assert f"append {table}" in plan
    assert _writes(spark_lake) == before
    spark_lake.rows(f"INSERT INTO {table} VALUES (1)")
    assert _writes(spark_lake) == before + 1


@pytest.mark.nightly
def test_who_may_only_read_does_not_write(spark_lake: SparkLake) -> None:
    spark_lake.rows(f"CREATE NAMESPACE IF NOT EXISTS {CATALOG}.db")
    create_table(spark_lake, f"{CATALOG}.db.written_by_alice", "id INT")
    with pytest.raises(AnalysisException, match="NotAuthorized"):
        spark_lake.rows(f"INSERT INTO {CATALOG}.db.written_by_alice VALUES (1)", user=CAROL)
    assert stock_table(spark_lake, f"{CATALOG}.db.written_by_alice").current_snapshot() is None


@pytest.mark.nightly
def test_no_rows_are_an_append_too(spark_lake: SparkLake, namespace: str) -> None:
    table = f"{namespace}.t"
    create_table(spark_lake, table, "id BIGINT")
    spark_lake.rows(f"INSERT INTO {table} SELECT id FROM range(0)")
    loaded = stock_table(spark_lake, table)
    assert (len(loaded.snapshots()), loaded.scan().to_arrow().num_rows) == (1, 0)
    assert _left(spark_lake, table) == []
