"""Key metadata of many files: what is taken apart like an earlier one says exactly what it says by itself."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.keys.alike import FormReader
from catalog.keys.key_metadata import Binding, KeyEntry, KeyMetadata, header
from policy.encryption import Algorithm, Footer
from policy.errors import DecryptionRefused
from policy.regimes import PekRef

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
    algorithm, footer = draw(st.sampled_from(Algorithm)), draw(st.sampled_from(Footer))
    return KeyMetadata(header(algorithm, footer), tuple(entries)).to_bytes()


def read(reader: FormReader, data: bytes) -> KeyMetadata | None:
    try:
        return reader.read(data).metadata
    except DecryptionRefused:
        return None


def alone(data: bytes) -> KeyMetadata | None:
    try:
        return KeyMetadata.parse(data)
    except DecryptionRefused:
        return None


@given(st.lists(metadata(), min_size=1, max_size=4))
def test_one_after_the_other_is_read_as_each_alone(files: list[bytes]) -> None:
    reader = FormReader()
    for data in files * 2:
        assert read(reader, data) == alone(data)


@given(metadata(), st.data())
def test_a_changed_byte_is_read_as_if_it_came_alone(data: bytes, drawn: st.DataObject) -> None:
    at, byte = drawn.draw(st.integers(0, len(data) - 1)), drawn.draw(st.integers(0, 255))
    changed = data[:at] + bytes([byte]) + data[at + 1 :]
    reader = FormReader()
    reader.read(data)
    assert read(reader, changed) == alone(changed)


@given(metadata(), st.binary(max_size=200))
def test_anything_is_read_as_if_it_came_alone(data: bytes, other: bytes) -> None:
    reader = FormReader()
    reader.read(data)
    for changed in (other, data + other, data[: len(other)]):
        assert read(reader, changed) == alone(changed)


def test_files_that_differ_in_wrapped_keys_alone_have_one_form() -> None:
    def of(wrapped: bytes, pek: PekRef = PEKS[0]) -> bytes:
        entry = KeyEntry(Binding(pek, ()).to_bytes(), wrapped)
        return KeyMetadata(header(Algorithm.AES_GCM_V1, Footer.ENCRYPTED), (entry,)).to_bytes()

    reader = FormReader()
    first = reader.read(of(bytes(60)))
    assert reader.read(of(b"\1" * 60)).form is first.form
    for other in (of(bytes(44)), of(bytes(60), replace(PEKS[0], version=7))):
        assert reader.read(other).form is not first.form
        assert reader.read(of(b"\2" * 60)).form is first.form


def test_what_is_malformed_leaves_no_form_behind() -> None:
    reader = FormReader()
    for _ in range(2):
        with pytest.raises(DecryptionRefused):
            reader.read(bytes(90))
    assert not reader._latest
