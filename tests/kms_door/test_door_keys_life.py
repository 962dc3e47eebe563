"""Keys of the door, when the master key that wraps them is rotated, disabled or answers wrongly."""

from __future__ import annotations

import pytest
from sqlalchemy import select, update

from catalog.db.engine import read, write
from catalog.db.schema import lw_door_key
from policy.errors import DecryptionRefused
from tests.support.kms_door import make_key
from tests.support.lake import MASTER_KEY, Lake
from tests.support.service import Service


def _wrapped(lake: Lake, name: str) -> bytes:
    with read(lake.warden.engine) as connection:
        found = connection.scalar(select(lw_door_key.c.wrapped).where(lw_door_key.c.name == name))
    assert isinstance(found, bytes)
    return found


def test_rotated_master_key_wraps_the_doors_keys_anew_and_they_stay_the_same(
    served: Service, name: str
) -> None:
    lake = served.lake
    make_key(lake, name, versions=2)
    keys = lake.warden.door_keys
    before = [keys.open(keys.find(name), version).reveal() for version in (0, 1)]
    old = _wrapped(lake, name)
    lake.kms.rotate_master_key(MASTER_KEY)
    done = lake.warden.master_keys.rewrap(MASTER_KEY)
    assert done.failed == () and done.rewrapped >= 1
    assert _wrapped(lake, name) != old
    lake.warden.keyring._cache.forget(keys.find(name).wrapping.id)
    assert [keys.open(keys.find(name), version).reveal() for version in (0, 1)] == before


def test_one_key_that_does_not_open_is_told_and_keeps_no_other_from_being_wrapped_anew(
    served: Service, name: str
) -> None:
    lake = served.lake
    make_key(lake, name)
    make_key(lake, f"{name}-2")
    with write(lake.warden.engine) as connection:
        mine = lw_door_key.c.name == name
        connection.execute(update(lw_door_key).where(mine).values(wrapped=_wrapped_elsewhere(lake, name)))
    lake.kms.rotate_master_key(MASTER_KEY)
    old = _wrapped(lake, f"{name}-2")
    done = lake.warden.master_keys.rewrap(MASTER_KEY)
    assert [each.ref.pek_id for each in done.failed] == [lake.warden.door_keys.find(name).wrapping.id]
    assert _wrapped(lake, f"{name}-2") != old
    with write(lake.warden.engine) as connection:
        connection.execute(update(lw_door_key).where(mine).values(master_key_id="given up"))


def _wrapped_elsewhere(lake: Lake, name: str) -> bytes:
    """Another key's wrapped form, which does not open here."""
    return _wrapped(lake, f"{name}-2")


def test_a_key_that_was_given_another_name_in_the_database_does_not_open(served: Service, name: str) -> None:
    make_key(served.lake, name)
    lake, store = served.lake, served.lake.warden.door_keys
    row = lw_door_key.c.name == name
    with write(lake.warden.engine) as connection:
        connection.execute(update(lw_door_key).where(row).values(name=f"{name}2"))
    key = store.find(f"{name}2")
    assert key is not None
    with pytest.raises(DecryptionRefused):
        store.open(key, 0)
