"""The checksum of rows: it depends on every value and on nothing else."""

from __future__ import annotations

from functools import reduce

import pytest
from pyspark.sql import DataFrame
from pyspark.sql.functions import lit

from policy.errors import NotSupportedYet
from spark_ext.pipelines.migrate.checksum import Checksum, _hashes, balance, checksum
from tests.support.spark import SparkLake

#: Values of one type, of which each differs from all others.
VALUES = {
    "INT": ["NULL", "0", "1", "-1"],
    "STRING": ["NULL", "''", "' '", "'a'", "'A'"],
    "BINARY": ["NULL", "X''", "X'00'", "X'0000'"],
    "BOOLEAN": ["NULL", "true", "false"],
    "DOUBLE": ["NULL", "0.0D", "-0.0D", "DOUBLE('NaN')", "DOUBLE('inf')", "1e-300D"],
    "DECIMAL(38,2)": ["NULL", "0", "0.01", "-0.01", "99999999999999999999.99"],
    "DATE": ["NULL", "DATE '1970-01-01'", "DATE '1970-01-02'"],
    "TIMESTAMP": ["NULL", "TIMESTAMP '1970-01-01 00:00:00Z'", "TIMESTAMP '1970-01-01 00:00:00.000001Z'"],
    "ARRAY<INT>": ["NULL", "array()", "array(NULL)", "array(1)", "array(1, NULL)", "array(NULL, 1)"],
    "ARRAY<ARRAY<INT>>": ["array(array(1), array())", "array(array(), array(1))", "array(array(1))"],
    "MAP<STRING,INT>": ["NULL", "map()", "map('a', NULL)", "map('a', 1)", "map('a', 1, 'b', 2)"],
    "ARRAY<MAP<INT,STRUCT<x:INT>>>": ["array(map(1, NULL))", "array(map(1, struct(NULL)))", "array(map())"],
    "STRUCT<x:INT,y:STRING>": ["NULL", "struct(NULL, NULL)", "struct(1, NULL)", "struct(NULL, '1')"],
}


def of(frame: DataFrame) -> Checksum:
    return checksum(frame, range(len(frame.columns)))


def test_each_value_has_a_checksum_of_its_own(spark_lake: SparkLake) -> None:
    frames = {kind: _frame(spark_lake, kind) for kind in VALUES}
    hashed = [
        frame.toDF("c0").select(lit(kind), *_hashes(frame, [0])).coalesce(1) for kind, frame in frames.items()
    ]
    found: dict[str, list[tuple[int, int]]] = {kind: [] for kind in VALUES}
    for kind, first, second in reduce(DataFrame.union, hashed).collect():
        found[kind].append((first, second))
    for kind, hashes in found.items():
        firsts, seconds = {first for first, _ in hashes}, {second for _, second in hashes}
        assert len(firsts) == len(seconds) == len(VALUES[kind]), kind
        assert not firsts & seconds, kind
    for kind in ("DECIMAL(38,2)", "ARRAY<MAP<INT,STRUCT<x:INT>>>"):
        first, second = (sum(each) % 2**64 for each in zip(*found[kind], strict=True))
        assert of(frames[kind]) == Checksum(len(found[kind]), first, second), kind


def _frame(spark_lake: SparkLake, kind: str) -> DataFrame:
    rows = ", ".join(f"CAST({value} AS {kind})" for value in VALUES[kind])
    return spark_lake.spark.sql(f"SELECT explode(array({rows})) AS v")


@pytest.mark.nightly
def test_order_of_rows_entries_and_promotions_do_not_count(spark_lake: SparkLake) -> None:
    spark = spark_lake.spark
    assert of(spark.sql("SELECT map('a', 1, 'b', 2)")) == of(spark.sql("SELECT map('b', 2L, 'a', 1L)"))
    assert of(spark.sql("SELECT 7, 1.5F, 1.5BD")) == of(
        spark.sql("SELECT 7L, 1.5D, CAST(1.5 AS DECIMAL(20,1))")
    )
    assert of(spark.sql("SELECT struct(1 AS a)")) == of(spark.sql("SELECT struct(1 AS b)"))
    rows = spark.range(0, 1000, 1, 4)
    assert of(rows) == of(rows.repartition(3).sortWithinPartitions("id", ascending=False))


@pytest.mark.nightly
def test_values_cannot_move_between_columns_and_rows_count_as_often_as_they_occur(
    spark_lake: SparkLake,
) -> None:
    spark = spark_lake.spark
    assert of(spark.sql("SELECT INT(NULL), 1")) != of(spark.sql("SELECT 1, INT(NULL)"))
    assert of(spark.sql("SELECT 'ab', 'c'")) != of(spark.sql("SELECT 'a', 'bc'"))
    assert of(spark.sql("SELECT array(1), array(2, 3)")) != of(spark.sql("SELECT array(1, 2), array(3)"))
    twice = of(spark.sql("SELECT 1 UNION ALL SELECT 1 UNION ALL SELECT 2"))
    assert twice != of(spark.sql("SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 2"))
    assert twice != of(spark.sql("SELECT 1 UNION ALL SELECT 2"))


@pytest.mark.nightly
def test_inserted_rows_less_deleted_ones_are_a_checksum(spark_lake: SparkLake) -> None:
    spark = spark_lake.spark
    changes = spark.sql("SELECT * FROM VALUES (1, 'INSERT'), (2, 'INSERT'), (1, 'DELETE') AS t(id, kind)")
    assert balance(changes, [0], 1) == of(spark.sql("SELECT 2"))
    assert balance(changes.where("id > 2"), [0], 1) == Checksum()
    assert balance(changes.where("kind = 'DELETE'"), [0], 1) + of(spark.sql("SELECT 1")) == Checksum()


@pytest.mark.nightly
def test_columns_are_told_apart_by_position(spark_lake: SparkLake) -> None:
    frame = spark_lake.spark.sql("SELECT 1 AS a, 2 AS A")
    assert checksum(frame, [0]) == of(spark_lake.spark.sql("SELECT 1"))
    assert checksum(frame, [1]) == of(spark_lake.spark.sql("SELECT 2"))


@pytest.mark.nightly
def test_a_type_without_a_checksum_is_refused(spark_lake: SparkLake) -> None:
    frame = spark_lake.spark.sql("SELECT INTERVAL '1' DAY AS v")
    with pytest.raises(NotSupportedYet, match="checksum-type"):
        of(frame)
    assert Checksum.from_json(Checksum(3, 2**63, 1).to_json()) == Checksum(3, 2**63, 1)
