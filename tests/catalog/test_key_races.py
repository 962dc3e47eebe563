"""Changes of key states beside rotations, rewraps, writes and commits: none leaves data under a lost key."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyiceberg.table.update import RemoveSnapshotsUpdate

from catalog.base import crash_points
from catalog.base.errors import CommitConflict
from catalog.base.identifiers import TableName
from catalog.db.engine import read
from catalog.envelope.peks import PekRecord
from catalog.key_management.uses import SnapshotUse
from catalog.state import seals, table_state
from catalog.tables.alter import SetProperty
from catalog.writes import table_writes
from policy.errors import KeyNotUsable, LakewardenError, StateUnavailable
from tests.support.clock import at_time
from tests.support.hooks import once_at
from tests.support.lake import ALICE, MASTER_KEY, Lake
from tests.support.table_keys import (
    encrypted,
    let_waiting_end,
    load,
    pek,
    peks,
    released,
    rewrap,
    rotate,
    shown,
    states,
)
from tests.support.tables import Engine, append_files


@pytest.fixture(scope="module")
def lake(lake_on_each: Lake) -> Lake:
    """On a database of each kind."""
    return lake_on_each


def refused(do: Callable[[], object], seen: list[LakewardenError]) -> Callable[[], None]:
    """Does something, and notes how it was refused."""

    def act() -> None:
        with pytest.raises(LakewardenError) as caught:
            do()
        seen.append(caught.value)

    return act


def alter(lake: Lake, name: TableName, key: str, value: str) -> None:
    lake.services.alterer.alter(lake.caller(ALICE), name, [SetProperty(key, value)])


def expire_all_but_heads(lake: Lake, name: TableName) -> None:
    metadata = load(lake, name).metadata
    heads = {ref.snapshot_id for ref in metadata.refs.values()}
    old = [each.snapshot_id for each in metadata.snapshots if each.snapshot_id not in heads]
    lake.services.committer.commit(lake.caller(ALICE), name, (), [RemoveSnapshotsUpdate(snapshot_ids=old)])


def unused_later_version(lake: Lake) -> tuple[TableName, PekRecord]:
    """A table that went to another master key, and an unused later version of its first PEK."""
    if "pii" not in {each.id for each in lake.kms.list_master_keys()}:
        lake.kms.create_master_key("pii")
    name = encrypted(lake, files=1)
    rotate(lake, name)
    alter(lake, name, "encryption.master-key-id", "pii")
    (unused,) = [each for each in peks(lake, name) if each.master_key_id == MASTER_KEY and each.version == 2]
    return name, unused


def destroy(lake: Lake, name: TableName, version: PekRecord) -> None:
    lake.services.key_life.destroy(lake.caller(ALICE), name, str(name), version.id, version.version)


def test_a_version_destroyed_beside_a_rewrap_gets_no_data_keys(lake: Lake) -> None:
    """It was checked, and nothing was under it; the rewrap had chosen it before."""
    name, unused = unused_later_version(lake)
    keys = released(lake, name)
    with crash_points.hooked(once_at("rewrap:listed", lambda: destroy(lake, name, unused))):
        rewrap(lake, name)
    expire_all_but_heads(lake, name)
    let_waiting_end(lake, name)
    assert released(lake, name) == keys


def test_a_version_is_not_destroyed_while_a_rewrap_to_it_is_published(lake: Lake) -> None:
    """It is prepared, and nobody knows yet whether its pointer will move."""
    name, unused = unused_later_version(lake)
    keys, seen = released(lake, name), list[LakewardenError]()
    with crash_points.hooked(once_at("prepared", refused(lambda: destroy(lake, name, unused), seen))):
        assert rewrap(lake, name) == {"main": 1}
    assert [type(each) for each in seen] == [CommitConflict]
    assert seen[0].rule == "key-in-use" and seen[0].hint
    with pytest.raises(KeyNotUsable):
        destroy(lake, name, unused)
    assert released(lake, name) == keys


@pytest.mark.nightly
def test_a_commit_that_was_cut_short_keeps_a_version_until_the_next_one(lake: Lake) -> None:
    name, unused = unused_later_version(lake)

    def die() -> None:
        raise StateUnavailable("gone")

    with crash_points.hooked(once_at("prepared", die)), pytest.raises(StateUnavailable):
        rewrap(lake, name)
    with pytest.raises(CommitConflict):
        destroy(lake, name, unused)
    lake.services.key_rotation.rotate(lake.caller(ALICE), name)
    destroy(lake, name, unused)


@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize("what", ["disable", "destroy"])
def test_a_rotation_does_not_undo_what_is_done_to_all_keys_beside_it(lake: Lake, what: str) -> None:
    name, life, caller = encrypted(lake, files=1), lake.services.key_life, lake.caller(ALICE)
    acts: dict[str, Callable[[], object]] = {
        "disable": lambda: life.disable(caller, name),
        "destroy": lambda: life.destroy(caller, name, str(name)),
    }
    with crash_points.hooked(once_at("rotate:made", acts[what])), pytest.raises(KeyNotUsable):
        rotate(lake, name)
    assert shown(life.keys(caller, name)) == {1: ("disabled", True)}
    with pytest.raises(KeyNotUsable):
        append_files(lake, name)


@pytest.mark.nightly
@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize("what", ["disable", "destroy"])
def test_all_keys_are_all_that_there_are_when_it_is_done(
    lake: Lake, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rotation was prepared after the keys were looked up: its version would have been left."""
    name, life, caller = encrypted(lake, files=1), lake.services.key_life, lake.caller(ALICE)
    move, left, seen = life._states._move, [True], list[LakewardenError]()

    def late(*given: Any) -> None:
        if not left:
            return move(*given)
        left.pop()
        with crash_points.hooked(once_at("prepared", refused(lambda: move(*given), seen))):
            rotate(lake, name)

    monkeypatch.setattr(life._states, "_move", late)
    acts: dict[str, Callable[[], object]] = {
        "disable": lambda: life.disable(caller, name),
        "destroy": lambda: life.destroy(caller, name, str(name)),
    }
    acts[what]()
    assert [type(each) for each in seen] == [CommitConflict]
    assert states(lake, name) == {1: "decrypt-only", 2: "active"}
    acts[what]()
    assert set(states(lake, name).values()) == {"disabled"}


@pytest.mark.nightly
def test_a_rotation_does_not_take_up_a_version_that_is_destroyed_beside_it(lake: Lake) -> None:
    name = encrypted(lake, files=1)

    def die() -> None:
        raise StateUnavailable("gone")

    with crash_points.hooked(once_at("prepared", die)), pytest.raises(StateUnavailable):
        rotate(lake, name)
    lake.services.alterer.alter(lake.caller(ALICE), name, [SetProperty("comment", "on top")])
    left = pek(lake, name, 2)
    with (
        crash_points.hooked(once_at("rotate:made", lambda: destroy(lake, name, left))),
        pytest.raises(KeyNotUsable),
    ):
        rotate(lake, name)
    assert shown(lake.services.key_life.keys(lake.caller(ALICE), name)) == {
        1: ("active", True),
        2: ("disabled", False),
    }
    append_files(lake, name)


@pytest.mark.nightly
def test_an_epoch_does_not_begin_under_a_key_that_is_disabled_beside_it(lake: Lake) -> None:
    name, _ = unused_later_version(lake)
    life, caller = lake.services.key_life, lake.caller(ALICE)
    with (
        crash_points.hooked(once_at("checked", lambda: life.disable(caller, name))),
        pytest.raises((CommitConflict, KeyNotUsable)),
    ):
        alter(lake, name, "encryption.master-key-id", MASTER_KEY)
    assert load(lake, name).governed.spec.master_key_id == "pii"


@pytest.mark.nightly
def test_files_are_not_published_under_a_key_that_is_disabled_beside_it(lake: Lake) -> None:
    name, life, caller = encrypted(lake), lake.services.key_life, lake.caller(ALICE)
    engine = Engine.begin(lake, name)
    with (
        crash_points.hooked(once_at("checked", lambda: life.disable(caller, name))),
        pytest.raises(KeyNotUsable),
    ):
        engine.append(engine.file())
    assert load(lake, name).metadata.current_snapshot() is None


@pytest.mark.nightly
def test_what_needs_no_key_is_published_where_one_is_disabled(lake: Lake) -> None:
    name = encrypted(lake, files=2)
    lake.services.key_life.disable(lake.caller(ALICE), name)
    expire_all_but_heads(lake, name)
    alter(lake, name, "comment", "out of order")
    assert len(load(lake, name).metadata.snapshots) == 1


@pytest.mark.nightly
def test_a_write_is_not_begun_under_a_version_that_is_destroyed_beside_it(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its transport key would be lost, and all that it wrote."""
    name = encrypted(lake, files=1)
    real, left = table_writes.new_session, [True]

    def slow(*given: object) -> object:
        session = real(*given)  # type: ignore[arg-type]
        if left:
            left.pop()
            rotate(lake, name)
            rewrap(lake, name)
            expire_all_but_heads(lake, name)
            destroy(lake, name, pek(lake, name, 1))
        return session

    monkeypatch.setattr(table_writes, "new_session", slow)
    engine = Engine.begin(lake, name)
    engine.append(engine.file())
    assert not left
    assert len(released(lake, name)) == 2


@pytest.mark.nightly
def test_a_write_that_is_begun_beside_a_rotation_is_published(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = encrypted(lake)
    real, left = table_writes.new_session, [lambda: rotate(lake, name)]

    def slow(*given: object) -> object:
        session = real(*given)  # type: ignore[arg-type]
        if left:
            left.pop()()
        return session

    monkeypatch.setattr(table_writes, "new_session", slow)
    engine = Engine.begin(lake, name)
    engine.append(engine.file())


def doomed_version(lake: Lake) -> tuple[TableName, dict[str, bytes]]:
    """A version on its way out, and the data keys of the table's files."""
    name = encrypted(lake, files=1)
    keys = released(lake, name)
    rotate(lake, name)
    rewrap(lake, name)
    expire_all_but_heads(lake, name)
    destroy(lake, name, pek(lake, name, 1))
    return name, keys


def test_a_version_that_is_needed_again_when_its_time_has_come_stays(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after an administrator's rollback. It stays disabled, and can be enabled."""
    name, keys = doomed_version(lake)
    ends, first = lake.services.key_life._ends, pek(lake, name, 1)
    head = load(lake, name).metadata.current_snapshot_id
    assert head is not None
    monkeypatch.setattr("catalog.key_management.expiry.uses", lambda *_: {first.ref: [SnapshotUse(head, ())]})
    let_waiting_end(lake, name)
    assert (pek(lake, name, 1).state, pek(lake, name, 1).destroy_after_ms) == ("disabled", None)
    assert ends.destroy_due() == 0
    lake.services.key_life.enable(lake.caller(ALICE), name, first.id, 1)
    assert released(lake, name) == keys


@pytest.mark.nightly
def test_a_version_stays_as_long_as_it_is_not_known_what_needs_it(lake: Lake) -> None:
    name, _ = doomed_version(lake)
    location = load(lake, name).metadata_location
    lake.services.lifecycle.drop(lake.caller(ALICE), name)
    before = states_of_dropped(lake, location)
    with at_time(lake.services.key_life._ends, 2**62):
        lake.services.key_life.destroy_due()
    assert before == states_of_dropped(lake, location)
    lake.services.registration.register(lake.caller(ALICE), name, location)
    let_waiting_end(lake, name)
    assert states(lake, name) == {1: "destroyed", 2: "active"}


def states_of_dropped(lake: Lake, location: str) -> list[str]:
    """The states of a dropped table's keys."""
    with read(lake.services.engine) as connection:
        seal = seals.find(connection, location)
        assert seal is not None
        record = table_state.table_by_id(connection, seal.table_id)
        assert record is not None
    return [str(each.state) for each in lake.services.keyring.records(record)]
