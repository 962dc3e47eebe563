"""CALL rewrite_position_delete_files, and how rewrites are committed: together, or several at a time."""

from __future__ import annotations

import pytest

from catalog.base import crash_points
from policy.errors import StateUnavailable
from tests.support.spark import CATALOG, SparkLake
from tests.support.spark_refusals import refused_as
from tests.support.spark_tables import create_table, data_files, master_keys, migrating, stock_table

pytestmark = pytest.mark.core

MERGE_ON_READ = {"write.delete.mode": "merge-on-read", "write.delete.granularity": "partition"}
FEW = "options => map('min-input-files', '2')"


def statement(table: str, *more: str, procedure: str = "rewrite_position_delete_files") -> str:
    named = f"table => '{table.removeprefix(f'{CATALOG}.')}'"
    return f"CALL {CATALOG}.system.{procedure}({', '.join([named, *more])})"


def call(spark_lake: SparkLake, table: str, *more: str) -> dict[str, int]:
    (row,) = spark_lake.spark.sql(statement(table, *more)).collect()
    return dict(row.asDict())


def deletes(spark_lake: SparkLake, table: str) -> list[dict[str, object]]:
    rows = stock_table(spark_lake, table).inspect.delete_files().to_pylist()
    return [dict(row) for row in rows]


def ids(spark_lake: SparkLake, table: str) -> list[int]:
    return sorted(row[0] for row in spark_lake.rows(f"SELECT id FROM {table}"))


def described_jobs(spark_lake: SparkLake) -> set[str]:
    """The descriptions of Spark's jobs, as its UI shows them."""
    context = spark_lake.spark._jsc.sc()
    context.listenerBus().waitUntilEmpty()
    jobs = context.statusStore().jobsList(None)
    found = (str(jobs.apply(at).description()) for at in range(jobs.size()))
    return {each.removeprefix("Some(").removesuffix(")") for each in found}


@pytest.mark.nightly
def test_small_and_dangling_delete_files_become_few(spark_lake: SparkLake, namespace: str) -> None:
    """In an encrypted table that is partitioned, with positions of a file that was rewritten since."""
    table = f"{namespace}.t"
    encrypted = {"encryption.mechanism": "envelope", "encryption.plaintext-columns": "p"}
    create_table(spark_lake, table, "id INT, p INT", MERGE_ON_READ | encrypted, "p")
    spark_lake.rows(f"INSERT INTO {table} SELECT INT(id), INT(id % 2) FROM range(0, 20)")
    for gone in (2, 3, 4):
        spark_lake.rows(f"DELETE FROM {table} WHERE id IN ({gone}, {gone + 1})")
    old = deletes(spark_lake, table)
    left = ids(spark_lake, table)
    assert call(spark_lake, table)["rewritten_delete_files_count"] == 0
    some = call(spark_lake, table, FEW, "where => 'p = 1'")
    done = call(spark_lake, table, FEW)
    assert [each["added_delete_files_count"] for each in (some, done)] == [1, 1]
    assert some["rewritten_delete_files_count"] + done["rewritten_delete_files_count"] == len(old)
    packed = deletes(spark_lake, table)
    assert len(packed) == 2 and all(each["key_metadata"] is not None for each in packed)
    assert sum(int(str(each["record_count"])) for each in packed) == 20 - len(left)
    assert done["added_bytes_count"] in {each["file_size_in_bytes"] for each in packed}
    assert sum(int(str(each["file_size_in_bytes"])) for each in old) == (
        some["rewritten_bytes_count"] + done["rewritten_bytes_count"]
    )
    spark_lake.spark.sql(
        statement(
            table,
            "where => 'p = 0'",
            "options => map('rewrite-all', 'true', 'remove-dangling-deletes', 'false')",
            procedure="rewrite_data_files",
        )
    )
    assert len(deletes(spark_lake, table)) == 2
    dropped = call(spark_lake, table)
    assert (dropped["rewritten_delete_files_count"], dropped["added_delete_files_count"]) == (1, 0)
    assert len(deletes(spark_lake, table)) == 1
    assert ids(spark_lake, table) == left


@pytest.mark.nightly
@pytest.mark.parametrize("protection", ["plaintext", "orc", "column keys", "encrypted since"])
@pytest.mark.parametrize("granularity", ["file", "partition"])
def test_the_rows_of_a_table_stay(
    spark_lake: SparkLake, namespace: str, protection: str, granularity: str
) -> None:
    table = f"{namespace}.t"
    master_keys(spark_lake, "pii")
    properties = {
        "plaintext": {},
        "encrypted since": {},
        "orc": {"encryption.mechanism": "envelope", "write.format.default": "orc"},
        "column keys": {"encryption.columns": "pii:name"},
    }[protection] | {"write.delete.mode": "merge-on-read", "write.delete.granularity": granularity}
    create_table(spark_lake, table, "id INT, name STRING", properties)
    for start in (0, 100, 200):
        spark_lake.rows(f"INSERT INTO {table} SELECT INT(id), 'n' || id FROM range({start}, {start + 100})")
    for rest in (3, 7, 11, 13):
        spark_lake.rows(f"DELETE FROM {table} WHERE id % {rest} = 0")
    if protection == "encrypted since":
        spark_lake.rows(f"ALTER TABLE {table} SET TBLPROPERTIES ('encryption.mechanism' = 'envelope')")
    left = ids(spark_lake, table)
    assert left == [each for each in range(300) if all(each % rest for rest in (3, 7, 11, 13))]
    data = [each for each in data_files(spark_lake, table) if each["content"] == 0]
    done = call(spark_lake, table, "options => map('rewrite-all', 'true')")
    assert done["added_delete_files_count"] == (len(data) if granularity == "file" else 1)
    packed = deletes(spark_lake, table)
    assert len(packed) == done["added_delete_files_count"]
    assert all((each["key_metadata"] is None) == (protection == "plaintext") for each in packed)
    assert ids(spark_lake, table) == left
    spark_lake.rows(f"DELETE FROM {table} WHERE id % 2 = 0")
    assert ids(spark_lake, table) == [each for each in left if each % 2]
    call(spark_lake, table)
    assert call(spark_lake, table) == dict.fromkeys(done, 0)
    assert ids(spark_lake, table) == [each for each in left if each % 2]


@pytest.mark.nightly
def test_a_rewrite_without_partial_progress_is_one_commit_or_none(
    spark_lake: SparkLake, namespace: str
) -> None:
    """Of groups that are written by two threads."""
    table = f"{namespace}.t"
    before = migrating(spark_lake, table)
    one_file = "'max-file-group-size-bytes', '1', 'max-concurrent-file-group-rewrites', '2'"
    whole = f"options => map({one_file}, 'partial-progress.enabled', 'false')"
    started = []

    def hook(point: str) -> None:
        if point == "write:begun":
            started.append(point)
        if point == "write:committing":
            raise StateUnavailable("The database is away.")

    with crash_points.hooked(hook):
        refused_as(
            "STATE_UNAVAILABLE", spark_lake.spark, statement(table, whole, procedure="rewrite_data_files")
        )
    assert started == ["write:begun"]
    count = len(stock_table(spark_lake, table).snapshots())
    (row,) = spark_lake.rows(statement(table, whole, procedure="rewrite_data_files"))
    assert row[:2] == (3, 3)
    assert len(stock_table(spark_lake, table).snapshots()) == count + 1
    shown = described_jobs(spark_lake)
    assert shown >= {f"rewrite_data_files {table}: group {number} of 3" for number in (1, 2, 3)}
    assert all(each["key_metadata"] is not None for each in data_files(spark_lake, table))
    assert sorted(spark_lake.rows(f"SELECT * FROM {table}")) == before


@pytest.mark.nightly
def test_commits_are_no_more_than_the_call_says(spark_lake: SparkLake, namespace: str) -> None:
    table = f"{namespace}.t"
    before = migrating(spark_lake, table, files=5)
    options = "'max-file-group-size-bytes', '1', 'partial-progress.max-commits', '2'"
    count = len(stock_table(spark_lake, table).snapshots())
    (row,) = spark_lake.rows(statement(table, f"options => map({options})", procedure="rewrite_data_files"))
    assert row[:2] == (5, 5)
    assert len(stock_table(spark_lake, table).snapshots()) == count + 2
    assert sorted(spark_lake.rows(f"SELECT * FROM {table}")) == before
