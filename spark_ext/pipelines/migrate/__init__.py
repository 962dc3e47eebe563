"""Encrypts the tables of a lake, or changes their encryption, and checks that no row changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Unpack

from pyspark.sql import SparkSession

from spark_ext.pipelines.engine import Options, run
from spark_ext.pipelines.migrate.pipeline import Migrate
from spark_ext.pipelines.migrate.table import History, Wanted
from spark_ext.pipelines.report import Report


def migrate(
    spark: SparkSession,
    tables: str | Sequence[str] = "*",
    properties: Mapping[str, str] | None = None,
    *,
    by_policy: bool = False,
    history: History = "keep",
    forbid_old: bool = True,
    waves: Sequence[int] = (1, 10),
    stop_after_failures: int = 1,
    max_group_bytes: int | None = None,
    at_a_time: int = 4,
    **options: Unpack[Options],
) -> Report:
    """Change the encryption of tables, rewrite their files, and check that no row changed.

    Args:
        spark: a session with the catalog.
        tables: patterns of the tables.
        properties: the encryption properties to set, and `write.format.default`; without any, files are
            rewritten as the properties in force say.
        by_policy: instead of `properties`, set what the encryption rules in force ask of each table. A table
            for which they leave a choice is left, with the choice as the reason. This needs `admin` on the
            service.
        history: ``keep`` keeps snapshots with files of earlier encryption; ``expire`` expires those that no
            branch or tag points to.
        forbid_old: refuse files of earlier encryption from then on, if no retained snapshot has one. A
            table whose snapshots have some is left, with these snapshots as the reason.
        waves: the number of tables in the first waves. The last wave has all others.
        stop_after_failures: as many failed tables of one wave end the run; all of a smaller wave do so, too.
            A table whose rows differ ends it alone.
        max_group_bytes: bytes of files that are rewritten in one commit; 100 GiB if it is left out.
        at_a_time: how many tables are migrated at the same time.
        options: see `Options`.

    Raises:
        RequestInvalid, PropertyInvalid: an argument is not valid.
        LakewardenError, PySparkException: nothing can be planned or recorded.
    """
    pipeline = Migrate(
        tables,
        properties or {},
        by_policy,
        Wanted(history, forbid_old, max_group_bytes),
        waves,
        stop_after_failures,
        at_a_time,
    )
    return run(pipeline, spark, **options)
