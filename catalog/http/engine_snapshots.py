"""The engine API of snapshots: roll back, set the current one, fast-forward, cherry-pick, list ancestors."""

from __future__ import annotations

from fastapi import APIRouter, Security

from catalog.authorization.authorizer import Caller
from catalog.http.auth import ENGINE_SCHEME, USER_SCHEME, CallerOf, ServicesOf
from catalog.http.bodies import table_from_path
from catalog.http.idempotency import Once, OnceOf
from catalog.http.operations import ERRORS
from catalog.http.routing import EngineRoute
from catalog.http.snapshot_models import (
    AncestorAnswer,
    AncestorsAnswer,
    AncestorsBody,
    CherryPickBody,
    CurrentSnapshotAnswer,
    FastForwardAnswer,
    FastForwardBody,
    PickedAnswer,
    RollbackBody,
    SetCurrentBody,
)
from catalog.maintenance.snapshot_moves import SnapshotChange, ancestors
from catalog.maintenance.snapshot_procedures import Moved, repeated
from catalog.service.services import Services

_SNAPSHOTS = "/tables/{namespace}/{table}/snapshots"

router = APIRouter(
    prefix="/engine/v1",
    route_class=EngineRoute,
    tags=["engine"],
    responses=ERRORS,
    dependencies=[Security(USER_SCHEME), Security(ENGINE_SCHEME)],
)


@router.post(f"{_SNAPSHOTS}/rollback")
def roll_back(
    namespace: str, table: str, body: RollbackBody, caller: CallerOf, services: ServicesOf, once: OnceOf
) -> CurrentSnapshotAnswer:
    """Take main back to an ancestor: UPDATE and ALTER; `unprotect` across a change of encryption."""
    return _current(_change(namespace, table, body.to_change(), caller, services, once))


@router.post(f"{_SNAPSHOTS}/set-current")
def set_current(
    namespace: str, table: str, body: SetCurrentBody, caller: CallerOf, services: ServicesOf, once: OnceOf
) -> CurrentSnapshotAnswer:
    """Move main to any snapshot: UPDATE, and ALTER unless it descends from the head."""
    return _current(_change(namespace, table, body.to_change(), caller, services, once))


@router.post(f"{_SNAPSHOTS}/cherry-pick")
def cherry_pick(
    namespace: str, table: str, body: CherryPickBody, caller: CallerOf, services: ServicesOf, once: OnceOf
) -> PickedAnswer:
    """Apply a snapshot to main again: UPDATE."""
    moved = _change(namespace, table, body.to_change(), caller, services, once)
    return PickedAnswer(source_snapshot_id=moved.source_id, current_snapshot_id=moved.current_id)


@router.post(f"{_SNAPSHOTS}/fast-forward")
def fast_forward(
    namespace: str, table: str, body: FastForwardBody, caller: CallerOf, services: ServicesOf, once: OnceOf
) -> FastForwardAnswer:
    """Move a branch to a descendant of its head: UPDATE."""
    moved = _change(namespace, table, body.to_change(), caller, services, once)
    return FastForwardAnswer(
        branch_updated=moved.branch, previous_ref=moved.previous_id, updated_ref=moved.current_id
    )


@router.post(f"{_SNAPSHOTS}/ancestors")
def list_ancestors(
    namespace: str, table: str, body: AncestorsBody, caller: CallerOf, services: ServicesOf
) -> AncestorsAnswer:
    """List a snapshot and its ancestors, newest first: what loading the table needs."""
    loaded = services.access.load(caller, table_from_path(namespace, table))
    below = ancestors(loaded.metadata, body.snapshot_id)
    return AncestorsAnswer(
        ancestors=[
            AncestorAnswer(snapshot_id=each.snapshot_id, timestamp=each.timestamp_ms) for each in below
        ]
    )


def _current(moved: Moved) -> CurrentSnapshotAnswer:
    return CurrentSnapshotAnswer(previous_snapshot_id=moved.previous_id, current_snapshot_id=moved.current_id)


def _change(
    namespace: str, table: str, change: SnapshotChange, caller: Caller, services: Services, once: Once
) -> Moved:
    """Make a change. The answer to a repetition does not tell the head before."""
    name = table_from_path(namespace, table)
    return once(
        lambda: services.snapshot_procedures.change(caller, name, change),
        lambda kept: repeated(
            services.repeats.table(caller, "table.commit", name, kept, "table.write"), change
        ),
        "commit",
    )
