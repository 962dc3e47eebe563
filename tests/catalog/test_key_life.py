"""Disabled keys open nothing, destroyed ones never again, and what is needed is not destroyed by the way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import select

from catalog.audit.reading import read as read_audit
from catalog.authorization.authorizer import Caller
from catalog.base.errors import NoSuchTable
from catalog.base.identifiers import TableName
from catalog.db.engine import read
from catalog.db.schema import lw_pek
from catalog.service.services import Services
from policy.errors import KeyNotUsable, NotAuthorized, RequestInvalid
from tests.support.clock import at_time
from tests.support.lake import (
    ALICE,
    BOB,
    CAROL,
    MASTER_KEY,
    Lake,
    open_lake,
    policy,
    standard_policies,
    tables,
)
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
from tests.support.tables import Engine, append_files, fresh, make, name_of, records

WEEK_MS = 7 * 24 * 3600 * 1000


def destroy(lake: Lake, name: TableName, version: int | None = None, confirm: str | None = None) -> object:
    chosen = None if version is None else pek(lake, name, version).id
    said = str(name) if confirm is None else confirm
    return lake.services.key_life.destroy(lake.caller(ALICE), name, said, chosen, version)


def rows_of(lake: Lake, name: TableName) -> list[tuple[int, str, bytes]]:
    """Version, state and stored form of the table's keys, as they stand in the database."""
    columns = (lw_pek.c.version, lw_pek.c.state, lw_pek.c.wrapped)
    with read(lake.services.engine) as connection:
        found = connection.execute(
            select(*columns).where(lw_pek.c.table_id == load(lake, name).record.id).order_by(columns[0])
        )
        return [tuple(row) for row in found]


@pytest.mark.nightly
def test_a_disabled_key_opens_nothing_until_it_is_enabled(lake: Lake) -> None:
    name = encrypted(lake, files=1)
    keys, life = released(lake, name), lake.services.key_life
    assert shown(life.disable(lake.caller(ALICE), name)) == {1: ("disabled", True)}
    with pytest.raises(KeyNotUsable):
        released(lake, name)
    with pytest.raises(KeyNotUsable):
        Engine.begin(lake, name)
    assert shown(life.enable(lake.caller(ALICE), name)) == {1: ("active", True)}
    assert released(lake, name) == keys
    append_files(lake, name)


def test_a_disabled_key_opens_nothing_in_another_process(lake: Lake) -> None:
    """Although that one has it unwrapped in its cache."""
    name = encrypted(lake, files=1)
    with Services.open(lake.settings, lake.kms) as elsewhere:
        record = elsewhere.loader.load(name).record
        ref = elsewhere.keyring.records(record)[0].ref
        assert elsewhere.keyring.open_peks(record, [ref])
        lake.services.key_life.disable(lake.caller(ALICE), name)
        with pytest.raises(KeyNotUsable):
            elsewhere.keyring.open_peks(record, [ref])


@pytest.mark.nightly
def test_one_version_is_disabled_by_itself_and_comes_back_as_it_was(lake: Lake) -> None:
    name = encrypted(lake, files=1)
    rotate(lake, name)
    append_files(lake, name)
    life, caller, old = lake.services.key_life, lake.caller(ALICE), pek(lake, name, 1).id
    assert shown(life.disable(caller, name, old, 1)) == {1: ("disabled", False), 2: ("active", True)}
    append_files(lake, name)
    with pytest.raises(KeyNotUsable):
        released(lake, name)
    assert shown(life.enable(caller, name, old, 1)) == {1: ("decrypt-only", False), 2: ("active", True)}
    life.disable(caller, name)
    assert shown(life.enable(caller, name, old)) == {1: ("decrypt-only", False), 2: ("active", True)}
    assert len(released(lake, name)) == 3


def test_a_key_of_another_table_or_none_is_refused(lake: Lake) -> None:
    name, other, life = encrypted(lake), encrypted(lake), lake.services.key_life
    for pek_id, version in [
        (pek(lake, other, 1).id, None),
        (uuid4(), 1),
        (None, 1),
        (pek(lake, name, 1).id, 9),
    ]:
        for act in (life.disable, life.enable):
            with pytest.raises(RequestInvalid) as refused:
                act(lake.caller(ALICE), name, pek_id, version)
            assert refused.value.rule == "pek"
        with pytest.raises(RequestInvalid):
            life.destroy(lake.caller(ALICE), name, str(name), pek_id, version)
    with pytest.raises(RequestInvalid):
        life.show(lake.caller(ALICE), name, pek(lake, other, 1).id)
    assert states(lake, name) == states(lake, other) == {1: "active"}


def test_a_version_in_force_is_not_destroyed_by_itself(lake: Lake) -> None:
    name = encrypted(lake)
    with pytest.raises(KeyNotUsable) as refused:
        destroy(lake, name, 1)
    assert refused.value.rule == "key-in-use" and "in force" in refused.value.message


def test_a_version_that_a_snapshot_or_tag_needs_is_not_destroyed_and_they_are_named(lake: Lake) -> None:
    name = encrypted(lake, files=2)
    first, second = (each.snapshot_id for each in load(lake, name).metadata.snapshots)
    lake.catalog().load_table(str(name)).manage_snapshots().create_tag(second, "audit").commit()
    rotate(lake, name)
    rewrap(lake, name)
    with pytest.raises(KeyNotUsable) as refused:
        destroy(lake, name, 1)
    assert refused.value.rule == "key-in-use"
    assert f"2 retained snapshots: {first}, {second} (tag audit)." in refused.value.message
    keys, uses = lake.services.key_life.show(lake.caller(ALICE), name, pek(lake, name, 1).id)
    assert [each.pek.version for each in keys] == [1, 2]
    assert [each.snapshot_id for each in uses[pek(lake, name, 1).ref]] == [first, second]
    (head,) = uses[pek(lake, name, 2).ref]
    assert head.names == ("branch main",)


@pytest.mark.nightly
def test_a_version_that_nothing_needs_any_more_is_destroyed_after_its_time(lake: Lake) -> None:
    name = encrypted(lake, files=2)
    rotate(lake, name)
    rewrap(lake, name)
    stock = lake.catalog().load_table(str(name))
    old = [each.snapshot_id for each in stock.metadata.snapshots][:-1]
    stock.maintenance.expire_snapshots().by_ids(old).commit()
    keys = released(lake, name)
    before = lake.services.now_ms()
    destroy(lake, name, 1)
    assert states(lake, name) == {1: "disabled", 2: "active"}
    at = pek(lake, name, 1).destroy_after_ms
    assert at is not None and before + WEEK_MS <= at <= lake.services.now_ms() + WEEK_MS
    lake.services.key_life.destroy_due()
    assert states(lake, name) == {1: "disabled", 2: "active"}
    let_waiting_end(lake, name)
    assert states(lake, name) == {1: "destroyed", 2: "active"}
    assert rows_of(lake, name)[0] == (1, "destroyed", b"")
    assert released(lake, name) == keys
    append_files(lake, name)


def test_a_version_that_an_open_write_needs_is_not_destroyed(lake: Lake) -> None:
    name = encrypted(lake)
    engine = Engine.begin(lake, name)
    file = engine.file()
    rotate(lake, name)
    with pytest.raises(KeyNotUsable) as refused:
        destroy(lake, name, 1)
    assert "1 open writes" in refused.value.message
    engine.append(file)
    destroy(lake, name, 1)
    assert states(lake, name) == {1: "disabled", 2: "active"}


def test_destroying_all_of_a_key_shreds_what_is_under_it(lake: Lake) -> None:
    name = encrypted(lake, files=1)
    destroy(lake, name)
    with pytest.raises(KeyNotUsable):
        released(lake, name)
    let_waiting_end(lake, name)
    assert [row[1:] for row in rows_of(lake, name)] == [("destroyed", b"")]
    with pytest.raises(KeyNotUsable) as refused:
        lake.services.key_life.enable(lake.caller(ALICE), name)
    assert "cannot be restored" in refused.value.message
    rotate(lake, name)
    with pytest.raises(KeyNotUsable):
        released(lake, name)


def test_until_its_time_has_come_a_destruction_is_called_off(lake: Lake) -> None:
    name = encrypted(lake, files=1)
    keys = released(lake, name)
    destroy(lake, name)
    lake.services.key_life.enable(lake.caller(ALICE), name)
    assert pek(lake, name, 1).destroy_after_ms is None
    let_waiting_end(lake, name)
    assert released(lake, name) == keys


def test_when_its_time_has_come_nobody_brings_it_back(lake: Lake) -> None:
    """Whether it has been overwritten yet or not."""
    name = encrypted(lake)
    destroy(lake, name)
    life = lake.services.key_life
    with at_time(life._states, 2**62), pytest.raises(KeyNotUsable):
        life.enable(lake.caller(ALICE), name)
    assert states(lake, name) == {1: "disabled"}


def test_destroying_twice_does_not_put_it_off(lake: Lake) -> None:
    name = encrypted(lake)
    destroy(lake, name)
    at = pek(lake, name, 1).destroy_after_ms
    lake.services.key_life._states._wait_ms *= 2
    destroy(lake, name)
    lake.services.key_life._states._wait_ms //= 2
    assert pek(lake, name, 1).destroy_after_ms == at


@pytest.mark.parametrize("confirm", ["", "yes", "t"])
def test_destroying_is_confirmed_by_the_name_of_the_table(lake: Lake, confirm: str) -> None:
    name = encrypted(lake)
    with pytest.raises(RequestInvalid) as refused:
        destroy(lake, name, confirm=confirm)
    assert refused.value.rule == "confirmation"
    assert states(lake, name) == {1: "active"}


def test_a_key_is_made_ahead_and_kept(lake: Lake) -> None:
    lake.kms.create_master_key("ahead")
    name, life = encrypted(lake), lake.services.key_life
    made = life.create(lake.caller(ALICE), name, "ahead")
    assert life.create(lake.caller(ALICE), name, "ahead") == made
    (ahead,) = [each for each in made if each.pek.master_key_id == "ahead"]
    assert not ahead.in_force
    with lake.catalog().load_table(str(name)).transaction() as transaction:
        transaction.set_properties({"encryption.master-key-id": "ahead"})
    assert load(lake, name).governed.epochs.current.peks == (ahead.pek.ref,)
    with pytest.raises(KeyNotUsable):
        life.create(lake.caller(ALICE), name, "no-such-key")


def test_keys_are_shown_whatever_the_metadata_looks_like(lake: Lake) -> None:
    name = encrypted(lake)
    path = Path(load(lake, name).metadata_location.removeprefix("file://"))
    path.write_bytes(b"{}")
    assert shown(lake.services.key_life.keys(lake.caller(CAROL), name)) == {1: ("active", True)}
    lake.services.key_life.disable(lake.caller(ALICE), name)


ACTS: list[Callable[[Lake, Caller, TableName], object]] = [
    lambda lake, caller, name: lake.services.key_life.keys(caller, name),
    lambda lake, caller, name: lake.services.key_life.show(caller, name, uuid4()),
    lambda lake, caller, name: lake.services.key_life.create(caller, name, MASTER_KEY),
    lambda lake, caller, name: lake.services.key_life.disable(caller, name),
    lambda lake, caller, name: lake.services.key_life.enable(caller, name),
    lambda lake, caller, name: lake.services.key_life.destroy(caller, name, str(name)),
    lambda lake, caller, name: lake.services.key_rotation.rotate(caller, name),
    lambda lake, caller, name: lake.services.key_rewrap.rewrap(caller, name),
]


@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize("act", ACTS)
def test_without_a_right_nobody_learns_whether_there_is_a_table(
    lake: Lake, act: Callable[[Lake, Caller, TableName], object]
) -> None:
    answers = set()
    for name in (encrypted(lake), fresh()):
        with pytest.raises(NotAuthorized) as refused:
            act(lake, lake.caller(BOB), name)
        answers.add(str(refused.value).replace(name.name, "…"))
    assert len(answers) == 1


def test_a_table_that_is_not_there_has_no_keys(lake: Lake) -> None:
    with pytest.raises(NoSuchTable):
        lake.services.key_life.keys(lake.caller(ALICE), fresh())


def test_states_take_alter_and_destroy_on_the_master_key_and_shredding_takes_drop(lake: Lake) -> None:
    name, life, caller = encrypted(lake), lake.services.key_life, lake.caller(BOB)
    alters = policy("bob-alters", tables("db"), {BOB: ["alter"]})
    keys = policy("bob-keys", {"key": ["*"]}, {BOB: ["destroy"]})
    try:
        for given in ([alters], [keys]):
            lake.set_policies([*standard_policies(), *given])
            for act in (life.disable, life.enable):
                with pytest.raises(NotAuthorized):
                    act(caller, name)
        lake.set_policies([*standard_policies(), alters, keys])
        life.disable(caller, name)
        life.enable(caller, name)
        with pytest.raises(NotAuthorized):
            life.destroy(caller, name, str(name))
        drops = policy("bob-drops", tables("db"), {BOB: ["drop"]})
        lake.set_policies([*standard_policies(), drops])
        with pytest.raises(NotAuthorized):
            life.destroy(caller, name, str(name))
        lake.set_policies([*standard_policies(), drops, keys])
        life.destroy(caller, name, str(name))
    finally:
        lake.set_policies(standard_policies())


def test_what_is_done_to_keys_is_on_record(lake: Lake) -> None:
    name, life = encrypted(lake), lake.services.key_life
    for act, action in [(life.disable, "key.disable"), (life.enable, "key.enable"), (life.keys, "key.list")]:
        caller = lake.caller(ALICE)
        act(caller, name)
        assert [(each.action, each.allowed) for each in records(lake, caller)] == [(action, True)]


def test_the_end_of_a_key_is_on_record_before_it_comes_and_after(lake: Lake) -> None:
    name = encrypted(lake)
    destroy(lake, name)
    let_waiting_end(lake, name)
    found = read_audit(lake.services.engine, principal="lakewarden", table=str(name), limit=10)
    assert [each.record.action for each in found] == ["key.destroyed", "key.destroying"]
    assert all(str(pek(lake, name, 1).id) in each.record.reasons[0].detail for each in found)


def test_a_key_that_is_enabled_in_the_last_moment_is_not_on_record_as_destroyed(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a replica whose clock is late, while the other one already writes down what it is about to do."""
    name, life = encrypted(lake, files=1), lake.services.key_life
    destroy(lake, name)
    record = lake.services.authorizer.record

    def enabled_first(caller: Caller, action: str, *rest: Any) -> None:
        if action == "key.destroying":
            life.enable(lake.caller(ALICE), name)
        record(caller, action, *rest)

    monkeypatch.setattr(lake.services.authorizer, "record", enabled_first)
    with at_time(life._ends, lake.services.now_ms() + 2 * WEEK_MS):
        life.destroy_due()
    found = read_audit(lake.services.engine, principal="lakewarden", table=str(name), limit=10)
    assert [each.record.action for each in found] == ["key.kept", "key.destroying"]
    assert states(lake, name) == {1: "active"}


def test_a_purge_takes_the_keys_with_the_files(lake: Lake) -> None:
    """A user who can drop the table can purge it. Copies of its files are worth nothing from then on."""
    name = encrypted(lake, files=1)
    record = load(lake, name).record
    lake.services.lifecycle.purge(lake.caller(ALICE), name)
    assert [(each.state, each.wrapped) for each in lake.services.keyring.records(record)] == [
        ("destroyed", b"")
    ]


def test_a_drop_keeps_the_keys(lake: Lake) -> None:
    name = encrypted(lake, files=1)
    table = load(lake, name)
    lake.services.lifecycle.drop(lake.caller(ALICE), name)
    assert [each.state for each in lake.services.keyring.records(table.record)] == ["active"]
    again = fresh()
    lake.services.registration.register(lake.caller(ALICE), again, table.metadata_location)
    assert len(released(lake, again)) == 1


@pytest.fixture
def hasty(tmp_path: Path) -> Iterator[Lake]:
    """A lake that waits for nothing."""
    with open_lake(tmp_path, KEY_DESTROY_WAIT_S=0) as lake:
        lake.catalog().create_namespace("db")
        yield lake


def test_without_a_waiting_time_keys_are_destroyed_at_once(hasty: Lake) -> None:
    name = encrypted(hasty)
    assert shown(destroy(hasty, name)) == {1: ("destroyed", True)}  # type: ignore[arg-type]


def test_nothing_of_a_destroyed_key_is_left_in_the_database_file(hasty: Lake) -> None:
    """Not even in the pages that SQLite keeps for later, once the write-ahead log is written back."""
    name = encrypted(hasty)
    for _ in range(3):
        rotate(hasty, name)
    stored = [each.wrapped for each in peks(hasty, name)]
    assert all(len(each) > 32 for each in stored)
    destroy(hasty, name)
    with hasty.services.engine.connect() as connection:
        connection.exec_driver_sql("ROLLBACK")
        connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
    data = b"".join(path.read_bytes() for path in hasty.root.rglob("lakewarden.db*"))
    assert data
    assert not [each for each in stored if each in data or each[-32:] in data]


def test_a_plaintext_table_has_no_keys(lake: Lake) -> None:
    name = name_of(make(lake))
    assert lake.services.key_life.keys(lake.caller(ALICE), name) == []
    assert peks(lake, name) == []
