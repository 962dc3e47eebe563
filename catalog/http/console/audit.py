"""Searches and verifies the audit log."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Final

from fastapi import APIRouter, Query, Request, Response

from catalog.base.times import to_ms
from catalog.http import admin_service
from catalog.http.auth import CallerOf, ServicesOf
from catalog.http.console.bounded_work import BoundedWork
from catalog.http.console.rendering import page
from catalog.http.console.routes import ConsoleRoute
from policy.errors import RequestInvalid

_PAGE: Final = 50
_LONGEST: Final = 2_000

router = APIRouter(route_class=ConsoleRoute, include_in_schema=False)
_work: Final = BoundedWork("Verification of the audit log", "lakewarden audit verify")

_Text = Annotated[str, Query(max_length=_LONGEST)]


@router.get("/console/audit")
def show_records(
    request: Request,
    caller: CallerOf,
    services: ServicesOf,
    since: _Text = "",
    user: _Text = "",
    table: _Text = "",
    before: _Text = "",
) -> Response:
    """Show records, newest first. Empty fields of the form do not filter."""
    found = admin_service.read_audit(
        caller,
        services,
        since_ms=time_in(since),
        principal=user or None,
        table=table or None,
        limit=_PAGE,
        page_token=before or None,
    )
    chosen = {"since": since, "user": user, "table": table}
    return page(
        request, "audit", records=found.records, chosen=chosen, before=before, following=found.next_page_token
    )


@router.get("/console/audit/verify")
def verify_log(request: Request, caller: CallerOf, services: ServicesOf) -> Response:
    """Verify the whole log, and show what was verified."""
    with _work.begun() as pause:
        verdict = admin_service.audit_verdict(caller, services, lambda _what, _done, _total: pause())
    return page(request, "audit_verify", verdict=verdict)


def time_in(text: str) -> int | None:
    """Return a time of a form in milliseconds since 1970, in UTC if it has no zone; None for an empty field.

    Raises:
        RequestInvalid: it is no time in ISO 8601 that the log could have.
    """
    if not text:
        return None
    try:
        given = datetime.fromisoformat(text)
        moment = to_ms(given if given.tzinfo is not None else given.replace(tzinfo=UTC))
    except (ValueError, OverflowError):
        moment = -1
    if moment < 0:
        raise RequestInvalid(
            f"{text[:80]!r} is not a time.", rule="request", hint="Give a time such as 2030-01-31T12:00."
        )
    return moment
