"""Shows what a proposed policy document would grant, and what it would take away; it changes nothing.

A document is bounded as the body of any request without a first authorization. If it is refused, the form
has it again, so that nobody has to paste it twice.
"""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter, Request, Response
from markupsafe import Markup, escape
from pydantic import Field

from catalog.http.admin_access import require_service
from catalog.http.auth import CallerOf, ServicesOf
from catalog.http.base_models import OwnBody
from catalog.http.console.bounded_work import BoundedWork
from catalog.http.console.charts import laid_out
from catalog.http.console.rendering import page
from catalog.http.console.routes import ConsoleRoute, status_of
from catalog.http.errors import note_refusal
from catalog.http.screening import SMALL_BODY
from catalog.policy_store.documents import StoredSet
from catalog.policy_store.in_force import InForce
from catalog.policy_store.kinds import OF_POLICIES
from catalog.reports.access_changes import changes_report
from catalog.reports.report import Report
from catalog.service.services import Services
from policy.errors import LakewardenError, RequestInvalid
from policy.ranger.policy_set import PolicySet

_PATH: Final = "/console/difference"
_ROWS: Final = 500
_PROPOSED: Final = "(proposed)"

router = APIRouter(route_class=ConsoleRoute, include_in_schema=False)
_work: Final = BoundedWork("The comparison", "lakewarden access diff")


class Proposal(OwnBody):
    """A proposed document, and the title of the stored document that it replaces; empty to add it."""

    document: str = Field(min_length=1, max_length=SMALL_BODY)
    replaces: str = Field(default="", max_length=300)


@router.get(_PATH)
def show_form(request: Request, caller: CallerOf, services: ServicesOf) -> Response:
    """Show the form."""
    require_service(services, caller, "admin.policies.check", "policies")
    stored = services.policies.in_force().stored
    return _page(request, stored)


@router.post(_PATH)
def compare(body: Proposal, request: Request, caller: CallerOf, services: ServicesOf) -> Response:
    """Compare the policies in force with those that the proposed document would make."""
    require_service(services, caller, "admin.policies.check", "policies")
    in_force = services.policies.in_force()
    try:
        report = _compared(in_force, services, body)
    except LakewardenError as error:
        note_refusal(request, error)
        return _page(request, in_force.stored, body, error=error)
    return _page(request, in_force.stored, body, report=report)


def _page(
    request: Request,
    stored: StoredSet,
    proposal: Proposal | None = None,
    report: Report | None = None,
    error: LakewardenError | None = None,
) -> Response:
    rows = () if report is None else report.rows
    return page(
        request,
        "difference",
        200 if error is None else status_of(error),
        titles=_titles(stored),
        replaces="" if proposal is None else proposal.replaces,
        # As it was sent: cleaned, it would be another document when it is sent again.
        document=Markup() if proposal is None else escape(proposal.document),
        report=report,
        error=error,
        rows=rows[:_ROWS],
        left_out=max(len(rows) - _ROWS, 0),
        charts=[] if report is None else [laid_out(each) for each in report.charts],
    )


def _compared(in_force: InForce, services: Services, proposal: Proposal) -> Report:
    stored = in_force.stored
    if proposal.replaces and proposal.replaces not in _titles(stored):
        raise RequestInvalid(
            f"There is no policy document {proposal.replaces!r}.",
            rule="policy-document",
            hint="Choose another.",
        )
    proposed = {**stored.contents(*OF_POLICIES), proposal.replaces or _PROPOSED: proposal.document.encode()}
    with _work.begun() as pause:
        after = PolicySet.parse(proposed, in_force.policies, pause, stored.kinds())
        return changes_report(services, in_force.policies, after, services.now(), pause=pause)


def _titles(stored: StoredSet) -> list[str]:
    """Return the titles of the documents that decide on access."""
    return sorted(stored.contents(*OF_POLICIES))
