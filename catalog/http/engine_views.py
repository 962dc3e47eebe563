"""The engine API of views: create, load, list, replace, rename and drop."""

from __future__ import annotations

from fastapi import APIRouter, Response, Security
from fastapi.responses import StreamingResponse

from catalog.base.existence import no_view
from catalog.base.identifiers import table_name
from catalog.http.auth import ENGINE_SCHEME, USER_SCHEME, CallerOf, ServicesOf
from catalog.http.bodies import namespace_from_path, table_from_path
from catalog.http.engine_models import EngineTableAnswer
from catalog.http.idempotency import OnceOf
from catalog.http.operations import ERRORS, NO_CONTENT, answers
from catalog.http.plan_stream import PLAN_ANSWERS, plan_answer
from catalog.http.routing import EngineRoute
from catalog.http.screening import screened
from catalog.http.screening import view as on_view
from catalog.http.table_answers import Viewer, loaded_table
from catalog.http.view_models import (
    CreateView,
    LoadThroughView,
    PlanThroughView,
    RenameView,
    ReplaceView,
    ViewAnswer,
    ViewIdentifier,
    ViewList,
)
from policy.errors import RequestInvalid

_VIEW = "/views/{namespace}/{view}"

router = APIRouter(
    prefix="/engine/v1",
    route_class=EngineRoute,
    tags=["engine"],
    responses=ERRORS,
    dependencies=[Security(USER_SCHEME), Security(ENGINE_SCHEME)],
)


@router.get("/namespaces/{namespace}/views")
def list_views(namespace: str, caller: CallerOf, services: ServicesOf) -> ViewList:
    """List the views of a namespace that the caller has any permission on."""
    found = services.views.list(caller, namespace_from_path(namespace))
    return ViewList(
        identifiers=[ViewIdentifier(namespace=list(each.namespace), name=each.name) for each in found]
    )


@router.post("/namespaces/{namespace}/views", status_code=NO_CONTENT)
def create_view(
    namespace: str, body: CreateView, caller: CallerOf, services: ServicesOf, once: OnceOf
) -> Response:
    """Create a view: CREATE on it."""
    name = table_name(namespace_from_path(namespace), body.name)
    once(
        lambda: services.views.create(caller, body.to_definition(name)),
        lambda kept: services.repeats.view(caller, "view.create", name, kept),
    )
    return Response(status_code=NO_CONTENT)


@router.get(_VIEW)
def load_view(namespace: str, view: str, caller: CallerOf, services: ServicesOf) -> ViewAnswer:
    """Load a view: SELECT on each of its columns, or ALTER on it."""
    record = services.views.load(caller, table_from_path(namespace, view))
    return ViewAnswer.of(record, caller.principal.name)


@router.head(_VIEW, status_code=NO_CONTENT)
def view_exists(namespace: str, view: str, caller: CallerOf, services: ServicesOf) -> Response:
    """Check that a view exists; any permission on it."""
    name = table_from_path(namespace, view)
    if not services.views.exists(caller, name):
        raise no_view(name)
    return Response(status_code=NO_CONTENT)


@router.post(_VIEW, status_code=NO_CONTENT)
def replace_view(
    namespace: str, view: str, body: ReplaceView, caller: CallerOf, services: ServicesOf, once: OnceOf
) -> Response:
    """Replace a view: ALTER on it. With another text, the caller becomes its definer."""
    name = table_from_path(namespace, view)
    once(
        lambda: services.views.replace(caller, body.to_definition(name), body.expected_version),
        lambda kept: services.repeats.view(caller, "view.replace", name, kept),
    )
    return Response(status_code=NO_CONTENT)


@router.delete(_VIEW, status_code=NO_CONTENT)
def drop_view(namespace: str, view: str, caller: CallerOf, services: ServicesOf, once: OnceOf) -> Response:
    """Drop a view: DROP on it."""
    name = table_from_path(namespace, view)
    once(
        lambda: services.views.drop(caller, name),
        lambda kept: services.repeats.view(caller, "view.drop", name, kept),
    )
    return Response(status_code=NO_CONTENT)


@router.post(f"{_VIEW}/tables/load", responses=answers(EngineTableAnswer, "The table."))
@screened(on_view("table.load"))
def load_through_view(
    namespace: str, view: str, body: LoadThroughView, caller: CallerOf, services: ServicesOf
) -> Response:
    """Load a table of a definer view: SELECT on the view; what the definer has on the table."""
    viewer = Viewer.of(caller, services)
    through = body.through(table_from_path(namespace, view))
    # A table that policies mask for the reader or the definer is refused.
    return loaded_table(services.definer_views.load(caller, through), viewer, masked=())


@router.post(f"{_VIEW}/tables/plan", response_class=StreamingResponse, responses=PLAN_ANSWERS)
@screened(on_view("table.plan"))
def plan_through_view(
    namespace: str, view: str, body: PlanThroughView, caller: CallerOf, services: ServicesOf
) -> Response:
    """Plan a scan of a table of a definer view: as for loading it.

    The definer needs SELECT on each column that is read or filtered by.
    """
    if body.position_deletes:
        raise RequestInvalid("Through a view, delete files are not read.", rule="view-scan")
    through = body.through(table_from_path(namespace, view))
    return plan_answer(services.definer_views.plan(caller, through, body.to_request()))


@router.post("/views/rename", status_code=NO_CONTENT)
def rename_view(body: RenameView, caller: CallerOf, services: ServicesOf, once: OnceOf) -> Response:
    """Rename a view: ALTER on it and SELECT on each of its columns, and CREATE on the new name."""
    source = table_name(body.source.namespace, body.source.name)
    target = table_name(body.destination.namespace, body.destination.name)
    once(
        lambda: services.views.rename(caller, source, target),
        lambda kept: services.repeats.view(caller, "view.rename", source, kept, target),
    )
    return Response(status_code=NO_CONTENT)
