"""Finds the keys of the whole catalog, and moves them to other master keys and KMSs.

All operations need `admin` on the service of the catalog's name. Assigning and moving also need `rotate` on
the master key.
"""

from __future__ import annotations

import re
from typing import Annotated, Final
from uuid import UUID

from fastapi import APIRouter, Query, Security

from catalog.db.engine import read
from catalog.http import master_key_models as models
from catalog.http.admin_access import require_service
from catalog.http.auth import USER_SCHEME, CallerOf, ServicesOf
from catalog.http.operations import ERRORS
from catalog.http.routing import GuardedRoute
from catalog.kms.clients import KmsKey
from catalog.service.services import Services
from catalog.state import master_keys
from catalog.state.stored_keys import KeyFilter
from policy.encryption.epochs import PekRef
from policy.errors import RequestInvalid

_MASTER_KEYS: Final = "/master-keys"
_MOST: Final = 1000
_TOKEN: Final = re.compile(r"([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\.([1-9][0-9]{0,9})", re.ASCII)

_Text = Annotated[str | None, Query(min_length=1, max_length=255)]
_Limit = Annotated[int, Query(ge=1, le=_MOST)]
_PageToken = Annotated[str | None, Query(alias="page-token")]

router = APIRouter(
    prefix="/admin/v1",
    route_class=GuardedRoute,
    tags=["admin: master keys"],
    responses=ERRORS,
    dependencies=[Security(USER_SCHEME)],
)


@router.get(f"{_MASTER_KEYS}/kms-keys")
def list_kms_keys(caller: CallerOf, services: ServicesOf) -> models.KmsKeyList:
    """List the master key ids in use, and the KMS key that each stands for."""
    require_service(services, caller, "admin.master-key.kms-keys")
    with read(services.engine) as connection:
        return models.KmsKeyList.of(master_keys.all_assigned(connection, services.catalog))


@router.get(f"{_MASTER_KEYS}/keys")
def list_wrapped_keys(
    caller: CallerOf,
    services: ServicesOf,
    master_key_id: Annotated[_Text, Query(alias="master-key-id")] = None,
    kms: _Text = None,
    kms_key_id: Annotated[_Text, Query(alias="kms-key-id")] = None,
    table_uuid: Annotated[UUID | None, Query(alias="table-uuid")] = None,
    created_before_ms: Annotated[int | None, Query(alias="created-before-ms", ge=0, le=2**62)] = None,
    limit: _Limit = 100,
    page_token: _PageToken = None,
) -> models.WrappedKeyList:
    """List keys of all tables and of the KMS endpoint, by master key, KMS, table and age, in pages.

    Keys of dropped tables are among them, destroyed keys are not.
    """
    after = _position(page_token)
    require_service(services, caller, "admin.master-key.keys")
    chosen = KeyFilter(master_key_id, kms, kms_key_id, table_uuid, created_before_ms)
    return models.WrappedKeyList.of(services.key_list.page(chosen, after, limit), limit)


@router.get(f"{_MASTER_KEYS}/needs")
def list_needs(
    caller: CallerOf,
    services: ServicesOf,
    kms: Annotated[str, Query(min_length=1, max_length=64)],
    kms_key_id: Annotated[_Text, Query(alias="kms-key-id")] = None,
) -> models.KmsNeedList:
    """List what still needs a KMS, or a master key in it; empty when it can be shut off."""
    require_service(services, caller, "admin.master-key.needs")
    return models.KmsNeedList.of(services.kms_needs.of(kms, kms_key_id))


@router.post(f"{_MASTER_KEYS}/assign")
def assign_master_key(
    body: models.AssignMasterKey, caller: CallerOf, services: ServicesOf
) -> models.AssignedAnswer:
    """Let a master key id stand for another KMS key: new keys are made there, others stay until they move."""
    key = KmsKey(body.kms, body.kms_key_id or body.id)
    require_service(services, caller, "admin.master-key.assign", f"key {body.id} to {key}", [body.id])
    _require_same_kms(services)
    before = services.master_key_moves.assign(body.id, key, caller.principal.name)
    return models.AssignedAnswer.of(body.id, before, key)


@router.post(f"{_MASTER_KEYS}/move")
def move_keys(body: models.MoveKeys, caller: CallerOf, services: ServicesOf) -> models.MovedAnswer:
    """Move a batch of keys to the KMS key that their master key id stands for; no file changes.

    It can be repeated: keys that have moved are not moved again.
    """
    after = _position(body.page_token)
    about = f"key {body.id}" if body.table_uuid is None else f"key {body.id}, table {body.table_uuid}"
    require_service(services, caller, "admin.master-key.move", about, [body.id])
    return models.MovedAnswer.of(services.master_key_moves.move(body.id, body.table_uuid, after, body.limit))


def _require_same_kms(services: Services) -> None:
    """Check that no other replica has different KMSs, which could not open keys that are made now.

    Raises:
        RequestInvalid: one has.
    """
    found = [each for each in services.replicas.differences if each.startswith(("kms.", "other_kms"))]
    if found:
        raise RequestInvalid(
            f"Other replicas have different settings of KMSs: {', '.join(found)}.",
            rule="replicas",
            hint="Configure all replicas alike, and restart them.",
        )


def _position(text: str | None) -> PekRef | None:
    """Parse a page token.

    Raises:
        RequestInvalid: it is not one.
    """
    if text is None:
        return None
    matched = _TOKEN.fullmatch(text)
    if matched is None:
        raise RequestInvalid(
            "The page token is not valid.",
            rule="page-token",
            hint="Send the `next-page-token` of the previous page, unchanged.",
        )
    return PekRef(UUID(matched[1]), int(matched[2]), "")
