"""Names the metadata tables of a table, and says what each is made from.

Source: Apache Iceberg, "Spark Queries", "Inspecting tables", and `MetadataTableType`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class MetadataTable(StrEnum):
    """A metadata table."""

    SNAPSHOTS = "snapshots"
    HISTORY = "history"
    REFS = "refs"
    METADATA_LOG_ENTRIES = "metadata_log_entries"
    MANIFESTS = "manifests"
    FILES = "files"
    DATA_FILES = "data_files"
    DELETE_FILES = "delete_files"
    ENTRIES = "entries"
    PARTITIONS = "partitions"
    POSITION_DELETES = "position_deletes"
    ALL_MANIFESTS = "all_manifests"
    ALL_FILES = "all_files"
    ALL_DATA_FILES = "all_data_files"
    ALL_DELETE_FILES = "all_delete_files"
    ALL_ENTRIES = "all_entries"


#: Made from metadata.json alone.
OF_METADATA: Final = frozenset(
    {
        MetadataTable.SNAPSHOTS,
        MetadataTable.HISTORY,
        MetadataTable.REFS,
        MetadataTable.METADATA_LOG_ENTRIES,
    }
)
#: Of one snapshot, so that an earlier one can be read.
OF_SNAPSHOT: Final = frozenset(
    {
        MetadataTable.MANIFESTS,
        MetadataTable.FILES,
        MetadataTable.DATA_FILES,
        MetadataTable.DELETE_FILES,
        MetadataTable.ENTRIES,
        MetadataTable.PARTITIONS,
        MetadataTable.POSITION_DELETES,
    }
)
#: With a row for each entry of manifests, deleted files too.
OF_ENTRIES: Final = frozenset({MetadataTable.ENTRIES, MetadataTable.ALL_ENTRIES})
#: Of data files alone, and of delete files alone.
OF_DATA: Final = frozenset({MetadataTable.DATA_FILES, MetadataTable.ALL_DATA_FILES})
OF_DELETES: Final = frozenset({MetadataTable.DELETE_FILES, MetadataTable.ALL_DELETE_FILES})
