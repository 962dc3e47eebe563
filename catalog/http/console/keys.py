"""Shows the keys of all tables that are due: for rotation, or for a scheduled destruction."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Final

from fastapi import APIRouter, Query, Request, Response

from catalog.http.admin_access import require_service
from catalog.http.auth import CallerOf, ServicesOf
from catalog.http.console.bounded_work import BoundedWork
from catalog.http.console.charts import laid_out
from catalog.http.console.rendering import page
from catalog.http.console.routes import ConsoleRoute
from catalog.reports.expiring_keys import Period, expiring_report

router = APIRouter(route_class=ConsoleRoute, include_in_schema=False)
_work: Final = BoundedWork("The report of keys", "lakewarden key list --expiring")


@router.get("/console/keys")
def show_due_keys(
    request: Request,
    caller: CallerOf,
    services: ServicesOf,
    within: Annotated[int, Query(ge=1, le=3_650)] = 30,
    age: Annotated[int, Query(ge=1, le=3_650)] = 365,
) -> Response:
    """Show keys that are due within some days, and keys in force that are older than some days."""
    require_service(services, caller, "audit.states", "keys")
    period = Period(services.now(), timedelta(days=within), timedelta(days=age))
    with _work.begun() as pause:
        report = expiring_report(services, period, pause)
    charts = [laid_out(each) for each in report.charts]
    return page(request, "keys", report=report, charts=charts, within=within, age=age)
