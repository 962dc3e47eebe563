"""Compacts, expires and cleans up the tables of a lake, as a policy says for each."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Unpack

from pyspark.sql import SparkSession

from policy.errors import RequestInvalid
from spark_ext.pipelines.engine import Options, run
from spark_ext.pipelines.maintain.document import RULE
from spark_ext.pipelines.maintain.pipeline import Maintain
from spark_ext.pipelines.report import Report


def maintain(
    spark: SparkSession,
    policy: str | Path,
    tables: str | Sequence[str] = "*",
    *,
    at_a_time: int = 4,
    **options: Unpack[Options],
) -> Report:
    """Do the tasks of a maintenance policy that are due.

    Args:
        spark: a session with the catalog.
        policy: the file with the policy.
        tables: patterns of the tables that are looked at.
        at_a_time: how many tables are worked on at the same time.
        options: see `Options`.

    Raises:
        RequestInvalid: the file cannot be read, or the policy or a pattern is not valid.
        LakewardenError, PySparkException: nothing can be planned or recorded.
    """
    path = Path(policy)
    try:
        document = path.read_bytes()
    except OSError as error:
        raise RequestInvalid(
            f"The policy {path.name!r:.80} cannot be read: {error.strerror}.",
            rule=RULE,
            hint="Name a file that exists.",
        ) from error
    return run(Maintain(path.name, document, tables, at_a_time), spark, **options)
