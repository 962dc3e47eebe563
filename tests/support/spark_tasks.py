"""What Spark says of the tasks of a query."""

from __future__ import annotations

from uuid import uuid4

from tests.support.lake import ALICE
from tests.support.spark import SparkLake


def counted(spark_lake: SparkLake, query: str, user: str = ALICE) -> tuple[int, int]:
    """The rows and bytes that Spark's metrics say the tasks of a user's query read."""
    context, group = spark_lake.spark.sparkContext, uuid4().hex
    context.setJobGroup(group, "")
    try:
        spark_lake.rows(query, user)
    finally:
        context.setJobGroup("", "")
    context._jsc.sc().listenerBus().waitUntilEmpty()
    tracker, store = context.statusTracker(), context._jsc.sc().statusStore()
    stages = {stage for job in tracker.getJobIdsForGroup(group) for stage in tracker.getJobInfo(job).stageIds}
    # Stages whose output is there already are skipped.
    done = [each for each in map(store.lastStageAttempt, sorted(stages)) if each.numCompleteTasks()]
    return sum(each.inputRecords() for each in done), sum(each.inputBytes() for each in done)
