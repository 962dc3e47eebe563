"""Finds personal and secret data in plaintext columns, and proposes policies for it.

Only counts of matching values leave an executor. No value of a row is in a finding, a message or a log.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Unpack

from pyspark.sql import SparkSession

from catalog.base.identifiers import TableName
from policy.errors import LakewardenError
from spark_ext.pipelines.discover import national_ids as numbers
from spark_ext.pipelines.discover.columns import Leaf, leaves_of
from spark_ext.pipelines.discover.evidence import THRESHOLD
from spark_ext.pipelines.discover.kinds import KINDS
from spark_ext.pipelines.discover.pipeline import REGIONS, ROWS, Discover
from spark_ext.pipelines.discover.proposal import Found, write
from spark_ext.pipelines.engine import Options, run
from spark_ext.pipelines.failures import concerns_all
from spark_ext.pipelines.journal import FINDINGS
from spark_ext.pipelines.lake import Lake
from spark_ext.pipelines.report import Report


def discover(
    spark: SparkSession,
    tables: str | Sequence[str] = "*",
    *,
    proposal: str | Path | None = None,
    rows: int = ROWS,
    threshold: float = THRESHOLD,
    national_ids: Sequence[str] | None = None,
    regions: Sequence[str] = REGIONS,
    at_a_time: int = 4,
    **options: Unpack[Options],
) -> Report:
    """Find personal and secret data in plaintext columns.

    Args:
        spark: a session with the catalog.
        tables: patterns of the tables to look at.
        proposal: a directory for the proposed policies; nothing is put into force.
        rows: about how many rows of each table are looked at.
        threshold: the confidence from which a column is reported, above 0 and up to 1.
        national_ids: the national identification numbers to look for, such as ``us.ssn``; by default all
            that are known.
        regions: regions whose telephone numbers are known as they are written there, such as ``US``.
        at_a_time: how many tables are looked at at the same time.
        options: see `Options`.

    Raises:
        RequestInvalid: an argument is not valid.
        PolicyInvalid: the proposal would have more than a policy document can have.
        OSError: the proposal cannot be written.
        LakewardenError, PySparkException: nothing can be planned or recorded.
    """
    ids = numbers.ALL if national_ids is None else tuple(national_ids)
    pipeline = Discover(tables, rows, threshold, ids, tuple(regions), at_a_time)
    report = run(pipeline, spark, **options)
    if proposal is not None and report.run_id is not None:
        write(list(_found(Lake(spark, options.get("catalog")), report.run_id)), Path(proposal))
    return report


def _found(lake: Lake, run_id: str) -> Iterator[Found]:
    """Yield the plaintext columns that a run found, as far as they are still there and in plaintext."""
    rows = lake.sql(
        f"SELECT DISTINCT table_name, column_name, rule FROM {lake.name(FINDINGS)} "
        "WHERE run_id = :run AND column_name IS NOT NULL ORDER BY ALL",
        {"run": run_id},
    )
    kinds = {kind.rule.id: kind for kind in KINDS}
    for name, some in groupby(rows, key=itemgetter("table_name")):
        *namespace, last = name.split(".")
        table = TableName(tuple(namespace), last)
        leaves = {leaf.described.name: leaf for leaf in _leaves(lake, table) if not leaf.encrypted}
        for row in some:
            if row["column_name"] in leaves:
                yield Found(table, leaves[row["column_name"]], kinds[row["rule"]])


def _leaves(lake: Lake, table: TableName) -> list[Leaf]:
    """Return the columns of a table; none if the user cannot load it any more."""
    try:
        return leaves_of(lake, table, lake.metadata(table).schema())
    except LakewardenError as error:
        if concerns_all(error):
            raise
        return []
