"""A wide table, and the queries on it: 40 columns, 30 of them strings.

Its rows follow from their numbers alone, so that a scale factor always gives the same.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession

from bench.spark_lineitem import FILES

#: Rows by unit of the scale factor.
ROWS = 1_000_000
_NUMBERS = 10
#: How many values the text columns have, one kind after the other: few, many, and one for each row.
_KINDS = (20, 5_000, 0)
_TEXTS = 30


def queries() -> Mapping[str, str]:
    """Questions in SQL by name; `{table}` stands for the table asked."""
    ten = " + ".join(f"length(s{number})" for number in range(10))
    return {
        "length of ten texts": f"SELECT sum({ten}) FROM {{table}}",  # noqa: S608 - names of columns
        "group by a text": "SELECT s0, count(*), max(s1) FROM {table} GROUP BY s0 ORDER BY s0",
        "count distinct of a text": "SELECT count(DISTINCT s2) FROM {table}",
        "filter by the beginning": "SELECT count(*), min(s5) FROM {table} WHERE s1 LIKE 'a1%'",
        "sum of a number": "SELECT sum(n3) FROM {table}",
        "every column of every row": "SELECT bit_xor(xxhash64(*)), count(*) FROM {table}",
    }


def cached(spark: SparkSession, scale: float, name: str) -> DataFrame:
    """The rows in memory, under a name, in as many partitions as lineitem has files."""
    rows = spark.range(0, max(1, int(ROWS * scale)), 1, FILES)
    numbers = [f"pmod(hash(id, {number}), {10 ** (number + 1)}) AS n{number}" for number in range(_NUMBERS)]
    texts = [f"{_text(number)} AS s{number}" for number in range(_TEXTS)]
    made = rows.selectExpr("id", *numbers, *texts).cache()
    assert made.rdd.getNumPartitions() == FILES
    made.count()
    made.createOrReplaceTempView(name)
    return made


def _text(number: int) -> str:
    """A text of 8 to 40 characters."""
    values = _KINDS[number % len(_KINDS)]
    seed = f"pmod(hash(id, {number}), {values})" if values else "id"
    return f"substr(sha2(concat('{number}-', {seed}), 256), 1, {8 + number})"
