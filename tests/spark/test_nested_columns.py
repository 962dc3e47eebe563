"""Parts of nested columns: what a query reads of them, and by what right."""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkException

from tests.support.lake import ALICE, CAROL, policy, standard_policies
from tests.support.spark import SparkLake
from tests.support.spark_refusals import refused_as
from tests.support.spark_tables import create_table, data_files, local_path, master_keys

COLUMNS = """s STRUCT<a: INT, b: STRING, c: INT>, arr ARRAY<STRUCT<b: INT, x: STRING>>,
    m MAP<STRING, STRUCT<u: INT, v: STRING>>"""
LONG = "concat(uuid(), uuid(), uuid(), uuid())"
MODES = {
    "plaintext": {},
    "uniform": {"encryption.mechanism": "envelope"},
    "column keys": {"encryption.columns": "nested-one:s.a;nested-two:s.b,arr.element.x,m"},
}
CASES = [
    ("parquet", "column keys"),
    ("orc", "plaintext"),
    *(
        pytest.param(*each, marks=pytest.mark.nightly)
        for each in (("parquet", "plaintext"), ("parquet", "uniform"), ("orc", "uniform"))
    ),
]


def rows(spark_lake: SparkLake, query: str, user: str = ALICE) -> list[str] | None:
    """What a query answers, or None if it fails."""
    try:
        return sorted(map(str, spark_lake.rows(query, user)))
    except PySparkException:
        return None


def damage(spark_lake: SparkLake, table: str) -> None:
    """Overwrite a part of each column of long texts: they make up the file, one after the other."""
    for file in data_files(spark_lake, table):
        path = local_path(file)
        data = bytearray(path.read_bytes())
        for sixth in (1, 3, 5):
            at = len(data) * sixth // 6
            data[at : at + 50] = bytes(50)
        path.write_bytes(data)


@pytest.mark.parametrize(("form", "mode"), CASES)
def test_only_parts_that_are_asked_for_are_read_and_needed(
    spark_lake: SparkLake, namespace: str, form: str, mode: str
) -> None:
    table = f"{namespace}.t"
    for key in ("nested-one", "nested-two"):
        master_keys(spark_lake, key)
    create_table(spark_lake, table, COLUMNS, {"write.format.default": form, **MODES[mode]})
    spark_lake.rows(
        f"INSERT INTO {table} SELECT /*+ COALESCE(1) */ "
        f"named_struct('a', int(id), 'b', {LONG}, 'c', int(id % 4)), "
        f"array(named_struct('b', int(id), 'x', {LONG})), map('k', named_struct('u', int(id), 'v', {LONG})) "
        "FROM range(2000)"
    )
    query = f"SELECT s.a, arr.b FROM {table} WHERE s.c > 1"
    explained = spark_lake.rows(f"EXPLAIN FORMATTED {query}")[0][0]
    assert "ReadSchema: struct<s:struct<a:int,c:int>,arr:array<struct<b:int>>>" in explained
    expected = rows(spark_lake, query)
    assert expected is not None and len(expected) == 1000
    others = {each: rows(spark_lake, f"SELECT {each} FROM {table}") for each in ("s.b", "arr.x", "m")}
    # An encrypted ORC file has a digest of the whole.
    if (form, mode) != ("orc", "uniform"):
        damage(spark_lake, table)
        assert all(rows(spark_lake, f"SELECT {each} FROM {table}") != others[each] for each in others)
    assert rows(spark_lake, query) == expected
    on = {"database": [namespace.removeprefix("lake.")], "table": ["*"]}
    grant = policy("nested-grant", {**on, "column": ["s", "arr"]}, {CAROL: ["select"]})
    items = [{"users": [CAROL], "accesses": [{"type": "select", "isAllowed": True}]}]
    denied = {**on, "column": ["s.b", "arr.element.x"]}
    try:
        denial = policy("nested-denial", denied, {}, denyPolicyItems=items)
        spark_lake.lake.set_policies([*standard_policies(), grant, denial])
        assert rows(spark_lake, query, CAROL) == expected
        for refused in ("s", "s.b", "arr", "arr.x", "arr[0].x", "m"):
            refused_as("NOT_AUTHORIZED", spark_lake.session(CAROL), f"SELECT {refused} FROM {table}")
    finally:
        spark_lake.lake.set_policies(standard_policies())
