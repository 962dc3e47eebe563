"""Makes the metadata tables that metadata.json alone answers: snapshots, history, refs, log entries.

Source: Apache Iceberg, `SnapshotsTable`, `HistoryTable`, `RefsTable`, `MetadataLogEntriesTable`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from catalog.authorization.shown import SummaryRule
from catalog.metadata_tables.kinds import MetadataTable
from catalog.reading.loading import LoadedTable

_MICROS: Final = 1000

Row = Mapping[str, Any]


def rows_of(kind: MetadataTable, table: LoadedTable, summaries: SummaryRule) -> Iterator[Row]:
    """Return the rows of a metadata table, by the names of its columns.

    Args:
        kind: one of `kinds.OF_METADATA`.
        table: the table.
        summaries: what is shown of summaries.
    """
    metadata = table.metadata
    match kind:
        case MetadataTable.SNAPSHOTS:
            return (_snapshot(each, summaries) for each in metadata.snapshots)
        case MetadataTable.HISTORY:
            return _history(metadata)
        case MetadataTable.REFS:
            return _refs(metadata)
        case _:
            return _log(metadata, table.metadata_location)


def _snapshot(snapshot: Snapshot, summaries: SummaryRule) -> Row:
    summary = snapshot.summary
    told = {} if summary is None else summary.additional_properties
    return {
        "committed_at": snapshot.timestamp_ms * _MICROS,
        "snapshot_id": snapshot.snapshot_id,
        "parent_id": snapshot.parent_snapshot_id,
        "operation": None if summary is None else summary.operation.value,
        "manifest_list": snapshot.manifest_list,
        "summary": [(name, str(value)) for name, value in summaries.shown(told).items()],
    }


def _history(metadata: TableMetadata) -> Iterator[Row]:
    known = {each.snapshot_id: each for each in metadata.snapshots}
    ancestors = set()
    at = metadata.current_snapshot_id
    while at in known and at not in ancestors:
        ancestors.add(at)
        at = known[at].parent_snapshot_id
    for entry in metadata.snapshot_log:
        snapshot = known.get(entry.snapshot_id)
        yield {
            "made_current_at": entry.timestamp_ms * _MICROS,
            "snapshot_id": entry.snapshot_id,
            "parent_id": None if snapshot is None else snapshot.parent_snapshot_id,
            "is_current_ancestor": entry.snapshot_id in ancestors,
        }


def _refs(metadata: TableMetadata) -> Iterator[Row]:
    for name, ref in metadata.refs.items():
        yield {
            "name": name,
            "type": ref.snapshot_ref_type.value.upper(),
            "snapshot_id": ref.snapshot_id,
            "max_reference_age_in_ms": ref.max_ref_age_ms,
            "min_snapshots_to_keep": ref.min_snapshots_to_keep,
            "max_snapshot_age_in_ms": ref.max_snapshot_age_ms,
        }


def _log(metadata: TableMetadata, location: str) -> Iterator[Row]:
    log = [(each.timestamp_ms, each.metadata_file) for each in metadata.metadata_log]
    for timestamp_ms, file in [*log, (metadata.last_updated_ms, location)]:
        at = [each for each in metadata.snapshot_log if each.timestamp_ms <= timestamp_ms]
        latest = metadata.snapshot_by_id(at[-1].snapshot_id) if at else None
        yield {
            "timestamp": timestamp_ms * _MICROS,
            "file": file,
            "latest_snapshot_id": at[-1].snapshot_id if at else None,
            "latest_schema_id": None if latest is None else latest.schema_id,
            "latest_sequence_number": None if latest is None else latest.sequence_number,
        }
