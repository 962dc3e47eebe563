"""Does items on the executors of Spark.

An item travels as JSON, and so does its outcome. The function travels by value, as that of a UDF does, so
what it holds is in the hands of the executors: no key, token or credential.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Final

import pyarrow as pa
from pyspark.errors import PySparkAttributeError, PySparkException
from pyspark.sql import SparkSession

from spark_ext.pipelines.failures import concerns_all, reason
from spark_ext.pipelines.items import Item, Outcome, Status
from spark_ext.pipelines.threads import outcome_of

_SCHEMA: Final = "outcome string"
#: Tasks of a stage for each core, so that no core waits long for another one at the end.
_TASKS_A_CORE: Final = 4
_PARTITIONS: Final = "spark.sql.shuffle.partitions"

Work = Callable[[Item], Outcome]


def on_executors(spark: SparkSession, items: Sequence[Item], work: Work) -> Iterator[Outcome]:
    """Do items, and yield what became of each.

    A `LakewardenError` fails its item alone. If a job fails, such as by an item that ends the executor, it is
    run again in halves, so that only that item fails.

    Args:
        spark: the session; also one of Spark Connect.
        items: the items.
        work: does one of them: a function of a module, or a `functools.partial` of one.

    Raises:
        PySparkException: an error that concerns all items, or Spark itself has ended.
    """
    if not items:
        return
    try:
        yield from _job(spark, items, work)
    except PySparkException as error:
        if concerns_all(error) or not works(spark):
            raise
        if len(items) == 1:
            yield Outcome.of(items[0], Status.FAILED, reason(error))
            return
        half = len(items) // 2
        yield from on_executors(spark, items[:half], work)
        yield from on_executors(spark, items[half:], work)


def tasks_of(spark: SparkSession) -> int:
    """Return how many tasks of a stage keep the executors busy.

    Clients of Spark Connect do not see how many cores there are. They take the number of shuffle partitions.
    """
    try:
        return _TASKS_A_CORE * spark.sparkContext.defaultParallelism
    except PySparkAttributeError:
        return int(spark.conf.get(_PARTITIONS) or 1)


def _job(spark: SparkSession, items: Sequence[Item], work: Work) -> list[Outcome]:
    """Run one job over items, the largest first, dealt out to tasks of about the same size."""
    tasks = min(len(items), tasks_of(spark))
    largest_first = sorted(items, key=lambda item: (item.files, item.bytes), reverse=True)
    frame = spark.createDataFrame(pa.table({"item": [each.to_json() for each in largest_first]}))
    answered = frame.repartition(tasks).mapInArrow(partial(_work, work), _SCHEMA).toArrow()
    return [Outcome.from_json(text) for text in answered["outcome"].to_pylist()]


def _work(work: Work, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Do the items of one task; runs on an executor."""
    for batch in batches:
        for text in batch.column("item").to_pylist():
            outcome = outcome_of(work, Item.from_json(text))
            yield pa.RecordBatch.from_pydict({"outcome": [outcome.to_json()]})


def works(spark: SparkSession) -> bool:
    """Return whether Spark still runs jobs."""
    try:
        return spark.range(1).count() == 1
    except PySparkException:
        return False
