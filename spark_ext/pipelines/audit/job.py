"""The Spark job of an audit: all tables of a group, from their states to parts of the result.

    tables -> survey -> slices and places -> names, files and parts -> by path -> comparison -> parts

Slices of all tables are dealt out to tasks alike, so that a large table keeps as many tasks busy as many
small ones. The driver gets the parts alone. If the job fails, such as by a table that ends the executor, it
is run again on halves, so that only that table fails.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from functools import partial

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from spark_ext.pipelines.audit.facts import Facts
from spark_ext.pipelines.audit.listing import compare, list_place
from spark_ext.pipelines.audit.manifests import audit_slice
from spark_ext.pipelines.audit.options import Looking
from spark_ext.pipelines.audit.partial import Partial
from spark_ext.pipelines.audit.rows import SCHEMA, Kind, texts
from spark_ext.pipelines.audit.survey import survey
from spark_ext.pipelines.executors import tasks_of, works
from spark_ext.pipelines.failures import concerns_all, reason


def audited(spark: SparkSession, tables: Sequence[Facts], looking: Looking) -> Iterator[Partial]:
    """Audit tables on executors, and yield parts of the result.

    Raises:
        PySparkException: an error that concerns all tables, or Spark itself has ended.
    """
    if not tables:
        return
    try:
        yield from _job(spark, tables, looking)
    except PySparkException as error:
        if concerns_all(error) or not works(spark):
            raise
        if len(tables) == 1:
            yield Partial(tables[0].table, failed=[reason(error)])
            return
        half = len(tables) // 2
        yield from audited(spark, tables[:half], looking)
        yield from audited(spark, tables[half:], looking)


def _job(spark: SparkSession, tables: Sequence[Facts], looking: Looking) -> list[Partial]:
    rows = [
        texts(Kind.TABLE, each.table, [json.dumps(each.document(), ensure_ascii=False)]) for each in tables
    ]
    tasks = tasks_of(spark)
    frame = spark.createDataFrame(pa.Table.from_batches(rows)).repartition(min(len(tables), tasks))
    surveyed = frame.mapInArrow(partial(_surveyed, looking), SCHEMA).repartition(tasks)
    walked = surveyed.mapInArrow(partial(_walked, looking), SCHEMA).repartition(tasks, "table", "path")
    answered = walked.mapInArrow(partial(compare, looking), SCHEMA).select("text").toArrow()
    return [Partial.from_json(text) for text in answered["text"].to_pylist()]


def _surveyed(looking: Looking, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Survey the tables of one task; runs on an executor."""
    for batch in batches:
        for text in batch.column("text").to_pylist():
            yield from survey(looking, Facts.of(json.loads(text)))


def _walked(looking: Looking, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Open the slices and list the places of one task, and hand on all else; runs on an executor."""
    for batch in batches:
        rest = pa.compute.is_in(batch["kind"], value_set=pa.array([Kind.NAMED.value, Kind.PART.value]))
        yield batch.filter(rest)
        for row in batch.filter(pa.compute.invert(rest)).select(["kind", "table", "text"]).to_pylist():
            if row["kind"] == Kind.SLICE:
                yield from audit_slice(looking, row["text"])
            else:
                yield from list_place(looking, row["table"], row["text"])
