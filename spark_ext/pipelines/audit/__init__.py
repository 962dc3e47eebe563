"""Audits every table, retained snapshot, branch and tag of a catalog; changes nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Unpack

from pyspark.sql import SparkSession

from spark_ext.pipelines.audit.pipeline import Audit
from spark_ext.pipelines.engine import Options, run
from spark_ext.pipelines.report import Report


def audit(
    spark: SparkSession,
    tables: str | Sequence[str] = "*",
    *,
    other: Mapping[str, str] | None = None,
    footers: float = 1.0,
    verify: float = 0.0,
    **options: Unpack[Options],
) -> Report:
    """Audit tables: paths, files, metadata, seals, encryption and keys.

    Args:
        spark: a session with the catalog. Its user needs `audit` on the service.
        tables: patterns of the tables.
        other: audit another catalog instead, and report what would break if it were adopted: properties of
            PyIceberg's `load_catalog`, such as ``{"type": "sql", "uri": …}``. They are not recorded.
        footers: the share of files whose footers are opened, from 0 to 1.
        verify: the share of files that are read whole. Their digests are compared; what needs keys is read by
            the guarded reader, for users with SELECT. The same files are chosen each time.
        options: see `Options`.

    Raises:
        RequestInvalid: an argument is not valid.
        LakewardenError, PySparkException: nothing can be planned or recorded.
    """
    return run(Audit(tables, other, footers, verify), spark, **options)
