"""Decides whether files of a table can be deleted: not while its property `gc.enabled` is false.

Source: Apache Iceberg's `TableProperties.GC_ENABLED`: it stops `expire_snapshots`, `remove_orphan_files` and
`DROP TABLE … PURGE`.
"""

from __future__ import annotations

from typing import Final

from pyiceberg.table.metadata import TableMetadata

from policy.errors import RequestInvalid

GC_ENABLED: Final = "gc.enabled"


def require_deletable(metadata: TableMetadata, table: str) -> None:
    """Check that a table's properties let its files be deleted.

    Args:
        metadata: the table's.
        table: dotted name, for errors.

    Raises:
        RequestInvalid: `gc.enabled` is not true.
    """
    if not is_deletable(metadata):
        raise RequestInvalid(
            "The table sets gc.enabled=false, so its files are not deleted.",
            table=table,
            rule="gc-enabled",
            hint="Set gc.enabled=true if no other table has the same files.",
        )


def is_deletable(metadata: TableMetadata) -> bool:
    """Return whether a table's properties let its files be deleted."""
    return metadata.properties.get(GC_ENABLED, "true").lower() == "true"
