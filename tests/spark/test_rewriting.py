"""The pipeline that rewrites tables, namespaces and lakes, by CALL after CALL."""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkException

from lakewarden import rewrite_data_files
from policy.errors import RequestInvalid
from tests.support.lake import ALICE, BOB, policy, standard_policies, tables
from tests.support.spark import CATALOG, SparkLake
from tests.support.spark_tables import create_table, data_files, local_path, migrating


@pytest.mark.nightly
def test_a_namespace_is_rewritten_table_by_table(
    spark_lake: SparkLake, namespace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    migrating(spark_lake, f"{namespace}.a", files=2)
    migrating(spark_lake, f"{namespace}.`b c`", files=1)
    create_table(spark_lake, f"{namespace}.plain", "id INT")
    done = rewrite_data_files(spark_lake.spark, namespace, max_group_bytes=1)
    assert {each.table: (each.rewritten_files, each.left_files, each.problem) for each in done} == {
        f"{namespace}.a": (2, 0, None),
        f"{namespace}.`b c`": (1, 0, None),
        f"{namespace}.plain": (0, 0, None),
    }
    printed = capsys.readouterr().out
    assert all(each.table in printed for each in done)
    again = rewrite_data_files(spark_lake.spark, f"{namespace}.a", f"{namespace}.`b c`", show=False)
    assert [(each.rewritten_files, each.left_files) for each in again] == [(0, 0), (0, 0)]
    assert capsys.readouterr().out == ""
    assert sorted(spark_lake.rows(f"SELECT id FROM {namespace}.a")) == [(0,), (1,)]


@pytest.mark.nightly
def test_a_group_that_fails_leaves_the_others_to_be_rewritten(spark_lake: SparkLake, namespace: str) -> None:
    table = f"{namespace}.t"
    migrating(spark_lake, table, files=3)
    damaged = min(data_files(spark_lake, table), key=lambda file: str(file["file_path"]))
    local_path(damaged).write_bytes(b"PAR1 no more")
    (done,) = rewrite_data_files(spark_lake.spark, table, max_group_bytes=1, show=False)
    assert (done.rewritten_files, done.left_files) == (2, 1)
    assert done.problem is not None and local_path(damaged).name in done.problem
    (again,) = rewrite_data_files(spark_lake.spark, table, forbid_old=True, show=False)
    assert (again.rewritten_files, again.left_files, again.old_forbidden) == (0, 1, False)
    assert again.problem is not None and "old-epoch-in-use" in again.problem
    assert again.problem.count(local_path(damaged).name) == 1


@pytest.mark.nightly
def test_what_a_table_refuses_is_reported_and_the_next_one_follows(
    spark_lake: SparkLake, namespace: str
) -> None:
    lake = spark_lake.lake
    for name in ("a", "b"):
        migrating(spark_lake, f"{namespace}.{name}", files=1)
    database = namespace.removeprefix(f"{CATALOG}.")
    one = {"database": [database], "table": ["b"], "column": ["*"]}
    more = [
        policy("bob-reads", tables(database), {BOB: ["select"]}),
        policy("bob-writes", one, {BOB: ["update", "alter"]}),
    ]
    lake.set_policies([*standard_policies(), *more])
    try:
        first, second = rewrite_data_files(spark_lake.session(BOB), namespace, show=False)
    finally:
        lake.set_policies(standard_policies())
    assert first.problem is not None and "NotAuthorized" in first.problem
    assert second.problem is None
    assert second.rewritten_files == 1


@pytest.mark.parametrize("name", ["", "lake.absent", "lake.a.b.c", "lake..t", "lake.`t", "lake; DROP"])
def test_names_of_nothing_are_refused(spark_lake: SparkLake, name: str) -> None:
    with pytest.raises((RequestInvalid, PySparkException)):
        rewrite_data_files(spark_lake.session(ALICE), name, show=False)
