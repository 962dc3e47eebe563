"""Rows that Spark does not sort again, because the files of the table have its sort order."""

from __future__ import annotations

from random import Random

import pytest

from tests.spark.test_read_optimizer import KEPT, settings
from tests.support.random_conditions import LITERALS, as_shown
from tests.support.spark import SparkLake
from tests.support.spark_tables import create_table, master_keys

ORDERED = {
    **KEPT,
    "spark.sql.iceberg.planning.preserve-data-ordering": "true",
    "spark.sql.join.preferSortMergeJoin": "true",
}
JOIN = "SELECT a.id, a.p, b.n FROM {a} a JOIN {b} b ON a.p = b.p AND a.id = b.id"
MODES = {
    "plaintext": {},
    "uniform": {"encryption.mechanism": "envelope", "encryption.partition-values": "plaintext"},
    "column keys": {"encryption.columns": "order-one:id,n"},
    "orc": {"write.format.default": "orc"},
}


def plan_of(spark_lake: SparkLake, query: str) -> str:
    frame = spark_lake.session().sql(query)
    return str(frame._jdf.queryExecution().executedPlan().toString())


def sorts(spark_lake: SparkLake, query: str) -> int:
    """How often Spark sorts."""
    return plan_of(spark_lake, query).count("Sort [")


def pair(spark_lake: SparkLake, namespace: str, properties: dict[str, str]) -> tuple[str, str]:
    """Two tables, each with one sorted file a partition."""
    tables = (f"{namespace}.a", f"{namespace}.b")
    for table in tables:
        create_table(spark_lake, table, "id BIGINT, p INT, n STRING", properties, "p")
        spark_lake.rows(f"ALTER TABLE {table} WRITE ORDERED BY p, id DESC NULLS LAST")
        spark_lake.rows(f"ALTER TABLE {table} WRITE ORDERED BY p, id")
        spark_lake.rows(
            f"INSERT INTO {table} SELECT if(id = 7, null, 40 - id), CAST(id % 3 AS INT), concat('n', id) "
            "FROM range(40)"
        )
    return tables


@pytest.mark.nightly
@pytest.mark.parametrize("mode", MODES)
def test_sorted_partitions_are_joined_without_a_sort(
    spark_lake: SparkLake, namespace: str, mode: str
) -> None:
    master_keys(spark_lake, "order-one")
    a, b = pair(spark_lake, namespace, {"write.delete.mode": "merge-on-read", **MODES[mode]})
    query = JOIN.format(a=a, b=b)
    expected = sorted(map(str, spark_lake.rows(query)))
    window = f"SELECT id, row_number() OVER (PARTITION BY p ORDER BY id) FROM {a}"
    numbered = sorted(map(str, spark_lake.rows(window)))
    with settings(spark_lake, ORDERED):
        assert (sorts(spark_lake, query), sorts(spark_lake, window)) == (0, 0)
        assert "Exchange" not in plan_of(spark_lake, query)
        assert sorted(map(str, spark_lake.rows(query))) == expected
        assert sorted(map(str, spark_lake.rows(window))) == numbered
        spark_lake.rows(f"DELETE FROM {a} WHERE id IN (3, 30, 31)")
        assert sorts(spark_lake, query) == 0
        left = sorted(map(str, spark_lake.rows(query)))
        assert len(left) == len(expected) - 3
        # A second file of a partition: its rows come after those of the first.
        spark_lake.rows(f"INSERT INTO {a} VALUES (1, 1, 'x')")
        assert sorts(spark_lake, query) > 0
        assert sorts(spark_lake, f"SELECT * FROM {b} DISTRIBUTE BY p SORT BY p, id") == 1
        assert sorted(map(str, spark_lake.rows(query))) == left


@pytest.mark.nightly
def test_an_order_is_told_only_if_every_file_has_it(spark_lake: SparkLake, namespace: str) -> None:
    table = f"{namespace}.t"
    create_table(spark_lake, table, "id BIGINT, n STRING, f FLOAT")
    spark_lake.rows(f"INSERT INTO {table} VALUES (2, 'b', 0), (1, 'a', 1)")
    query = f"SELECT id, n FROM {table} SORT BY id"
    with settings(spark_lake, ORDERED):
        assert sorts(spark_lake, query) == 1
        spark_lake.rows(f"ALTER TABLE {table} WRITE ORDERED BY id, f, n")
        assert sorts(spark_lake, query) == 1
        spark_lake.rows(f"INSERT OVERWRITE {table} VALUES (2, 'b', 0), (1, 'a', 1)")
        assert sorts(spark_lake, query) == 0
        assert sorts(spark_lake, f"SELECT * FROM {table} SORT BY id, f") == 1
        assert sorts(spark_lake, f"SELECT n FROM {table} SORT BY n") == 1
        spark_lake.rows(f"ALTER TABLE {table} WRITE ORDERED BY n DESC")
        assert sorts(spark_lake, query) == 1
    assert sorts(spark_lake, query) == 1


@pytest.mark.nightly
@pytest.mark.parametrize("kind", ["INT", "STRING", "DATE", "TIMESTAMP", "DECIMAL(9,2)", "BINARY", "BOOLEAN"])
@pytest.mark.parametrize("form", ["parquet", "orc"])
def test_rows_of_an_order_that_is_told_have_it(
    spark_lake: SparkLake, namespace: str, kind: str, form: str
) -> None:
    """Each file is sorted as Spark sorts, in both directions and with nulls on both sides."""
    chance = Random(f"{kind} {form}")
    for number, order in enumerate(("v ASC NULLS FIRST", "v DESC NULLS FIRST", "v ASC NULLS LAST")):
        table = f"{namespace}.t{number}"
        create_table(spark_lake, table, f"v {kind}", {"write.format.default": form})
        spark_lake.rows(f"ALTER TABLE {table} WRITE LOCALLY ORDERED BY {order}")
        for _ in range(3):
            values = ", ".join(f"({chance.choice([*LITERALS[kind], 'null'])})" for _ in range(30))
            spark_lake.rows(f"INSERT INTO {table} SELECT CAST(v AS {kind}) FROM VALUES {values} AS t(v)")
        query = f"SELECT _file, _pos, v FROM {table}"
        with settings(spark_lake, ORDERED):
            assert sorts(spark_lake, f"{query} SORT BY {order}") == 0
        shown = f"SELECT {as_shown('v', kind)} AS shown FROM {table}"
        stored = spark_lake.rows(f"{shown} ORDER BY _file, _pos")
        assert stored == spark_lake.rows(f"{shown} ORDER BY _file, {order}, _pos")
