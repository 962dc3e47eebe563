"""Lists all tables of the catalog with their state, for audits of the whole lake; records certificates.

To list tables and states needs `audit` on the service of the catalog's name, and is recorded once a page.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Security

from catalog.http.admin_access import require_service
from catalog.http.auth import USER_SCHEME, CallerOf, ServicesOf
from catalog.http.certificate_models import CertificateAnswer, CertificateBody
from catalog.http.lake_models import ListedTable, ListedTables, StatesRequest, TableStates
from catalog.http.operations import ERRORS
from catalog.http.routing import GuardedRoute
from policy.identifiers import TableName

router = APIRouter(
    prefix="/admin/v1/lake",
    route_class=GuardedRoute,
    tags=["admin: service"],
    responses=ERRORS,
    dependencies=[Security(USER_SCHEME)],
)


@router.get("/tables")
def list_lake_tables(
    caller: CallerOf,
    services: ServicesOf,
    after: Annotated[str | None, Query(max_length=2_000)] = None,
    limit: Annotated[int, Query(ge=1, le=10_000)] = 1_000,
) -> ListedTables:
    """List all tables, also those that only the pointer store knows; `after` is the last one before."""
    require_service(services, caller, "audit.tables")
    found = [each for each in services.lake.names() if after is None or str(each[0]) > after]
    page = [ListedTable(table=str(name), standing=standing) for name, standing in found[:limit]]
    return ListedTables(tables=page, next=page[-1].table if len(found) > limit else None)


@router.post("/states")
def show_lake_states(body: StatesRequest, caller: CallerOf, services: ServicesOf) -> TableStates:
    """Show what the database has of tables: pointers, seals, locations, epochs and names of keys."""
    require_service(services, caller, "audit.states", f"{len(body.tables)} tables")
    return TableStates.of(services.lake.states([_named(each) for each in body.tables], body.after))


@router.post("/certificates")
def record_certificate(body: CertificateBody, caller: CallerOf, services: ServicesOf) -> CertificateAnswer:
    """Check and record that a table was erased (ALTER, DROP and UPDATE), or not (any permission on it)."""
    services.certificates.record(caller, body.to_certificate())
    return CertificateAnswer(id=body.id)


def _named(text: str) -> TableName:
    """Return a name as the pointer store has it, which nothing checked when it was written there."""
    *namespace, name = text.split(".")
    return TableName(tuple(namespace), name)
