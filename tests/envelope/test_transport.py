"""Keys on their way to an engine and back: good for one scan or write, table, file and place."""

from __future__ import annotations

import json
import threading
from itertools import pairwise
from typing import NamedTuple
from uuid import UUID, uuid4

import pyarrow as pa
import pytest
import second_transport

from catalog.crypto.aead import Aead
from catalog.crypto.secret import SecretBytes
from catalog.envelope.data_keys import NewKey, new_dek, open_dek, wrap_deks
from catalog.envelope.file_digests import FileDigest, FooterDigest
from catalog.envelope.file_ids import FileIdentity, new_file_name
from catalog.envelope.key_metadata import KeyMetadata
from catalog.envelope.key_metadata_columns import read_forms
from catalog.envelope.peks import Pek
from catalog.envelope.scan_keys import FormKeys, ScanWrapper
from catalog.envelope.transport import (
    KeyLabel,
    Purpose,
    TransportKey,
    label_of,
    open_transport_key,
    open_transported,
    seal_transport_key,
    wrap_for_write,
)
from catalog.envelope.write_keys import WriteRewrapper, WrittenKey
from policy.encryption.epochs import PekRef
from policy.encryption.specification import Algorithm, Footer
from policy.errors import DecryptionRefused, KeyNotUsable
from tests.support.vectors import each_row

VECTORS = json.loads((second_transport.VECTORS / "transport.json").read_text(encoding="utf-8"))
TABLE = UUID(int=7)


def make_pek(name: str, table: UUID = TABLE) -> Pek:
    return Pek(PekRef(uuid4(), 1, name), table, Aead(new_dek(32)))


LAKE, PII = make_pek("lake"), make_pek("pii")
PEKS = {LAKE.ref: LAKE, PII.ref: PII}


def test_committed_vectors_are_those_of_the_second_implementation():
    assert second_transport.transport_document() == VECTORS


class Planned(NamedTuple):
    """A planned file, and which of its keys are released."""

    path: str
    key_metadata: KeyMetadata
    places: tuple[int, ...]

    @property
    def entries(self):
        return [self.key_metadata.entries[place] for place in self.places]


def planned(
    path: str,
    deks: list[SecretBytes],
    digest: FileDigest | None = None,
    footer_digest: FooterDigest | None = None,
) -> Planned:
    keys = [NewKey(LAKE, (), deks[0]), *(NewKey(PII, (i,), dek) for i, dek in enumerate(deks[1:], 1))]
    file = FileIdentity.of(TABLE, path)
    metadata = wrap_deks(
        Algorithm.AES_GCM_V1, Footer.ENCRYPTED, file, keys, digest=digest, footer_digest=footer_digest
    )
    return Planned(path, metadata, tuple(range(len(keys))))


def rewrapped(scan: ScanWrapper, files: list[Planned]) -> list[list[bytes]]:
    """What a scan gets of each file; `places` are those of the first file of a form."""
    column = pa.chunked_array([[file.key_metadata.to_bytes() for file in files]], pa.binary())
    paths = pa.chunked_array([[file.path for file in files]])
    forms = [FormKeys(form, files[form.rows[0]].places) for form in read_forms(column, paths)]
    keys = scan.rewrap_for_scan(paths, forms)
    assert len(keys.label) == len(keys.wrapped) == keys.offsets[-1]
    wrapped = keys.wrapped.to_pylist()
    labels = [keys.labels[place] for place in keys.label]
    assert labels == [label_of(entry) for file in files for entry in file.entries]
    return [wrapped[start:end] for start, end in pairwise(keys.offsets.tolist())]


def paths(count: int) -> list[str]:
    return [f"s3://bucket/t/data/{new_file_name('part', 'parquet')}" for _ in range(count)]


def vector_parts(case):
    transport = TransportKey(
        bytes.fromhex(case["transport_id"]),
        Purpose(case["purpose"]),
        SecretBytes(bytes.fromhex(case["transport_key"])),
    )
    file = FileIdentity(UUID(case["table_uuid"]), bytes.fromhex(case["file_id"]))
    return (
        transport,
        bytes.fromhex(case["wrapped"]),
        file,
        KeyLabel(case["key_name"], tuple(case["field_ids"])),
    )


@each_row("case", VECTORS["valid"])
def test_valid_vector_opens(case):
    assert open_transported(*vector_parts(case)).reveal().hex() == case["dek"]


@each_row("case", VECTORS["refused"], count=12, ids=lambda case: case["name"])
def test_refused_vector_does_not_open(case):
    with pytest.raises(DecryptionRefused):
        open_transported(*vector_parts(case))


def test_scan_releases_the_keys_asked_for_and_opens_on_the_engine():
    deks = [[new_dek(32), new_dek(16), new_dek(24)] for _ in range(4)]
    files = [planned(path, keys) for path, keys in zip(paths(4), deks, strict=True)]
    files[1] = planned(files[1].path, [new_dek(16), new_dek(32)])._replace(places=(1,))
    files[2:2] = [planned(path, [new_dek(24)]) for path in paths(2)]
    scan = ScanWrapper(TABLE, PEKS)
    released = rewrapped(scan, files)
    assert [len(keys) for keys in released] == [3, 1, 1, 1, 3, 3]
    for file, keys in zip(files, released, strict=True):
        identity = FileIdentity.of(TABLE, file.path)
        for entry, wrapped in zip(file.entries, keys, strict=True):
            pek = PEKS[entry.bound.pek]
            wanted = open_dek(file.key_metadata, entry, identity, pek)
            assert open_transported(scan.transport, wrapped, identity, label_of(entry)) == wanted


def test_captured_plan_is_worth_one_scan():
    file = planned(paths(1)[0], [new_dek(32)])
    first, second = ScanWrapper(TABLE, PEKS), ScanWrapper(TABLE, PEKS)
    (wrapped,) = rewrapped(first, [file])[0]
    with pytest.raises(DecryptionRefused):
        open_transported(
            second.transport, wrapped, FileIdentity.of(TABLE, file.path), label_of(file.entries[0])
        )


def test_no_nonce_comes_twice_in_a_scan_whatever_the_threads():
    scan = ScanWrapper(TABLE, PEKS)
    files = [planned(path, [new_dek(32), new_dek(32)]) for path in paths(20)]
    released: list[bytes] = []

    def work():
        for _ in range(10):
            released.extend(wrapped for keys in rewrapped(scan, files) for wrapped in keys)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({wrapped[:12] for wrapped in released}) == len(released) == 4 * 10 * 40


def test_scan_stops_before_its_nonces_run_out():
    scan = ScanWrapper(TABLE, PEKS)
    scan._next = 2**32 - 1
    file = planned(paths(1)[0], [new_dek(32)])
    (wrapped,) = rewrapped(scan, [file])[0]
    assert wrapped[:12] == bytes(8) + b"\xff" * 4
    with pytest.raises(KeyNotUsable):
        rewrapped(scan, [file])


def test_key_metadata_moved_to_another_file_releases_nothing_and_names_the_path():
    victim, thief = paths(2)
    moved = planned(victim, [new_dek(32)])._replace(path=thief)
    others = [planned(path, [new_dek(32)]) for path in paths(3)]
    with pytest.raises(DecryptionRefused) as caught:
        rewrapped(ScanWrapper(TABLE, PEKS), [*others, moved, planned(victim, [new_dek(32)])])
    assert caught.value.path == thief


def test_keys_of_more_files_than_are_wrapped_at_once_open_each_with_its_own(monkeypatch):
    monkeypatch.setattr("catalog.envelope.scan_keys._BATCH", 3)
    deks = [new_dek(32) for _ in range(7)]
    files = [planned(path, [dek]) for path, dek in zip(paths(7), deks, strict=True)]
    scan = ScanWrapper(TABLE, PEKS)
    for file, dek, (wrapped,) in zip(files, deks, rewrapped(scan, files), strict=True):
        assert (
            open_transported(scan.transport, wrapped, FileIdentity.of(TABLE, file.path), KeyLabel("lake"))
            == dek
        )
    moved = files[5]._replace(path=files[0].path)
    with pytest.raises(DecryptionRefused) as caught:
        rewrapped(scan, [*files[1:5], moved])
    assert caught.value.path == moved.path


def test_keys_are_released_beside_the_digest_that_they_were_wrapped_with_alone():
    deks = [new_dek(32) for _ in range(3)]
    digests = [FileDigest(length, bytes([length] * 32)) for length in range(3)]
    files = [planned(*each) for each in zip(paths(3), [[dek] for dek in deks], digests, strict=True)]
    scan = ScanWrapper(TABLE, PEKS)
    for file, dek, (wrapped,) in zip(files, deks, rewrapped(scan, files), strict=True):
        identity = FileIdentity.of(TABLE, file.path)
        assert open_transported(scan.transport, wrapped, identity, KeyLabel("lake")) == dek
    exchanged = files[1]._replace(key_metadata=files[1].key_metadata._replace(digest=digests[2]))
    with pytest.raises(DecryptionRefused) as caught:
        rewrapped(scan, [files[0], exchanged])
    assert caught.value.path == exchanged.path


@each_row("digest", [None, FileDigest(7, bytes(32))])
def test_keys_are_released_beside_the_footer_that_they_were_wrapped_with_alone(digest: FileDigest | None):
    deks = [[new_dek(32), new_dek(32)] for _ in range(3)]
    footers = [FooterDigest(12 + number, bytes([number] * 32)) for number in range(3)]
    files = [
        planned(path, keys, digest, footer)
        for path, keys, footer in zip(paths(3), deks, footers, strict=True)
    ]
    scan = ScanWrapper(TABLE, PEKS)
    for file, keys, released in zip(files, deks, rewrapped(scan, files), strict=True):
        identity = FileIdentity.of(TABLE, file.path)
        labels = [KeyLabel("lake"), KeyLabel("pii", (1,))]
        assert [
            open_transported(scan.transport, wrapped, identity, label)
            for wrapped, label in zip(released, labels, strict=True)
        ] == keys
    exchanged = files[1]._replace(key_metadata=files[1].key_metadata._replace(footer_digest=footers[2]))
    with pytest.raises(DecryptionRefused) as caught:
        rewrapped(scan, [files[0], exchanged])
    assert caught.value.path == exchanged.path


def test_peks_of_another_table_are_refused():
    foreign = make_pek("lake", UUID(int=8))
    with pytest.raises(DecryptionRefused):
        ScanWrapper(TABLE, {foreign.ref: foreign})
    with pytest.raises(DecryptionRefused):
        ScanWrapper(TABLE, {LAKE.ref: PII})


def test_key_whose_pek_the_scan_has_not_is_refused():
    file = planned(paths(1)[0], [new_dek(32), new_dek(32)])
    scan = ScanWrapper(TABLE, {LAKE.ref: LAKE})
    with pytest.raises(DecryptionRefused) as caught:
        rewrapped(scan, [file])
    assert caught.value.rule == "pek"
    assert len(rewrapped(scan, [file._replace(places=(0,))])[0]) == 1


def written(transport: TransportKey, path: str):
    file = FileIdentity.of(TABLE, path)
    labels = [KeyLabel("lake"), KeyLabel("pii", (3, 5))]
    deks = [new_dek(32), new_dek(16)]
    keys = [
        WrittenKey(label, wrap_for_write(transport, dek, file, label))
        for label, dek in zip(labels, deks, strict=True)
    ]
    return path, deks, keys


def rewrapper(transport, peks=None):
    by_name = {"lake": LAKE, "pii": PII} if peks is None else peks
    return WriteRewrapper(transport, TABLE, Algorithm.AES_GCM_V1, Footer.ENCRYPTED, by_name)


def rewrap(transport, path, keys, peks=None):
    return rewrapper(transport, peks).rewrap(path, keys)


def test_write_brings_its_keys_under_the_peks():
    transport = TransportKey.new(Purpose.WRITE)
    path, deks, keys = written(transport, paths(1)[0])
    metadata = KeyMetadata.parse(rewrap(transport, path, list(reversed(keys))).to_bytes())
    file = FileIdentity.of(TABLE, path)
    opened = [open_dek(metadata, entry, file, PEKS[entry.bound.pek]) for entry in metadata.entries]
    assert opened == deks
    assert [entry.bound.field_ids for entry in metadata.entries] == [(), (3, 5)]


def test_write_keys_are_refused_for_another_file_write_label_or_master_key():
    transport = TransportKey.new(Purpose.WRITE)
    first, second = paths(2)
    path, _, keys = written(transport, first)
    with pytest.raises(DecryptionRefused):
        rewrap(transport, second, keys)
    with pytest.raises(DecryptionRefused):
        rewrap(TransportKey.new(Purpose.WRITE), path, keys)
    with pytest.raises(DecryptionRefused):
        rewrap(transport, path, [keys[0], keys[1]._replace(label=KeyLabel("pii", (3, 6)))])
    with pytest.raises(DecryptionRefused):
        rewrap(transport, path, keys, {"lake": LAKE})


@each_row("ids", [(5, 3), (3, 3), (-1,), (2**31,), tuple(range(65_536))], ids=lambda ids: str(ids[:2]))
def test_labels_that_no_key_can_have_are_refused(ids):
    transport = TransportKey.new(Purpose.WRITE)
    path, _, keys = written(transport, paths(1)[0])
    file = FileIdentity.of(TABLE, path)
    with pytest.raises(DecryptionRefused):
        forged = WrittenKey(
            KeyLabel("pii", ids), wrap_for_write(transport, new_dek(32), file, KeyLabel("pii", ids))
        )
        rewrap(transport, path, [keys[0], forged])


def test_wrapped_key_of_a_wrong_length_is_refused():
    transport = TransportKey.new(Purpose.WRITE)
    path, _, keys = written(transport, paths(1)[0])
    file = FileIdentity.of(TABLE, path)
    short = keys[0]._replace(wrapped=wrap_for_write(transport, SecretBytes(bytes(20)), file, keys[0].label))
    with pytest.raises(DecryptionRefused):
        rewrap(transport, path, [short])


def test_scan_key_cannot_serve_a_write():
    scan = TransportKey.new(Purpose.SCAN)
    file = FileIdentity.of(TABLE, paths(1)[0])
    with pytest.raises(DecryptionRefused):
        wrap_for_write(scan, new_dek(32), file, KeyLabel("lake"))
    with pytest.raises(DecryptionRefused):
        rewrapper(scan)


def test_peks_of_another_table_or_name_take_no_write():
    transport = TransportKey.new(Purpose.WRITE)
    for peks in ({"lake": make_pek("lake", UUID(int=8))}, {"lake": PII}):
        with pytest.raises(DecryptionRefused):
            rewrapper(transport, peks)


def test_refused_write_names_its_path_and_the_next_file_is_still_taken():
    transport = TransportKey.new(Purpose.WRITE)
    path, deks, keys = written(transport, paths(1)[0])
    taking, other = rewrapper(transport), paths(1)[0]
    for wrong in ([], [keys[1]], [keys[0], keys[0]], keys):
        with pytest.raises(DecryptionRefused) as caught:
            taking.rewrap(other, wrong)
        assert caught.value.path == other
    metadata = taking.rewrap(path, keys)
    assert open_dek(metadata, metadata.entries[0], FileIdentity.of(TABLE, path), LAKE) == deks[0]


def test_stored_write_key_opens_for_its_own_write_table_and_pek_alone():
    transport = TransportKey.new(Purpose.WRITE)
    sealed = seal_transport_key(transport, LAKE)
    assert open_transport_key(sealed, transport.id, Purpose.WRITE, LAKE) == transport
    assert transport.key.reveal() not in sealed
    wrong = [
        (sealed, bytes(16), Purpose.WRITE, LAKE),
        (sealed, transport.id, Purpose.SCAN, LAKE),
        (sealed, transport.id, Purpose.WRITE, PII),
        (sealed, transport.id, Purpose.WRITE, Pek(LAKE.ref, UUID(int=8), LAKE.aead)),
        (sealed[:-1], transport.id, Purpose.WRITE, LAKE),
    ]
    for parts in wrong:
        with pytest.raises(DecryptionRefused):
            open_transport_key(*parts)


@each_row(("id_length", "key_length"), [(15, 32), (16, 16), (0, 32), (16, 33)])
def test_transport_keys_have_one_size(id_length, key_length):
    with pytest.raises(ValueError, match="16 bytes"):
        TransportKey(bytes(id_length), Purpose.SCAN, SecretBytes(bytes(key_length)))


def test_transport_key_masks_itself():
    transport = TransportKey.new(Purpose.SCAN)
    assert transport.key.reveal().hex() not in repr(transport) and "****" in repr(transport)
