"""Iceberg REST: storage credentials of a table, to renew those of its load.

Source: Iceberg REST catalog specification, `loadCredentials`.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Response, Security

from catalog.http.auth import ENGINE_SCHEME, USER_SCHEME, CallerOf, ServicesOf
from catalog.http.bodies import table_from_path
from catalog.http.iceberg_models import LoadedCredentialsAnswer
from catalog.http.iceberg_namespaces import check_prefix
from catalog.http.operations import ERRORS, answers
from catalog.http.referenced_by import REFERENCED_BY
from catalog.http.routing import IcebergRoute
from catalog.http.storage_credentials import StorageAnswer
from catalog.http.table_answers import NO_STORE

router = APIRouter(
    prefix="/v1/{prefix}/namespaces/{namespace}/tables/{table}",
    route_class=IcebergRoute,
    tags=["iceberg"],
    responses=ERRORS,
    dependencies=[Depends(check_prefix), Security(USER_SCHEME), Security(ENGINE_SCHEME)],
)


@router.get(
    "/credentials",
    responses=answers(LoadedCredentialsAnswer, "The credential."),
    dependencies=[REFERENCED_BY],
)
def load_credentials(
    namespace: str,
    table: str,
    caller: CallerOf,
    services: ServicesOf,
    plan_id: Annotated[str | None, Query(alias="planId")] = None,
) -> Response:
    """Issue a storage credential for a table: everything that loading it needs.

    With `planId`, the plan has to be the caller's; the credential is that of the table.
    """
    assert services.credentials is not None, "the route is served where credentials are issued"
    name = table_from_path(namespace, table)
    if plan_id is not None:
        services.standard_planner.result(caller, name, plan_id)
    issued = services.credentials.of_loaded(caller, *services.access.load_restricted(caller, name))
    answer = StorageAnswer(issued, services.settings, name)
    body = f'{{"storage-credentials":{answer.entries}}}'
    return Response(body, media_type="application/json", headers=NO_STORE)
