"""Does items side by side on the driver, for work that runs statements."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from threading import Event

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
    stopped = Event()

    def done(item: Item) -> Outcome | None:
        if stopped.is_set():
            return None
        try:
            return outcome_of(work, item)
        except BaseException:
            stopped.set()
            raise

    problem: BaseException | None = None
    with ThreadPoolExecutor(min(at_a_time, max(len(items), 1))) as pool:
        target = inheritable_thread_target(spark)(done)
        try:
            for each in as_completed([pool.submit(target, item) for item in items]):
                problem = problem or each.exception()
                if each.exception() is None and (outcome := each.result()) is not None:
                    yield outcome
        finally:
            # An interruption of this thread, such as by Ctrl-C, waits for items under way alone.
            stopped.set()
    if problem is not None:
        raise problem


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
