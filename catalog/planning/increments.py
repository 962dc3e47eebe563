"""Finds the snapshots that an incremental scan reads: the appends between two snapshots.

- The start is an ancestor of the end, and is not read itself unless the request includes it. Neither it nor
  a snapshot between them is expired.
- Snapshots that overwrite, delete or replace are left out, with the files that they add. No deletes are
  applied: the scan reads the rows as they were appended.

Source: Apache Iceberg, `IncrementalAppendScan`; Iceberg REST specification, `PlanTableScanRequest`.
"""

from __future__ import annotations

from collections.abc import Iterator

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation, Snapshot

from catalog.planning.request import ScanRequest
from catalog.reading.loading import LoadedTable
from policy.errors import RequestInvalid


def end_of(table: LoadedTable, request: ScanRequest) -> Snapshot | None:
    """Return the last snapshot of an incremental scan: by default the current one.

    Raises:
        RequestInvalid: the request has no start, or names another state or files as well, or the table does
            not have the snapshot.
    """
    others = (request.snapshot_id, request.ref, request.as_of_ms, request.files)
    if request.start_snapshot_id is None or any(each is not None for each in others):
        raise RequestInvalid(
            "The incremental scan has no start, or names another snapshot, time or files.",
            table=table.name,
            rule="increment",
            hint="Give start-snapshot-id, with or without end-snapshot-id, and nothing else of these.",
        )
    if request.end_snapshot_id is None:
        return table.metadata.current_snapshot()
    found = table.metadata.snapshot_by_id(request.end_snapshot_id)
    if found is None:
        raise RequestInvalid(
            f"The table has no snapshot {request.end_snapshot_id}.",
            table=table.name,
            rule="snapshot",
            hint="Give an end-snapshot-id that is not expired.",
        )
    return found


def appends(table: LoadedTable, request: ScanRequest, end: Snapshot | None) -> list[Snapshot]:
    """Return the appends of an incremental scan, from the latest to the earliest.

    Raises:
        RequestInvalid: the start is not an ancestor of the end, or is expired.
    """
    found: list[Snapshot] = []
    for each in _ancestors(table.metadata, end):
        at_start = each.snapshot_id == request.start_snapshot_id
        if (not at_start or request.start_inclusive) and _appends(each):
            found.append(each)
        if at_start:
            return found
    last = f"the snapshot {end.snapshot_id}" if end else "the branch, which has no snapshot"
    raise RequestInvalid(
        f"The snapshot {request.start_snapshot_id} is not an ancestor of {last}, or it is expired.",
        table=table.name,
        rule="start-snapshot",
        hint="Give an ancestor that is not expired, or read the whole table.",
    )


def _appends(snapshot: Snapshot) -> bool:
    return snapshot.summary is not None and snapshot.summary.operation is Operation.APPEND


def _ancestors(metadata: TableMetadata, snapshot: Snapshot | None) -> Iterator[Snapshot]:
    """Yield a snapshot and its ancestors. Metadata can name a snapshot as its own ancestor."""
    seen: set[int] = set()
    while snapshot is not None and snapshot.snapshot_id not in seen:
        yield snapshot
        seen.add(snapshot.snapshot_id)
        parent = snapshot.parent_snapshot_id
        snapshot = None if parent is None else metadata.snapshot_by_id(parent)
