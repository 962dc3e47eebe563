"""Iceberg REST: plans of scans.

Every plan is answered as completed, at once or in parts: nothing runs in the background.

Source: Iceberg REST catalog specification, `/v1/{prefix}/namespaces/{namespace}/tables/{table}/plan`,
`…/plan/{plan-id}` and `…/tasks`.
"""

from __future__ import annotations

from fastapi import APIRouter, Depends, Response, Security

from catalog.http.auth import ENGINE_SCHEME, USER_SCHEME, CallerOf, ServicesOf
from catalog.http.bodies import table_from_path
from catalog.http.content_codings import compressible
from catalog.http.iceberg_models import FetchScanTasks, PlannedAnswer, PlanTableScan, ScanTasksAnswer
from catalog.http.iceberg_namespaces import check_prefix
from catalog.http.operations import ERRORS, NO_CONTENT, answers
from catalog.http.routing import IcebergRoute
from catalog.http.scan_tasks import planned_answer, tasks_answer
from catalog.http.screening import Bounds, screened
from catalog.http.screening import table as on_table

router = APIRouter(
    prefix="/v1/{prefix}/namespaces/{namespace}/tables/{table}",
    route_class=IcebergRoute,
    tags=["iceberg"],
    responses=ERRORS,
    dependencies=[Depends(check_prefix), Security(USER_SCHEME), Security(ENGINE_SCHEME)],
)


@router.post("/plan", responses=answers(PlannedAnswer, "The plan, or the parts to fetch."))
@screened(on_table("table.plan", bounds=Bounds.filtering))
@compressible
def plan_table_scan(
    namespace: str, table: str, body: PlanTableScan, caller: CallerOf, services: ServicesOf
) -> Response:
    """Plan a scan: everything that loading the table needs.

    Every path is checked before the answer. A plan of many files is answered in parts.
    """
    name = table_from_path(namespace, table)
    return planned_answer(services.standard_planner.plan(caller, name, body.to_scan()))


@router.get("/plan/{plan_id}", responses=answers(PlannedAnswer, "The parts to fetch."))
@compressible
def fetch_planning_result(
    namespace: str, table: str, plan_id: str, caller: CallerOf, services: ServicesOf
) -> Response:
    """Return the parts of a plan of the caller's: everything that loading the table needs."""
    name = table_from_path(namespace, table)
    return planned_answer(services.standard_planner.result(caller, name, plan_id))


@router.delete("/plan/{plan_id}", status_code=NO_CONTENT)
def cancel_planning(
    namespace: str, table: str, plan_id: str, caller: CallerOf, services: ServicesOf
) -> Response:
    """Forget a plan of the caller's: any permission on the table."""
    services.standard_planner.cancel(caller, table_from_path(namespace, table), plan_id)
    return Response(status_code=NO_CONTENT)


@router.post("/tasks", responses=answers(ScanTasksAnswer, "The files of the part."))
@compressible
def fetch_scan_tasks(
    namespace: str, table: str, body: FetchScanTasks, caller: CallerOf, services: ServicesOf
) -> Response:
    """Return the files of one part of a plan of the caller's: everything that loading the table needs."""
    name = table_from_path(namespace, table)
    return tasks_answer(services.standard_planner.part(caller, name, body.plan_task))
