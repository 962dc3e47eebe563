"""Encryption managers and KMS back ends by name, built in or from other packages."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from uuid import UUID

import pytest

from catalog.crypto.secret import SecretBytes
from catalog.envelope import registry as mechanism_registry
from catalog.envelope.data_keys import NewKey, new_dek
from catalog.envelope.file_ids import FileIdentity, parquet_aad_prefix
from catalog.envelope.mechanisms import EnvelopeManager, PlaintextManager
from catalog.envelope.peks import PekCache, create_pek
from catalog.envelope.registry import load_encryption_manager
from catalog.kms import registry
from catalog.kms.local import LocalKms
from catalog.kms.registry import load_kms
from policy.encryption.specification import Algorithm, EncryptionSpec, Footer, Mechanism
from policy.errors import DecryptionRefused, EncryptionPolicyViolation, KeyNotUsable, PropertyInvalid
from tests.support.vectors import each_row

FILE = FileIdentity(UUID(int=7), bytes(range(16)))
ENVELOPE = EncryptionSpec(Mechanism.ENVELOPE, "lake")
PLAINTEXT = EncryptionSpec(Mechanism.PLAINTEXT)


@pytest.fixture
def peks(kms):
    """A look-up of the table's PEKs, as the catalog has one, and the PEK itself."""
    record = create_pek(kms, catalog="prod", table_id="t", table_uuid=FILE.table_uuid, master_key_id="lake")
    cache = PekCache({"local": kms}, catalog="prod")
    records = {record.ref: record}

    def look_up(ref):
        if ref not in records:
            raise KeyNotUsable("The table has no such PEK.")
        return cache.get(records[ref])

    return look_up, cache.get(record)


def test_envelope_opens_what_it_wrapped(peks):
    look_up, pek = peks
    manager, dek = load_encryption_manager("envelope"), new_dek(32)
    data = manager.wrap_new(ENVELOPE, FILE, [NewKey(pek, (), dek)])
    crypto = manager.open(data, FILE, look_up)
    assert crypto.algorithm is Algorithm.AES_GCM_V1 and crypto.footer is Footer.ENCRYPTED
    assert crypto.aad_prefix == parquet_aad_prefix(FILE)
    assert [(key.key_name, key.field_ids, key.dek) for key in crypto.keys] == [("lake", (), dek)]
    assert dek.reveal().hex() not in repr(crypto)


def test_envelope_refuses_key_lengths_that_the_table_does_not_ask_for(peks):
    with pytest.raises(EncryptionPolicyViolation):
        EnvelopeManager().wrap_new(ENVELOPE, FILE, [NewKey(peks[1], (), new_dek(16))])


def test_envelope_refuses_missing_malformed_and_moved_metadata(peks):
    look_up, pek = peks
    manager = EnvelopeManager()
    data = manager.wrap_new(ENVELOPE, FILE, [NewKey(pek, (), new_dek(32))])
    for wrong, file in (
        (None, FILE),
        (b"", FILE),
        (data[:-1], FILE),
        (data, FileIdentity(FILE.table_uuid, bytes(16))),
    ):
        with pytest.raises(DecryptionRefused):
            manager.open(wrong, file, look_up)


def test_envelope_asks_for_no_key_before_the_metadata_is_parsed(peks):
    def forbidden(ref):
        pytest.fail("a key was asked for")

    with pytest.raises(DecryptionRefused):
        EnvelopeManager().open(b"\xa1\x01\x00\x01" + bytes(30), FILE, forbidden)


def test_plaintext_has_neither_keys_nor_metadata(peks):
    look_up, pek = peks
    manager = load_encryption_manager("plaintext")
    assert manager.wrap_new(PLAINTEXT, FILE, []) is None
    assert manager.open(None, FILE, look_up) is None
    with pytest.raises(EncryptionPolicyViolation):
        manager.wrap_new(PLAINTEXT, FILE, [NewKey(pek, (), new_dek(32))])
    with pytest.raises(EncryptionPolicyViolation):
        manager.wrap_new(ENVELOPE, FILE, [])
    for data in (b"", b"\xa1"):
        with pytest.raises(DecryptionRefused):
            manager.open(data, FILE, look_up)


def test_local_kms_is_loaded_by_name(kms, tmp_path):
    options = {"keystore": str(tmp_path / "keystore.json"), "key_file": str(tmp_path / "root.key")}
    loaded = load_kms("local", options)
    assert isinstance(loaded, LocalKms) and loaded.list_master_keys() == kms.list_master_keys()


@each_row(
    "options",
    [
        {},
        {"keystore": "k"},
        {"key_file": "k"},
        {"keystore": "k", "key_file": "f", "passphrase": SecretBytes(b"correct horse")},
        {"keystore": "k", "key_file": "f", "more": "correct horse"},
        {"keystore": "k", "key-file": "f"},
        {"keystore": "k", "key_file": SecretBytes(b"f")},
        {"keystore": 7, "key_file": "f"},
    ],
)
def test_wrong_options_of_the_local_kms_are_refused(options):
    with pytest.raises(PropertyInvalid) as caught:
        load_kms("local", options)
    assert "horse" not in str(caught.value)


def test_local_kms_takes_a_passphrase(tmp_path):
    options = {"keystore": str(tmp_path / "k.json"), "passphrase": SecretBytes(b"correct horse")}
    assert load_kms("local", options).identifier == "local"


@each_row("load", [lambda name: load_kms(name, {}), load_encryption_manager])
@each_row("name", ["", "absent", "LOCAL", "Envelope"])
def test_unknown_names_are_refused(load, name):
    with pytest.raises(PropertyInvalid):
        load(name)


def make_manager():
    return PlaintextManager()


def make_kms(options):
    return options["kms"]


def install(monkeypatch, *points: EntryPoint):
    def find(*, group, name):
        return [point for point in points if point.group == group and point.name == name]

    monkeypatch.setattr(registry, "entry_points", find)


def point(name: str, target: str, group: str) -> EntryPoint:
    return EntryPoint(name, f"test_managers:{target}", group)


def test_entry_points_add_back_ends_but_replace_no_built_in_one(monkeypatch, kms):
    install(
        monkeypatch,
        point("mine", "make_kms", registry.KMS_GROUP),
        point("mine", "make_manager", mechanism_registry.MANAGER_GROUP),
        point("envelope", "make_manager", mechanism_registry.MANAGER_GROUP),
        point("local", "make_kms", registry.KMS_GROUP),
    )
    assert load_kms("mine", {"kms": kms}) is kms
    assert isinstance(load_encryption_manager("mine"), PlaintextManager)
    assert isinstance(load_encryption_manager("envelope"), EnvelopeManager)
    with pytest.raises(PropertyInvalid):
        load_kms("local", {"kms": kms})


def test_entry_points_that_clash_or_make_something_else_are_refused(monkeypatch):
    install(
        monkeypatch,
        point("twice", "make_manager", mechanism_registry.MANAGER_GROUP),
        point("twice", "make_kms", mechanism_registry.MANAGER_GROUP),
        point("wrong", "make_kms", registry.KMS_GROUP),
    )
    with pytest.raises(PropertyInvalid, match="more than one"):
        load_encryption_manager("twice")
    with pytest.raises(PropertyInvalid, match="KmsClient"):
        load_kms("wrong", {"kms": object()})
