"""Iceberg REST: views.

Source: Iceberg REST catalog specification, `/v1/{prefix}/namespaces/{namespace}/views`,
`/v1/{prefix}/namespaces/{namespace}/register-view` and `/v1/{prefix}/views/rename`.
"""

from __future__ import annotations

import json

from fastapi import APIRouter, Depends, Response, Security

from catalog.authorization.authorizer import Caller
from catalog.base.existence import no_view
from catalog.base.identifiers import TableName, table_name
from catalog.http.auth import ENGINE_SCHEME, USER_SCHEME, CallerOf, ServicesOf
from catalog.http.bodies import check_identifier, namespace_from_path, table_from_path
from catalog.http.content_codings import compressible
from catalog.http.iceberg_models import RenameTable, TableIdentifier, TableList
from catalog.http.iceberg_namespaces import check_prefix
from catalog.http.iceberg_view_models import CommitView, CreateIcebergView, LoadedViewAnswer, RegisterView
from catalog.http.idempotency import OnceOf
from catalog.http.operations import ERRORS, NO_CONTENT, answers
from catalog.http.paging import PagingOf
from catalog.http.referenced_by import REFERENCED_BY
from catalog.http.routing import IcebergRoute
from catalog.service.services import Services
from catalog.state.idempotency import Kept
from catalog.state.views import ViewRecord
from catalog.tables.view_files import file_of

_VIEWS = "/namespaces/{namespace}/views"
_VIEW = f"{_VIEWS}/{{view}}"
_LOADED = answers(LoadedViewAnswer, "The view.")

router = APIRouter(
    prefix="/v1/{prefix}",
    route_class=IcebergRoute,
    tags=["iceberg"],
    responses=ERRORS,
    dependencies=[Depends(check_prefix), Security(USER_SCHEME), Security(ENGINE_SCHEME)],
)


@router.get(_VIEWS)
@compressible
def list_views(namespace: str, caller: CallerOf, services: ServicesOf, paging: PagingOf) -> TableList:
    """List the views of a namespace that the caller has any permission on.

    With `pageToken`, the answer is one page.
    """
    page = services.views.list_page(caller, namespace_from_path(namespace), paging.wanted)
    found = [TableIdentifier(namespace=list(each.namespace), name=each.name) for each in page.entries]
    return TableList(identifiers=found, next_page_token=paging.next_token(page.following))


@router.post(_VIEWS, responses=_LOADED)
@compressible
def create_view(
    namespace: str, body: CreateIcebergView, caller: CallerOf, services: ServicesOf, once: OnceOf
) -> Response:
    """Create a view: CREATE on it, RWStorage on a location that is given. The caller is its definer."""
    name = table_name(namespace_from_path(namespace), body.name)
    updates = body.to_updates()
    return _answer(
        once(
            lambda: services.views.make(caller, name, updates, body.location),
            lambda kept: _again(services, caller, "view.create", name, kept),
        )
    )


@router.get(_VIEW, responses=_LOADED, dependencies=[REFERENCED_BY])
@compressible
def load_view(namespace: str, view: str, caller: CallerOf, services: ServicesOf) -> Response:
    """Load a view: SELECT on each of its columns, or ALTER on it, which also shows former versions."""
    return _answer(services.views.load(caller, table_from_path(namespace, view)))


@router.head(_VIEW, status_code=NO_CONTENT)
def view_exists(namespace: str, view: str, caller: CallerOf, services: ServicesOf) -> Response:
    """Check that a view exists: any permission on it."""
    name = table_from_path(namespace, view)
    if not services.views.exists(caller, name):
        raise no_view(name)
    return Response(status_code=NO_CONTENT)


@router.post(_VIEW, responses=_LOADED)
@compressible
def replace_view(
    namespace: str, view: str, body: CommitView, caller: CallerOf, services: ServicesOf, once: OnceOf
) -> Response:
    """Commit to a view: ALTER on it. With another current text, the caller becomes its definer."""
    name = table_from_path(namespace, view)
    check_identifier(name, body.identifier)
    requirements, updates = body.to_requirements(), body.to_updates()
    return _answer(
        once(
            lambda: services.views.commit(caller, name, requirements, updates),
            lambda kept: _again(services, caller, "view.replace", name, kept),
        )
    )


@router.delete(_VIEW, status_code=NO_CONTENT)
def drop_view(namespace: str, view: str, caller: CallerOf, services: ServicesOf, once: OnceOf) -> Response:
    """Drop a view: DROP on it."""
    name = table_from_path(namespace, view)
    once(
        lambda: services.views.drop(caller, name),
        lambda kept: services.repeats.view(caller, "view.drop", name, kept),
    )
    return Response(status_code=NO_CONTENT)


@router.post("/namespaces/{namespace}/register-view", responses=_LOADED)
@compressible
def register_view(
    namespace: str, body: RegisterView, caller: CallerOf, services: ServicesOf, once: OnceOf
) -> Response:
    """Create a view from a metadata file: CREATE on it, RWStorage on the file and the view's location."""
    name = table_name(namespace_from_path(namespace), body.name)
    return _answer(
        once(
            lambda: services.views.register(caller, name, body.metadata_location),
            lambda kept: _again(services, caller, "view.register", name, kept),
        )
    )


@router.post("/views/rename", status_code=NO_CONTENT)
def rename_view(body: RenameTable, caller: CallerOf, services: ServicesOf, once: OnceOf) -> Response:
    """Rename a view: ALTER on it and SELECT on each of its columns, and CREATE on the new name."""
    source = table_name(body.source.namespace, body.source.name)
    target = table_name(body.destination.namespace, body.destination.name)
    once(
        lambda: services.views.rename(caller, source, target),
        lambda kept: services.repeats.view(caller, "view.rename", source, kept, target),
    )
    return Response(status_code=NO_CONTENT)


def _again(services: Services, caller: Caller, action: str, name: TableName, kept: Kept) -> ViewRecord:
    """Answer a repetition with the view as it is now, which takes what loading it takes."""
    services.repeats.view(caller, action, name, kept)
    return services.views.load(caller, name)


def _answer(record: ViewRecord) -> Response:
    """Build a `LoadViewResult`."""
    metadata = record.metadata.model_dump_json()
    location = json.dumps(file_of(record))
    body = f'{{"metadata-location":{location},"metadata":{metadata},"config":{{}}}}'
    return Response(body, media_type="application/json")
