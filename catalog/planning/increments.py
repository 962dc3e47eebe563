"""Finds the snapshots that an incremental scan reads: appends or changes between two snapshots.

- The start is an ancestor of the end, and is not read itself unless the request includes it. Neither it nor
  a snapshot between them is expired. A scan of changes can have no start: it begins with the oldest ancestor.
- A scan of appends leaves out snapshots that overwrite, delete or replace, with the files that they add. No
  deletes are applied: it reads the rows as they were appended.
- A scan of changes (`changes`) leaves out snapshots that replace files, since they change no row.

Source: Apache Iceberg, `IncrementalAppendScan` and `IncrementalChangelogScan`; Iceberg REST specification,
`PlanTableScanRequest`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation, Snapshot

from catalog.planning.request import ScanRequest
from catalog.reading.loading import LoadedTable
from policy.errors import RequestInvalid


@dataclass(frozen=True, slots=True)
class ChangedBy:
    """A snapshot whose changes are read.

    Attributes:
        snapshot: the snapshot.
        parent: the state before it; None if the table was empty, or if the state is expired. Which of them,
            metadata does not say: some clients remove the id of an expired parent.
        ordinal: the snapshot's number in the scan, from 0.
    """

    snapshot: Snapshot
    parent: Snapshot | None
    ordinal: int


def end_of(table: LoadedTable, request: ScanRequest) -> Snapshot | None:
    """Return the last snapshot of an incremental scan: by default the current one.

    Raises:
        RequestInvalid: the request has no start, or names another state or files as well, or the table does
            not have the snapshot.
    """
    others = (request.snapshot_id, request.ref, request.as_of_ms, request.files)
    startless = request.start_snapshot_id is None and (not request.changes or request.start_inclusive)
    if startless or any(each is not None for each in others):
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
    return [each for each in _between(table, request, end) if _is(each, Operation.APPEND)]


def changed_by(table: LoadedTable, request: ScanRequest, end: Snapshot | None) -> list[ChangedBy]:
    """Return the snapshots of a scan of changes, from the earliest to the latest.

    Raises:
        RequestInvalid: the start is not an ancestor of the end, or is expired.
    """
    between = [each for each in reversed(_between(table, request, end)) if not _is(each, Operation.REPLACE)]
    return [ChangedBy(each, _parent(table.metadata, each), ordinal) for ordinal, each in enumerate(between)]


def _between(table: LoadedTable, request: ScanRequest, end: Snapshot | None) -> list[Snapshot]:
    """Return the snapshots between start and end, the latest first."""
    found: list[Snapshot] = []
    for each in _ancestors(table.metadata, end):
        at_start = each.snapshot_id == request.start_snapshot_id
        if not at_start or request.start_inclusive:
            found.append(each)
        if at_start:
            return found
    if request.start_snapshot_id is None:
        return found
    last = f"the snapshot {end.snapshot_id}" if end else "the branch, which has no snapshot"
    raise RequestInvalid(
        f"The snapshot {request.start_snapshot_id} is not an ancestor of {last}, or it is expired.",
        table=table.name,
        rule="start-snapshot",
        hint="Give an ancestor that is not expired, or read the whole table.",
    )


def _is(snapshot: Snapshot, operation: Operation) -> bool:
    return snapshot.summary is not None and snapshot.summary.operation is operation


def _ancestors(metadata: TableMetadata, snapshot: Snapshot | None) -> Iterator[Snapshot]:
    """Yield a snapshot and its ancestors. Metadata can name a snapshot as its own ancestor."""
    seen: set[int] = set()
    while snapshot is not None and snapshot.snapshot_id not in seen:
        yield snapshot
        seen.add(snapshot.snapshot_id)
        snapshot = _parent(metadata, snapshot)


def _parent(metadata: TableMetadata, snapshot: Snapshot) -> Snapshot | None:
    number = snapshot.parent_snapshot_id
    return None if number is None else metadata.snapshot_by_id(number)
