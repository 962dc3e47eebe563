"""Iceberg REST: tables.

Source: Iceberg REST catalog specification, `/v1/{prefix}/namespaces/{namespace}/tables` and
`/v1/{prefix}/tables/rename`.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Header, Response, Security
from pyiceberg.table.update import AssertCreate

from catalog.authorization.authorizer import Caller
from catalog.base.errors import TableExists
from catalog.base.existence import no_table
from catalog.base.identifiers import TableName, table_name
from catalog.http import metrics_reports
from catalog.http.auth import ENGINE_SCHEME, USER_SCHEME, CallerOf, MetricsOf, ServicesOf
from catalog.http.bodies import (
    check_identifier,
    namespace_from_path,
    requirements_of,
    table_from_path,
    updates_of,
)
from catalog.http.content_codings import compressible
from catalog.http.iceberg_models import (
    CommitTable,
    CommittedTableAnswer,
    CreateTable,
    LoadedTableAnswer,
    RegisterTable,
    RenameTable,
    TableIdentifier,
    TableList,
)
from catalog.http.iceberg_namespaces import check_prefix
from catalog.http.iceberg_signing import signing_config
from catalog.http.idempotency import OnceOf
from catalog.http.metrics_reports import ReportMetrics
from catalog.http.new_tables import new_table_of
from catalog.http.operations import ERRORS, NO_CONTENT, answers
from catalog.http.paging import PagingOf
from catalog.http.referenced_by import REFERENCED_BY
from catalog.http.routing import IcebergRoute
from catalog.http.screening import new_table, screened
from catalog.http.screening import table as on_table
from catalog.http.storage_credentials import AccessDelegationOf, StorageAnswer, asks_for_credentials
from catalog.http.table_answers import (
    SnapshotMode,
    Viewer,
    committed_table,
    etag_of,
    is_known,
    loaded_table,
    not_modified,
    staged_table,
)
from catalog.reading.loading import LoadedTable
from catalog.service.services import Services
from policy.errors import NotSupportedYet
from policy.restrictions.standard import standard_json

router = APIRouter(
    prefix="/v1/{prefix}",
    route_class=IcebergRoute,
    tags=["iceberg"],
    responses=ERRORS,
    dependencies=[Depends(check_prefix), Security(USER_SCHEME), Security(ENGINE_SCHEME)],
)


@router.get("/namespaces/{namespace}/tables")
@compressible
def list_tables(
    namespace: str,
    caller: CallerOf,
    services: ServicesOf,
    paging: PagingOf,
) -> TableList:
    """List the governed tables of a namespace that the caller has any permission on.

    With `pageToken`, the answer is one page.
    """
    page = services.namespaces.tables_page(caller, namespace_from_path(namespace), paging.wanted)
    return TableList(
        identifiers=[
            TableIdentifier(namespace=list(each.namespace), name=each.name) for each in page.entries
        ],
        next_page_token=paging.next_token(page.following),
    )


@router.post(
    "/namespaces/{namespace}/tables", responses=answers(LoadedTableAnswer, "The table, created or staged.")
)
@screened(new_table("table.create"))
@compressible
def create_table(
    namespace: str,
    body: CreateTable,
    caller: CallerOf,
    services: ServicesOf,
    once: OnceOf,
    delegation: AccessDelegationOf = None,
) -> Response:
    """Create a table, or stage its creation: CREATE on it, RWStorage on each location, `use` on each key."""
    new = new_table_of(namespace, body)
    signing = signing_config(services.settings, new.name, delegation)
    vending = services.credentials if asks_for_credentials(delegation) and not signing else None
    if body.stage_create:
        draft = services.creator.stage(caller, new)
        staged = None if vending is None else vending.of_staged(caller, draft)
        storage = None if staged is None else StorageAnswer(staged, services.settings, None)
        # Only engines write the files of encrypted tables, with permissions of their own.
        told = {} if draft.wanted.spec.encrypts else signing
        return staged_table(draft.metadata, draft.given, told, storage)
    viewer = Viewer.of(caller, services, signing)
    table = once(
        lambda: services.creator.create(caller, new),
        lambda kept: services.repeats.table(caller, "table.create", new.name, kept),
        "create",
    )
    restriction = services.standard_clients.restrictions_of_new(caller, table)
    issued = None if vending is None else vending.of_created(caller, table)
    storage = None if issued is None else StorageAnswer(issued, services.settings, new.name)
    return loaded_table(table, viewer, restrictions=standard_json(restriction), storage=storage)


@router.get(
    "/namespaces/{namespace}/tables/{table}",
    responses={
        **answers(LoadedTableAnswer, "The table."),
        304: {"description": "The client knows it already."},
    },
    dependencies=[REFERENCED_BY],
)
@compressible
def load_table(
    namespace: str,
    table: str,
    caller: CallerOf,
    services: ServicesOf,
    snapshots: SnapshotMode = "all",
    if_none_match: Annotated[str | None, Header()] = None,
    delegation: AccessDelegationOf = None,
) -> Response:
    """Load a table: SELECT, UPDATE or ALTER on it. Its properties include the governed ones in force.

    The answer has the row filter and the masks that a trusted client enforces, and a storage credential where
    the client asks for one and the catalog issues them.
    """
    name = table_from_path(namespace, table)
    signing = signing_config(services.settings, name, delegation)
    viewer = Viewer.of(caller, services, signing)
    loaded, restriction = services.access.load_restricted(caller, name)
    restrictions = standard_json(restriction)
    vending = services.credentials if asks_for_credentials(delegation) and not signing else None
    issued = None if vending is None else vending.of_loaded(caller, loaded, restriction)
    if issued is not None:
        storage = StorageAnswer(issued, services.settings, name)
        return loaded_table(loaded, viewer, snapshots, restrictions, storage=storage)
    etag = etag_of(loaded, snapshots, restrictions, signing)
    if is_known(if_none_match, etag):
        return not_modified(etag)
    return loaded_table(loaded, viewer, snapshots, restrictions)


@router.head("/namespaces/{namespace}/tables/{table}", status_code=NO_CONTENT)
def table_exists(namespace: str, table: str, caller: CallerOf, services: ServicesOf) -> Response:
    """Check that a table exists; permissions as for loading it."""
    name = table_from_path(namespace, table)
    if not services.access.exists(caller, name):
        raise no_table(name)
    return Response(status_code=NO_CONTENT)


@router.post(
    "/namespaces/{namespace}/tables/{table}",
    responses=answers(CommittedTableAnswer, "The table after the commit."),
)
@screened(on_table("table.commit", "table.commit", "table.create"))
@compressible
def commit_table(
    namespace: str,
    table: str,
    body: CommitTable,
    caller: CallerOf,
    services: ServicesOf,
    once: OnceOf,
) -> Response:
    """Commit to a table, or complete the creation of a staged one.

    Snapshots need UPDATE, other changes ALTER. New files are opened and checked before the commit is
    published.
    """
    name = table_from_path(namespace, table)
    check_identifier(name, body.identifier)
    requirements, updates = requirements_of(body.requirements), updates_of(body.updates)
    creates = any(isinstance(each, AssertCreate) for each in requirements)
    commit = services.creator.commit_staged if creates else services.committer.commit
    action = "table.create" if creates else "table.commit"
    committed = once(
        lambda: commit(caller, name, requirements, updates),
        lambda kept: services.repeats.table(caller, action, name, kept),
        "create" if creates else "commit",
    )
    return committed_table(committed, Viewer.of(caller, services))


@router.delete("/namespaces/{namespace}/tables/{table}", status_code=NO_CONTENT)
def drop_table(
    namespace: str,
    table: str,
    caller: CallerOf,
    services: ServicesOf,
    once: OnceOf,
    purgeRequested: bool = False,
) -> Response:
    """Drop a table: DROP on it. With `purgeRequested`, its own files are deleted."""
    name = table_from_path(namespace, table)
    drop = services.lifecycle.purge if purgeRequested else services.lifecycle.drop
    action = "table.purge" if purgeRequested else "table.drop"
    once(lambda: drop(caller, name), lambda kept: services.repeats.dropped(caller, action, name, kept))
    return Response(status_code=NO_CONTENT)


@router.post(
    "/namespaces/{namespace}/tables/{table}/unregister",
    responses=answers(CommittedTableAnswer, "The last metadata of the table."),
)
@compressible
def unregister_table(
    namespace: str, table: str, caller: CallerOf, services: ServicesOf, once: OnceOf
) -> Response:
    """Drop a table without its files, and return its last metadata: DROP, and what loading it needs."""
    name, viewer = table_from_path(namespace, table), Viewer.of(caller, services)
    unregistered = once(
        lambda: services.unregistration.unregister(caller, name),
        lambda kept: services.repeats.unregistered(caller, name, kept),
    )
    return committed_table(unregistered, viewer)


@router.post("/namespaces/{namespace}/tables/{table}/metrics", status_code=NO_CONTENT)
def report_metrics(
    namespace: str,
    table: str,
    body: ReportMetrics,
    caller: CallerOf,
    services: ServicesOf,
    metrics: MetricsOf,
) -> Response:
    """Record what a client measured of a scan or commit: everything that loading the table needs.

    The report is counted and logged, without its filter and its metadata.
    """
    name = table_from_path(namespace, table)
    services.access.report(caller, name)
    metrics_reports.record(body, caller, name, metrics)
    return Response(status_code=NO_CONTENT)


@router.post(
    "/namespaces/{namespace}/register", responses=answers(LoadedTableAnswer, "The table that was registered.")
)
@compressible
def register_table(
    namespace: str,
    body: RegisterTable,
    caller: CallerOf,
    services: ServicesOf,
    once: OnceOf,
) -> Response:
    """Register a table from its metadata.json: CREATE on the name, RWStorage on its location.

    `overwrite` is refused if there is a table of that name.
    """
    name = table_name(namespace_from_path(namespace), body.name)
    viewer = Viewer.of(caller, services)
    registered = once(
        lambda: _registered(services, caller, name, body),
        lambda kept: services.repeats.table(caller, "table.register", name, kept),
        "create",
    )
    return loaded_table(registered, viewer)


@router.post("/tables/rename", status_code=NO_CONTENT)
def rename_table(body: RenameTable, caller: CallerOf, services: ServicesOf, once: OnceOf) -> Response:
    """Rename a table: ALTER on the old name, CREATE on the new one."""
    source = table_name(body.source.namespace, body.source.name)
    target = table_name(body.destination.namespace, body.destination.name)
    once(
        lambda: services.lifecycle.rename(caller, source, target),
        lambda kept: services.repeats.renamed(caller, source, target, kept),
    )
    return Response(status_code=NO_CONTENT)


def _registered(services: Services, caller: Caller, name: TableName, body: RegisterTable) -> LoadedTable:
    try:
        return services.registration.register(caller, name, body.metadata_location)
    except TableExists as taken:
        if not body.overwrite:
            raise
        raise NotSupportedYet(
            "The name is taken, and registering over a table is not supported. Its permissions and keys "
            "would pass to metadata that was not committed through the catalog.",
            table=str(name),
            rule="register-overwrite",
            hint="Drop or unregister the existing table first.",
        ) from taken
