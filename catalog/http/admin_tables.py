"""Administers tables: governed properties, other properties, and seals.

The table's policies authorize each operation: to look (SELECT, UPDATE or ALTER), to change properties (ALTER,
and what the change itself needs), to adopt, reseal, restore and register.
"""

from __future__ import annotations

from fastapi import APIRouter, Response, Security
from pyiceberg.table.update import (
    AssertTableUUID,
    RemovePropertiesUpdate,
    SetPropertiesUpdate,
    TableUpdate,
)

from catalog.http.admin_models import CleanUpAnswer, CleanUpBody, GovernedAnswer, GovernedChange, RegisterBody
from catalog.http.auth import USER_SCHEME, CallerOf, MetricsOf, ProgressOf, ServicesOf
from catalog.http.bodies import table_from_path
from catalog.http.key_models import NoOptions
from catalog.http.operations import ERRORS
from catalog.http.report_models import ColumnsAnswer
from catalog.http.rewrite_models import EpochsAnswer
from catalog.http.routing import GuardedRoute
from catalog.reading.loading import LoadedTable
from catalog.service.services import Services
from policy.errors import RequestInvalid

_TABLE = "/tables/{namespace}/{table}"

router = APIRouter(
    prefix="/admin/v1",
    route_class=GuardedRoute,
    tags=["admin: tables"],
    responses=ERRORS,
    dependencies=[Security(USER_SCHEME)],
)


@router.get(_TABLE)
def show_table(
    namespace: str, table: str, response: Response, caller: CallerOf, services: ServicesOf
) -> GovernedAnswer:
    """Show a table's governed state and seal: SELECT, UPDATE or ALTER on it."""
    return _answer(services, services.access.load(caller, table_from_path(namespace, table)), response)


@router.patch(_TABLE)
def change_table(
    namespace: str,
    table: str,
    body: GovernedChange,
    response: Response,
    caller: CallerOf,
    services: ServicesOf,
    metrics: MetricsOf,
) -> GovernedAnswer:
    """Set and remove properties: ALTER on the table, and what each new location and key needs.

    `force` narrows the allowed list even if live snapshots become unreadable.
    """
    name = table_from_path(namespace, table)
    updates = _updates(body, str(name))
    current = services.access.load(caller, name)
    requirements = [AssertTableUUID(uuid=current.record.table_uuid)]
    changed = services.committer.commit(caller, name, requirements, updates, force=body.force)
    metrics.committed("commit")
    return _answer(services, changed, response)


@router.get(f"{_TABLE}/columns")
def show_columns(namespace: str, table: str, caller: CallerOf, services: ServicesOf) -> ColumnsAnswer:
    """Show which columns of a table are encrypted, and which the caller sees: SELECT, UPDATE or ALTER on it.

    The tags of the encryption rules are shown to callers with ALTER.
    """
    return ColumnsAnswer.of(services.columns.report(caller, table_from_path(namespace, table)))


@router.get(f"{_TABLE}/regimes")
def show_epochs(
    namespace: str, table: str, caller: CallerOf, services: ServicesOf, progress: ProgressOf
) -> EpochsAnswer:
    """Show files of a table's earlier encryption epochs: UPDATE or ALTER on it."""
    return EpochsAnswer.of(services.old_epochs.report(caller, table_from_path(namespace, table), progress))


@router.post(f"{_TABLE}/regimes/forbid-old")
def forbid_old_epochs(
    namespace: str,
    table: str,
    body: NoOptions,
    caller: CallerOf,
    services: ServicesOf,
    metrics: MetricsOf,
    progress: ProgressOf,
) -> EpochsAnswer:
    """Forbid reading files of old epochs, if none is left: ALTER on the table."""
    report = services.old_epochs.forbid(caller, table_from_path(namespace, table), progress)
    metrics.committed("commit")
    return EpochsAnswer.of(report)


@router.post(f"{_TABLE}/adopt")
def adopt(
    namespace: str,
    table: str,
    response: Response,
    caller: CallerOf,
    services: ServicesOf,
    progress: ProgressOf,
) -> GovernedAnswer:
    """Govern a table of another catalog in the same pointer store; permissions as for registering it."""
    return _answer(
        services, services.registration.adopt(caller, table_from_path(namespace, table), progress), response
    )


@router.post(f"{_TABLE}/reseal")
def reseal(
    namespace: str,
    table: str,
    response: Response,
    caller: CallerOf,
    services: ServicesOf,
    progress: ProgressOf,
) -> GovernedAnswer:
    """Check and seal metadata that was committed outside of the catalog: ALTER on the table."""
    return _answer(
        services, services.registration.reseal(caller, table_from_path(namespace, table), progress), response
    )


@router.post(f"{_TABLE}/clean-up")
def clean_up(
    namespace: str,
    table: str,
    body: CleanUpBody,
    caller: CallerOf,
    services: ServicesOf,
    progress: ProgressOf,
) -> CleanUpAnswer:
    """List files below the table's location that nothing references; remove them if asked: ALTER and DROP."""
    name = table_from_path(namespace, table)
    garbage = services.garbage.collect(caller, name, remove=body.remove, progress=progress)
    return CleanUpAnswer.of(garbage, body.max_files)


@router.post(f"{_TABLE}/restore")
def restore(
    namespace: str, table: str, response: Response, caller: CallerOf, services: ServicesOf
) -> GovernedAnswer:
    """Move the pointer back to the metadata that was sealed last: ALTER on the table."""
    return _answer(
        services, services.registration.restore(caller, table_from_path(namespace, table)), response
    )


@router.post(f"{_TABLE}/register")
def register(
    namespace: str,
    table: str,
    body: RegisterBody,
    response: Response,
    caller: CallerOf,
    services: ServicesOf,
    progress: ProgressOf,
) -> GovernedAnswer:
    """Register a table from its metadata.json: CREATE on the name, RWStorage on its location."""
    name = table_from_path(namespace, table)
    return _answer(
        services, services.registration.register(caller, name, body.metadata_location, progress), response
    )


def _updates(body: GovernedChange, table: str) -> list[TableUpdate]:
    if not body.set and not body.unset:
        raise RequestInvalid("The request sets and removes no property.", table=table, rule="no-change")
    updates: list[TableUpdate] = []
    if body.set:
        updates.append(SetPropertiesUpdate(updates=body.set))
    if body.unset:
        updates.append(RemovePropertiesUpdate(removals=body.unset))
    return updates


def _answer(services: Services, table: LoadedTable, response: Response) -> GovernedAnswer:
    response.headers["ETag"] = table.etag
    record = table.record
    admits = services.loader.admits_standard_clients(record.name, table.governed.spec)
    return GovernedAnswer(
        name=table.name,
        table_uuid=record.table_uuid,
        owner=record.owner,
        location=record.location.canonical,
        default_location=record.default_location,
        governed_version=table.governed.version,
        properties=table.governed.to_properties(),
        standard_clients="load" if admits else "refuse",
        sealed=table.seal is not None,
        metadata_location=table.metadata_location,
        metadata_sha256=None if table.seal is None else table.seal.digest.sha256,
        format_version=table.metadata.format_version,
        current_snapshot_id=table.metadata.current_snapshot_id,
        governed_copies=table.governed_copies,
    )
