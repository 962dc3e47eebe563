"""Shows refusals over time, by user, table, rule and action."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Final, Literal

from fastapi import APIRouter, Query, Request, Response

from catalog.audit.history import History
from catalog.base.times import to_ms
from catalog.http.admin_access import require_service
from catalog.http.auth import CallerOf, ServicesOf
from catalog.http.console.charts import laid_out
from catalog.http.console.rendering import page
from catalog.http.console.routes import ConsoleRoute
from catalog.reports.audited import Counting, audited_report
from catalog.service.audit_archive import archive_of
from policy.errors import RequestInvalid

_ROWS: Final = 50
#: Records that a page reads at most: some seconds.
_MOST: Final = 200_000
_FIELDS: Final = ("user", "table", "rule", "action")

router = APIRouter(route_class=ConsoleRoute, include_in_schema=False)

_Field = Literal["user", "table", "rule", "action"]


@router.get("/console/refusals")
def show_refusals(
    request: Request,
    caller: CallerOf,
    services: ServicesOf,
    days: Annotated[int, Query(ge=1, le=90)] = 7,
    by: _Field = "user",
) -> Response:
    """Show the refusals of the last days, counted by one field."""
    require_service(services, caller, "audit.read")
    until = services.now()
    since = until - timedelta(days=days)
    history = History(services.engine, archive_of(services.settings, services.storage), _silent)
    if history.count_since(to_ms(since), _MOST + 1) > _MOST:
        raise RequestInvalid(
            f"The last {days} days have more than {_MOST} audit records, more than a page counts.",
            rule="console-size",
            hint="Choose fewer days, or run `lakewarden audit report` on the catalog's host.",
        )
    counting = Counting(since, until, (by,), True, _ROWS)
    report = audited_report(history, counting)
    return page(
        request,
        "refusals",
        report=report,
        charts=[laid_out(each) for each in report.charts],
        days=days,
        by=by,
        fields=_FIELDS,
    )


def _silent(_done: int, _total: int) -> None:
    """No one waits for progress."""
