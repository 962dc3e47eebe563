"""Thrift's compact protocol: footers come back byte for byte, and hostile bytes do nothing but be refused."""

from __future__ import annotations

import io
import struct

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.client import thrift
from catalog.client.thrift import Items, Malformed, Shape, Struct, Value
from tests.support.vectors import each_row

NUMBERS = st.integers(-(2**63), 2**63 - 1)
PLAIN = st.one_of(
    st.builds(Value, st.just(thrift.I64), NUMBERS),
    st.builds(Value, st.just(thrift.I32), st.integers(-(2**31), 2**31 - 1)),
    st.builds(Value, st.just(thrift.BYTE), st.integers(0, 255)),
    st.builds(Value, st.just(thrift.BINARY), st.binary(max_size=200)),
    st.builds(Value, st.just(thrift.DOUBLE), st.binary(min_size=8, max_size=8)),
    st.builds(Value, st.just(thrift.TRUE), st.just(True)),
    st.builds(Value, st.just(thrift.FALSE), st.just(False)),
    st.builds(
        lambda each: Value(thrift.LIST, Items(thrift.I32, each)), st.lists(st.integers(-5, 5), max_size=20)
    ),
)
STRUCTS = st.recursive(
    st.builds(Struct, st.dictionaries(st.integers(-(2**15), 2**15 - 1), PLAIN, max_size=5)),
    lambda inner: st.builds(
        Struct,
        st.dictionaries(
            st.integers(1, 40),
            st.one_of(
                PLAIN,
                st.builds(Value, st.just(thrift.STRUCT), inner),
                st.builds(
                    lambda each: Value(thrift.LIST, Items(thrift.STRUCT, each)), st.lists(inner, max_size=3)
                ),
            ),
            max_size=5,
        ),
    ),
    max_leaves=10,
)


@given(STRUCTS, st.binary(max_size=5))
def test_what_was_written_is_read(structure: Struct, behind: bytes) -> None:
    data = thrift.write(structure)
    assert thrift.read(data + behind) == (structure, len(data))


@given(STRUCTS, st.integers(0, 200))
def test_what_was_cut_is_refused(structure: Struct, at: int) -> None:
    data = thrift.write(structure)
    with pytest.raises(Malformed):
        thrift.read(data[: min(at, len(data) - 1)])


@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        structure, end = thrift.read(data)
    except Malformed:
        return
    assert end <= len(data)
    assert thrift.read(thrift.write(structure))[0] == structure


#: Bytes whose end other readers would see elsewhere, or nowhere.
WITHOUT_AN_END = [
    pytest.param(b"\x1c" * 100, id="nested too deep"),
    pytest.param(b"\x19" * 100, id="lists nested too deep"),
    pytest.param(b"\x18\xff\xff\xff\xff\x0f", id="a text that is longer than the bytes"),
    pytest.param(b"\x19\xf5\xff\xff\xff\xff\x0f", id="a list that is longer than the bytes"),
    pytest.param(b"\x1f\x00\x00", id="a type that there is not"),
    pytest.param(b"\x10\x00\x00", id="an end with a number"),
]


@each_row(
    "data",
    [
        *WITHOUT_AN_END,
        pytest.param(b"\x15\x02\x05\x02\x02\x00", id="a field twice"),
        pytest.param(b"\x16" + b"\xff" * 11 + b"\x00\x00", id="a number without an end"),
    ],
)
def test_hostile_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(Malformed):
        thrift.read(data)


@pytest.mark.parametrize("data", WITHOUT_AN_END)
def test_nothing_is_passed_over_that_has_no_end(data: bytes) -> None:
    with pytest.raises(Malformed):
        thrift.read(b"\x1c" + data + b"\x00\x00", shape=Shape())


SHAPES = st.recursive(
    st.builds(Shape), lambda inner: st.builds(Shape, st.dictionaries(st.integers(1, 40), inner, max_size=4))
)


@pytest.mark.nightly
@given(STRUCTS, SHAPES, st.binary(max_size=5))
def test_what_was_passed_over_ends_where_it_ends_and_writes_back(
    structure: Struct, shape: Shape, behind: bytes
) -> None:
    data = thrift.write(structure)
    found, end = thrift.read(data + behind, shape=shape)
    assert (thrift.write(found), end) == (data, len(data))


@given(st.binary(max_size=300), SHAPES)
def test_whatever_is_read_is_passed_over_alike(data: bytes, shape: Shape) -> None:
    try:
        structure, end = thrift.read(data)
    except Malformed:
        return
    found, end_of_found = thrift.read(data, shape=shape)
    assert end_of_found == end
    assert thrift.read(thrift.write(found))[0] == structure


def test_a_footer_of_pyarrow_writes_back_to_the_same_bytes() -> None:
    rows = pa.table({"a": [1, 2], "b": [{"c": [1.5]}, None], "d": ["x", None]})
    buffer = io.BytesIO()
    pq.write_table(rows, buffer, write_page_index=True)
    data = buffer.getvalue()
    (length,) = struct.unpack_from("<I", data, len(data) - 8)
    start = len(data) - 8 - length
    structure, end = thrift.read(data, start)
    assert end == start + length
    assert thrift.write(structure) == data[start:end]
