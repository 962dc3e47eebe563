"""Keys that are due: for destruction, by their encryptions, and by age."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import insert

from catalog.db.engine import write
from catalog.db.schema import lw_door_key_version, lw_key_invocations
from catalog.reports.expiring_keys import Period, expiring_report
from catalog.state.invocations import MOST
from tests.support.kms_endpoint import endpoint_policies, make_key
from tests.support.lake import ALICE, Lake, standard_policies
from tests.support.table_keys import encrypted, pek, rotate

Json = dict[str, Any]
DAYS = timedelta(days=1)


def due(lake: Lake, table: object, **period: Any) -> list[tuple[str, int]]:
    """Reasons and versions of the keys of a table that are due."""
    found = keys_of(lake, table, **period)
    return [(each["reason"], each["version"]) for each in found]


def keys_of(lake: Lake, table: object, **period: Any) -> list[Json]:
    given = {"now": datetime.now(UTC), "within": 30 * DAYS, **period}
    keys = expiring_report(lake.services, Period(**given)).document["keys"]
    return [each for each in keys if each["belongs-to"] == str(table)]


def test_a_key_that_is_to_be_destroyed_is_due_within_its_time(lake: Lake) -> None:
    name = encrypted(lake)
    first = pek(lake, name, 1)
    rotate(lake, name)
    assert due(lake, name) == []
    lake.services.key_life.destroy(lake.caller(ALICE), name, str(name), first.id, 1)
    assert due(lake, name, within=6 * DAYS) == []
    (found,) = keys_of(lake, name, within=8 * DAYS)
    assert (found["reason"], found["version"], found["state"]) == ("destruction", 1, "disabled")
    assert f"lakewarden key enable {name} --key {first.id} --version 1" in found["what-to-do"]
    (late,) = keys_of(lake, name, now=datetime.now(UTC) + 9 * DAYS, within=DAYS)
    assert "cannot be kept" in late["what-to-do"]
    lake.services.key_life.enable(lake.caller(ALICE), name, first.id, 1)
    assert due(lake, name) == []


def test_a_key_is_due_when_half_of_its_encryptions_are_used_up(lake: Lake) -> None:
    name = encrypted(lake)
    row = {"key_id": str(pek(lake, name, 1).id), "version": 1}
    with write(lake.services.engine) as connection:
        connection.execute(insert(lw_key_invocations).values(row | {"counted": MOST // 2}))
    (found,) = keys_of(lake, name)
    assert found["reason"] == "encryption limit" and f"key rotate {name}" in found["what-to-do"]
    rotate(lake, name)
    assert due(lake, name) == []


def test_the_age_counts_for_keys_in_force_if_it_is_asked_for(lake: Lake) -> None:
    name = encrypted(lake)
    rotate(lake, name)
    assert due(lake, name) == []
    assert due(lake, name, rotate_after=20 * DAYS) == [("age", 2)]
    assert due(lake, name, rotate_after=40 * DAYS) == []
    assert due(lake, name, rotate_after=40 * DAYS, now=datetime.now(UTC) + 50 * DAYS) == [("age", 2)]


def test_the_age_counts_for_the_current_version_of_a_key_of_the_kms_endpoint(lake: Lake) -> None:
    lake.set_policies([*standard_policies(), *endpoint_policies()])
    make_key(lake, "aged", versions=2)
    name, late = "KMS endpoint: aged", datetime.now(UTC) + 50 * DAYS
    assert due(lake, name, now=late) == []
    (found,) = keys_of(lake, name, now=late, rotate_after=40 * DAYS)
    assert found["reason"] == "age" and "Roll the key" in found["what-to-do"]
    row = {"sealed": b"", "author": ALICE, "created_ms": int(late.timestamp() * 1000), "version": 2}
    with write(lake.services.engine) as connection:
        connection.execute(insert(lw_door_key_version).values(row | {"key_id": found["id"]}))
    assert due(lake, name, now=late, rotate_after=40 * DAYS) == []


def test_keys_of_a_dropped_table_are_among_them(lake: Lake) -> None:
    name = encrypted(lake)
    uuid = pek(lake, name, 1).table_uuid
    lake.services.lifecycle.drop(lake.caller(ALICE), name)
    lake.services.key_life.destroy(lake.caller(ALICE), uuid, str(uuid))
    (found,) = keys_of(lake, f"dropped table {uuid}")
    assert f"key enable {uuid}" in found["what-to-do"]
