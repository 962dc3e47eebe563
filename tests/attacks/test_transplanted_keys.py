"""Key metadata that is forged, moved or of another table: refused before a data file is read, at both doors.

At the commit; and at the plan, for metadata that a commit accepted which did not look.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from uuid import UUID, uuid4

import pytest
from pyiceberg.expressions import And, NotNull
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

from catalog.envelope.file_digests import FooterDigest
from catalog.envelope.key_metadata import Binding, KeyEntry, KeyMetadata, header
from catalog.keyring.keyring import Keyring
from catalog.snapshot_checks import inspection
from catalog.snapshot_checks.duplicates import LiveFiles
from policy.encryption.epochs import PekRef
from policy.errors import DecryptionRefused
from tests.attacks.traps import OpenWatch, no_key_released
from tests.support.attacker import Attacker, data_file, entry, local
from tests.support.lake import ALICE, Lake, open_lake
from tests.support.tables import Engine, make, name_of

COLUMNS = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "ssn", StringType()),
    NestedField(3, "email", StringType()),
)
KEYS = {"encryption.columns": "pii:ssn;hr:email"}
MEGABYTE = 1 << 20
#: A filter for which the bounds of every encrypted column are opened.
TOUCHED = And(NotNull("ssn"), NotNull("email"))
EVIL = b"https://kms.evil.example:9600/kms"
FOREIGN_ARN = "arn:aws:kms:eu-west-1:000000000000:key/0"


@dataclass
class Scene:
    """A table with two files, and another one of the same owner, with the same keys and one file."""

    table: Attacker
    files: list[DataFile]
    other: DataFile

    @property
    def honest(self) -> bytes:
        """The key metadata of the first file."""
        return self.files[0].key_metadata or b""


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with open_lake(tmp_path_factory.mktemp("transplants")) as lake:
        lake.catalog().create_namespace("db")
        for key in ("pii", "hr", FOREIGN_ARN):
            lake.kms.create_master_key(key)
        yield Scene(*_with_files(lake, 2), _with_files(lake, 1)[1][0])


def _with_files(lake: Lake, count: int) -> tuple[Attacker, list[DataFile]]:
    """A new table with files that lie where they are said to lie."""
    table = make(lake, schema=COLUMNS, properties=KEYS)
    engine = Engine.begin(lake, name_of(table))
    known = {"lower_bounds": {2: b"a", 3: b"b"}, "value_counts": {2: 10, 3: 10}}
    files = [engine.file(**known) for _ in range(count)]
    for file in files:
        local(file.path).parent.mkdir(parents=True, exist_ok=True)
        local(file.path).write_bytes(bytes(1000))
    engine.append(*files)
    attacker = Attacker(lake, ".".join(table.name()), ALICE)
    return attacker, [each.data_file for each in attacker.entries()]


def other_pek(change: Callable[[PekRef], PekRef]) -> Callable[[Scene], bytes]:
    """The honest metadata, but for the PEK that the first column's key names."""

    def forge(scene: Scene) -> bytes:
        known = KeyMetadata.parse(scene.honest)
        bound = known.entries[1].bound
        forged = KeyEntry(Binding(change(bound.pek), bound.field_ids).to_bytes(), known.entries[1].wrapped)
        return _joined(known, known.entries[0], forged, known.entries[2])

    return forge


def exchanged(scene: Scene) -> bytes:
    """The wrapped keys of two columns, each in the other's place."""
    known = KeyMetadata.parse(scene.honest)
    footer, one, two = known.entries
    return _joined(known, footer, one._replace(wrapped=two.wrapped), two._replace(wrapped=one.wrapped))


def footer_of_another_file(scene: Scene) -> bytes:
    known, other = KeyMetadata.parse(scene.honest), KeyMetadata.parse(scene.files[1].key_metadata or b"")
    return _joined(known, other.entries[0], *known.entries[1:])


def with_address(scene: Scene) -> bytes:
    """A KMS address where the name of a master key stands."""
    known = KeyMetadata.parse(scene.honest)
    binding = known.entries[0].binding
    named = binding[:21] + bytes([len(EVIL)]) + EVIL + b"\0\0"
    return b"".join(
        [
            header(known.algorithm, known.footer),
            bytes([1]),
            named,
            bytes([len(known.entries[0].wrapped)]),
            known.entries[0].wrapped,
        ]
    )


def _joined(known: KeyMetadata, *entries: KeyEntry) -> bytes:
    return known._replace(entries=entries).to_bytes()


def with_bounds(change: Callable[[KeyMetadata, KeyMetadata], tuple[bytes, ...]]) -> Callable[[Scene], bytes]:
    """The honest metadata, but for its sealed bounds; `change` also gets that of the second file."""

    def forge(scene: Scene) -> bytes:
        known, other = KeyMetadata.parse(scene.honest), KeyMetadata.parse(scene.files[1].key_metadata or b"")
        return known._replace(bounds=change(known, other)).to_bytes()

    return forge


def without_bounds(scene: Scene) -> bytes:
    """The honest metadata, but for its sealed bounds and the flag that says that there are some."""
    known = KeyMetadata.parse(scene.honest)
    bare = header(known.algorithm, known.footer, footer_digest=True)
    return known._replace(header=bare, bounds=()).to_bytes()


def without_footer_digest(scene: Scene) -> bytes:
    """As metadata was before there were such digests, so that the footer could be rewritten."""
    known = KeyMetadata.parse(scene.honest)
    bare = header(known.algorithm, known.footer, bounds=True)
    return known._replace(header=bare, footer_digest=None).to_bytes()


def with_another_footer_digest(scene: Scene) -> bytes:
    return KeyMetadata.parse(scene.honest)._replace(footer_digest=FooterDigest(99, bytes(32))).to_bytes()


def flipped(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


UNKNOWN = UUID("00000000-0000-4000-8000-000000000000")

#: Each with whether it is seen without any key.
FORGED: dict[str, tuple[Callable[[Scene], bytes], bool]] = {
    "no bytes": (lambda scene: b"", True),
    "Iceberg's own version": (lambda scene: b"\x01" + scene.honest[1:], True),
    "a version to come": (lambda scene: b"\xa2" + scene.honest[1:], True),
    "cut in the header": (lambda scene: scene.honest[:3], True),
    "cut in an entry": (lambda scene: scene.honest[:40], True),
    "cut at the end": (lambda scene: scene.honest[:-1], True),
    "a byte too many": (lambda scene: scene.honest + b"\0", True),
    "10 MB behind it": (lambda scene: scene.honest + bytes(10 * MEGABYTE), True),
    "10 MB of it": (lambda scene: scene.honest[:3] + b"\xff" * 10 * MEGABYTE, True),
    "a KMS address": (with_address, True),
    "a key that nobody has": (other_pek(lambda pek: PekRef(UNKNOWN, pek.version, pek.master_key_id)), True),
    "a version that is not there": (other_pek(lambda pek: PekRef(pek.pek_id, 99, pek.master_key_id)), True),
    "another master key": (other_pek(lambda pek: PekRef(pek.pek_id, pek.version, "hr")), True),
    "an ARN of another account": (other_pek(lambda pek: PekRef(uuid4(), 1, FOREIGN_ARN)), True),
    "of another table": (lambda scene: scene.other.key_metadata or b"", True),
    "of another file": (lambda scene: scene.files[1].key_metadata or b"", False),
    "the footer of another file": (footer_of_another_file, False),
    "two columns exchanged": (exchanged, False),
    "bounds of another file": (with_bounds(lambda known, other: other.bounds), False),
    "bounds of two columns exchanged": (with_bounds(lambda known, _: known.bounds[::-1]), False),
    "a bit of the bounds changed": (
        with_bounds(lambda known, _: (flipped(known.bounds[0]), known.bounds[1])),
        False,
    ),
    "the bounds taken away": (without_bounds, False),
    "the footer's digest taken away": (without_footer_digest, False),
    "another digest of the footer": (with_another_footer_digest, False),
    "the bounds of one column alone": (lambda scene: scene.honest[:-286], True),
    "a wrapped key in place of bounds": (
        with_bounds(lambda known, _: (known.entries[1].wrapped.ljust(284, b"\0"), known.bounds[1])),
        False,
    ),
    "a bit changed": (lambda scene: flipped(scene.honest), False),
}


@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize("name", FORGED)
def test_commit_of_forged_key_metadata(scene: Scene, name: str) -> None:
    forge, _ = FORGED[name]
    planted = data_file(scene.files[0].file_path, key_metadata=forge(scene))
    before = scene.table.pointer()
    with OpenWatch(local(scene.table.location) / "data") as watch:
        with pytest.raises(DecryptionRefused):
            scene.table.commit(*scene.table.replacing(entry(planted)))
        assert watch.opened() == []
    assert scene.table.pointer() == before


def add_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a client add a file of the table once more, to see what other guards hold."""
    monkeypatch.setattr(LiveFiles, "check_added", lambda *_: None)
    monkeypatch.setattr(inspection, "check_picked", lambda *_: None)


@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize("name", FORGED)
def test_plan_of_forged_key_metadata(scene: Scene, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    forge, early = FORGED[name]
    planted = data_file(scene.files[0].file_path, key_metadata=forge(scene))
    monkeypatch.setattr(Keyring, "check_new_files", lambda *_: None)
    add_again(monkeypatch)
    scene.table.commit(*scene.table.replacing(entry(planted)))
    with OpenWatch(local(scene.table.location) / "data") as watch:
        if early:
            with no_key_released(scene.table.lake), pytest.raises(DecryptionRefused) as refused:
                scene.table.plan(engine="spark", row_filter=TOUCHED)
        else:
            with pytest.raises(DecryptionRefused) as refused:
                scene.table.plan(engine="spark", row_filter=TOUCHED)
        assert watch.opened() == []
    assert refused.value.path == planted.file_path or refused.value.rule == "pek"


def test_honest_key_metadata_is_accepted_and_planned(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the cases above differ from."""
    add_again(monkeypatch)
    honest = data_file(scene.files[0].file_path, key_metadata=scene.honest)
    scene.table.commit(*scene.table.replacing(entry(honest)))
    made = scene.table.plan(engine="spark", row_filter=TOUCHED)
    assert [len(keys) for keys in made.files["keys"].to_pylist()] == [3]
