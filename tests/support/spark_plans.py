"""Plans of queries as users see them, in a driver and over Spark Connect."""

from __future__ import annotations

from typing import Any

from pyspark.sql import functions as f


def explained(frame: Any) -> str:
    """What `explain("formatted")` of a DataFrame prints."""
    if hasattr(frame, "_explain_string"):
        return str(frame._explain_string(mode="formatted"))
    mode = frame.sparkSession._jvm.org.apache.spark.sql.execution.ExplainMode.fromString("formatted")
    return str(frame._jdf.queryExecution().explainString(mode))


def is_cached(frame: Any) -> bool:
    """Whether Spark takes rows of a DataFrame from its cache."""
    return "InMemoryRelation" in explained(frame)


def tasks_with_rows(frame: Any) -> int:
    """How many tasks of a DataFrame give rows."""
    return int(frame.select(f.spark_partition_id().alias("task")).distinct().count())
