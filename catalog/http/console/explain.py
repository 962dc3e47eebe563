"""Explains why a user can read a column, or cannot, as `lakewarden policy check` does."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Final

from fastapi import APIRouter, Query, Request, Response

from catalog.authorization.authorizer import Caller
from catalog.base.identifiers import table_name
from catalog.http.admin_access import require_service
from catalog.http.auth import CallerOf, ServicesOf
from catalog.http.console.rendering import page
from catalog.http.console.routes import ConsoleRoute
from catalog.reports.table_facts import facts_of
from catalog.service.explanations import Question, explained, remarks
from catalog.service.services import Services
from policy.errors import RequestInvalid
from policy.principal import Principal
from policy.privileges.requests import AccessRequest, Resource, Through
from policy.resource_names import resource_named
from policy.sql_lint import TableFacts

_LONGEST: Final = 2_000
_OF_TABLES: Final = ("database", "table")

router = APIRouter(route_class=ConsoleRoute, include_in_schema=False)

_Text = Annotated[str, Query(max_length=_LONGEST)]


@router.get("/console/explain")
def explain_access(
    request: Request,
    caller: CallerOf,
    services: ServicesOf,
    user: _Text = "",
    resource: _Text = "",
    access: _Text = "select",
    through: Through = Through.ENGINE,
    engine: _Text = "",
    live: bool = False,
) -> Response:
    """Explain the decision on an access; without user and resource, show the form alone."""
    chosen = {
        "user": user,
        "resource": resource,
        "access": access,
        "through": through.value,
        "engine": engine,
        "live": live,
    }
    if not (user and resource):
        require_service(services, caller, "admin.policies.check", "policies")
        return page(request, "explain", chosen=chosen, ways=list(Through), explanation=None)
    named = resource_named(resource)
    require_service(services, caller, "admin.policies.check", str(named))
    facts = _facts(services, caller, named) if live else TableFacts(None)
    known = services.principals.find(user)
    # A user who is not known has no groups and roles. Tokens of one who is can be refused all the same.
    principal = Principal(user) if known is None else known.principal
    asked = AccessRequest(principal, named, access, facts.owner)
    table = replace(facts.known, service=services.catalog)
    question = Question(asked, services.now(), table, through, engine or None)
    considered, explanation = explained(services.policies.in_force().stored, question)
    return page(
        request,
        "explain",
        chosen=chosen,
        ways=list(Through),
        explanation=explanation,
        remarks=list(remarks(considered, explanation)),
        at=considered.now,
        refused=None if known is None else services.principals.why_unknown(known),
    )


def _facts(services: Services, caller: Caller, resource: Resource) -> TableFacts:
    """Return what the catalog knows of the table of a resource, for callers who can load it."""
    if resource.levels[:2] != _OF_TABLES:
        raise RequestInvalid(
            f"{resource} is not of a table, so that there is no table to look up.",
            rule="request",
            hint="Clear the box `Look the table up`.",
        )
    name = table_name(resource.values[0].split("."), resource.values[1])
    return facts_of(services.access.load(caller, name))
