"""Keys of the KMS endpoint, when the master key that wraps them is rotated, disabled or answers wrongly."""

from __future__ import annotations

from collections.abc import Callable

import httpx
import pytest
from sqlalchemy import select, update

from catalog.base.errors import CommitConflict
from catalog.db.engine import read, write
from catalog.db.schema import lw_door_key, lw_pek
from catalog.envelope.peks import PekState
from policy.errors import DecryptionRefused
from tests.support.kms_endpoint import encrypted, make_key
from tests.support.lake import ALICE, BOB, CAROL, MASTER_KEY, Lake
from tests.support.service import Service


def _id(lake: Lake, name: str) -> str:
    return str(lake.services.endpoint_keys.find(name).wrapping.id)


def _wrapped(lake: Lake, name: str) -> bytes:
    with read(lake.services.engine) as connection:
        found = connection.scalar(select(lw_pek.c.wrapped).where(lw_pek.c.id == _id(lake, name)))
    assert isinstance(found, bytes)
    return found


def test_rotated_master_key_rewraps_the_keys_of_the_kms_endpoint_and_they_stay_the_same(
    served: Service, name: str
) -> None:
    lake = served.lake
    make_key(lake, name, versions=2)
    keys = lake.services.endpoint_keys
    before = [keys.open(keys.find(name), version).reveal() for version in (0, 1)]
    old = _wrapped(lake, name)
    lake.kms.rotate_master_key(MASTER_KEY)
    done = lake.services.master_keys.rewrap(MASTER_KEY)
    assert done.failed == () and done.rewrapped >= 1
    assert _wrapped(lake, name) != old
    lake.services.keyring._cache.forget(keys.find(name).wrapping.id)
    assert [keys.open(keys.find(name), version).reveal() for version in (0, 1)] == before


def test_one_key_that_does_not_open_is_told_and_keeps_no_other_from_being_rewrapped(
    served: Service, name: str
) -> None:
    lake = served.lake
    make_key(lake, name)
    make_key(lake, f"{name}-2")
    with write(lake.services.engine) as connection:
        mine = lw_pek.c.id == _id(lake, name)
        connection.execute(update(lw_pek).where(mine).values(wrapped=_wrapped_elsewhere(lake, name)))
    lake.kms.rotate_master_key(MASTER_KEY)
    old = _wrapped(lake, f"{name}-2")
    done = lake.services.master_keys.rewrap(MASTER_KEY)
    assert [str(each.ref.pek_id) for each in done.failed] == [_id(lake, name)]
    assert _wrapped(lake, f"{name}-2") != old
    with write(lake.services.engine) as connection:
        connection.execute(update(lw_pek).where(mine).values(master_key_id="given up"))


def _wrapped_elsewhere(lake: Lake, name: str) -> bytes:
    """Another key's wrapped form, which does not open here."""
    return _wrapped(lake, f"{name}-2")


USES: dict[str, Callable[[httpx.Client, str], httpx.Response]] = {
    "generate": lambda client, name: client.get(f"/kms/v1/key/{name}/_eek?eek_op=generate"),
    "decrypt": lambda client, name: client.post(
        f"/kms/v1/keyversion/{name}@0/_eek?eek_op=decrypt", json=encrypted(name)
    ),
    "reencrypt": lambda client, name: client.post(
        f"/kms/v1/keyversion/{name}@0/_eek?eek_op=reencrypt", json=encrypted(name)
    ),
    "roll": lambda client, name: client.post(f"/kms/v1/key/{name}", json={}),
}


@pytest.mark.parametrize("use", USES)
def test_a_disabled_key_is_refused_with_the_next_request_until_it_is_enabled(
    served: Service, name: str, use: str
) -> None:
    make_key(served.lake, name)
    make_key(served.lake, f"{name}-2")
    with served.client(ALICE) as alice:
        assert USES[use](alice, name).status_code == 200, "its key is in memory now"
        done = alice.post("/admin/v1/door-keys/disable", json={"name": name})
        assert (done.status_code, done.json()["state"]) == (200, "disabled")
        refused = USES[use](alice, name)
        assert refused.status_code == 403 and refused.json()["error"]["rule"] == "key-state", refused.text
        assert refused.json()["RemoteException"]["javaClassName"] == "java.lang.SecurityException"
        assert USES[use](alice, f"{name}-2").status_code == 200
        assert alice.get(f"/kms/v1/key/{name}/_metadata").json()["name"] == name
        assert alice.post("/admin/v1/door-keys/enable", json={"name": name}).json()["state"] == "active"
        assert USES[use](alice, name).status_code == 200


def test_only_who_may_destroy_a_key_disables_it_and_who_has_no_right_is_not_told_of_it(
    served: Service, name: str
) -> None:
    make_key(served.lake, name)
    for user in (BOB, CAROL):
        with served.client(user) as client:
            answers = [
                client.post(f"/admin/v1/door-keys/{act}", json={"name": each})
                for act in ("disable", "enable")
                for each in (name, f"{name}-no")
            ]
            listed = {each["name"] for each in client.get("/admin/v1/door-keys").json()["keys"]}
        assert {each.status_code for each in answers} == {403}
        assert {each.json()["error"]["lakewarden"] for each in answers} == {"NotAuthorized"}
        assert (name in listed) == (user == BOB)
    with served.client(ALICE) as alice:
        missing = alice.post("/admin/v1/door-keys/disable", json={"name": f"{name}-no"})
        assert missing.json()["error"]["lakewarden"] == "KeyNotUsable"
        (shown,) = [each for each in alice.get("/admin/v1/door-keys").json()["keys"] if each["name"] == name]
    assert shown == {
        "name": name,
        "bits": 256,
        "versions": 1,
        "state": "active",
        "master-key-id": MASTER_KEY,
    }


def test_a_disabled_key_is_rewrapped_with_the_others(served: Service, name: str) -> None:
    lake = served.lake
    make_key(lake, name)
    lake.services.kms_endpoint.disable(lake.caller(ALICE), name)
    lake.kms.rotate_master_key(MASTER_KEY)
    old = _wrapped(lake, name)
    lake.services.master_keys.rewrap(MASTER_KEY)
    assert _wrapped(lake, name) != old
    assert str(lake.services.endpoint_keys.find(name).state) == "disabled"


def test_a_key_is_not_enabled_by_who_saw_it_in_another_state(served: Service, name: str) -> None:
    make_key(served.lake, name)
    store = served.lake.services.endpoint_keys
    seen = store.find(name)
    store.move(seen, PekState.DISABLED)
    with pytest.raises(CommitConflict):
        store.move(seen, PekState.ACTIVE)
    assert store.find(name).state == "disabled"


def test_a_key_that_was_given_another_name_in_the_database_does_not_open(served: Service, name: str) -> None:
    make_key(served.lake, name)
    lake, store = served.lake, served.lake.services.endpoint_keys
    row = lw_door_key.c.name == name
    with write(lake.services.engine) as connection:
        connection.execute(update(lw_door_key).where(row).values(name=f"{name}2"))
    key = store.find(f"{name}2")
    assert key is not None
    with pytest.raises(DecryptionRefused):
        store.open(key, 0)
