"""Leaves out of a table's metadata what tells a user of rows and values that they do not see.

Users of the engine interface get metadata of tables of which they see a part. The rule is that of metadata
tables:

- Summaries of snapshots count rows, files and bytes, for users for whom no policy filters the table's rows.
  Others see the entries that are known to count nothing: what writers add can count, too.
- What summaries say of single partitions (`write.summary.partition-limit`) is for users who can select,
  unmasked, all columns that the table is or was partitioned by.
- Entries of statistics files, which can have the number of distinct values of columns, are for users who can
  select every column unmasked.

A standard client gets tables of which its user sees everything, or that it is trusted with
(`standard_clients`).

Source: Iceberg table specification, "Optional Snapshot Summary Fields" and "Table Statistics".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot, Summary

from catalog.authorization.authorizer import Authorizer, Caller
from catalog.authorization.columns import every_name, partition_sources, view_of
from catalog.reading.loading import LoadedTable
from policy.view import ColumnNames, View

#: Names of summary entries that count nothing.
_NO_COUNTS: Final = frozenset(
    {
        "app-id",
        "encryption.pek-id",
        "engine-name",
        "engine-version",
        "iceberg-version",
        "published-wap-id",
        "replace-partitions",
        "source-snapshot-id",
        "spark.app.id",
        "wap.id",
    }
)
#: What those begin with that are about a single partition.
_PARTITIONS: Final = "partitions."


@dataclass(frozen=True, slots=True)
class SummaryRule:
    """What of the summaries of snapshots is shown.

    Attributes:
        counts: whether counts of rows, files and bytes are.
        partitions: whether what they say of single partitions is.
    """

    counts: bool
    partitions: bool

    def shown(self, entries: Mapping[str, str]) -> dict[str, str]:
        """Return the entries that are shown."""
        return {
            name: value
            for name, value in entries.items()
            if (self.counts or name in _NO_COUNTS) and (self.partitions or not name.startswith(_PARTITIONS))
        }


def shown_metadata(authorizer: Authorizer, caller: Caller, table: LoadedTable) -> TableMetadata:
    """Return a table's metadata as a caller gets it.

    Args:
        authorizer: decides.
        caller: the user.
        table: the table.
    """
    metadata = table.shown_metadata
    if caller.standard:
        return metadata
    view = view_of(authorizer.settled(), caller, table)
    rule = SummaryRule(not view.has_row_filter, sees(view, every_name(table, partition_sources(table))))
    update: dict[str, Any] = {}
    if not (rule.counts and rule.partitions):
        update["snapshots"] = [_with_summary(each, rule) for each in metadata.snapshots]
    if (metadata.statistics or metadata.partition_statistics) and not sees(view, every_name(table)):
        update |= {"statistics": [], "partition_statistics": []}
    return metadata.model_copy(update=update)


def sees(view: View, names: ColumnNames) -> bool:
    """Return whether a user can select these columns, unmasked, in every row."""
    reading = view.reads(names)
    return reading.refused is None and reading.altered is None


def _with_summary(snapshot: Snapshot, rule: SummaryRule) -> Snapshot:
    summary = snapshot.summary
    if summary is None:
        return snapshot
    kept = Summary(summary.operation, **rule.shown(summary.additional_properties))
    return snapshot.model_copy(update={"summary": kept})
