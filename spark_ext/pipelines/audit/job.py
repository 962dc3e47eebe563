"""The Spark job of an audit: all tables of a group, from their states to parts of the result.

    tables -> survey -> slices and places -> names, files and parts -> by path -> comparison -> parts

Slices of all large tables are dealt out to tasks alike, so that one of them keeps as many tasks busy as many.
A table of one slice is finished by the task that surveyed it, together with others, by the same steps. The
driver gets the parts alone. If the job fails, such as by a table that ends the executor, it is run again on
halves, so that only that table fails.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Final

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from spark_ext.pipelines.audit.facts import Facts
from spark_ext.pipelines.audit.listing import compare, list_place
from spark_ext.pipelines.audit.manifests import audit_slices
from spark_ext.pipelines.audit.options import Looking
from spark_ext.pipelines.audit.partial import Partial
from spark_ext.pipelines.audit.rows import SCHEMA, Kind, of_kind, texts, together
from spark_ext.pipelines.audit.survey import survey
from spark_ext.pipelines.executors import tasks_of, works
from spark_ext.pipelines.failures import concerns_all, reason

#: Rows that are compared by one task, without a shuffle.
_NEAR: Final = 200_000


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
    """Survey the tables of one task, and finish the small ones; runs on an executor."""
    small, size = list[pa.RecordBatch](), 0
    for batch in batches:
        for text in batch.column("text").to_pylist():
            rows = together(survey(looking, Facts.of(json.loads(text))))
            slices = of_kind(rows, Kind.SLICE)
            if slices.num_rows > 1:
                yield from rows.to_batches()
                continue
            small += rows.to_batches()
            size += rows.num_rows + sum(slices["size"].to_pylist())
            if size >= looking.together:
                yield from _finished(looking, small)
                small, size = [], 0
    yield from _finished(looking, small)


def _finished(looking: Looking, surveyed: Sequence[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Do the rest for small tables here, unless their locations hold many files."""
    walked = _walked(looking, together(surveyed).combine_chunks().to_batches())
    kept, size = list[pa.RecordBatch](), 0
    for batch in walked:
        kept.append(batch)
        size += batch.num_rows
        if size > _NEAR:
            yield from kept
            yield from walked
            return
    yield from compare(looking, kept)


def _walked(looking: Looking, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Open the slices and list the places of one task, and hand on all else; runs on an executor."""
    slices, size = list[str](), 0
    for batch in batches:
        mine = pa.compute.is_in(batch["kind"], value_set=pa.array([Kind.SLICE.value, Kind.PLACE.value]))
        yield batch.filter(pa.compute.invert(mine))
        for row in batch.filter(mine).select(["kind", "table", "size", "text"]).to_pylist():
            if row["kind"] == Kind.PLACE:
                yield from list_place(looking, row["table"], row["text"])
                continue
            slices.append(row["text"])
            size += row["size"]
            if size >= looking.together:
                yield from audit_slices(looking, slices)
                slices, size = [], 0
    yield from audit_slices(looking, slices)
