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
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Final

from pyiceberg.expressions import AlwaysTrue

from catalog.audit.outcomes import note
from catalog.authorization.authorizer import Caller
from catalog.authorization.columns import ACTION, nested_in, resolve
from catalog.authorization.table_access import TableAccess, sees_paths
from catalog.base.errors import NoSuchPlan, NoSuchPlanTask
from catalog.base.identifiers import TableName
from catalog.base.recent import Recent
from catalog.context import ServiceContext
from catalog.planning.file_statistics import FileStatistics
from catalog.planning.rows import empty_rows
from catalog.planning.standard_request import StandardScan
from catalog.planning.standard_scan import (
    ReadyScan,
    StandardPlan,
    columns_among,
    is_there,
    parts_of,
    pinned,
    schema_of,
)
from catalog.reading.loading import LoadedTable
from catalog.state.scan_plans import KeptPlan, ScanPlans
from policy.decision import Decision, Reason
from policy.errors import NotAuthorized
from policy.location.location import Location
from policy.privileges.operations import required
from policy.restrictions.model import Restriction
from policy.restrictions.predicate import TRUE
from policy.restrictions.standard import standard_json
from policy.write_properties import SCAN_PLANNING_MODE

_TASK: Final = re.compile(r"([0-9a-f-]{36})\.(0|[1-9][0-9]{0,8})")
_CANCEL: Final = "table.plan.cancel"
#: The maximum number of files of kept plans that are remembered.
_MAX_PLANNED: Final = 1_000_000


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
        #: The files of kept plans, which follow from the plan and from sealed manifests.
        self._planned: Recent[frozenset[str]] = Recent(_MAX_PLANNED, len)
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
            ready = self._ready(caller, table, restriction, pinned(table, scan))
            listed = ready.listed()
            parts = parts_of(listed, ready.files.data(listed), self._answer_files)
            answered = ready.planned(listed, *parts or [()]) if len(parts) <= 1 else None
            request, enforced = ready.scan.to_json(), _digest(restriction)
            kept = KeptPlan(table.record.id, caller.principal.name, request, tuple(parts), enforced)
        if answered is not None:
            if self._context.settings.s3.signing and self.is_required(table):
                self._plans.keep_answered(kept)
            return answered
        # Nothing is kept of a plan that is refused in the end.
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
            if not is_there(table, scan):
                raise _no_task(table.name)
            ready = self._ready(caller, table, restriction, scan)
            return ready.planned(ready.listed(), places)

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

    def is_required(self, table: LoadedTable) -> bool:
        """Return whether clients have to let the catalog plan scans of a table."""
        mode = table.metadata.properties.get(SCAN_PLANNING_MODE, self._context.settings.planning.mode)
        return mode.lower() == "server"

    def has_planned(self, caller: Caller, table: LoadedTable, restriction: Restriction, file: str) -> bool:
        """Return whether a kept plan of the user names a file.

        Args:
            caller: the user, judged as for a plan.
            table: the table.
            restriction: what the client enforces now; plans under another one do not count.
            file: a data or delete file, in canonical form.

        Raises:
            LocationNotAllowed, MetadataTampered, MetadataInvalid: as `plan`.
        """
        for plan_id, kept in self._plans.of(table.record.id, caller.principal.name).items():
            scan = StandardScan.from_json(kept.request)
            if kept.restrictions != _digest(restriction) or not is_there(table, scan):
                continue
            if file in self._planned.get(plan_id, partial(self._names, table, restriction, scan, kept)):
                return True
        return False

    def _names(
        self, table: LoadedTable, restriction: Restriction, scan: StandardScan, kept: KeptPlan
    ) -> frozenset[str]:
        """Return the files of a kept plan, in canonical form."""
        ready = ReadyScan.of(self._context.reader, table, restriction, scan, None)
        listed = ready.listed()
        parts = [ready.planned(listed, part) for part in kept.tasks]
        return frozenset(Location.parse(path).canonical for part in parts for path in part.paths())

    @contextmanager
    def _judged(self, caller: Caller, name: TableName) -> Iterator[tuple[LoadedTable, Restriction]]:
        """Load a table whose files the caller's client can have; judge again if policies change meanwhile."""
        # A plan names whole files to every user who gets it, in each way to ask for it.
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
    ) -> ReadyScan:
        statistics = self._statistics(caller, table, restriction, scan)
        return ReadyScan.of(self._context.reader, table, restriction, scan, statistics)

    def _statistics(
        self,
        caller: Caller,
        table: LoadedTable,
        restriction: Restriction,
        scan: StandardScan,
    ) -> FileStatistics | None:
        """Return what takes the statistics of the columns that the client asks for.

        Raises:
            RequestInvalid: a column that the schema does not have.
            NotAuthorized: the statistics tell of values or rows that the client has to hide.
        """
        if not scan.stats_fields:
            return None
        schema = schema_of(table, scan)
        names = columns_among(schema, scan.stats_fields)
        asked = resolve(table, schema, names, AlwaysTrue(), case_sensitive=scan.case_sensitive).field_ids
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
