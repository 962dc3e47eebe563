"""A table's keys: made once, bound to it, found again, judged by epoch, and never on disk in plaintext."""

from __future__ import annotations

from dataclasses import replace
from uuid import uuid4

import pyarrow as pa
import pytest
from pyiceberg.table import Table

from catalog.crypto.secret import SecretBytes
from catalog.envelope.data_keys import NewKey, new_dek, wrap_deks
from catalog.envelope.file_ids import FileIdentity, new_file_name
from catalog.envelope.scan_keys import FormKeys
from catalog.envelope.transport import open_transported
from catalog.keyring.keyring import ScanKeys
from catalog.reading.loading import LoadedTable
from policy.encryption.epochs import PekRef
from policy.encryption.specification import Algorithm, EncryptionSpec, Footer, Mechanism
from policy.errors import DecryptionRefused, EncryptionPolicyViolation, KeyNotUsable
from tests.support.lake import MASTER_KEY, Lake
from tests.support.tables import ENCRYPTED, LABEL, make, name_of


@pytest.fixture
def encrypted(lake: Lake) -> LoadedTable:
    return loaded(lake, make(lake, properties=ENCRYPTED))


def loaded(lake: Lake, table: Table) -> LoadedTable:
    return lake.services.loader.load(name_of(table))


def sealed_file(lake: Lake, table: LoadedTable, dek: SecretBytes | None = None) -> tuple[str, bytes]:
    """A file's path, and key metadata under the table's key."""
    path = f"{table.metadata.location}/data/{new_file_name('', 'parquet')}"
    pek = lake.services.keyring.writing_peks(table.record, table.governed)[MASTER_KEY]
    identity = FileIdentity.of(table.record.table_uuid, path)
    key = NewKey(pek, (), dek or new_dek(32))
    return path, wrap_deks(Algorithm.AES_GCM_V1, Footer.ENCRYPTED, identity, [key]).to_bytes()


def files(*given: tuple[str, bytes | None], number: int = 1) -> pa.Table:
    paths, metadata = zip(*given, strict=True)
    numbers = [number] * len(given)
    return pa.table(
        {
            "content": pa.array([0] * len(given), pa.int8()),
            "file_path": pa.array(paths, pa.string()),
            "key_metadata": pa.array(metadata, pa.binary()),
            "file_sequence_number": pa.array(numbers, pa.int64()),
        }
    )


def test_a_table_has_one_key_for_each_master_key_and_keeps_it(lake: Lake, encrypted: LoadedTable) -> None:
    lake.kms.create_master_key("second")
    keyring = lake.services.keyring
    same, made = keyring.keys_for(encrypted.record, encrypted.governed.spec)
    assert (same, made) == (encrypted.governed.epochs.current.peks, ())
    other = EncryptionSpec(Mechanism.ENVELOPE, "second")
    refs, made = keyring.keys_for(encrypted.record, other)
    assert [ref.master_key_id for ref in refs] == ["second"]
    assert [pek.ref for pek in made] == list(refs)
    assert keyring.keys_for(encrypted.record, EncryptionSpec(Mechanism.PLAINTEXT)) == ((), ())


def test_an_unknown_master_key_makes_no_key(lake: Lake, encrypted: LoadedTable) -> None:
    with pytest.raises(KeyNotUsable):
        lake.services.keyring.keys_for(encrypted.record, EncryptionSpec(Mechanism.ENVELOPE, "absent"))


def test_keys_are_stored_wrapped_and_shown_to_nobody(lake: Lake, encrypted: LoadedTable) -> None:
    (record,) = lake.services.keyring.records(encrypted.record)
    assert repr(record.wrapped) not in repr(record)
    pek = lake.services.keyring.writing_peks(encrypted.record, encrypted.governed)[MASTER_KEY]
    assert "wrapped" not in repr(pek)


def test_a_key_of_another_table_is_refused(lake: Lake, encrypted: LoadedTable) -> None:
    other = loaded(lake, make(lake, properties=ENCRYPTED))
    with pytest.raises(DecryptionRefused) as refused:
        lake.services.keyring.open_peks(encrypted.record, other.governed.epochs.current.peks)
    assert refused.value.rule == "pek"


def test_a_key_that_the_catalog_has_lost_stops_writes(lake: Lake, encrypted: LoadedTable) -> None:
    epoch = encrypted.governed.epochs.current
    lost = replace(epoch, peks=(PekRef(uuid4(), 1, MASTER_KEY),))
    governed = replace(encrypted.governed, epochs=encrypted.governed.epochs.followed_by(lost))
    with pytest.raises(KeyNotUsable):
        lake.services.keyring.writing_peks(encrypted.record, governed)


def test_new_files_are_opened_and_judged(lake: Lake, encrypted: LoadedTable) -> None:
    keyring, record, governed = lake.services.keyring, encrypted.record, encrypted.governed
    good = sealed_file(lake, encrypted)
    keyring.check_new_files(record, governed, files(good))
    keyring.check_new_files(record, governed, files(good).slice(0, 0))
    (path, metadata), (other, _) = good, sealed_file(lake, encrypted)
    theirs = sealed_file(lake, loaded(lake, make(lake, properties=ENCRYPTED)))
    wrong = [
        ((path, None), EncryptionPolicyViolation),
        ((path, b""), DecryptionRefused),
        ((path, b"\x01" + metadata[1:]), DecryptionRefused),
        ((path, metadata[:-1]), DecryptionRefused),
        ((path, metadata[:-1] + bytes([metadata[-1] ^ 1])), DecryptionRefused),
        ((other, metadata), DecryptionRefused),
        (theirs, DecryptionRefused),
    ]
    for file, error in wrong:
        with pytest.raises(error):
            keyring.check_new_files(record, governed, files(good, file))


def scan_keys(lake: Lake, table: LoadedTable, planned: pa.Table) -> ScanKeys | None:
    keyring = lake.services.keyring
    judged = keyring.checked_files(table.record, table.governed, planned)
    whole = [FormKeys(form, tuple(range(len(form.metadata.entries)))) for form in judged.forms]
    return keyring.scan_keys(table.record, judged.paths, whole)


def test_a_scan_gets_the_keys_of_its_files_in_their_order(lake: Lake, encrypted: LoadedTable) -> None:
    deks = [new_dek(32) for _ in range(3)]
    given = [sealed_file(lake, encrypted, dek) for dek in deks]
    keys = scan_keys(lake, encrypted, files(*given))
    assert keys is not None
    assert keys.wrapped.offsets.tolist() == [0, 1, 2, 3]
    for (path, _), wrapped, dek in zip(given, keys.wrapped.wrapped.to_pylist(), deks, strict=True):
        identity = FileIdentity.of(encrypted.record.table_uuid, path)
        assert open_transported(keys.transport, wrapped, identity, LABEL) == dek


def test_a_scan_of_plaintext_or_of_nothing_has_no_keys(lake: Lake, encrypted: LoadedTable) -> None:
    plain = loaded(lake, make(lake))
    some = files((f"{plain.metadata.location}/data/a.parquet", None))
    assert scan_keys(lake, plain, some) is None
    nothing = files(sealed_file(lake, encrypted)).slice(0, 0)
    assert scan_keys(lake, encrypted, nothing) is None


def test_one_file_that_does_not_fit_its_epoch_stops_the_scan(lake: Lake, encrypted: LoadedTable) -> None:
    good = sealed_file(lake, encrypted)
    plain = (f"{encrypted.metadata.location}/data/a.parquet", None)
    with pytest.raises(EncryptionPolicyViolation) as refused:
        scan_keys(lake, encrypted, files(good, plain))
    assert refused.value.path == plain[0]
    with pytest.raises(EncryptionPolicyViolation):
        scan_keys(lake, encrypted, files(good, number=-1))
    other = sealed_file(lake, encrypted)
    some = pa.concat_tables([files(good), files(other, number=-1)])
    with pytest.raises(EncryptionPolicyViolation) as refused:
        scan_keys(lake, encrypted, some)
    assert refused.value.path == other[0]
