"""Small queries in Spark, which `bench.before` runs in two checkouts: elapsed time and CPU time.

Each is asked of one file of 100 rows, so that what is measured is what every query costs: the checks of its
plan, the requests to the catalog, authorization and the audit.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from bench.processes import descendants, worked_ms
from bench.service import served
from bench.spark_session import session
from tests.support.lake import open_lake

#: How often a query is asked in one round.
ASKED: Final = 10
TABLES: Final = (
    "CREATE TABLE lake.bench.plain AS SELECT * FROM few",
    """CREATE TABLE lake.bench.encrypted TBLPROPERTIES ('encryption.mechanism' = 'envelope')
    AS SELECT * FROM few""",
)
QUERIES: Final[Mapping[str, str]] = {
    "plaintext": "SELECT * FROM lake.bench.plain WHERE part = 1",
    "encrypted": "SELECT * FROM lake.bench.encrypted WHERE part = 1",
    "joined": """
        SELECT p.part, count(*), sum(e.id + 1), max(upper(concat('x', CAST(e.part AS STRING))))
        FROM lake.bench.plain p JOIN lake.bench.encrypted e ON p.id = e.id
        WHERE p.part IN (SELECT part FROM lake.bench.plain WHERE id > 10) GROUP BY p.part ORDER BY 1""",
    "without a table": "SELECT 1",
}


@contextmanager
def contender(root: Path) -> Iterator[Mapping[str, Callable[[], Mapping[str, float]]]]:
    """The queries by name; each call asks one `ASKED` times and answers milliseconds by what they are of."""
    with open_lake(root):
        pass
    with served(root) as catalog, session(catalog, memory="1g") as spark:
        spark.sql("CREATE NAMESPACE lake.bench")
        spark.sql("SELECT id, id % 10 AS part FROM range(0, 100, 1, 1)").createOrReplaceTempView("few")
        for statement in TABLES:
            spark.sql(statement)
        worked = tuple(descendants(os.getpid()))
        yield {name: lambda text=text: _asked(spark, text, worked) for name, text in QUERIES.items()}


def _asked(spark: SparkSession, text: str, processes: Sequence[int]) -> Mapping[str, float]:
    before = worked_ms(processes)
    taken = []
    for _ in range(ASKED):
        start = time.perf_counter()
        spark.sql(text).collect()
        taken.append((time.perf_counter() - start) * 1000)
    return {"elapsed time": statistics.median(taken), "CPU time": (worked_ms(processes) - before) / ASKED}
