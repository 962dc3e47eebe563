"""The local KMS: its master keys, its files, and what was changed in them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from pathlib import Path
from uuid import UUID

import pytest

from catalog.crypto import private_files
from catalog.crypto.secret import SecretBytes
from catalog.kms.interface import KeyContext
from catalog.kms.local import EmbeddedKmsWarning, LocalKms, warn_embedded_default
from catalog.kms.root_key import KeyFile, Passphrase
from policy.errors import DecryptionRefused, KeyNotUsable, KmsUnavailable, RequestInvalid

PASSPHRASE = SecretBytes(b"correct horse battery")

#: What the first release wrote: a keystore whose key file says 5c 32 times, and a key that it wrapped.
FIRST_RELEASE = """{
 "format": "lakewarden-keystore",
 "version": 1,
 "root": {
  "kind": "key-file"
 },
 "master_keys": [
  {
   "id": "lake",
   "version": 1,
   "enabled": true,
   "wrapped": "3UdIXNdI+D6WjPo3xHZa28LHmzY9IQbLIVvUTVd0Anciqh8UGZsWvEpx4LEtfQRKYl01KAkUTomUOGkS"
  }
 ],
 "mac": "0fc532f699be24f90d934ff4448f1d7df4921185e022ab77bf393d6c7dae67e5"
}
"""
FIRST_WRAPPED = (
    "0100000001046c616b65"
    "afe5ce4d5c4326e1407835f7f857917801d633ff4ff59d0c928bf9c31e4709f3659459453acdd68d326bb25d"
)
FIRST_KEY = "4feda8aa6122fcc9413fac51e9885445"
FIRST_CONTEXT = KeyContext("prod", UUID(int=7))


def store(tmp_path: Path) -> Path:
    return tmp_path / "keystore.json"


def edit(path: Path, change) -> None:
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))
    path.chmod(0o600)


def test_master_keys_are_listed_in_order_and_unique(kms):
    assert [(key.id, key.version, key.enabled) for key in kms.list_master_keys()] == [
        ("lake", 1, True),
        ("pii", 1, True),
    ]
    with pytest.raises(RequestInvalid):
        kms.create_master_key("lake")


@pytest.mark.parametrize(
    "name", ["", " a", "a b", "a:b", "a;b", "a,b", "../a", "a//b", "clé", "x" * 256, "a\n", "door/pii"]
)
def test_ids_that_cannot_name_a_master_key_are_refused(kms, name):
    with pytest.raises(RequestInvalid):
        kms.create_master_key(name)


def test_switching_an_unknown_master_key_is_refused_and_changes_nothing(kms, tmp_path):
    before = store(tmp_path).read_bytes()
    with pytest.raises(KeyNotUsable):
        kms.disable_master_key("absent")
    assert store(tmp_path).read_bytes() == before


def test_rotated_master_key_has_one_version_more_for_every_client(kms, tmp_path, key_file):
    assert kms.rotate_master_key("lake") == kms.list_master_keys()[0]
    kms.rotate_master_key("lake")
    listed = LocalKms(store(tmp_path), key_file).list_master_keys()
    assert [(key.id, key.version, key.enabled) for key in listed] == [("lake", 3, True), ("pii", 1, True)]


def test_wrapped_key_names_the_version_that_wraps_it(kms, context):
    first, key = kms.create_key("lake", 32, context)
    kms.rotate_master_key("lake")
    second = kms.create_key("lake", 32, context)
    (moved,) = kms.rewrap_keys([(first, context)])
    assert [int.from_bytes(wrapped[1:5], "big") for wrapped in (first, second.wrapped, moved)] == [1, 2, 2]
    assert kms.get_key(first, context) == kms.get_key(moved, context) == key
    for version in (0, 3, 2**32 - 1):
        with pytest.raises(KeyNotUsable, match="has no version"):
            kms.get_key(first[:1] + version.to_bytes(4, "big") + first[5:], context)
    with pytest.raises(DecryptionRefused):
        kms.get_key(first[:1] + b"\0\0\0\2" + first[5:], context)


def test_unknown_or_disabled_master_key_is_not_rotated(kms, tmp_path):
    kms.disable_master_key("lake")
    before = store(tmp_path).read_bytes()
    for name in ("absent", "lake"):
        with pytest.raises(KeyNotUsable):
            kms.rotate_master_key(name)
    assert store(tmp_path).read_bytes() == before


def test_keystore_of_the_first_release_is_read_and_kept_as_it_was(tmp_path):
    store(tmp_path).write_text(FIRST_RELEASE)
    (tmp_path / "root.key").write_text("5c" * 32)
    for file in tmp_path.iterdir():
        file.chmod(0o600)
    old = LocalKms(store(tmp_path), KeyFile(tmp_path / "root.key"))
    assert old.get_key(bytes.fromhex(FIRST_WRAPPED), FIRST_CONTEXT).reveal() == bytes.fromhex(FIRST_KEY)
    old.enable_master_key("lake")
    assert store(tmp_path).read_text() == FIRST_RELEASE
    old.rotate_master_key("lake")
    assert old.get_key(bytes.fromhex(FIRST_WRAPPED), FIRST_CONTEXT).reveal() == bytes.fromhex(FIRST_KEY)


def test_keystore_never_outgrows_what_is_read_again(kms, tmp_path, monkeypatch):
    before = store(tmp_path).read_bytes()
    monkeypatch.setattr("catalog.kms.local.MAX_KEYSTORE_BYTES", len(before) + 50)
    with pytest.raises(RequestInvalid, match="maximum size"):
        kms.rotate_master_key("lake")
    assert store(tmp_path).read_bytes() == before


def test_files_are_private_and_hold_no_key_in_plaintext(kms, tmp_path, context):
    _, key = kms.create_key("lake", 32, context)
    for name in ("keystore.json", "root.key", "keystore.json.lock"):
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o600
    assert key.reveal().hex() not in store(tmp_path).read_text()
    assert {entry.name for entry in tmp_path.iterdir()} == {"keystore.json", "root.key", "keystore.json.lock"}


def test_existing_files_are_never_overwritten(kms, tmp_path, key_file):
    with pytest.raises(KmsUnavailable):
        LocalKms.create(store(tmp_path), key_file)
    with pytest.raises(KmsUnavailable):
        KeyFile.create(tmp_path / "root.key")
    assert len(kms.list_master_keys()) == 2


@pytest.mark.parametrize("name", ["keystore.json", "root.key"])
@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o644, 0o601])
def test_file_open_to_others_is_refused(kms, tmp_path, name, mode):
    (tmp_path / name).chmod(mode)
    with pytest.raises(KmsUnavailable, match="group or others"):
        LocalKms(store(tmp_path), KeyFile(tmp_path / "root.key")).list_master_keys()


@pytest.mark.parametrize("name", ["keystore.json", "root.key"])
def test_links_and_special_files_are_refused(kms, tmp_path, name):
    path = tmp_path / name
    moved = path.with_suffix(".moved")
    for make in (
        lambda: path.symlink_to(moved),
        lambda: os.link(moved, path),
        lambda: os.mkfifo(path, 0o600),
        path.mkdir,
    ):
        path.rename(moved)
        make()
        with pytest.raises(KmsUnavailable):
            LocalKms(store(tmp_path), KeyFile(tmp_path / "root.key")).list_master_keys()
        path.rmdir() if path.is_dir() else path.unlink()
        moved.rename(path)
    assert len(kms.list_master_keys()) == 2


@pytest.mark.parametrize(
    "text", [b"", b"00" * 31, b"00" * 33, b"FF" * 32, b"zz" * 32, b"00" * 32 + b"\n\n", b" " + b"00" * 32]
)
def test_malformed_key_file_is_refused(kms, tmp_path, text):
    path = tmp_path / "root.key"
    path.write_bytes(text)
    with pytest.raises(KmsUnavailable, match="not a key file"):
        LocalKms(store(tmp_path), KeyFile(path)).list_master_keys()


def test_another_root_key_is_refused(kms, tmp_path):
    with pytest.raises(KmsUnavailable, match="passphrase or key file"):
        LocalKms(store(tmp_path), KeyFile.create(tmp_path / "other.key")).list_master_keys()
    with pytest.raises(KmsUnavailable, match="comes from a key-file"):
        LocalKms(store(tmp_path), Passphrase(PASSPHRASE)).list_master_keys()


@pytest.mark.nightly
def test_wrong_or_short_passphrase_is_refused(tmp_path):
    LocalKms.create(store(tmp_path), Passphrase(PASSPHRASE)).create_master_key("lake")
    with pytest.raises(KmsUnavailable, match="passphrase or key file"):
        LocalKms(store(tmp_path), Passphrase(SecretBytes(b"wrong horse battery"))).list_master_keys()
    with pytest.raises(KmsUnavailable, match="shorter than"):
        Passphrase(SecretBytes(b"short"))


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d["master_keys"][0].update(enabled=True),
        lambda d: d["master_keys"][1].update(enabled=False),
        lambda d: d["master_keys"].reverse(),
        lambda d: d["master_keys"].pop(),
        lambda d: d["master_keys"][0].update(wrapped=d["master_keys"][1]["wrapped"]),
        lambda d: d["master_keys"][0].update(version=2, older=[d["master_keys"][0]["wrapped"]]),
    ],
)
def test_keystore_edited_without_the_root_key_is_refused(kms, tmp_path, change):
    kms.disable_master_key("lake")
    edit(store(tmp_path), change)
    with pytest.raises(KmsUnavailable, match="changed"):
        kms.list_master_keys()


@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize(
    "change",
    [
        lambda d: d.update(version=2),
        lambda d: d.update(version=True),
        lambda d: d.update(format="other"),
        lambda d: d.update(more=1),
        lambda d: d.pop("mac"),
        lambda d: d.update(mac="00"),
        lambda d: d.update(mac=d["mac"].upper()),
        lambda d: d.update(mac="zz" * 32),
        lambda d: d.update(mac=None),
        lambda d: d.update(root={"kind": "none"}),
        lambda d: d.update(root={"kind": "none", "salt": "00" * 16, "log2_n": 17}),
        lambda d: d.update(root={"kind": "key-file", "salt": ""}),
        lambda d: d.update(root={"kind": "passphrase", "salt": "00" * 16, "log2_n": 40}),
        lambda d: d.update(root={"kind": "passphrase", "salt": "00" * 16, "log2_n": 1}),
        lambda d: d.update(root={"kind": "passphrase", "salt": "00", "log2_n": 17}),
        lambda d: d.update(root=[]),
        lambda d: d.update(master_keys={}),
        lambda d: d.update(master_keys=[1]),
        lambda d: d["master_keys"].append(d["master_keys"][0]),
        lambda d: d["master_keys"][0].update(id="a b"),
        lambda d: d["master_keys"][0].update(id=7),
        lambda d: d["master_keys"][0].update(enabled=1),
        lambda d: d["master_keys"][0].update(version=0),
        lambda d: d["master_keys"][0].update(version=1.0),
        lambda d: d["master_keys"][0].update(version=2),
        lambda d: d["master_keys"][0].update(older=[]),
        lambda d: d["master_keys"][0].update(older=None, version=2),
        lambda d: d["master_keys"][0].update(older=["AA=="], version=2),
        lambda d: d["master_keys"][0].update(older=[d["master_keys"][0]["wrapped"]]),
        lambda d: d["master_keys"][0].update(wrapped="AA=="),
        lambda d: d["master_keys"][0].update(wrapped="***"),
        lambda d: d["master_keys"][0].update(wrapped=None),
    ],
)
def test_malformed_keystore_is_refused(kms, tmp_path, change):
    edit(store(tmp_path), change)
    with pytest.raises(KmsUnavailable, match="malformed"):
        kms.list_master_keys()


@pytest.mark.parametrize(
    "data", [b"", b"{", b"null", b"[" * 5000, b'{"format":1,"format":1}', b"\xff", b" " * (4 << 20) + b"{}"]
)
def test_keystore_that_is_no_json_document_is_refused(kms, tmp_path, data):
    store(tmp_path).write_bytes(data)
    with pytest.raises(KmsUnavailable):
        kms.list_master_keys()


@pytest.mark.nightly
def test_change_by_another_process_holds_at_once(kms, tmp_path, context):
    wrapped, _ = kms.create_key("lake", 32, context)
    script = (
        "from pathlib import Path; from catalog.kms.local import LocalKms; "
        "from catalog.kms.root_key import KeyFile; "
        f"LocalKms(Path({str(store(tmp_path))!r}), KeyFile(Path({str(tmp_path / 'root.key')!r})))"
        ".disable_master_key('lake')"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
    with pytest.raises(KeyNotUsable, match="disabled"):
        kms.get_key(wrapped, context)


@pytest.mark.nightly
def test_processes_that_create_master_keys_at_once_lose_none(kms, tmp_path):
    script = (
        "import sys; from pathlib import Path; from catalog.kms.local import LocalKms; "
        "from catalog.kms.root_key import KeyFile; "
        f"kms = LocalKms(Path({str(store(tmp_path))!r}), KeyFile(Path({str(tmp_path / 'root.key')!r}))); "
        "[kms.create_master_key(f'{sys.argv[1]}-{n}') for n in range(10)]"
    )
    running = [subprocess.Popen([sys.executable, "-c", script, f"p{n}"]) for n in range(3)]
    assert [process.wait(timeout=60) for process in running] == [0, 0, 0]
    made = {key.id for key in kms.list_master_keys()}
    assert made == {"lake", "pii"} | {f"p{p}-{n}" for p in range(3) for n in range(10)}


def test_held_lock_is_an_error_in_bounded_time_and_is_released(tmp_path):
    path = tmp_path / "file"
    with (
        private_files.locked(path),
        pytest.raises(KmsUnavailable, match="another process"),
        private_files.locked(path, timeout=0.05),
    ):
        pytest.fail("the lock was had twice")
    with private_files.locked(path, timeout=0.05):
        pass


def test_failed_replacement_leaves_the_old_file_and_nothing_else(kms, tmp_path, monkeypatch):
    before = store(tmp_path).read_bytes()

    def full_disk(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(private_files.os, "fsync", full_disk)
    with pytest.raises(KmsUnavailable, match="No space left"):
        kms.create_master_key("new")
    assert store(tmp_path).read_bytes() == before
    assert {entry.name for entry in tmp_path.iterdir()} == {"keystore.json", "root.key", "keystore.json.lock"}


def test_embedded_default_warns_that_it_is_not_for_production():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warn_embedded_default()
    assert [warning.category for warning in caught] == [EmbeddedKmsWarning]
    assert "not for production" in str(caught[0].message)
