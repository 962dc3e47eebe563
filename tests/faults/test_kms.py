"""A dead KMS: nothing is created without a key; reads go on while a key may be kept, then fail closed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from sqlalchemy import func, select

from catalog.crypto.secret import SecretBytes
from catalog.db.engine import read
from catalog.db.schema import iceberg_tables, lw_pek, lw_seal, lw_table, lw_write
from catalog.kms.interface import CreatedKey, KeyContext, KmsClient
from catalog.kms.local import LocalKms
from catalog.planning.request import ScanRequest
from catalog.service.services import Services
from catalog.settings.kms import KmsCallSettings
from catalog.writes.new_files import FileCommit
from policy.errors import KmsUnavailable
from tests.faults.conftest import Shared
from tests.support.clock import Clock
from tests.support.crash import assert_sound, seen
from tests.support.lake import ALICE, Lake
from tests.support.tables import ENCRYPTED, Engine, append_files, fresh, make, name_of, rows

TTL_S = 60.0


class MortalKms(KmsClient):
    """The local KMS behind a line that can be cut, or held; no server can be made to hang on time."""

    identifier = LocalKms.identifier

    def __init__(self, real: LocalKms) -> None:
        self._real = real
        self.alive = True
        self.answering = threading.Event()
        self.answering.set()
        self.asked = threading.Semaphore(0)

    def create_key(self, master_key_id: str, length: int, context: KeyContext) -> CreatedKey:
        self._call()
        return self._real.create_key(master_key_id, length, context)

    def get_key(self, wrapped: bytes, context: KeyContext) -> SecretBytes:
        self._call()
        return self._real.get_key(wrapped, context)

    def rewrap_keys(self, items: Sequence[tuple[bytes, KeyContext]]) -> list[bytes]:
        self._call()
        return self._real.rewrap_keys(items)

    def _call(self) -> None:
        self.asked.release()
        self.answering.wait(30)
        if not self.alive:
            raise KmsUnavailable("The KMS does not answer.", rule="kms")


@dataclass
class Mortal:
    """A lake whose KMS can die, and whose keys age by hand."""

    lake: Lake
    kms: MortalKms
    clock: Clock = field(default_factory=Clock)

    def plan(self, name: object) -> int:
        """How many files a plan has."""
        found = self.lake.services.planner.plan(self.lake.caller(ALICE), name, ScanRequest())  # type: ignore[arg-type]
        return int(found.files.num_rows)


@pytest.fixture
def mortal(on_sqlite: Shared, monkeypatch: pytest.MonkeyPatch) -> Iterator[Mortal]:
    """The module's lake, opened once more over a KMS that can die."""
    shared = on_sqlite.lake
    kms = MortalKms(shared.kms)
    # Each call asks: how a KMS that is away is left alone for a while is told in test_kms_outages.py.
    patient = shared.settings.kms.model_copy(update={"calls": KmsCallSettings(attempts=1, failures=1000)})
    settings = shared.settings.model_copy(update={"kms": patient})
    with Services.open(settings, kms) as services:
        found = Mortal(Lake(shared.root, settings, services, shared.kms), kms)
        monkeypatch.setattr(services.keyring._cache, "_clock", found.clock)
        yield found


def _counts(lake: Lake) -> list[int]:
    with read(lake.services.engine) as connection:
        return [
            connection.scalar(select(func.count()).select_from(rows)) or 0
            for rows in (lw_table, lw_seal, lw_pek, lw_write, iceberg_tables)
        ]


def _files(root: Path) -> set[Path]:
    return {path for path in root.rglob("*") if path.is_file()}


def test_nothing_is_created_without_a_key(mortal: Mortal) -> None:
    lake, name = mortal.lake, fresh()
    before = _counts(lake), _files(lake.warehouse)
    mortal.kms.alive = False
    with pytest.raises(KmsUnavailable):
        make(lake, name, properties=ENCRYPTED)
    assert (_counts(lake), _files(lake.warehouse)) == before
    mortal.kms.alive = True
    make(lake, name, properties=ENCRYPTED)


def test_a_table_is_not_encrypted_without_a_key(mortal: Mortal) -> None:
    table = make(mortal.lake)
    before = seen(mortal.lake, name_of(table))
    mortal.kms.alive = False
    with pytest.raises(KmsUnavailable), table.transaction() as transaction:
        transaction.set_properties(ENCRYPTED)
    mortal.kms.alive = True
    assert seen(mortal.lake, name_of(table)) == before


def test_reads_go_on_until_the_key_is_too_old_and_then_fail_closed(mortal: Mortal) -> None:
    name = name_of(make(mortal.lake, properties=ENCRYPTED))
    append_files(mortal.lake, name)
    assert mortal.plan(name) == 1
    mortal.kms.alive = False
    mortal.clock.now += TTL_S - 1
    assert mortal.plan(name) == 1
    mortal.clock.now += 2
    with pytest.raises(KmsUnavailable):
        mortal.plan(name)
    mortal.kms.alive = True
    assert mortal.plan(name) == 1


def test_writes_fail_closed_and_can_be_committed_later(mortal: Mortal) -> None:
    name = name_of(make(mortal.lake, properties=ENCRYPTED))
    engine = Engine.begin(mortal.lake, name)
    files = FileCommit("append", (engine.file(),))
    mortal.clock.now += TTL_S + 1
    mortal.kms.alive = False
    before = _counts(mortal.lake)
    with pytest.raises(KmsUnavailable):
        Engine.begin(mortal.lake, name)
    with pytest.raises(KmsUnavailable):
        engine.commit(files)
    assert _counts(mortal.lake) == before
    mortal.kms.alive = True
    engine.commit(files)
    assert mortal.plan(name) == 1
    assert_sound(mortal.lake)


def test_tables_that_come_with_rows_fail_closed_and_can_be_committed_later(mortal: Mortal) -> None:
    engine = Engine.stage(mortal.lake, fresh(), properties=ENCRYPTED)
    files = FileCommit("append", (engine.file(),))
    mortal.clock.now += TTL_S + 1
    mortal.kms.alive = False
    before = _counts(mortal.lake), _files(mortal.lake.warehouse)
    with pytest.raises(KmsUnavailable):
        Engine.stage(mortal.lake, fresh(), properties=ENCRYPTED)
    with pytest.raises(KmsUnavailable):
        engine.commit(files)
    assert (_counts(mortal.lake), _files(mortal.lake.warehouse)) == before
    mortal.kms.alive = True
    engine.commit(files)
    assert mortal.plan(engine.session.table.record.name) == 1
    assert_sound(mortal.lake)


def test_plaintext_tables_do_not_notice(mortal: Mortal) -> None:
    mortal.kms.alive = False
    table = make(mortal.lake)
    table.append(rows(1))
    assert mortal.plan(name_of(table)) == 1


def test_who_waits_for_a_kms_that_hangs_is_told_when_it_gives_up(mortal: Mortal) -> None:
    encrypted = name_of(make(mortal.lake, properties=ENCRYPTED))
    append_files(mortal.lake, encrypted)
    plain = name_of(make(mortal.lake))
    mortal.clock.now += TTL_S + 1
    mortal.kms.answering.clear()
    answers: list[object] = []
    readers = [threading.Thread(target=lambda: answers.append(_answer(mortal, encrypted))) for _ in range(4)]
    for reader in readers:
        reader.start()
    while mortal.kms.asked.acquire(blocking=False):
        pass
    assert mortal.plan(plain) == 0
    mortal.kms.alive = False
    mortal.kms.answering.set()
    for reader in readers:
        reader.join(30)
    assert answers == [KmsUnavailable] * 4


def _answer(mortal: Mortal, name: object) -> object:
    try:
        return mortal.plan(name)
    except KmsUnavailable as refusal:
        return type(refusal)


def _removed(keystore: Path, key_file: Path) -> None:
    keystore.rename(keystore.with_suffix(".away"))


def _readable_by_others(keystore: Path, key_file: Path) -> None:
    keystore.chmod(0o644)


def _cut_short(keystore: Path, key_file: Path) -> None:
    keystore.write_bytes(keystore.read_bytes()[:-20])


def _without_its_key(keystore: Path, key_file: Path) -> None:
    key_file.rename(key_file.with_suffix(".away"))


@pytest.mark.nightly
@pytest.mark.parametrize("damage", [_removed, _readable_by_others, _cut_short, _without_its_key])
def test_a_local_keystore_that_cannot_be_used(lake: Lake, damage: Callable[[Path, Path], None]) -> None:
    lake.catalog().create_namespace("db")
    name = name_of(make(lake, properties=ENCRYPTED))
    append_files(lake, name)
    options = lake.settings.kms.options
    assert options.key_file is not None
    paths = options.keystore, options.key_file
    kept = {path: (path.read_bytes(), path.stat().st_mode & 0o777) for path in paths}
    damage(*paths)
    lake.kms = LocalKms(lake.kms._path, lake.kms._source)
    lake.reopen()
    before = _counts(lake)
    for attempt in (
        lambda: make(lake, properties=ENCRYPTED),
        lambda: Engine.begin(lake, name),
        lambda: Engine.stage(lake, fresh(), properties=ENCRYPTED),
        lambda: lake.services.planner.plan(lake.caller(ALICE), name, ScanRequest()),
    ):
        with pytest.raises(KmsUnavailable) as refusal:
            attempt()
        assert refusal.value.hint
    assert _counts(lake) == before
    for path, (data, mode) in kept.items():
        path.write_bytes(data)
        path.chmod(mode)
    append_files(lake, name)
