"""Plans scans for standard clients, by the Iceberg REST specification.

- A plan names whole files. So its caller is judged as one who loads the table: the user selects everything in
  it, and no row filter and no mask applies, or an administrator trusts the client to enforce them
  (`catalog.authorization.standard_clients`).
- The files are found as for engines: manifests are compared with their seals, every path with the allow-list.
  No key is used. Sealed bounds prune nothing, and key metadata is not shown.
- A plan of many files is answered in parts. Each part is some manifests of the same snapshot. A part is
  authorized and checked again when it is fetched, by the policies in force then.
- A client that enforces masks filters by masked values. So conditions on masked columns prune nothing and are
  not in residual filters. Statistics of masked columns are refused; under a row filter, those of all columns.

Source: Iceberg REST specification, `planTableScan`, `fetchPlanningResult`, `fetchScanTasks` and
`cancelPlanning`.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.schema import Schema
from pyiceberg.table.snapshots import Snapshot

from catalog.audit.outcomes import note
from catalog.authorization.authorizer import Caller
from catalog.authorization.columns import ACTION, nested_in, resolve
from catalog.authorization.table_access import TableAccess, sees_paths
from catalog.base.errors import NoSuchPlan, NoSuchPlanTask
from catalog.base.identifiers import TableName
from catalog.context import ServiceContext
from catalog.iceberg.manifests import ManifestListEntry
from catalog.iceberg.partition_values import ListedPartitions
from catalog.planning.file_statistics import FileStatistics
from catalog.planning.increments import appends, end_of
from catalog.planning.masks import weakened
from catalog.planning.opening import snapshot_of
from catalog.planning.prune import Pruner
from catalog.planning.residuals import Residuals
from catalog.planning.rows import empty_rows
from catalog.planning.scan_files import ScanFiles
from catalog.planning.standard_request import StandardScan
from catalog.reading.loading import LoadedTable
from catalog.state.scan_plans import KeptPlan, ScanPlans
from policy.decision import Decision, Reason
from policy.errors import NotAuthorized
from policy.privileges.operations import required
from policy.restrictions.model import Restriction
from policy.restrictions.predicate import TRUE
from policy.restrictions.standard import standard_json

#: Metadata columns of Iceberg, which clients select like columns of the table.
_METADATA_COLUMNS: Final = frozenset(
    {"_file", "_pos", "_deleted", "_spec_id", "_partition", "_row_id", "_last_updated_sequence_number"}
)
_TASK: Final = re.compile(r"([0-9a-f-]{36})\.(0|[1-9][0-9]{0,8})")
_ALL: Final = AlwaysTrue()
_CANCEL: Final = "table.plan.cancel"
_DATA: Final = 0


@dataclass(frozen=True, slots=True)
class StandardPlan:
    """A plan, or a part of one.

    Attributes:
        plan_tasks: the parts to fetch.
        files: data files, then the delete files that apply to them; see `catalog.planning.rows`.
        data_files: the number of data files that the client gets.
        left: what is left of the filter in their partitions; None without files.
        statistics: JSON members of each data file; None if nobody asked for them.
        plan_id: of a plan that is answered in parts; else None.
    """

    plan_tasks: tuple[str, ...]
    files: pa.Table
    data_files: int = 0
    left: Left | None = None
    statistics: Sequence[Mapping[str, object]] | None = None
    plan_id: str | None = None


@dataclass(frozen=True, slots=True)
class _Scan:
    """A scan that is ready to be planned.

    Attributes:
        table: the table.
        scan: what is asked for, with its snapshots and schema.
        schema: the schema that its names are of.
        sources: the snapshots that are read.
        filter: the filter, without conditions on masked columns.
        counts: whether the rows that files have are those that the client shows.
        files: finds the files.
        partitions: their partitions.
        statistics: their statistics; None if nobody asked for them.
    """

    table: LoadedTable
    scan: StandardScan
    schema: Schema
    sources: Sequence[Snapshot]
    filter: BooleanExpression
    counts: bool
    files: ScanFiles
    partitions: ListedPartitions
    statistics: FileStatistics | None


class StandardPlanner:
    """Plans scans for standard clients.

    Args:
        context: the parts that services share.
        access: judges who gets a table.
    """

    def __init__(self, context: ServiceContext, access: TableAccess) -> None:
        self._context = context
        self._access = access
        self._answer_files = context.settings.planning.answer_files
        self._plans = ScanPlans(context.engine, context.now_ms, context.settings.planning.kept_s * 1000)

    def plan(self, caller: Caller, name: TableName, scan: StandardScan) -> StandardPlan:
        """Plan a scan: all of its files, or the parts to fetch.

        Raises:
            NotAuthorized: the caller's client cannot have the whole table.
            NoSuchTable: there is none.
            RequestInvalid: a column or snapshot that the table does not have.
            LocationNotAllowed, MetadataTampered, MetadataUnsealed, MetadataInvalid: the table breaks a rule.
            StateUnavailable: the user has too many plans.
        """
        with self._judged(caller, name) as (table, restriction):
            scan.require_valid(table.name)
            ready = self._ready(caller, table, restriction, _pinned(table, scan))
            listed = ready.files.listed(ready.sources)
            parts = _parts(listed, ready.files.data(listed), self._answer_files)
            if len(parts) <= 1:
                data = [listed[place] for part in parts for place in part]
                return _planned(ready, listed, data)
            kept = KeptPlan(
                table.record.id,
                caller.principal.name,
                ready.scan.to_json(),
                tuple(parts),
                _digest(restriction),
            )
            plan_id = self._plans.keep(kept)
            note("parts", len(parts))
            return _in_parts(plan_id, kept)

    def result(self, caller: Caller, name: TableName, plan_id: str) -> StandardPlan:
        """Return the parts of a plan.

        Raises:
            NoSuchPlan: the user has no such plan of the table.
            NotAuthorized, NoSuchTable: as `plan`.
        """
        with self._judged(caller, name) as (table, _):
            kept = self._plans.find(plan_id, table.record.id, caller.principal.name)
            if kept is None:
                raise _no_plan(table.name)
            return _in_parts(plan_id, kept)

    def part(self, caller: Caller, name: TableName, plan_task: str) -> StandardPlan:
        """Return the files of one part of a plan.

        Raises:
            NoSuchPlanTask: the user has no such part of a plan of the table, or its snapshot is expired.
            NotAuthorized: as `plan`; or the row filters and masks are others than when the scan was planned.
            NoSuchTable, LocationNotAllowed, MetadataTampered, MetadataUnsealed, MetadataInvalid: as `plan`.
        """
        with self._judged(caller, name) as (table, restriction):
            kept, places = self._kept_part(caller, table, plan_task)
            if kept.restrictions != _digest(restriction):
                raise self._changed(caller, table)
            scan = StandardScan.from_json(kept.request)
            if not _is_there(table, scan):
                raise _no_task(table.name)
            ready = self._ready(caller, table, restriction, scan)
            listed = ready.files.listed(ready.sources)
            return _planned(ready, listed, [listed[place] for place in places])

    def cancel(self, caller: Caller, name: TableName, plan_id: str) -> None:
        """Forget a plan that was answered in parts.

        Raises:
            NotAuthorized: the caller has no permission on the table.
            NoSuchTable: there is none.
            NoSuchPlan: the user has no such plan of the table.
        """
        requests = required(_CANCEL, self._context.on(caller, name))
        self._context.authorizer.require(caller, _CANCEL, str(name), requests)
        record = self._context.loader.record(name)
        if not self._plans.remove(plan_id, record.id, caller.principal.name):
            raise _no_plan(str(name))

    @contextmanager
    def _judged(self, caller: Caller, name: TableName) -> Iterator[tuple[LoadedTable, Restriction]]:
        """Load a table whose files the caller's client can have; judge again if policies change meanwhile."""
        # A plan names whole files to whoever gets it, by whatever way it is asked for.
        caller = replace(caller, standard=True)
        policies = self._context.authorizer.policies()
        table, restriction = self._access.load_to_plan(caller, name)
        see_paths = sees_paths(self._context.authorizer, self._context.on(caller, name))
        with self._context.authorizer.recorded(caller, ACTION, table.name, show_path=see_paths):
            yield table, restriction
            if self._context.authorizer.policies() is not policies:
                # Reading manifests can take long. The answer goes out by the policies that are in force then.
                again = self._context.standard_clients.restrictions(caller, ACTION, table)
                if _digest(again) != _digest(restriction):
                    raise self._changed(caller, table)

    def _changed(self, caller: Caller, table: LoadedTable) -> NotAuthorized:
        said = "The row filters and masks of the table changed while the scan was planned."
        reason = Reason("policy-changed", said)
        self._context.authorizer.record(caller, ACTION, table.name, Decision.deny(reason))
        return NotAuthorized(said, table=table.name, rule=reason.rule, hint="Plan the scan again.")

    def _kept_part(
        self, caller: Caller, table: LoadedTable, plan_task: str
    ) -> tuple[KeptPlan, Sequence[int]]:
        found = _TASK.fullmatch(plan_task)
        kept = found and self._plans.find(found[1], table.record.id, caller.principal.name)
        if not found or not kept or int(found[2]) >= len(kept.tasks):
            raise _no_task(table.name)
        return kept, kept.tasks[int(found[2])]

    def _ready(
        self, caller: Caller, table: LoadedTable, restriction: Restriction, scan: StandardScan
    ) -> _Scan:
        request, metadata = scan.to_request(), table.metadata
        schema = metadata.schema_by_id(scan.schema_id or 0) or metadata.schema()
        if scan.is_incremental:
            sources = appends(table, request, end_of(table, request))
        else:
            current = snapshot_of(table, request)
            sources = [current] if current else []
        columns = None if scan.columns is None else _columns(schema, scan.columns)
        read = resolve(table, schema, columns, scan.filter, case_sensitive=scan.case_sensitive)
        masked = frozenset(restriction.masks)
        row_filter = weakened(scan.filter, schema, masked, case_sensitive=scan.case_sensitive)
        statistics = self._statistics(caller, table, restriction, schema, scan)
        partitions = ListedPartitions(metadata.specs(), metadata.schema())
        pruner = Pruner(schema, metadata.specs(), row_filter, case_sensitive=scan.case_sensitive)
        files = ScanFiles(
            self._context.reader, table, schema, request, partitions, pruner, statistics=statistics
        )
        names = (schema.find_column_name(each) or "" for each in read.top_level)
        note("columns", ", ".join(names))
        note("snapshot", scan.end_snapshot_id or scan.snapshot_id)
        if scan.is_incremental:
            note("start", scan.start_snapshot_id)
        counts = restriction.row_filter == TRUE
        return _Scan(table, scan, schema, sources, row_filter, counts, files, partitions, statistics)

    def _statistics(
        self,
        caller: Caller,
        table: LoadedTable,
        restriction: Restriction,
        schema: Schema,
        scan: StandardScan,
    ) -> FileStatistics | None:
        """Return what takes the statistics of the columns that the client asks for.

        Raises:
            RequestInvalid: a column that the schema does not have.
            NotAuthorized: the statistics tell of values or rows that the client has to hide.
        """
        if not scan.stats_fields:
            return None
        names = _columns(schema, scan.stats_fields)
        asked = resolve(table, schema, names, _ALL, case_sensitive=scan.case_sensitive).field_ids
        hidden = frozenset().union(*(nested_in(schema, each) for each in restriction.masks))
        if restriction.row_filter != TRUE or not asked.isdisjoint(hidden):
            reason = Reason(
                "statistics", "Statistics of files would show values or rows that a policy withholds."
            )
            self._context.authorizer.record(caller, ACTION, table.name, Decision.deny(reason))
            raise NotAuthorized(
                reason.detail, table=table.name, rule=reason.rule, hint="Leave stats-fields out."
            )
        return FileStatistics(asked)


def _pinned(table: LoadedTable, scan: StandardScan) -> StandardScan:
    """Return the scan with the snapshot that it reads, and the schema that its names are of."""
    request, metadata = scan.to_request(), table.metadata
    snapshot = end_of(table, request) if scan.is_incremental else snapshot_of(table, request)
    schema_id = metadata.current_schema_id
    if scan.use_snapshot_schema and snapshot is not None and snapshot.schema_id is not None:
        schema_id = snapshot.schema_id
    if not scan.is_incremental and snapshot is not None:
        scan = replace(scan, snapshot_id=snapshot.snapshot_id)
    return replace(scan, schema_id=schema_id)


def _is_there(table: LoadedTable, scan: StandardScan) -> bool:
    """Return whether the table still has the snapshots and the schema of a scan."""
    snapshots = (scan.snapshot_id, scan.start_snapshot_id, scan.end_snapshot_id)
    metadata = table.metadata
    return metadata.schema_by_id(scan.schema_id or 0) is not None and all(
        metadata.snapshot_by_id(each) is not None for each in snapshots if each is not None
    )


def _columns(schema: Schema, names: Sequence[str]) -> list[str]:
    """Return the names that are not metadata columns; a column of the table stands for itself."""
    own = {each.name for each in schema.fields}
    return [
        each for each in names if (first := each.partition(".")[0]) in own or first not in _METADATA_COLUMNS
    ]


def _parts(
    listed: Sequence[ManifestListEntry], data: Sequence[ManifestListEntry], limit: int
) -> list[tuple[int, ...]]:
    """Group manifests, so that each group has at most `limit` files, or is one manifest.

    Returns:
        their positions in the list.
    """
    places = {id(each): place for place, each in enumerate(listed)}
    parts: list[list[int]] = []
    room = 0
    for each in data:
        files = _files_of(each, limit)
        if files > room:
            parts.append([])
            room = limit
        parts[-1].append(places[id(each)])
        room -= files
    return [tuple(each) for each in parts]


def _files_of(listed: ManifestListEntry, limit: int) -> int:
    """Return how many live files a manifest has; `limit` if the list does not say."""
    added, existing = listed.added_files_count, listed.existing_files_count
    return limit if added is None or existing is None else added + existing


def _planned(
    ready: _Scan, listed: Sequence[ManifestListEntry], data: Sequence[ManifestListEntry]
) -> StandardPlan:
    """Return the files of some manifests of a scan."""
    files, _ = ready.files.rows(ready.sources, listed, data) if ready.sources else (empty_rows(), None)
    left = Left(ready)
    count = _enough(ready, files, left)
    note("files", count)
    note("rows", pc.sum(files["record_count"].slice(0, count)).as_py() or 0)
    members = None if ready.statistics is None else ready.statistics.members
    return StandardPlan((), files, count, left, members)


class Left:
    """What is left of a scan's filter in the partitions of its files."""

    def __init__(self, ready: _Scan) -> None:
        metadata = ready.table.metadata
        self._values = ready.partitions.values
        self._residuals = Residuals(
            ready.schema,
            metadata.specs(),
            ready.filter,
            frozenset(metadata.schema().field_ids),
            case_sensitive=ready.scan.case_sensitive,
        )
        self._found: dict[tuple[int, str], BooleanExpression] = {}

    def of(self, spec_id: int, partition: str) -> BooleanExpression:
        """Return what is left of the filter in a partition, by its spec and its text in a plan."""
        key = (spec_id, partition)
        if key not in self._found:
            self._found[key] = self._residuals.of(spec_id, self._values.get(key, ()))
        return self._found[key]


def _enough(ready: _Scan, files: pa.Table, left: Left) -> int:
    """Return how many of the data files have enough rows for the client.

    Only files count whose rows the client keeps all: no condition is left, and no delete file applies.
    """
    data: int = pc.sum(pc.equal(files["content"], _DATA)).as_py() or 0
    wanted = ready.scan.min_rows
    if not wanted or not ready.counts:
        return data
    columns = (files[name].to_pylist() for name in ("spec_id", "partition", "deletes", "record_count"))
    rows = 0
    for place, (spec_id, partition, deletes, records) in enumerate(zip(*columns, strict=True)):
        if place == data or rows >= wanted:
            return place
        if deletes is None and left.of(spec_id, partition) == _ALL:
            rows += records
    return data


def _digest(restriction: Restriction) -> str | None:
    """Return a digest of what a client enforces; None for nothing."""
    restrictions = standard_json(restriction)
    if restrictions is None:
        return None
    return hashlib.sha256(json.dumps(restrictions, sort_keys=True).encode()).hexdigest()


def _in_parts(plan_id: str, kept: KeptPlan) -> StandardPlan:
    tasks = tuple(f"{plan_id}.{number}" for number in range(len(kept.tasks)))
    return StandardPlan(tasks, empty_rows(), plan_id=plan_id)


def _no_plan(table: str) -> NoSuchPlan:
    return NoSuchPlan(
        "There is no such plan of the table, or it expired.",
        table=table,
        rule="scan-plan",
        hint="Plan the scan again.",
    )


def _no_task(table: str) -> NoSuchPlanTask:
    return NoSuchPlanTask(
        "There is no such plan task of the table, or its plan expired.",
        table=table,
        rule="scan-plan",
        hint="Plan the scan again.",
    )
