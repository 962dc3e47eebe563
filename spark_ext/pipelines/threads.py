"""Does items side by side on the driver, for work that runs statements."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed

from pyspark import inheritable_thread_target
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from policy.errors import LakewardenError
from spark_ext.pipelines.failures import concerns_all, reason
from spark_ext.pipelines.items import Item, Outcome, Status


def in_threads(
    spark: SparkSession, items: Sequence[Item], work: Callable[[Item], Outcome], at_a_time: int = 4
) -> Iterator[Outcome]:
    """Do items, and yield what became of each as soon as it is known.

    Args:
        spark: the session; jobs keep its job group and settings.
        items: the items.
        work: does one of them. A `LakewardenError` or error of Spark fails that item alone, unless it
            concerns all of them.
        at_a_time: how many are done at the same time.

    Raises:
        LakewardenError, PySparkException: an error that concerns all items, after those under way have ended.
    """
    done = inheritable_thread_target(spark)(lambda item: outcome_of(work, item))
    with ThreadPoolExecutor(min(at_a_time, max(len(items), 1))) as pool:
        waiting = [pool.submit(done, item) for item in items]
        stopped: Exception | None = None
        for each in as_completed(waiting):
            if each.cancelled():
                continue
            if (error := _everywhere(each)) is None:
                yield each.result()
            elif stopped is None:
                stopped = error
                for other in waiting:
                    other.cancel()
    if stopped is not None:
        raise stopped


def outcome_of(work: Callable[[Item], Outcome], item: Item) -> Outcome:
    """Do one item; errors as in `in_threads`."""
    start = time.monotonic()
    try:
        done = work(item)
    except (LakewardenError, PySparkException) as error:
        if concerns_all(error):
            raise
        done = Outcome.of(item, Status.FAILED, reason(error))
    return done.took(time.monotonic() - start)


def _everywhere(each: Future[Outcome]) -> Exception | None:
    error = each.exception()
    if error is None or isinstance(error, (LakewardenError, PySparkException)):
        return error
    raise error
