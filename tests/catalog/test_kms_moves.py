"""Moves keys to another master key and another KMS: no file changes, and nothing needs the one before."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest
from sqlalchemy import text, update

from catalog.base import crash_points
from catalog.base.errors import CommitConflict
from catalog.base.identifiers import TableName
from catalog.crypto.secret import SecretBytes
from catalog.db.engine import read, write
from catalog.db.schema import lw_pek
from catalog.envelope.peks import create_pek
from catalog.kms.aws import AwsKms
from catalog.kms.clients import KmsKey
from catalog.kms.local import LocalKms
from catalog.kms.vault import VaultKms
from catalog.kms_server.store import Denial, KeySpec
from catalog.state import pek_records
from catalog.state.master_keys import all_assigned
from catalog.writes.new_files import FileCommit
from policy.errors import KeyNotUsable, KmsUnavailable, RequestInvalid
from tests.support.kms_moves import (
    KmsLake,
    assign,
    aws_options,
    move_all,
    needs,
    open_kms_lake,
    opened_with,
    vault_options,
)
from tests.support.lake import ALICE, MASTER_KEY, Lake, open_lake
from tests.support.postgres import PostgresServer
from tests.support.rules import put_rules
from tests.support.rules import rule as rule_of
from tests.support.table_keys import encrypted, load, peks, released, rotate
from tests.support.tables import ENCRYPTED, Engine, append_files, make, name_of

LOCAL = KmsKey("local", MASTER_KEY)


@pytest.fixture
def kmss(tmp_path: Path) -> Iterator[KmsLake]:
    """A catalog of its own with three KMSs."""
    with open_kms_lake(tmp_path) as opened:
        opened.lake.catalog().create_namespace("db")
        yield opened


@pytest.mark.nightly
def test_keys_move_from_local_to_aws_to_vault_and_the_kms_before_can_be_shut_off(kmss: KmsLake) -> None:
    lake = kmss.lake
    name, dropped = encrypted(lake, files=1), encrypted(lake, files=1)
    rotate(lake, name)
    append_files(lake, name)
    keys, files = released(lake, name), load(lake, name).metadata_location
    lake.services.endpoint_keys.create(KeySpec("door", 128, None, {}, Denial.ERROR), ALICE)
    lake.services.lifecycle.drop(lake.caller(ALICE), dropped)
    checks = [pek.check for pek in peks(lake, name)]

    assert assign(lake, MASTER_KEY, kmss.aws_key) == LOCAL
    assert needs(lake, "local", MASTER_KEY) == {
        ("table", str(name)),
        ("unnamed-table", uuid_of_dropped(lake)),
        ("endpoint-key", "door"),
    }
    assert move_all(lake, MASTER_KEY) == 4
    assert needs(lake, "local", MASTER_KEY) == set()
    assert {pek.kms_key for pek in peks(lake, name)} == {kmss.aws_key}
    assert [pek.check for pek in peks(lake, name)] == checks
    assert load(lake, name).metadata_location == files
    lake.kms.disable_master_key(MASTER_KEY)
    with opened_with(lake, **aws_options(kmss.moto, "KMS")) as only_aws:
        assert released(only_aws, name) == keys
        append_files(only_aws, name)
        rotate(only_aws, name)
        late = encrypted(only_aws, files=1)
        assert {pek.kms_key for pek in peks(only_aws, late)} == {kmss.aws_key}

    keys = released(lake, name)
    assert assign(lake, MASTER_KEY, kmss.vault_key) == kmss.aws_key
    assert move_all(lake, MASTER_KEY) == 6
    assert needs(lake, "aws") == set()
    kmss.moto.stop()
    with opened_with(lake, **vault_options(kmss.transit, "KMS")) as only_vault:
        assert released(only_vault, name) == keys
        append_files(only_vault, name)
        assert rotate(only_vault, late).version == 2
        assert only_vault.services.endpoint_keys.find("door") is not None
        assert needs(only_vault, "local") == needs(only_vault, "aws") == set()


def uuid_of_dropped(lake: Lake) -> str:
    """The UUID of the only table without a name."""
    (found,) = [each for each in lake.services.kms_needs.of("local") if each.by == "unnamed-table"]
    return found.name


def test_settings_that_would_use_a_kms_again_need_it(kmss: KmsLake) -> None:
    lake = kmss.lake
    assert needs(lake, "local") == {("setting", "kms"), ("setting", "kms.default_master_key_id")}
    assert needs(lake, "local", MASTER_KEY) == {("setting", "kms.default_master_key_id")}
    assert needs(lake, "aws") == set()
    assign(lake, MASTER_KEY, kmss.aws_key)
    assert needs(lake, "local", MASTER_KEY) == set()
    assert needs(lake, "local") == {("setting", "kms")}
    assert needs(lake, "aws", kmss.aws_key.key_id) == {("master-key-id", MASTER_KEY)}


def test_a_rule_that_names_an_unused_master_key_needs_the_main_kms(kmss: KmsLake) -> None:
    lake = kmss.lake
    put_rules(lake, rule_of("people", databases=["hr"], masterKeys=["hr-key", "hr-*"]))
    rule = ("encryption-rule", "people")
    assert rule in needs(lake, "local") and needs(lake, "local", "hr-key") == {rule}
    assign(lake, "hr-key", kmss.aws_key)
    assert rule not in needs(lake, "local")


@pytest.mark.nightly
def test_another_master_key_of_the_same_kms_takes_over(kmss: KmsLake) -> None:
    lake = kmss.lake
    lake.kms.create_master_key("next")
    name = encrypted(lake, files=1)
    keys = released(lake, name)
    assign(lake, MASTER_KEY, KmsKey("local", "next"))
    assert move_all(lake, MASTER_KEY) == 1
    lake.kms.disable_master_key(MASTER_KEY)
    lake.reopen()
    assert released(lake, name) == keys
    lake.kms.rotate_master_key("next")
    assert lake.services.master_keys.rewrap(MASTER_KEY).rewrapped == 1


def test_a_form_that_holds_another_key_is_not_stored(kmss: KmsLake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = kmss.lake
    name = encrypted(lake, files=1)
    (before,) = peks(lake, name)
    assign(lake, MASTER_KEY, kmss.aws_key)
    real = AwsKms.wrap_key
    monkeypatch.setattr(
        AwsKms, "wrap_key", lambda kms, key_id, _, context: real(kms, key_id, SecretBytes(b"x" * 32), context)
    )
    done = lake.services.master_key_moves.move(MASTER_KEY)
    assert (done.moved, [each.ref for each in done.failed]) == (0, [before.ref])
    assert peks(lake, name) == [before]


def test_a_kms_that_opens_another_key_than_it_wrapped_is_not_assigned(
    kmss: KmsLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(VaultKms, "get_key", lambda *_: SecretBytes(b"x" * 32))
    with pytest.raises(KeyNotUsable, match="another key"):
        assign(kmss.lake, MASTER_KEY, kmss.vault_key)
    assert assigned(kmss.lake) == {}


def assigned(lake: Lake) -> dict[str, KmsKey]:
    with read(lake.services.engine) as connection:
        return all_assigned(connection, lake.settings.catalog.name)


@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize(
    ("master_key_id", "kms", "key_id", "error"),
    [
        (MASTER_KEY, "gcp", "lake", KeyNotUsable),
        (MASTER_KEY, "aws", "alias/none", KeyNotUsable),
        (MASTER_KEY, "vault", "none", KeyNotUsable),
        ("door/pii", "vault", "lake-2", RequestInvalid),
        ("no id", "vault", "lake-2", RequestInvalid),
    ],
)
def test_what_cannot_wrap_keys_is_not_assigned(
    kmss: KmsLake, master_key_id: str, kms: str, key_id: str, error: type[Exception]
) -> None:
    with pytest.raises(error):
        assign(kmss.lake, master_key_id, KmsKey(kms, key_id))
    assert assigned(kmss.lake) == {}


def test_a_back_end_that_cannot_wrap_given_keys_is_not_assigned(
    kmss: KmsLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(VaultKms, "wrap_key")
    with pytest.raises(KeyNotUsable) as refused:
        assign(kmss.lake, MASTER_KEY, kmss.vault_key)
    assert refused.value.rule == "wrap-key"


def test_a_key_that_was_made_before_the_move_is_not_stored_after_it(kmss: KmsLake) -> None:
    """Otherwise it would stay under the KMS key before, unseen by a move that has ended."""
    lake = kmss.lake
    name = encrypted(lake)
    record = load(lake, name).record
    late = create_pek(
        lake.kms,
        catalog=lake.settings.catalog.name,
        table_id=record.id,
        table_uuid=record.table_uuid,
        master_key_id=MASTER_KEY,
        version=2,
    )
    late = replace(late, id=peks(lake, name)[0].id)
    assign(lake, MASTER_KEY, kmss.aws_key)
    with pytest.raises(CommitConflict), write(lake.services.engine) as connection:
        pek_records.add(connection, lake.settings.catalog.name, [late], 1)
    assert len(peks(lake, name)) == 1


@pytest.mark.nightly
def test_a_rotation_during_the_move_ends_under_the_new_key(kmss: KmsLake) -> None:
    lake = kmss.lake
    name = encrypted(lake, files=1)

    def moved_meanwhile(point: str) -> None:
        if point == "rotate:made" and assigned(lake)[MASTER_KEY].kms != "aws":
            assign(lake, MASTER_KEY, kmss.aws_key)

    with crash_points.hooked(moved_meanwhile):
        assert rotate(lake, name).version == 2
    assert [pek.kms for pek in peks(lake, name)] == ["local", "aws"]
    assert move_all(lake, MASTER_KEY) == 1
    append_files(lake, name)
    assert needs(lake, "local", MASTER_KEY) == set()


@pytest.mark.nightly
def test_writes_that_began_before_the_move_commit_after_it(kmss: KmsLake) -> None:
    """Also one that creates its table: its key is moved before the table has a name."""
    lake = kmss.lake
    open_write = Engine.begin(lake, encrypted(lake))
    staged = Engine.stage(lake, TableName(("db",), "staged"), properties=ENCRYPTED)
    assign(lake, MASTER_KEY, kmss.aws_key)
    assert ("unnamed-table", str(staged.session.table.record.table_uuid)) in needs(lake, "local")
    assert move_all(lake, MASTER_KEY) == 2
    assert needs(lake, "local", MASTER_KEY) == set()
    lake.kms.disable_master_key(MASTER_KEY)
    lake.reopen()
    for engine in (open_write, staged):
        engine.lake = lake
        engine.commit(FileCommit("append", (engine.file(),)))
        assert len(released(lake, engine.session.table.record.name)) == 1


@pytest.mark.nightly
def test_a_key_that_is_rewrapped_meanwhile_is_moved_by_the_next_pass(kmss: KmsLake) -> None:
    lake = kmss.lake
    name = encrypted(lake, files=1)
    keys = released(lake, name)
    assign(lake, MASTER_KEY, kmss.aws_key)

    def rewrap(point: str) -> None:
        if point == "move-master:wrapped":
            lake.services.master_keys.rewrap(MASTER_KEY)

    with crash_points.hooked(rewrap):
        assert lake.services.master_key_moves.move(MASTER_KEY).moved == 0
    assert move_all(lake, MASTER_KEY) == 1
    lake.reopen()
    assert released(lake, name) == keys


def test_a_move_stops_when_its_target_is_changed(kmss: KmsLake) -> None:
    lake = kmss.lake
    name = encrypted(lake)
    assign(lake, MASTER_KEY, kmss.aws_key)

    def change(point: str) -> None:
        if point == "move-master:wrapped":
            assign(lake, MASTER_KEY, kmss.vault_key)

    with crash_points.hooked(change), pytest.raises(CommitConflict):
        lake.services.master_key_moves.move(MASTER_KEY)
    assert move_all(lake, MASTER_KEY) == 1
    assert [pek.kms_key for pek in peks(lake, name)] == [kmss.vault_key]


def test_a_damaged_key_is_reported_and_does_not_stop_the_others(kmss: KmsLake) -> None:
    lake = kmss.lake
    names = [encrypted(lake) for _ in range(3)]
    (bad,) = peks(lake, names[1])
    with write(lake.services.engine) as connection:
        connection.execute(update(lw_pek).where(lw_pek.c.id == str(bad.id)).values(wrapped=b"garbage"))
    assign(lake, MASTER_KEY, kmss.aws_key)
    done = lake.services.master_key_moves.move(MASTER_KEY)
    assert (done.moved, [each.ref for each in done.failed]) == (2, [bad.ref])
    assert needs(lake, "local", MASTER_KEY) == {("table", str(names[1]))}


@pytest.mark.nightly
def test_an_outage_is_told_and_keys_that_moved_stay_moved(kmss: KmsLake) -> None:
    lake = kmss.lake
    names = [encrypted(lake, files=1) for _ in range(3)]
    assign(lake, MASTER_KEY, kmss.vault_key)

    def seal(point: str) -> None:
        kmss.transit.sealed = point == "move-master:key"

    with crash_points.hooked(seal), pytest.raises(KmsUnavailable):
        lake.services.master_key_moves.move(MASTER_KEY)
    kmss.transit.sealed = False
    assert sum(pek.kms == "vault" for name in names for pek in peks(lake, name)) == 1
    assert move_all(lake, MASTER_KEY) == 2


def test_disabled_keys_move_and_stay_disabled(kmss: KmsLake) -> None:
    lake = kmss.lake
    name = encrypted(lake, files=1)
    lake.services.key_life.disable(lake.caller(ALICE), name)
    assign(lake, MASTER_KEY, kmss.aws_key)
    assert move_all(lake, MASTER_KEY) == 1
    assert [pek.state for pek in peks(lake, name)] == ["disabled"]


def test_a_key_of_a_kms_that_is_not_configured_is_reported(kmss: KmsLake) -> None:
    lake = kmss.lake
    encrypted(lake)
    assign(lake, MASTER_KEY, kmss.aws_key)
    with opened_with(lake, **aws_options(kmss.moto, "KMS")) as only_aws:
        done = only_aws.services.master_key_moves.move(MASTER_KEY)
    assert done.moved == 0
    assert ["other_kms" in each.reason or "not configured" in each.reason for each in done.failed] == [True]


@pytest.mark.nightly
def test_names_of_settings_do_not_change_what_a_master_key_id_stands_for(kmss: KmsLake) -> None:
    """A catalog that is opened with another main KMS makes no key there for an id in use."""
    lake = kmss.lake
    name = encrypted(lake, files=1)
    kmss.moto.create(f"alias/{uuid4().hex}")
    with opened_with(lake, **aws_options(kmss.moto, "KMS")) as only_aws, pytest.raises(KeyNotUsable):
        rotate(only_aws, name)
    assert isinstance(lake.services.kms, LocalKms)
    assert name_of(make(lake, properties={"encryption.master-key-id": MASTER_KEY}))


@pytest.mark.nightly
def test_a_change_waits_for_keys_that_are_being_stored_and_refuses_later_ones(
    postgres_server: PostgresServer | str, tmp_path: Path
) -> None:
    """On PostgreSQL, where transactions run side by side."""
    if isinstance(postgres_server, str):
        pytest.skip(postgres_server)
    with open_lake(tmp_path, DATABASE__URL=postgres_server.create_database()) as lake:
        lake.kms.create_master_key("next")
        lake.catalog().create_namespace("db")
        name, engine = encrypted(lake), lake.services.engine
        record, (pek,) = load(lake, name).record, peks(lake, name)
        later = [replace(pek, version=version, wrapped=b"w") for version in (2, 3)]
        with ThreadPoolExecutor(1) as pool:
            with write(engine) as connection:
                pek_records.add(connection, lake.settings.catalog.name, later[:1], 1)
                change = pool.submit(assign, lake, MASTER_KEY, KmsKey("local", "next"))
                wait_for_lock(lake)
                assert not change.done()
            change.result(30)
        with pytest.raises(CommitConflict), write(engine) as connection:
            pek_records.add(connection, lake.settings.catalog.name, later[1:], 1)
        assert [each.version for each in lake.services.keyring.records(record)] == [1, 2]
        done = lake.services.master_key_moves.move(MASTER_KEY)
        assert (done.moved, [each.ref.version for each in done.failed]) == (1, [2])


def wait_for_lock(lake: Lake) -> None:
    """Wait until a transaction waits for another one."""
    waiting = text("SELECT count(*) FROM pg_locks WHERE NOT granted")
    for _ in range(3000):
        with read(lake.services.engine) as connection:
            if connection.scalar(waiting):
                return
        time.sleep(0.01)
    raise AssertionError("no transaction waits")
