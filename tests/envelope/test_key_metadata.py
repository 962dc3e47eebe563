"""Key metadata against its vectors, and every way in which it can be another file's, or none."""

from __future__ import annotations

import json
from uuid import UUID, uuid4

import pytest
import second_key_metadata
from hypothesis import given
from hypothesis import strategies as st

from catalog.crypto.aead import Aead
from catalog.crypto.secret import SecretBytes
from catalog.envelope.data_keys import NewKey, new_dek, open_bounds, open_dek, wrap_deks
from catalog.envelope.encrypted_statistics import ColumnBounds
from catalog.envelope.file_digests import FileDigest, FooterDigest
from catalog.envelope.file_ids import FileIdentity
from catalog.envelope.key_metadata import MAX_BYTES, Binding, KeyEntry, KeyMetadata, header
from catalog.envelope.peks import Pek
from policy.encryption.encrypted_columns import resolve_columns
from policy.encryption.epochs import FileKey, PekRef
from policy.encryption.specification import Algorithm, EncryptionSpec, Footer
from policy.errors import DecryptionRefused, KeyNotUsable
from tests.support.vectors import each_row

VECTORS = json.loads((second_key_metadata.VECTORS / "key-metadata.json").read_text(encoding="utf-8"))
TABLE = UUID(int=7)
FILE = FileIdentity(TABLE, bytes(range(16)))


def vector_peks(table: UUID) -> dict[PekRef, Pek]:
    refs = {}
    for pek in VECTORS["peks"].values():
        ref = PekRef(UUID(pek["id"]), pek["version"], pek["master_key_id"])
        refs[ref] = Pek(ref, table, Aead(SecretBytes(bytes.fromhex(pek["key"]))))
    return refs


def open_all(data: bytes, table: UUID, path: str) -> list[bytes]:
    """Open every key as a reader of that table and path would; its PEKs are the table's own."""
    metadata = KeyMetadata.parse(data)
    file, peks = FileIdentity.of(table, path), vector_peks(table)
    by_id = {(ref.pek_id, ref.version): pek for ref, pek in peks.items()}
    opened = []
    for entry in metadata.entries:
        ref = entry.bound.pek
        pek = by_id.get((ref.pek_id, ref.version), next(iter(peks.values())))
        opened.append(open_dek(metadata, entry, file, pek).reveal())
    return opened


def open_said(metadata: KeyMetadata, table: UUID, path: str) -> dict[int, ColumnBounds]:
    """Open what the key metadata says of columns."""
    return open_bounds(metadata, FileIdentity.of(table, path), vector_peks(table).__getitem__)


def pek(name: str = "lake", table: UUID = TABLE) -> Pek:
    return Pek(PekRef(uuid4(), 1, name), table, Aead(new_dek(32)))


def test_committed_vectors_are_those_of_the_second_implementation():
    assert second_key_metadata.key_metadata_document() == VECTORS


@each_row("case", VECTORS["valid"], count=22, ids=lambda case: case["name"])
def test_valid_vector_opens_and_is_written_alike(case):
    data = bytes.fromhex(case["key_metadata"])
    metadata = KeyMetadata.parse(data)
    assert metadata.to_bytes() == data
    assert metadata.algorithm is list(Algorithm)[case["algorithm"] - 1]
    assert metadata.footer is (Footer.PLAINTEXT if case["flags"] & 1 else Footer.ENCRYPTED)
    assert metadata.stock_readers == bool(case["flags"] & 8)
    for name, digest in (("digest", metadata.digest), ("footer_digest", metadata.footer_digest)):
        said = digest and {"length": digest.length, "sha256": digest.sha256.hex()}
        assert said == case.get(name)
    assert open_all(data, UUID(case["table_uuid"]), case["path"]) == [
        bytes.fromhex(k["dek"]) for k in case["keys"]
    ]
    for key, wanted in zip(metadata.file_keys().keys, case["keys"], strict=True):
        stated = VECTORS["peks"][wanted["pek"]]
        ref = PekRef(UUID(stated["id"]), stated["version"], stated["master_key_id"])
        assert key == FileKey(ref, tuple(wanted["field_ids"]), len(wanted["dek"]) // 2)


@each_row("case", VECTORS["valid"], count=22, ids=lambda case: case["name"])
def test_sealed_bounds_of_a_vector_open_to_what_it_says(case):
    metadata = KeyMetadata.parse(bytes.fromhex(case["key_metadata"]))
    assert bool(metadata.bounds) == ("bounds" in case)
    wanted = {
        int(field_id): ColumnBounds(
            *(said.get(name) for name in ("values", "nulls", "nans")),
            *(bytes.fromhex(said[name]) if name in said else None for name in ("lower", "upper")),
        )
        for field_id, said in case.get("bounds", {}).items()
    }
    assert open_said(metadata, UUID(case["table_uuid"]), case["path"]) == wanted


@each_row("case", VECTORS["refused"], count=91, ids=lambda case: case["name"])
def test_refused_vector_is_refused_where_it_says(case):
    data = bytes.fromhex(case["key_metadata"]) + bytes(case.get("then_zero_bytes", 0))
    if case["stage"] == "parse":
        with pytest.raises(DecryptionRefused):
            KeyMetadata.parse(data)
        return
    metadata, table = KeyMetadata.parse(data), UUID(case["table_uuid"])
    if case["stage"] == "open":
        with pytest.raises(DecryptionRefused):
            open_all(data, table, case["path"])
    else:
        open_all(data, table, case["path"])
        with pytest.raises(DecryptionRefused):
            open_said(metadata, table, case["path"])


def test_every_truncation_is_refused():
    for case in VECTORS["valid"]:
        data = bytes.fromhex(case["key_metadata"])
        for end in range(len(data)):
            with pytest.raises(DecryptionRefused):
                KeyMetadata.parse(data[:end])


@each_row("name", ["two column groups", "everything"])
def test_every_flipped_bit_is_refused(name):
    case = next(case for case in VECTORS["valid"] if case["name"] == name)
    data, table = bytes.fromhex(case["key_metadata"]), UUID(case["table_uuid"])
    for bit in range(8 * len(data)):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises(DecryptionRefused):
            open_all(bytes(changed), table, case["path"])
            open_said(KeyMetadata.parse(bytes(changed)), table, case["path"])


@given(st.binary(max_size=400), st.binary(max_size=3))
def test_garbage_is_refused_or_parses_to_itself(tail, start):
    data = (start or b"\xa1\x01\x00\x01") + tail
    try:
        metadata = KeyMetadata.parse(data)
    except DecryptionRefused:
        return
    assert metadata.to_bytes() == data


def test_entries_exchanged_between_columns_do_not_open():
    shared = pek()
    metadata = wrap_deks(
        Algorithm.AES_GCM_V1,
        Footer.ENCRYPTED,
        FILE,
        [
            NewKey(shared, (), new_dek(32)),
            NewKey(shared, (1,), new_dek(32)),
            NewKey(shared, (2,), new_dek(32)),
        ],
    )
    footer, first, second = metadata.entries
    exchanged = [KeyEntry(first.binding, second.wrapped), KeyEntry(second.binding, footer.wrapped)]
    for entry in exchanged:
        with pytest.raises(DecryptionRefused):
            open_dek(metadata, entry, FILE, shared)


def test_pek_wraps_and_opens_for_its_own_table_alone():
    own, other = pek(), pek(table=UUID(int=8))
    with pytest.raises(DecryptionRefused):
        wrap_deks(Algorithm.AES_GCM_V1, Footer.ENCRYPTED, FILE, [NewKey(other, (), new_dek(32))])
    metadata = wrap_deks(Algorithm.AES_GCM_V1, Footer.ENCRYPTED, FILE, [NewKey(own, (), new_dek(32))])
    same_key = Pek(own.ref, UUID(int=8), own.aead)
    for wrong in (same_key, other, Pek(PekRef(own.ref.pek_id, 2, "lake"), TABLE, own.aead)):
        with pytest.raises(DecryptionRefused):
            open_dek(metadata, metadata.entries[0], FILE, wrong)


@each_row("length", [0, 15, 17, 31, 33])
def test_data_keys_of_other_lengths_are_refused(length):
    with pytest.raises(KeyNotUsable):
        new_dek(length)
    with pytest.raises(KeyNotUsable):
        wrap_deks(
            Algorithm.AES_GCM_V1, Footer.ENCRYPTED, FILE, [NewKey(pek(), (), SecretBytes(bytes(length)))]
        )


@each_row(
    "groups",
    [
        [],
        [(1,)],
        [(), ()],
        [(), (2, 1)],
        [(), (1, 1)],
        [(), (-1,)],
        [(), (2**31,)],
        [(), (1, 3), (2, 3)],
        [(), tuple(range(65_536))],
        [(), tuple(range(20_000))],
        [(), *((i,) for i in range(255))],
    ],
    ids=lambda groups: f"{len(groups)} keys, {sum(map(len, groups))} fields",
)
def test_keys_that_no_metadata_can_hold_are_refused(groups):
    shared = pek()
    with pytest.raises(DecryptionRefused):
        wrap_deks(
            Algorithm.AES_GCM_V1, Footer.ENCRYPTED, FILE, [NewKey(shared, ids, new_dek(16)) for ids in groups]
        )


def test_most_keys_that_fit_are_written_and_read():
    shared, deks = pek(), [new_dek(16) for _ in range(255)]
    keys = [NewKey(shared, (i,) if i else (), dek) for i, dek in enumerate(deks)]
    data = wrap_deks(Algorithm.AES_GCM_V1, Footer.ENCRYPTED, FILE, keys).to_bytes()
    metadata = KeyMetadata.parse(data)
    assert len(data) < MAX_BYTES
    assert [open_dek(metadata, entry, FILE, shared) for entry in metadata.entries] == deks
    assert [key.field_ids for key in metadata.file_keys().keys] == [(), *((i,) for i in range(1, 255))]


@each_row("ref", [PekRef(UUID(int=1), 0, "k"), PekRef(UUID(int=1), 2**32, "k"), PekRef(UUID(int=1), 1, "ké")])
def test_binding_that_the_format_cannot_hold_is_refused(ref):
    with pytest.raises(DecryptionRefused):
        Binding(ref, ()).to_bytes()


@each_row(("keys", "fields"), [(254, 254), (1, 16_000), (254, 10_000)])
def test_columns_that_may_be_named_fit_whatever_their_keys_are_called(keys, fields):
    """What `encryption.columns` accepts, with the longest names, in one file's metadata."""
    names = [f"{number:03d}{'k' * 252}"[: 255 if keys == 1 else 12] for number in range(keys)]
    columns = {f"c{number}": number for number in range(keys)}
    inside = {f"c{number % keys}.f{number}": keys + number for number in range(fields - keys)}
    groups = ";".join(f"{name}:c{number}" for number, name in enumerate(names))
    spec = EncryptionSpec.parse({"encryption.columns": groups}, catalog_master_key_id="f" * 255)
    labels = [("f" * 255, ()), *((g.key_id, g.field_ids) for g in resolve_columns(spec, columns | inside))]
    entries = [
        KeyEntry(Binding(PekRef(uuid4(), 2**32 - 1, name), ids).to_bytes(), bytes(60))
        for name, ids in sorted(labels, key=lambda label: label[1])
    ]
    head = header(Algorithm.AES_GCM_V1, Footer.ENCRYPTED, digest=True, footer_digest=True)
    digests = FileDigest(2**64 - 1, bytes(32)), FooterDigest(2**32 - 1, bytes(32))
    assert len(KeyMetadata(head, tuple(entries), *digests).to_bytes()) <= MAX_BYTES
