"""Finds tables that are being written, so that a run can spare them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from pyspark.errors import PySparkException

from catalog.base.identifiers import table_name
from spark_ext.pipelines.failures import concerns_all
from spark_ext.pipelines.lake import Lake


def written_recently(lake: Lake, tables: Iterable[str], quiet_s: float, now: datetime) -> dict[str, str]:
    """Return the tables whose last snapshot is younger than a time, each with the reason to leave it.

    Args:
        lake: the lake.
        tables: dotted names.
        quiet_s: the time in seconds.
        now: the time, with a zone.
    """
    found = {}
    for each in sorted(tables):
        age = _age(lake, each, now)
        if age is not None and age < quiet_s:
            found[each] = (
                f"The table was written {age:.0f} seconds ago, and must rest for {quiet_s:g} seconds."
            )
    return found


def _age(lake: Lake, table: str, now: datetime) -> float | None:
    """Return the age of the last snapshot in seconds; None without one, or if the table cannot be read."""
    *namespace, name = table.split(".")
    source = f"{lake.name(table_name(namespace, name))}.snapshots"
    try:
        (row,) = lake.sql(f"SELECT unix_micros(max(committed_at)) AS at FROM {source}")
    except PySparkException as error:
        if concerns_all(error):
            raise
        return None  # the pipeline meets the same error, and reports it
    return None if row["at"] is None else now.timestamp() - row["at"] / 1e6
