"""Administers table keys, by the policies on the table and its master keys (`key_management.lifecycle`).

Keys of dropped tables are addressed by the table's UUID, and need `admin` on the service.

Listing keys needs the permissions for loading the table. Creating, rotating, rewrapping, disabling and
enabling keys need ALTER and a permission on the master keys. Destroying all versions of a key needs DROP.
"""

from __future__ import annotations

from uuid import UUID

from fastapi import APIRouter, Security

from catalog.http import key_models as models
from catalog.http.auth import USER_SCHEME, CallerOf, ProgressOf, ServicesOf
from catalog.http.bodies import table_from_path
from catalog.http.idempotency import OnceOf
from catalog.http.operations import ERRORS
from catalog.http.routing import GuardedRoute

_KEYS = "/tables/{namespace}/{table}/keys"
_DROPPED = "/dropped-tables/{table_uuid}/keys"

router = APIRouter(
    prefix="/admin/v1",
    route_class=GuardedRoute,
    tags=["admin: keys"],
    responses=ERRORS,
    dependencies=[Security(USER_SCHEME)],
)


@router.get(_KEYS)
def list_keys(namespace: str, table: str, caller: CallerOf, services: ServicesOf) -> models.PekList:
    """List a table's PEKs in every version, without their bytes: SELECT, UPDATE or ALTER on it."""
    return models.PekList.of(services.key_life.keys(caller, table_from_path(namespace, table)))


@router.get(f"{_KEYS}/{{pek_id}}")
def show_key(
    namespace: str, table: str, pek_id: UUID, caller: CallerOf, services: ServicesOf
) -> models.PekUsesList:
    """Show the versions of one PEK, and the retained snapshots that need each: SELECT, UPDATE or ALTER."""
    shown = services.key_life.show(caller, table_from_path(namespace, table), pek_id)
    return models.PekUsesList.of(*shown)


@router.post(_KEYS)
def create_key(
    namespace: str, table: str, body: models.NewPek, caller: CallerOf, services: ServicesOf
) -> models.PekList:
    """Create a PEK before it is used: ALTER on the table, `use` on the master key."""
    name = table_from_path(namespace, table)
    return models.PekList.of(services.key_life.create(caller, name, body.master_key_id))


@router.post(f"{_KEYS}/rotate")
def rotate_keys(
    namespace: str,
    table: str,
    body: models.NoOptions,
    caller: CallerOf,
    services: ServicesOf,
    once: OnceOf,
) -> models.RotatedAnswer:
    """Create later versions of the keys for new files: ALTER on the table, `rotate` on its master keys."""
    name = table_from_path(namespace, table)
    rotated = once(
        lambda: services.key_rotation.rotate(caller, name),
        lambda kept: services.repeats.rotated(caller, name, kept),
        "commit",
    )
    return models.RotatedAnswer.of(rotated)


@router.post(f"{_KEYS}/rewrap")
def rewrap_keys(
    namespace: str,
    table: str,
    body: models.NoOptions,
    caller: CallerOf,
    services: ServicesOf,
    progress: ProgressOf,
) -> models.RewrappedAnswer:
    """Move the data keys of all branches to the latest versions: ALTER, `rotate` on the master keys.

    It can be repeated: finished branches are not rewrapped again.
    """
    branches = services.key_rewrap.rewrap(
        caller,
        table_from_path(namespace, table),
        lambda at: progress(f"Branch {at.branch}: manifests", at.done, at.total),
    )
    return models.RewrappedAnswer.of(branches)


@router.post(f"{_KEYS}/disable")
def disable_keys(
    namespace: str, table: str, body: models.WhichPek, caller: CallerOf, services: ServicesOf
) -> models.PekList:
    """Make keys unusable at once: ALTER on the table, `destroy` on the master keys."""
    name = table_from_path(namespace, table)
    return models.PekList.of(services.key_life.disable(caller, name, body.id, body.version))


@router.post(f"{_KEYS}/enable")
def enable_keys(
    namespace: str, table: str, body: models.WhichPek, caller: CallerOf, services: ServicesOf
) -> models.PekList:
    """Enable disabled keys, and cancel their destruction: permissions as for disabling."""
    name = table_from_path(namespace, table)
    return models.PekList.of(services.key_life.enable(caller, name, body.id, body.version))


@router.post(f"{_KEYS}/destroy")
def destroy_keys(
    namespace: str, table: str, body: models.DestroyPek, caller: CallerOf, services: ServicesOf
) -> models.PekList:
    """Destroy keys after a waiting time: `destroy` on the master keys; ALTER for one version, DROP for all.

    One version is destroyed only if nothing needs it. All versions together are destroyed even if they are
    needed.
    """
    name = table_from_path(namespace, table)
    destroyed = services.key_life.destroy(caller, name, body.confirm, body.id, body.version)
    return models.PekList.of(destroyed)


@router.get(_DROPPED)
def list_dropped_keys(table_uuid: UUID, caller: CallerOf, services: ServicesOf) -> models.PekList:
    """List the PEKs of a dropped table, in every version: `admin` on the service."""
    return models.PekList.of(services.key_life.keys(caller, table_uuid))


@router.get(f"{_DROPPED}/{{pek_id}}")
def show_dropped_key(
    table_uuid: UUID, pek_id: UUID, caller: CallerOf, services: ServicesOf
) -> models.PekUsesList:
    """Show the versions of one PEK of a dropped table, without their uses: `admin` on the service."""
    return models.PekUsesList.of(*services.key_life.show(caller, table_uuid, pek_id))


@router.post(f"{_DROPPED}/disable")
def disable_dropped_keys(
    table_uuid: UUID, body: models.WhichPek, caller: CallerOf, services: ServicesOf
) -> models.PekList:
    """Disable keys of a dropped table, in case it is registered again: `admin` on the service."""
    return models.PekList.of(services.key_life.disable(caller, table_uuid, body.id, body.version))


@router.post(f"{_DROPPED}/enable")
def enable_dropped_keys(
    table_uuid: UUID, body: models.WhichPek, caller: CallerOf, services: ServicesOf
) -> models.PekList:
    """Enable disabled keys of a dropped table: `admin` on the service."""
    return models.PekList.of(services.key_life.enable(caller, table_uuid, body.id, body.version))


@router.post(f"{_DROPPED}/destroy")
def destroy_dropped_keys(
    table_uuid: UUID, body: models.DestroyDroppedPek, caller: CallerOf, services: ServicesOf
) -> models.PekList:
    """Destroy keys of a dropped table after a waiting time, all versions together: `admin` on the service."""
    return models.PekList.of(services.key_life.destroy(caller, table_uuid, body.confirm, body.id))
