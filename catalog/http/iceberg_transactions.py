"""Iceberg REST: commits to several tables, all or none.

Source: Iceberg REST catalog specification, `/v1/{prefix}/transactions/commit`.
"""

from __future__ import annotations

from fastapi import APIRouter, Depends, Response, Security

from catalog.base.identifiers import table_name
from catalog.commits.committer import TableChange
from catalog.http.auth import ENGINE_SCHEME, USER_SCHEME, CallerOf, ServicesOf
from catalog.http.bodies import requirements_of, updates_of
from catalog.http.iceberg_models import ChangeTable, CommitTransaction
from catalog.http.iceberg_namespaces import check_prefix
from catalog.http.idempotency import OnceOf
from catalog.http.operations import ERRORS, NO_CONTENT
from catalog.http.routing import IcebergRoute

router = APIRouter(
    prefix="/v1/{prefix}/transactions",
    route_class=IcebergRoute,
    tags=["iceberg"],
    responses=ERRORS,
    dependencies=[Depends(check_prefix), Security(USER_SCHEME), Security(ENGINE_SCHEME)],
)


@router.post("/commit", status_code=NO_CONTENT)
def commit_transaction(
    body: CommitTransaction, caller: CallerOf, services: ServicesOf, once: OnceOf
) -> Response:
    """Commit to several tables: what each commit needs. One that is refused refuses all."""
    changes = [_change(each) for each in body.table_changes]

    def run() -> None:
        services.committer.commit_together(caller, changes)

    names = [change.name for change in changes]
    once(run, lambda kept: services.repeats.transaction(caller, names, kept), "transaction")
    return Response(status_code=NO_CONTENT)


def _change(body: ChangeTable) -> TableChange:
    name = table_name(body.identifier.namespace, body.identifier.name)
    return TableChange(name, requirements_of(body.requirements), updates_of(body.updates))
