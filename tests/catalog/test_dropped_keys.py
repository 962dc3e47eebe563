"""Keys of tables that were dropped without a purge: looked at and shredded by UUID, by who administers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from uuid import UUID, uuid4

import pytest
from sqlalchemy import update

from catalog.base.errors import CommitConflict, NoSuchTable
from catalog.base.identifiers import TableName
from catalog.db.engine import write
from catalog.db.schema import lw_table
from catalog.envelope.peks import PekRecord
from catalog.key_management.lifecycle import KeyLife
from catalog.state.table_state import TableRecord
from policy.errors import KeyNotUsable, NotAuthorized, RequestInvalid
from tests.support.clock import at_time
from tests.support.lake import ALICE, BOB, Lake, policy, standard_policies
from tests.support.table_keys import encrypted, load, peks, released, rotate, shown, states
from tests.support.tables import records


@pytest.fixture(autouse=True)
def administered(lake: Lake) -> Iterator[None]:
    """Alice administers the catalog; Bob has every right on its tables and keys."""
    admin = policy("admin", {"service": ["*"]}, {ALICE: ["admin"]})
    on_tables = policy("bob", {"database": ["*"], "table": ["*"], "column": ["*"]}, {BOB: ["all"]})
    on_keys = policy("bob-keys", {"key": ["*"]}, {BOB: ["use", "release", "rotate", "destroy"]})
    lake.set_policies([*standard_policies(), admin, on_tables, on_keys])
    yield
    lake.set_policies(standard_policies())


def dropped(lake: Lake, name: TableName) -> TableRecord:
    """The table was dropped; what was known of it before."""
    record = load(lake, name).record
    lake.services.lifecycle.drop(lake.caller(ALICE), name)
    return record


def end_waiting(lake: Lake) -> int:
    with at_time(lake.services.key_life._ends, 2**62):
        return lake.services.key_life.destroy_due()


def stored(lake: Lake, record: TableRecord) -> list[PekRecord]:
    return lake.services.keyring.records(record)


def test_the_keys_of_a_dropped_table_are_shredded_without_bringing_it_back(lake: Lake) -> None:
    name = encrypted(lake, files=1)
    rotate(lake, name)
    other = encrypted(lake)
    record, life, caller = dropped(lake, name), lake.services.key_life, lake.caller(ALICE)
    assert shown(life.keys(caller, record.table_uuid)) == {1: ("decrypt-only", False), 2: ("active", True)}
    key = stored(lake, record)[0].id
    assert life.show(caller, record.table_uuid, key)[1] == {}
    gone = life.destroy(caller, record.table_uuid, str(record.table_uuid), key)
    assert {each.pek.state for each in gone} == {"disabled"}
    assert all(each.pek.destroy_after_ms for each in gone)
    assert life.destroy_due() == 0
    assert end_waiting(lake) == 2
    assert {(pek.state, pek.wrapped, pek.check) for pek in stored(lake, record)} == {("destroyed", b"", None)}
    assert states(lake, other) == {1: "active"}
    actions = [(each.action, each.resource, each.allowed) for each in records(lake, caller)]
    assert ("key.destroy", str(record.table_uuid), True) in actions


def test_a_destruction_is_called_off(lake: Lake) -> None:
    name = encrypted(lake)
    record, life, caller = dropped(lake, name), lake.services.key_life, lake.caller(ALICE)
    life.destroy(caller, record.table_uuid, str(record.table_uuid))
    assert shown(life.enable(caller, record.table_uuid)) == {1: ("active", True)}
    assert shown(life.disable(caller, record.table_uuid)) == {1: ("disabled", True)}
    assert end_waiting(lake) == 0


OPERATIONS: list[Callable[[KeyLife, object, UUID], object]] = [
    lambda life, caller, uuid: life.keys(caller, uuid),
    lambda life, caller, uuid: life.show(caller, uuid, uuid4()),
    lambda life, caller, uuid: life.disable(caller, uuid),
    lambda life, caller, uuid: life.enable(caller, uuid),
    lambda life, caller, uuid: life.destroy(caller, uuid, str(uuid)),
]


@pytest.mark.parametrize("operation", OPERATIONS)
def test_rights_on_tables_and_keys_are_none_on_what_is_left(
    lake: Lake, operation: Callable[[KeyLife, object, UUID], object]
) -> None:
    """Nor is told whether there is, or was, such a table."""
    name = encrypted(lake)
    record, life = dropped(lake, name), lake.services.key_life
    with pytest.raises(NotAuthorized) as left:
        operation(life, lake.caller(BOB), record.table_uuid)
    with pytest.raises(NotAuthorized) as nothing:
        operation(life, lake.caller(BOB), uuid4())
    assert left.value.message == nothing.value.message
    assert [pek.state for pek in stored(lake, record)] == ["active"]


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_table_that_is_there_is_not_reached_past_its_policies(
    lake: Lake, operation: Callable[[KeyLife, object, UUID], object]
) -> None:
    name = encrypted(lake)
    uuid = load(lake, name).record.table_uuid
    for each in (uuid, uuid4()):
        with pytest.raises(NoSuchTable):
            operation(lake.services.key_life, lake.caller(ALICE), each)
    assert states(lake, name) == {1: "active"}


def test_a_table_of_another_catalog_in_the_same_database_is_not_reached(lake: Lake) -> None:
    record = dropped(lake, encrypted(lake))
    with write(lake.services.engine) as connection:
        mine = update(lw_table).where(lw_table.c.id == record.id)
        connection.execute(mine.values(catalog="other"))
    with pytest.raises(NoSuchTable):
        lake.services.key_life.destroy(lake.caller(ALICE), record.table_uuid, str(record.table_uuid))
    assert [pek.state for pek in stored(lake, record)] == ["active"]


@pytest.mark.parametrize("confirm", ["", "db.t", "yes"])
def test_it_is_confirmed_by_the_uuid(lake: Lake, confirm: str) -> None:
    record = dropped(lake, encrypted(lake))
    with pytest.raises(RequestInvalid) as refused:
        lake.services.key_life.destroy(lake.caller(ALICE), record.table_uuid, confirm)
    assert refused.value.rule == "confirmation"
    assert [pek.state for pek in stored(lake, record)] == ["active"]


def test_one_version_of_what_may_come_back_does_not_go_by_itself(lake: Lake) -> None:
    name = encrypted(lake)
    rotate(lake, name)
    record, life, caller = dropped(lake, name), lake.services.key_life, lake.caller(ALICE)
    uuid, key = record.table_uuid, stored(lake, record)[0].id
    with pytest.raises(RequestInvalid) as refused:
        life.destroy(caller, uuid, str(uuid), key, 1)
    assert refused.value.rule == "dropped-table"
    assert shown(life.disable(caller, uuid, key, 1))[1] == ("disabled", False)


def test_a_table_that_comes_back_meanwhile_keeps_its_keys_from_a_decision_of_before(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = encrypted(lake, files=1)
    location, keys = load(lake, name).metadata_location, released(lake, name)
    record, life = dropped(lake, name), lake.services.key_life
    real = life._states.destroy

    def late(*given: object) -> None:
        lake.catalog().register_table(str(name), location)
        real(*given)

    monkeypatch.setattr(life._states, "destroy", late)
    with pytest.raises(CommitConflict):
        life.destroy(lake.caller(ALICE), record.table_uuid, str(record.table_uuid))
    assert released(lake, name) == keys


def test_a_table_that_comes_back_after_it_has_its_keys_as_they_are(lake: Lake) -> None:
    name = encrypted(lake, files=1)
    location, keys = load(lake, name).metadata_location, released(lake, name)
    record, life = dropped(lake, name), lake.services.key_life
    life.destroy(lake.caller(ALICE), record.table_uuid, str(record.table_uuid))
    lake.catalog().register_table(str(name), location)
    with pytest.raises(KeyNotUsable):
        released(lake, name)
    life.enable(lake.caller(ALICE), name)
    assert released(lake, name) == keys
    assert [pek.state for pek in peks(lake, name)] == ["active"]


def test_what_was_purged_shows_that_its_keys_are_gone(lake: Lake) -> None:
    name = encrypted(lake)
    record = load(lake, name).record
    lake.services.lifecycle.purge(lake.caller(ALICE), name)
    found = lake.services.key_life.keys(lake.caller(ALICE), record.table_uuid)
    assert shown(found) == {1: ("destroyed", True)}
