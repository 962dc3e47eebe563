"""Shows what a proposed policy document would grant, and what it would take away; it changes nothing.

A document is bounded as the body of any request without a first authorization. A comparison is bounded in
time, and a process makes one at a time, so that users who compare leave threads for others.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

from fastapi import APIRouter, Request, Response
from pydantic import Field

from catalog.http.admin_access import require_service
from catalog.http.auth import CallerOf, ServicesOf
from catalog.http.base_models import OwnBody
from catalog.http.console.charts import laid_out
from catalog.http.console.rendering import page
from catalog.http.console.routes import ConsoleRoute
from catalog.http.screening import SMALL_BODY
from catalog.policy_store.documents import StoredSet
from catalog.policy_store.in_force import InForce
from catalog.policy_store.kinds import OF_POLICIES
from catalog.reports.access_changes import changes_report
from catalog.reports.report import Report
from catalog.service.services import Services
from policy.errors import RequestInvalid, Unavailable
from policy.ranger.policy_set import PolicySet

_PATH: Final = "/console/difference"
_LONGEST_S: Final = 10.0
_ROWS: Final = 500
_PROPOSED: Final = "the proposed document"

router = APIRouter(route_class=ConsoleRoute, include_in_schema=False)
_alone = threading.Lock()


class ComparisonBusy(Unavailable):
    """Another comparison of policies is in progress."""


class Proposal(OwnBody):
    """A proposed document, and the title of the stored document that it replaces; empty to add it."""

    document: str = Field(min_length=1, max_length=SMALL_BODY)
    replaces: str = Field(default="", max_length=300)


@router.get(_PATH)
def show_form(request: Request, caller: CallerOf, services: ServicesOf) -> Response:
    """Show the form."""
    require_service(services, caller, "admin.policies.check", "policies")
    stored = services.policies.in_force().stored
    return page(request, "difference", titles=_titles(stored), proposal=None, report=None, charts=[])


@router.post(_PATH)
def compare(body: Proposal, request: Request, caller: CallerOf, services: ServicesOf) -> Response:
    """Compare the policies in force with those that the proposed document would make."""
    require_service(services, caller, "admin.policies.check", "policies")
    in_force = services.policies.in_force()
    if body.replaces and body.replaces not in _titles(in_force.stored):
        raise RequestInvalid(
            f"There is no policy document {body.replaces!r}.", rule="policy-document", hint="Choose another."
        )
    if not _alone.acquire(blocking=False):
        raise ComparisonBusy(
            "Another comparison of policies is in progress.",
            rule="console-busy",
            hint="Try again in a moment.",
        )
    try:
        report = _compared(in_force, services, body)
    finally:
        _alone.release()
    return page(
        request,
        "difference",
        titles=_titles(in_force.stored),
        proposal=body,
        report=report,
        rows=report.rows[:_ROWS],
        left_out=max(len(report.rows) - _ROWS, 0),
        charts=[laid_out(each) for each in report.charts],
    )


def _compared(in_force: InForce, services: Services, proposal: Proposal) -> Report:
    stored, pause = in_force.stored, _ending_after(_LONGEST_S)
    proposed = {**stored.contents(*OF_POLICIES), proposal.replaces or _PROPOSED: proposal.document.encode()}
    after = PolicySet.parse(proposed, in_force.policies, pause, stored.kinds())
    return changes_report(services, in_force.policies, after, services.now(), pause=pause)


def _titles(stored: StoredSet) -> list[str]:
    """Return the titles of the documents that decide on access."""
    return sorted(stored.contents(*OF_POLICIES))


def _ending_after(seconds: float) -> Callable[[], None]:
    """Return a function that ends a comparison which takes longer."""
    until = time.monotonic() + seconds

    def pause() -> None:
        if time.monotonic() > until:
            raise RequestInvalid(
                f"The comparison takes longer than {seconds:g} seconds: "
                "the catalog has too many users and tables.",
                rule="console-size",
                hint="Run `lakewarden access diff` on the catalog's host.",
            )

    return pause
