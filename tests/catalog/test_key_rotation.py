"""Rotation: new files under a later version, old ones readable, writes under way land."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from catalog.base import crash_points
from catalog.base.identifiers import TableName
from catalog.tables.alter import SetProperty
from policy.errors import KeyNotUsable, NotAuthorized, RequestInvalid, StateUnavailable
from tests.support.lake import ALICE, BOB, CAROL, MASTER_KEY, Lake, policy, standard_policies, tables
from tests.support.table_keys import (
    encrypted,
    let_waiting_end,
    load,
    peks,
    released,
    rotate,
    states,
    versions,
)
from tests.support.tables import Engine, append_files, make, name_of, records


@pytest.mark.nightly
def test_new_files_are_under_the_later_version_and_old_ones_are_read(lake: Lake) -> None:
    name = encrypted(lake, files=2)
    before = released(lake, name)
    now = rotate(lake, name)
    assert now.version == 2
    assert load(lake, name).governed.epochs.current.peks == (now,)
    assert states(lake, name) == {1: "decrypt-only", 2: "active"}
    (new,) = append_files(lake, name)
    after = released(lake, name)
    assert {path: after[path] for path in before} == before
    assert versions(lake, name) == dict.fromkeys(before, 1) | {new: 2}


def test_versions_are_other_keys(lake: Lake) -> None:
    name = encrypted(lake)
    rotate(lake, name)
    first, second = peks(lake, name)
    assert first.id == second.id and first.check != second.check
    opened = lake.services.keyring.open_peks(load(lake, name).record, [first.ref, second.ref])
    sealed = opened[first.ref].aead.seal(b"x" * 32, b"")
    with pytest.raises(Exception, match="cannot be decrypted"):
        opened[second.ref].aead.open(sealed, b"")


def test_a_write_begun_before_a_rotation_is_published_under_the_later_version(lake: Lake) -> None:
    name = encrypted(lake)
    engine = Engine.begin(lake, name)
    file = engine.file()
    rotate(lake, name)
    rotate(lake, name)
    engine.append(file)
    assert versions(lake, name) == {file.path: 3}
    assert set(released(lake, name)) == {file.path}


def test_a_rotation_between_building_and_committing_a_write_does_not_refuse_it(lake: Lake) -> None:
    """Its manifests were written under the earlier version; they are rewritten."""
    name = encrypted(lake)
    engine = Engine.begin(lake, name)
    file = engine.file()
    meanwhile = iter([lambda: rotate(lake, name)])

    def hook(point: str) -> None:
        if point == "write:built":
            next(meanwhile, lambda: None)()

    with crash_points.hooked(hook):
        engine.append(file)
    assert versions(lake, name) == {file.path: 2}


def test_a_rotation_on_which_a_commit_comes_first_is_made_on_top_of_it(lake: Lake) -> None:
    name = encrypted(lake)
    meanwhile = iter([lambda: append_files(lake, name)])

    def hook(point: str) -> None:
        if point == "rotate:made":
            next(meanwhile, lambda: None)()

    with crash_points.hooked(hook):
        assert rotate(lake, name).version == 2
    assert set(versions(lake, name).values()) == {1}
    assert len(released(lake, name)) == 1
    assert states(lake, name) == {1: "decrypt-only", 2: "active"}


def test_rotations_at_once_are_as_many_versions(lake: Lake) -> None:
    name = encrypted(lake)
    with ThreadPoolExecutor(4) as pool:
        found = sorted(each.version for each in pool.map(lambda _: rotate(lake, name), range(4)))
    assert states(lake, name)[max(found)] == "active"
    assert [state for _, state in sorted(states(lake, name).items())][:-1] == ["decrypt-only"] * (
        len(states(lake, name)) - 1
    )
    append_files(lake, name)
    assert set(versions(lake, name).values()) == {max(found)}


@pytest.mark.nightly
@pytest.mark.parametrize("point", ["write:allowed", "write:looked", "rotate:seen"])
def test_a_rotation_beside_what_needs_the_key_is_no_key_that_cannot_be_used(lake: Lake, point: str) -> None:
    name = encrypted(lake)
    meanwhile = iter([lambda: rotate(lake, name)])

    def hook(reached: str) -> None:
        if reached == point:
            next(meanwhile, lambda: None)()

    with crash_points.hooked(hook):
        if point == "rotate:seen":
            assert rotate(lake, name).version == 3
        else:
            append_files(lake, name)
    assert max(states(lake, name)) in {2, 3}
    assert set(states(lake, name).values()) == {"decrypt-only", "active"}


def test_a_plaintext_table_has_nothing_to_rotate(lake: Lake) -> None:
    name = name_of(make(lake))
    with pytest.raises(RequestInvalid) as refused:
        lake.services.key_rotation.rotate(lake.caller(ALICE), name)
    assert refused.value.rule == "plaintext"


def test_a_disabled_key_is_not_rotated(lake: Lake) -> None:
    name = encrypted(lake)
    lake.services.key_life.disable(lake.caller(ALICE), name)
    with pytest.raises(KeyNotUsable) as refused:
        rotate(lake, name)
    assert refused.value.rule == "pek-state"
    assert states(lake, name) == {1: "disabled"}


def test_a_master_key_that_may_not_be_used_makes_no_version(lake: Lake) -> None:
    lake.kms.create_master_key("to-disable")
    properties = {"encryption.master-key-id": "to-disable"}
    name = name_of(make(lake, properties=properties))
    lake.kms.disable_master_key("to-disable")
    with pytest.raises(KeyNotUsable):
        rotate(lake, name)
    assert states(lake, name) == {1: "active"}


def test_rotating_takes_alter_and_the_right_on_the_master_key(lake: Lake) -> None:
    name = encrypted(lake)
    with pytest.raises(NotAuthorized):
        rotate(lake, name, CAROL)
    more = policy("bob-alters", tables("db"), {BOB: ["alter"]})
    lake.set_policies([*standard_policies(), more])
    with pytest.raises(NotAuthorized) as refused:
        rotate(lake, name, BOB)
    assert "rotate" in refused.value.message
    lake.set_policies([*standard_policies(), more, policy("bob-keys", {"key": ["*"]}, {BOB: ["rotate"]})])
    assert rotate(lake, name, BOB).version == 2
    lake.set_policies(standard_policies())


def test_a_rotation_is_on_record(lake: Lake) -> None:
    name, caller = encrypted(lake), lake.caller(ALICE)
    lake.services.key_rotation.rotate(caller, name)
    (record,) = records(lake, caller)
    assert (record.action, record.resource, record.allowed) == ("key.rotate", str(name), True)


def test_an_alter_that_leaves_encryption_asks_for_no_key(lake: Lake) -> None:
    name = encrypted(lake)
    lake.services.key_life.disable(lake.caller(ALICE), name)
    table = lake.catalog().load_table(str(name))
    paths = f"{table.location()},file://{lake.root}/more"
    with table.transaction() as transaction:
        transaction.set_properties({"read.allowed.data.paths": paths})
    assert states(lake, name) == {1: "disabled"}


def test_a_key_that_was_destroyed_gets_a_later_version_when_it_is_wanted_again(lake: Lake) -> None:
    lake.kms.create_master_key("aside")
    name = encrypted(lake)
    _alter(lake, name, {"encryption.master-key-id": "aside"})
    old = next(each for each in peks(lake, name) if each.master_key_id != "aside")
    life = lake.services.key_life
    life.destroy(lake.caller(ALICE), name, str(name), old.id, 1)
    with pytest.raises(KeyNotUsable):
        _alter(lake, name, {"encryption.master-key-id": old.master_key_id})
    let_waiting_end(lake, name)
    _alter(lake, name, {"encryption.master-key-id": old.master_key_id})
    found = [each for each in peks(lake, name) if each.id == old.id]
    assert [(each.version, str(each.state)) for each in found] == [(1, "destroyed"), (2, "active")]
    append_files(lake, name)


def _alter(lake: Lake, name: object, properties: dict[str, str]) -> None:
    with lake.catalog().load_table(str(name)).transaction() as transaction:
        transaction.set_properties(properties)


def test_an_alter_does_not_complete_a_rotation_that_was_cut_short(lake: Lake) -> None:
    """It takes ALTER and `use`; putting new files under a later version takes `rotate`."""
    name = encrypted(lake, files=1)

    def die(point: str) -> None:
        if point == "prepared":
            raise StateUnavailable("gone")

    with crash_points.hooked(die), pytest.raises(StateUnavailable):
        rotate(lake, name)
    assert states(lake, name) == {1: "active", 2: "active"}
    lake.services.alterer.alter(lake.caller(ALICE), name, [SetProperty("encryption.data-key-length", "16")])
    assert [ref.version for ref in load(lake, name).governed.epochs.current.peks] == [1]
    assert rotate(lake, name).version == 2


def shredded(lake: Lake) -> TableName:
    """A table with a file, whose key is destroyed."""
    name = encrypted(lake, files=1)
    lake.services.key_life.destroy(lake.caller(ALICE), name, str(name))
    let_waiting_end(lake, name)
    assert states(lake, name) == {1: "destroyed"}
    return name


@pytest.mark.nightly
@pytest.mark.parametrize("made_ahead", [False, True])
def test_a_rotation_goes_on_from_a_destroyed_version(lake: Lake, made_ahead: bool) -> None:
    name = shredded(lake)
    if made_ahead:
        lake.services.key_life.create(lake.caller(ALICE), name, MASTER_KEY)
    assert rotate(lake, name).version == 2
    append_files(lake, name)
    assert states(lake, name) == {1: "destroyed", 2: "active"}


ACTS: list[Callable[[Lake, TableName], object]] = [
    lambda lake, name: append_files(lake, name),
    lambda lake, name: released(lake, name),
    lambda lake, name: lake.services.key_life.enable(lake.caller(ALICE), name),
    lambda lake, name: lake.services.alterer.alter(
        lake.caller(ALICE), name, [SetProperty("encryption.data-key-length", "16")]
    ),
]


@pytest.mark.nightly
@pytest.mark.parametrize("act", ACTS)
def test_who_meets_a_destroyed_key_is_told_to_rotate(
    lake: Lake, act: Callable[[Lake, TableName], object]
) -> None:
    with pytest.raises(KeyNotUsable) as refused:
        act(lake, shredded(lake))
    assert refused.value.rule == "pek-state"
    assert "lakewarden key rotate" in (refused.value.hint or "")
