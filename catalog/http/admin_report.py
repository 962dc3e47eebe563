"""Reports tables that break the encryption rules in force, or rules that are not in force yet.

It needs `admin` on the service of the catalog's name. Tables are sorted by name, in pages.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import APIRouter, Body, Query, Request, Security

from catalog.authorization.authorizer import Caller
from catalog.http.auth import USER_SCHEME, CallerOf, ServicesOf
from catalog.http.operations import ERRORS
from catalog.http.report_models import EncryptionReport, TableReport
from catalog.http.routing import GuardedRoute
from catalog.service.services import Services
from policy.encryption_rules import EncryptionRules

_PATH: Final = "/encryption-report"

router = APIRouter(
    prefix="/admin/v1",
    route_class=GuardedRoute,
    tags=["admin: policies"],
    responses=ERRORS,
    dependencies=[Security(USER_SCHEME)],
)

_After = Annotated[str | None, Query(max_length=2_000)]
_Limit = Annotated[int, Query(ge=1, le=1_000)]
_Document = Annotated[dict[str, Any], Body()]


@router.get(_PATH)
def report(
    caller: CallerOf, services: ServicesOf, after: _After = None, limit: _Limit = 100
) -> EncryptionReport:
    """Check tables by the encryption rules in force; `after` is the last table of the page before."""
    return _report(services, caller, None, after, limit)


@router.post(_PATH)
def report_on_draft(
    body: _Document,
    request: Request,
    caller: CallerOf,
    services: ServicesOf,
    after: _After = None,
    limit: _Limit = 100,
) -> EncryptionReport:
    """Check tables by the rules of the document in the body, instead of those in force."""
    return _report(services, caller, request.state.body, after, limit)


def _report(
    services: Services, caller: Caller, draft: bytes | None, after: str | None, limit: int
) -> EncryptionReport:
    names = [name for name in services.encryption_report.tables(caller) if after is None or str(name) > after]
    rules = services.policies.encryption() if draft is None else EncryptionRules.parse({"request": draft})
    page = names[:limit]
    return EncryptionReport(
        rules_version=rules.version,
        tables=[TableReport.of(each) for each in services.encryption_report.report(rules, page)],
        next=str(page[-1]) if len(names) > limit else None,
    )
