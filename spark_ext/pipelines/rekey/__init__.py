"""Rotates the keys of the tables of a lake, and moves them to other master keys and KMSs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Unpack

from pyspark.sql import SparkSession

from spark_ext.pipelines.engine import Options, run
from spark_ext.pipelines.rekey.pipeline import Rekey
from spark_ext.pipelines.report import Report


def rekey(
    spark: SparkSession,
    tables: str | Sequence[str] = "*",
    master_key: str | None = None,
    older_than: timedelta | None = None,
    to_master_key: str | None = None,
    to_kms: str | None = None,
    *,
    rotate: bool | None = None,
    at_a_time: int = 4,
    **options: Unpack[Options],
) -> Report:
    """Rotate the keys of tables and rewrap their data keys, or move keys to another KMS key; no data is
    rewritten.

    Args:
        spark: a session with the catalog, of a user with `admin` on the service.
        tables: patterns of the tables.
        master_key: only keys under this master key, as `encryption.master-key-id` names it.
        older_than: only tables with a key in force that is older.
        to_master_key: the key in the KMS that keys move to; by default the one with the master key's id.
        to_kms: the KMS that keys move to, as the catalog's settings name it; by default the one where they
            are.
        rotate: whether keys are rotated; by default if they do not move.
        at_a_time: how many tables are re-keyed at the same time.
        options: see `Options`.

    Raises:
        RequestInvalid: the arguments contradict each other.
        LakewardenError, PySparkException: nothing can be planned or recorded.
    """
    pipeline = Rekey(tables, master_key, older_than, to_master_key, to_kms, rotate, at_a_time)
    return run(pipeline, spark, **options)
