"""Bounds of encrypted columns: put together, sealed beside the keys of a write, moved with them, opened."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID, uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.crypto.aead import Aead
from catalog.envelope.data_keys import (
    NewKey,
    new_dek,
    open_bounds,
    open_dek,
    rewrap_deks,
    same_deks,
    wrap_deks,
)
from catalog.envelope.encrypted_statistics import BOUNDS_STEP, ColumnBounds, decode, encode, storable
from catalog.envelope.file_digests import FileDigest, FooterDigest
from catalog.envelope.file_ids import FileIdentity, new_file_name
from catalog.envelope.key_metadata import MAX_BYTES, KeyMetadata
from catalog.envelope.peks import Pek
from catalog.envelope.transport import KeyLabel, Purpose, TransportKey, wrap_for_write
from catalog.envelope.write_keys import WriteRewrapper, WrittenKey
from policy.encryption.epochs import PekRef
from policy.encryption.specification import Algorithm, Footer
from policy.errors import DecryptionRefused
from tests.support.vectors import each_row

TABLE = UUID(int=7)
PATH = f"s3://bucket/t/data/{new_file_name('part', 'parquet')}"
FILE = FileIdentity.of(TABLE, PATH)
KNOWN = ColumnBounds(10, 2, 0, b"\x01\0\0\0", b"\xff\0\0\0")
DIGEST = FileDigest(1000, bytes(range(32)))
FOOTER = FooterDigest(70, bytes(range(32)))


def make_pek(name: str, version: int = 1, pek_id: UUID | None = None) -> Pek:
    return Pek(PekRef(pek_id or uuid4(), version, name), TABLE, Aead(new_dek(32)))


PEKS = {name: make_pek(name) for name in ("lake", "pii", "hr")}
BY_REF = {pek.ref: pek for pek in PEKS.values()}

counts = st.none() | st.integers(0, 2**63 - 1)
bounds = st.none() | st.binary(max_size=255)
columns = st.dictionaries(
    st.integers(0, 2**31 - 1), st.builds(ColumnBounds, counts, counts, counts, bounds, bounds), max_size=8
)


def written(
    groups: dict[str, tuple[int, ...]],
    known: dict[int, ColumnBounds],
    digest: FileDigest | None = None,
    footer_digest: FooterDigest | None = None,
) -> KeyMetadata:
    """The key metadata of a file that a write brings."""
    transport = TransportKey.new(Purpose.WRITE)
    taking = WriteRewrapper(transport, TABLE, Algorithm.AES_GCM_V1, Footer.ENCRYPTED, PEKS)
    labels = [KeyLabel(name, ids) for name, ids in groups.items()]
    keys = [WrittenKey(label, wrap_for_write(transport, new_dek(32), FILE, label)) for label in labels]
    metadata = taking.rewrap(PATH, keys, columns=known, digest=digest, footer_digest=footer_digest)
    assert KeyMetadata.parse(metadata.to_bytes()) == metadata
    return metadata


@settings(deadline=None)
@given(columns)
def test_what_is_put_together_is_taken_apart_to_the_same(known: dict[int, ColumnBounds]) -> None:
    data = encode(known)
    assert len(data) % BOUNDS_STEP == 0
    assert decode(data) == {i: each for i, each in known.items() if each != ColumnBounds()}


@settings(deadline=None)
@given(columns, st.data())
def test_another_plaintext_is_refused_or_means_something_else(
    known: dict[int, ColumnBounds], drawn: st.DataObject
) -> None:
    data = encode(known)
    at, bit = drawn.draw(st.integers(0, len(data) - 1)), drawn.draw(st.integers(0, 7))
    changed = data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :]
    try:
        said = decode(changed)
    except DecryptionRefused:
        return
    assert said != decode(data)
    assert encode(said) == changed


@settings(deadline=None)
@given(st.binary(max_size=600))
def test_garbage_is_refused_or_put_together_alike(data: bytes) -> None:
    filled = data + bytes(-len(data) % BOUNDS_STEP)
    try:
        said = decode(filled)
    except DecryptionRefused:
        return
    assert encode(said) == filled


def test_what_the_format_cannot_hold_is_left_out() -> None:
    odd = ColumnBounds(-1, 2**63, 5, bytes(256), bytes(255))
    assert storable(odd) == ColumnBounds(None, None, 5, None, bytes(255))


def test_a_uniform_key_covers_every_column() -> None:
    metadata = written({"lake": ()}, {1: KNOWN, 70: KNOWN})
    assert open_bounds(metadata, FILE, BY_REF.__getitem__) == {1: KNOWN, 70: KNOWN}


def test_each_group_s_bounds_are_under_its_own_key_and_clear_columns_are_passed_over() -> None:
    groups = {"lake": (), "pii": (2, 4), "hr": (3,)}
    metadata = written(groups, {1: KNOWN, 2: KNOWN, 3: KNOWN})
    assert open_bounds(metadata, FILE, BY_REF.__getitem__) == {2: KNOWN, 3: KNOWN}
    opened: list[str] = []

    def one_only(ref: PekRef) -> Pek:
        opened.append(ref.master_key_id)
        return BY_REF[ref]

    open_bounds(metadata, FILE, one_only)
    assert opened == ["pii", "hr"]


def test_a_group_of_which_nothing_is_known_looks_like_another() -> None:
    groups = {"lake": (), "pii": (2,), "hr": (3,)}
    metadata = written(groups, {2: KNOWN})
    assert [len(sealed) for sealed in metadata.bounds] == [BOUNDS_STEP + 28] * 2


def test_without_anything_known_there_are_no_bounds() -> None:
    assert written({"lake": ()}, {}).bounds == ()
    assert written({"lake": (), "pii": (2,)}, {1: KNOWN}).bounds == ()


def test_lengths_do_not_tell_the_length_of_values() -> None:
    short = written({"lake": ()}, {1: replace_bounds(b"a", b"b")})
    long = written({"lake": ()}, {1: replace_bounds(b"a" * 16, b"b" * 64)})
    assert len(short.to_bytes()) == len(long.to_bytes())


def replace_bounds(lower: bytes, upper: bytes) -> ColumnBounds:
    return KNOWN._replace(lower=lower, upper=upper)


def test_columns_are_left_out_from_the_end_until_the_rest_fits() -> None:
    wide = {i: replace_bounds(bytes(64), bytes(64)) for i in range(600)}
    metadata = written({"lake": ()}, wide)
    kept = open_bounds(metadata, FILE, BY_REF.__getitem__)
    assert len(metadata.to_bytes()) <= MAX_BYTES
    assert MAX_BYTES - len(metadata.to_bytes()) < 2 * BOUNDS_STEP
    assert list(kept) == list(range(len(kept)))


def test_where_there_is_no_room_at_all_keys_still_are() -> None:
    ids = tuple(range(16_280))
    metadata = written({"lake": (), "pii": ids}, dict.fromkeys(ids, KNOWN))
    assert metadata.bounds == ()
    assert open_dek(metadata, metadata.entries[1], FILE, PEKS["pii"])


@each_row("footer_digest", [None, FOOTER])
@each_row("digest", [None, DIGEST])
def test_bounds_and_digests_move_with_the_keys(
    digest: FileDigest | None, footer_digest: FooterDigest | None
) -> None:
    before = written({"lake": (), "pii": (2,), "hr": (3,)}, {2: KNOWN, 3: KNOWN}, digest, footer_digest)
    later = make_pek("pii", 2, PEKS["pii"].ref.pek_id)
    peks = BY_REF | {later.ref: later}
    after = rewrap_deks(before, FILE, peks, {later.ref.pek_id: later.ref})
    assert KeyMetadata.parse(after.to_bytes()) == after
    assert [entry.bound.pek for entry in after.entries][1] == later.ref
    assert (after.bounds[0] != before.bounds[0], after.bounds[1] == before.bounds[1]) == (True, True)
    assert open_bounds(after, FILE, peks.__getitem__) == {2: KNOWN, 3: KNOWN}
    assert (after.digest, after.footer_digest) == (digest, footer_digest)
    assert same_deks(before, after, FILE, peks)


def test_other_bounds_or_another_digest_are_not_the_same_keys() -> None:
    one = written({"lake": ()}, {1: KNOWN}, DIGEST)
    (entry,) = one.entries
    dek = open_dek(one, entry, FILE, PEKS["lake"])
    assert same_deks(one, one, FILE, BY_REF)
    for known, digest in (
        ({1: KNOWN._replace(nulls=3)}, DIGEST),
        ({1: KNOWN}, FileDigest(1001, DIGEST.sha256)),
    ):
        other = resealed(dek, known, digest)
        assert open_dek(other, other.entries[0], FILE, PEKS["lake"]) == dek
        assert not same_deks(one, other, FILE, BY_REF)


def test_another_digest_of_the_footer_is_not_the_same_keys() -> None:
    one = written({"lake": (), "pii": (2,)}, {}, footer_digest=FOOTER)
    assert same_deks(one, one, FILE, BY_REF)
    deks = [open_dek(one, entry, FILE, PEKS[entry.bound.pek.master_key_id]) for entry in one.entries]
    keys = [
        NewKey(PEKS[entry.bound.pek.master_key_id], entry.bound.field_ids, dek)
        for entry, dek in zip(one.entries, deks, strict=True)
    ]
    for footer, same in ((FOOTER, True), (FOOTER._replace(length=13), False), (None, False)):
        other = wrap_deks(Algorithm.AES_GCM_V1, Footer.ENCRYPTED, FILE, keys, footer_digest=footer)
        assert same_deks(one, other, FILE, BY_REF) is same


def resealed(dek, known, digest) -> KeyMetadata:
    transport, label = TransportKey.new(Purpose.WRITE), KeyLabel("lake")
    taking = WriteRewrapper(transport, TABLE, Algorithm.AES_GCM_V1, Footer.ENCRYPTED, PEKS)
    key = WrittenKey(label, wrap_for_write(transport, dek, FILE, label))
    return taking.rewrap(PATH, [key], columns=known, digest=digest)


def test_bounds_open_with_the_table_s_own_pek_of_that_version_alone() -> None:
    metadata = written({"lake": ()}, {1: KNOWN})
    lake = PEKS["lake"]
    for wrong in (
        replace(lake, table_uuid=UUID(int=8)),
        replace(lake, ref=replace(lake.ref, version=2)),
        replace(lake, aead=PEKS["pii"].aead),
    ):
        with pytest.raises(DecryptionRefused):
            open_bounds(metadata, FILE, {lake.ref: wrong}.__getitem__)
    with pytest.raises(DecryptionRefused):
        open_bounds(metadata, FileIdentity(TABLE, bytes(16)), BY_REF.__getitem__)
