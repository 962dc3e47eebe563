"""Administration of the door's keys: what Hadoop's protocol has no words for.

Policies on the key `door/NAME` decide.
"""

from __future__ import annotations

from fastapi import APIRouter, Security

from catalog.http.auth import USER_SCHEME, CallerOf, WardenOf
from catalog.http.bodies import Answer, OwnBody
from catalog.http.operations import ERRORS
from catalog.http.routing import GuardedRoute
from catalog.kms_server.store import DoorKey

router = APIRouter(
    prefix="/admin/v1/door-keys",
    route_class=GuardedRoute,
    tags=["admin: keys"],
    responses=ERRORS,
    dependencies=[Security(USER_SCHEME)],
)


class WhichDoorKey(OwnBody):
    """A key of the door, by its name."""

    name: str


class DoorKeyAnswer(Answer):
    """A key of the door, without its bytes."""

    name: str
    bits: int
    versions: int
    state: str
    master_key_id: str

    @classmethod
    def of(cls, key: DoorKey) -> DoorKeyAnswer:
        """A key as it is shown."""
        return cls(
            name=key.name,
            bits=key.spec.bits,
            versions=key.versions,
            state=str(key.state),
            master_key_id=key.wrapping.master_key_id,
        )


class DoorKeyList(Answer):
    """Keys of the door, in order of their names."""

    keys: list[DoorKeyAnswer]


@router.get("")
def list_door_keys(caller: CallerOf, warden: WardenOf) -> DoorKeyList:
    """The keys of the door that the caller has any right on."""
    return DoorKeyList(keys=[DoorKeyAnswer.of(key) for key in warden.door.keys(caller)])


@router.post("/disable")
def disable_door_key(body: WhichDoorKey, caller: CallerOf, warden: WardenOf) -> DoorKeyAnswer:
    """Make a key unusable at once, in every version: `destroy` on the key."""
    return DoorKeyAnswer.of(warden.door.disable(caller, body.name))


@router.post("/enable")
def enable_door_key(body: WhichDoorKey, caller: CallerOf, warden: WardenOf) -> DoorKeyAnswer:
    """Make a disabled key usable again: `destroy` on the key."""
    return DoorKeyAnswer.of(warden.door.enable(caller, body.name))
