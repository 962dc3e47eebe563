"""Key metadata of many files: what is taken apart like an earlier one says exactly what it says by itself."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.envelope.file_digests import FileDigest, FooterDigest
from catalog.envelope.key_metadata import Binding, KeyEntry, KeyMetadata, header
from catalog.envelope.key_metadata_columns import read_forms
from policy.encryption.epochs import PekRef
from policy.encryption.specification import Algorithm, Footer
from policy.errors import DecryptionRefused

PEKS = [PekRef(UUID(int=number), number, name) for number, name in ((1, "lake"), (2, "pii"))]
GROUPS = [(), (1,), (2, 3), (4, 5, 6)]
WRAPPED = st.sampled_from([44, 60]).flatmap(lambda length: st.binary(min_size=length, max_size=length))


@st.composite
def metadata(draw: st.DrawFn) -> bytes:
    """Key metadata of a file with up to four keys."""
    groups = GROUPS[: draw(st.integers(1, len(GROUPS)))]
    entries = [
        KeyEntry(Binding(draw(st.sampled_from(PEKS)), ids).to_bytes(), draw(WRAPPED)) for ids in groups
    ]
    algorithm = draw(st.sampled_from(Algorithm))
    orc = algorithm is Algorithm.ORC_AES_CTR
    footer = Footer.ENCRYPTED if orc else draw(st.sampled_from(Footer))
    digest = draw(
        st.none() | st.builds(FileDigest, st.integers(0, 2**64 - 1), st.binary(min_size=32, max_size=32))
    )
    footer_digest = None
    if not orc and len(entries) > 1:
        length, sha256 = st.integers(12, 2**32 - 1), st.binary(min_size=32, max_size=32)
        footer_digest = draw(st.none() | st.builds(FooterDigest, length, sha256))
    lengths = st.sampled_from([284, 540])
    covering = len(entries) - (len(entries) > 1)
    bounds = tuple(bytes([byte]) * draw(lengths) for byte in range(covering)) if draw(st.booleans()) else ()
    head = header(
        algorithm,
        footer,
        digest=digest is not None,
        footer_digest=footer_digest is not None,
        bounds=bool(bounds),
        stock_readers=not orc and draw(st.booleans()),
    )
    return KeyMetadata(head, tuple(entries), digest, footer_digest, bounds).to_bytes()


def read(*files: bytes) -> list[KeyMetadata | None]:
    """The key metadata of each file out of its form; of none of them if one is malformed."""
    paths = [f"file-{number}" for number in range(len(files))]
    found: list[KeyMetadata | None] = [None] * len(files)
    try:
        forms = read_forms(pa.chunked_array([files], pa.binary()), pa.chunked_array([paths]))
    except DecryptionRefused:
        return found
    for form in forms:
        for row, data in zip(form.rows.tolist(), form.data, strict=True):
            entries = [
                KeyEntry(each.binding, data[each.start : each.end].tobytes()) for each in form.positions()
            ]
            bounds = tuple(data[each.start : each.end].tobytes() for each in form.bounds())
            nth, files, footers = form.rows.tolist().index(row), form.file_digests(), form.footer_digests()
            digest = None if files is None else FileDigest.of_bytes(files[nth].tobytes())
            footer = None if footers is None else FooterDigest.of_bytes(footers[nth].tobytes())
            found[row] = KeyMetadata(form.metadata.header, tuple(entries), digest, footer, bounds)
    return found


def alone(data: bytes) -> KeyMetadata | None:
    try:
        return KeyMetadata.parse(data)
    except DecryptionRefused:
        return None


@pytest.mark.nightly
@settings(deadline=None)
@given(st.lists(metadata(), min_size=1, max_size=4))
def test_each_is_read_as_if_it_came_alone(files: list[bytes]) -> None:
    assert read(*files, *files) == [alone(data) for data in files * 2]


@settings(deadline=None)
@given(metadata(), st.data())
def test_a_changed_byte_is_read_as_if_it_came_alone(data: bytes, drawn: st.DataObject) -> None:
    at, byte = drawn.draw(st.integers(0, len(data) - 1)), drawn.draw(st.integers(0, 255))
    changed = data[:at] + bytes([byte]) + data[at + 1 :]
    expected = alone(changed)
    assert read(data, changed, data)[1] == expected
    assert read(data, changed, data)[2] == (expected and alone(data))


@settings(deadline=None)
@given(metadata(), st.binary(max_size=200))
def test_anything_is_read_as_if_it_came_alone(data: bytes, other: bytes) -> None:
    for changed in (other, data + other, data[: len(other)]):
        assert read(data, changed)[1] == alone(changed)


def single(wrapped: bytes, pek: PekRef = PEKS[0]) -> bytes:
    entry = KeyEntry(Binding(pek, ()).to_bytes(), wrapped)
    return KeyMetadata(header(Algorithm.AES_GCM_V1, Footer.ENCRYPTED), (entry,)).to_bytes()


def test_files_that_differ_in_wrapped_keys_alone_have_one_form() -> None:
    later = replace(PEKS[0], version=7)
    files = [single(bytes(60)), single(b"\1" * 60, later), None, single(b"\2" * 60), single(bytes(44))]
    column = pa.chunked_array([files[:1], files[1:]], pa.binary())
    paths = pa.chunked_array([["a"], ["b", "c", "d", "e"]])
    assert sorted(form.rows.tolist() for form in read_forms(column, paths)) == [[0, 3], [1], [4]]
    assert [form.rows.tolist() for form in read_forms(column.slice(3), paths.slice(3))] == [[1], [0]]
    (form,) = read_forms(pa.chunked_array([column.combine_chunks().slice(3, 1)]), paths.slice(3, 1))
    assert form.data[0].tobytes() == single(b"\2" * 60)


def test_a_footer_too_short_to_be_one_is_malformed_behind_a_good_one_too() -> None:
    entries = [KeyEntry(Binding(PEKS[0], ids).to_bytes(), bytes(60)) for ids in ((), (1,))]
    head = header(Algorithm.AES_GCM_V1, Footer.ENCRYPTED, footer_digest=True)
    good = KeyMetadata(head, tuple(entries), None, FooterDigest(12, bytes(32))).to_bytes()
    short = good[:-36] + (11).to_bytes(4, "big") + good[-32:]
    assert read(good, good) == [alone(good)] * 2
    assert read(good, short) == [alone(short)] * 2 == [None, None]


def test_what_is_malformed_names_its_path() -> None:
    column = pa.chunked_array([[single(bytes(60)), bytes(90), single(bytes(60))]], pa.binary())
    with pytest.raises(DecryptionRefused) as refused:
        read_forms(column, pa.chunked_array([["a", "b", "c"]]))
    assert refused.value.path == "b"
