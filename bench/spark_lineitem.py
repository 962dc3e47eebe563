"""TPC-H's generated tables, and the queries on lineitem.

The generator is deterministic, its seeds are fixed: a scale factor and a number of files always give the same
rows in the same files.
"""

from __future__ import annotations

import subprocess
import sysconfig
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

#: In so many files the rows are generated, and written by every contender.
FILES = 8
#: Key values of orders by unit of the scale factor; the generated rows are in their order.
_ORDER_KEYS = 6_000_000


def queries(scale: float) -> Mapping[str, str]:
    """Questions in SQL by name; `{table}` stands for the table asked."""
    middle = int(scale * _ORDER_KEYS / 2)
    last = middle + max(1, int(scale * _ORDER_KEYS / 100))
    return {
        "count(*)": "SELECT count(*) FROM {table}",
        "sum of one column": "SELECT sum(l_extendedprice) FROM {table}",
        "1 % by a clustered key": f"""
            SELECT count(*), sum(l_extendedprice) FROM {{table}}
            WHERE l_orderkey BETWEEN {middle} AND {last}""",  # noqa: S608 - two numbers
        "TPC-H Q6": """
            SELECT sum(l_extendedprice * l_discount) FROM {table}
            WHERE l_shipdate >= DATE '1994-01-01' AND l_shipdate < DATE '1995-01-01'
              AND l_discount BETWEEN 0.05 AND 0.07 AND l_quantity < 24""",
        "TPC-H Q1": """
            SELECT l_returnflag, l_linestatus, sum(l_quantity), sum(l_extendedprice),
                   sum(l_extendedprice * (1 - l_discount)),
                   sum(l_extendedprice * (1 - l_discount) * (1 + l_tax)),
                   avg(l_quantity), avg(l_extendedprice), avg(l_discount), count(*)
            FROM {table} WHERE l_shipdate <= DATE '1998-09-02'
            GROUP BY l_returnflag, l_linestatus ORDER BY l_returnflag, l_linestatus""",
        "group by two columns": """
            SELECT l_shipmode, l_shipinstruct, count(*), max(l_shipdate) FROM {table}
            GROUP BY l_shipmode, l_shipinstruct ORDER BY l_shipmode, l_shipinstruct""",
        "count distinct": "SELECT count(DISTINCT l_partkey) FROM {table}",
        "every column of every row": "SELECT bit_xor(xxhash64(*)), count(*) FROM {table}",
    }


def generate(directory: Path, scale: float, table: str = "lineitem", parts: int = FILES) -> Path:
    """Write a table of TPC-H as Parquet, in files of about the same number of rows."""
    generator = Path(sysconfig.get_path("scripts")) / "tpchgen-cli"
    subprocess.run(
        [
            generator,
            "parquet",
            f"--scale-factor={scale}",
            f"--tables={table}",
            f"--parts={parts}",
            f"--output-dir={directory}",
            "--quiet",
        ],
        check=True,
    )
    return directory / table


def cached(spark: SparkSession, directory: Path, name: str, parts: int = FILES) -> DataFrame:
    """The generated rows in memory, under a name, a partition a file: writing them waits for no reader."""
    # A file that is as dear to open as a partition is large gets a partition of its own.
    with_own_partition = {"maxPartitionBytes": "1g", "openCostInBytes": "1g"}
    for key, value in with_own_partition.items():
        spark.conf.set(f"spark.sql.files.{key}", value)
    rows = spark.read.parquet(str(directory)).cache()
    assert rows.rdd.getNumPartitions() == parts
    rows.count()
    rows.createOrReplaceTempView(name)
    for key in with_own_partition:
        spark.conf.unset(f"spark.sql.files.{key}")
    return rows
