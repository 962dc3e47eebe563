"""Rewrapping under a master key: how keys are stored changes, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from sqlalchemy import update

from catalog.base.identifiers import TableName
from catalog.crypto.secret import SecretBytes
from catalog.db.engine import write
from catalog.db.schema import lw_pek
from catalog.key_management.master_keys import MasterKeyRewrap
from catalog.keyring.kms_keys import KmsKeys
from catalog.kms.calls import CountedKms
from catalog.kms.clients import KmsClients
from catalog.kms.interface import CreatedKey, KeyContext, KmsClient
from policy.errors import KeyNotUsable, KmsUnavailable
from tests.support.lake import ALICE, Lake
from tests.support.table_keys import encrypted, load, peks, released, rotate
from tests.support.tables import append_files, make, name_of


class Meddling(KmsClient):
    """The lake's KMS, whose answers to a rewrapping are changed on the way."""

    def __init__(self, real: KmsClient, meddle: Callable[[list[bytes]], list[bytes]]) -> None:
        self._real = real
        self._meddle = meddle
        self.calls: list[int] = []

    @property
    def identifier(self) -> str:
        return self._real.identifier

    def create_key(self, master_key_id: str, length: int, context: KeyContext) -> CreatedKey:
        return self._real.create_key(master_key_id, length, context)

    def get_key(self, wrapped: bytes, context: KeyContext) -> SecretBytes:
        return self._real.get_key(wrapped, context)

    def rewrap_keys(self, items: Sequence[tuple[bytes, KeyContext]]) -> list[bytes]:
        self.calls.append(len(items))
        return self._meddle(self._real.rewrap_keys(items))


def mastered(lake: Lake, master: str, tables: int) -> list[TableName]:
    """Encrypted tables under a new master key, each with a file."""
    lake.kms.create_master_key(master)
    names = []
    for _ in range(tables):
        names.append(name_of(make(lake, properties={"encryption.master-key-id": master})))
    return names


def test_every_key_under_the_master_key_is_stored_again(lake: Lake) -> None:
    names = mastered(lake, "turn", 3)
    before = [pek for name in names for pek in peks(lake, name)]
    other = encrypted(lake)
    stays = peks(lake, other)
    lake.kms.rotate_master_key("turn")
    done = lake.services.master_keys.rewrap("turn")
    assert (done.rewrapped, done.failed) == (3, ())
    after = [pek for name in names for pek in peks(lake, name)]
    assert all(old.wrapped != new.wrapped for old, new in zip(before, after, strict=True))
    assert [replace(new, wrapped=b"") for new in after] == [replace(old, wrapped=b"") for old in before]
    assert peks(lake, other) == stays


@pytest.mark.nightly
def test_files_stay_readable_and_so_does_every_version(lake: Lake) -> None:
    name = encrypted(lake, files=1)
    rotate(lake, name)
    append_files(lake, name)
    keys = released(lake, name)
    lake.kms.rotate_master_key("lakewarden")
    assert lake.services.master_keys.rewrap("lakewarden").rewrapped >= 2
    lake.reopen()
    assert released(lake, name) == keys


def test_more_keys_than_a_batch_are_done_batch_by_batch(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("catalog.key_management.master_keys._BATCH", 2)
    mastered(lake, "paged", 5)
    kms, told = Meddling(lake.kms, list), list[tuple[str, int, int | None]]()
    assert rewrapper(lake, kms).rewrap("paged", lambda *step: told.append(step)).rewrapped == 5
    assert kms.calls == [2, 2, 1]
    assert told == [("Keys under paged", done, 5) for done in (2, 4, 5)]


def rewrapper(lake: Lake, kms: KmsClient) -> MasterKeyRewrap:
    clients = KmsClients(CountedKms(kms))
    return MasterKeyRewrap(KmsKeys(lake.services.engine, lake.settings.catalog.name, clients))


def test_another_key_that_comes_back_is_not_stored(lake: Lake) -> None:
    """Two wrapped forms in each other's place: each would be lost."""
    names = mastered(lake, "swapped", 1)
    (before,) = peks(lake, names[0])
    context = KeyContext(lake.settings.catalog.name, before.table_uuid)
    other = lake.kms.create_key("swapped", 32, context).wrapped
    done = rewrapper(lake, Meddling(lake.kms, lambda _: [other])).rewrap("swapped")
    assert done.rewrapped == 0
    assert [each.ref for each in done.failed] == [before.ref]
    assert peks(lake, names[0]) == [before]


def test_a_key_without_a_check_value_is_checked_against_the_form_before_and_gets_one(lake: Lake) -> None:
    names = mastered(lake, "old", 1)
    (before,) = peks(lake, names[0])
    with write(lake.services.engine) as connection:
        connection.execute(update(lw_pek).where(lw_pek.c.id == str(before.id)).values(key_check=None))
    assert lake.services.master_keys.rewrap("old").rewrapped == 1
    (after,) = peks(lake, names[0])
    assert after.check == before.check


def test_too_few_answers_are_refused(lake: Lake) -> None:
    mastered(lake, "short", 2)
    done = rewrapper(lake, Meddling(lake.kms, lambda forms: forms[1:])).rewrap("short")
    assert (done.rewrapped, len(done.failed)) == (0, 2)


def test_a_damaged_key_does_not_keep_the_others(lake: Lake) -> None:
    names = mastered(lake, "damaged", 3)
    (bad,) = peks(lake, names[1])
    with write(lake.services.engine) as connection:
        connection.execute(update(lw_pek).where(lw_pek.c.id == str(bad.id)).values(wrapped=b"garbage"))
    lake.kms.rotate_master_key("damaged")
    done = lake.services.master_keys.rewrap("damaged")
    assert done.rewrapped == 2
    assert [each.ref for each in done.failed] == [bad.ref]


def test_an_outage_is_told_and_what_was_done_stays(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("catalog.key_management.master_keys._BATCH", 1)
    names = mastered(lake, "outage", 3)
    answers = iter([False, True])

    def meddle(forms: list[bytes]) -> list[bytes]:
        if next(answers):
            raise KmsUnavailable("The KMS does not answer.")
        return forms

    before = {pek.id: pek.wrapped for name in names for pek in peks(lake, name)}
    with pytest.raises(KmsUnavailable):
        rewrapper(lake, Meddling(lake.kms, meddle)).rewrap("outage")
    after = {pek.id: pek.wrapped for name in names for pek in peks(lake, name)}
    assert sum(before[each] != after[each] for each in before) == 1
    assert lake.services.master_keys.rewrap("outage").rewrapped == 3


def test_a_destroyed_key_is_left_alone(lake: Lake) -> None:
    names = mastered(lake, "gone", 2)
    lake.services.lifecycle.purge(lake.caller(ALICE), names[0])
    assert lake.services.master_keys.rewrap("gone").rewrapped == 1


def test_a_key_that_is_changed_meanwhile_is_left_as_it_became(lake: Lake) -> None:
    names = mastered(lake, "raced", 1)
    record = load(lake, names[0]).record

    def meddle(forms: list[bytes]) -> list[bytes]:
        lake.services.lifecycle.purge(lake.caller(ALICE), names[0])
        return forms

    done = rewrapper(lake, Meddling(lake.kms, meddle)).rewrap("raced")
    assert (done.rewrapped, done.failed) == (0, ())
    assert [(each.state, each.wrapped) for each in lake.services.keyring.records(record)] == [
        ("destroyed", b"")
    ]


def test_a_master_key_that_the_kms_does_not_know_is_refused(lake: Lake) -> None:
    """`0 keys` would be read as leave to destroy the version before of another one."""
    with pytest.raises(KeyNotUsable) as refused:
        lake.services.master_keys.rewrap("no-such-key")
    assert "no-such-key" in refused.value.message


def test_a_master_key_that_wraps_nothing_is_done(lake: Lake) -> None:
    lake.kms.create_master_key("idle")
    assert lake.services.master_keys.rewrap("idle").rewrapped == 0


def test_keys_that_are_recorded_meanwhile_are_rewrapped_too(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever they stand in the order: what was passed already is looked at again."""
    monkeypatch.setattr("catalog.key_management.master_keys._BATCH", 1)
    names, left = mastered(lake, "growing", 2), [True, True, True]

    def meddle(forms: list[bytes]) -> list[bytes]:
        if left:
            left.pop()
            names.append(name_of(make(lake, properties={"encryption.master-key-id": "growing"})))
        return forms

    done = rewrapper(lake, Meddling(lake.kms, meddle)).rewrap("growing")
    assert (done.rewrapped, len(names)) == (5, 5)
