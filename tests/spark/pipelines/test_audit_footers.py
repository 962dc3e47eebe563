"""The audit of footers finds planted violations, on files that the Python client wrote, and no others."""

from __future__ import annotations

import datetime as dt
import math
import random
import struct
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

import lakewarden
from catalog.client import thrift
from catalog.client.thrift import Struct, Value
from catalog.envelope.key_metadata import FOOTER_DIGEST_FLAG, KeyMetadata
from policy.errors import LakewardenError
from tests.client.conftest import alice as alice
from tests.client.conftest import make as make
from tests.client.conftest import served as served
from tests.support.audited import Listed, audited, changed, found, path_of
from tests.support.forged_footers import element
from tests.support.service import Service

Change = Callable[[bytes], bytes]

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "i", IntegerType()),
    NestedField(3, "truth", BooleanType()),
    NestedField(4, "f", FloatType()),
    NestedField(5, "d", DoubleType()),
    NestedField(6, "s", StringType()),
    NestedField(7, "x", BinaryType()),
    NestedField(8, "day", DateType()),
    NestedField(9, "time", TimeType()),
    NestedField(10, "at", TimestamptzType()),
    NestedField(11, "local", TimestampType()),
    NestedField(12, "small", DecimalType(9, 2)),
    NestedField(13, "wide", DecimalType(38, 4)),
    NestedField(14, "fixed", FixedType(3)),
    NestedField(15, "uuid", UUIDType()),
    NestedField(16, "tags", ListType(17, StringType(), element_required=False)),
    NestedField(18, "pairs", MapType(19, StringType(), 20, IntegerType())),
    NestedField(21, "person", StructType(NestedField(22, "name", StringType()))),
)
FORMS = {
    "plain": {},
    "uniform": {"encryption.mechanism": "envelope"},
    "signed": {"encryption.mechanism": "envelope", "encryption.footer": "plaintext"},
    "keyed": {"encryption.columns": "pii:s,person,tags"},
    "keyed-signed": {"encryption.columns": "pii:s,person,tags", "encryption.footer": "plaintext"},
    "others": {"encryption.plaintext-columns": "i,person", "encryption.footer": "plaintext"},
    "ctr": {"encryption.algorithm": "AES_GCM_CTR_V1", "encryption.verify-digest": "always"},
    "stock": {"encryption.columns": "pii:s", "encryption.stock-readers": "true"},
    "stock-signed": {
        "encryption.columns": "pii:s",
        "encryption.stock-readers": "true",
        "encryption.footer": "plaintext",
    },
}
TRAILER = 8


def rows(count: int) -> pa.Table:
    """Rows with nulls, NaN, texts whose bounds are truncated, and bytes that have no upper bound."""
    numbers = list(range(-3, count - 3))
    zone = dt.UTC
    return pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "i": pa.array([None if each == 0 else -each for each in numbers], pa.int32()),
            "truth": [each % 2 == 0 for each in numbers],
            "f": pa.array([each / 7 for each in numbers], pa.float32()),
            "d": [math.nan if each == 1 else each / 3 for each in numbers],
            "s": [f"{'ü' * 20}{each}" for each in numbers],
            "x": [b"\xff" * 20 if each == 2 else b"" for each in numbers],
            "day": [dt.date(1970, 1, 1) + dt.timedelta(days=each) for each in numbers],
            "time": [dt.time(1, 2, 3, each + 3) for each in numbers],
            "at": [dt.datetime(1970, 1, 1, tzinfo=zone) + dt.timedelta(seconds=each) for each in numbers],
            "local": [dt.datetime(1970, 1, 1) + dt.timedelta(seconds=each) for each in numbers],
            "small": pa.array([Decimal(each).scaleb(-2) for each in numbers], pa.decimal128(9, 2)),
            "wide": pa.array([Decimal(each * 10**20).scaleb(-4) for each in numbers], pa.decimal128(38, 4)),
            "fixed": pa.array([bytes([each % 256] * 3) for each in numbers], pa.binary(3)),
            "uuid": pa.array([uuid4().bytes for _ in numbers], pa.binary(16)),
            "tags": [["a", None]] * count,
            "pairs": pa.array([[("k", each)] for each in numbers], pa.map_(pa.string(), pa.int32())),
            "person": [None if each == 0 else {"name": f"n{each}"} for each in numbers],
        }
    )


@pytest.fixture(scope="module")
def files(served: Service) -> dict[str, Listed]:
    """Two files of each form."""
    client = lakewarden.connect(served.url, served.token("alice"))
    made = {}
    for form, properties in FORMS.items():
        name = f"db.{form.replace('-', '_')}"
        served.lake.catalog().create_table(name, SCHEMA, properties=properties)
        for count in (9, 7):
            client.table(name).append(rows(count))
        made[form] = audited(served.lake, name)
    return made


def one(listed: Listed, **about: Any) -> Listed:
    """The first file alone, with other values in its entry."""
    part, entries = listed
    entries = entries.slice(0, 1)
    for name, value in about.items():
        place = entries.schema.get_field_index(name)
        kind = entries.schema.field(place).type
        entries = entries.set_column(place, name, pa.array([value], kind))
    return part, entries


def value(listed: Listed, name: str) -> Any:
    return listed[1][name][0].as_py()


def rules_of(listed: Listed, **options: Any) -> set[str]:
    return {each.rule for each in found(listed, **options)}


def broken(listed: Listed, change: Change) -> set[str]:
    """The rules that the first file breaks after a change that keeps the table's word of its size."""
    with changed(path_of(listed), change):
        size = path_of(listed).stat().st_size
        return rules_of(one(listed, file_size_in_bytes=size), verify=0.0)


def without_digest(listed: Listed) -> Listed:
    """The first file, as if it had been written before there were digests of footers."""
    known = KeyMetadata.parse(value(listed, "key_metadata"))
    head = bytes((*known.header[:2], known.header[2] & ~FOOTER_DIGEST_FLAG))
    older = known._replace(header=head, footer_digest=None)
    return one(listed, key_metadata=older.to_bytes())


def with_footer(data: bytes, change: Change) -> bytes:
    """A file with another footer."""
    start = len(data) - TRAILER - int.from_bytes(data[-TRAILER:-4], "little")
    footer = change(data[start:-TRAILER])
    return data[:start] + footer + struct.pack("<I4s", len(footer), data[-4:])


def edited(edit: Callable[[Struct], None]) -> Change:
    """Another footer of a file that anybody can write; a signature stays as it is."""

    def change(footer: bytes) -> bytes:
        metadata, end = thrift.read(footer)
        edit(metadata)
        return thrift.write(metadata) + footer[end:]

    return lambda data: with_footer(data, change)


def chunk(metadata: Struct, place: int) -> Struct:
    """A column of the first row group."""
    return metadata.structs(4)[0].structs(1)[place]


def said(metadata: Struct, place: int) -> Struct:
    """What a footer says of a column of the first row group."""
    found: Struct = chunk(metadata, place).get(3, thrift.STRUCT)
    return found


def test_good_files_of_the_python_client_have_no_findings(files: dict[str, Listed]) -> None:
    assert {form: found(listed) for form, listed in files.items()} == {form: [] for form in FORMS}


DAMAGES: dict[str, tuple[Change, str]] = {
    "truncated": (lambda data: data[:-100], "damaged-file"),
    "bytes at the end": (lambda data: data + b"more", "damaged-file"),
    "short": (lambda data: b"PAR1", "damaged-file"),
    "empty": (lambda data: b"", "damaged-file"),
    "length too large": (lambda data: data[:-8] + b"\xff\xff\xff\x7f" + data[-4:], "damaged-file"),
    "bytes behind": (lambda data: with_footer(data, lambda held: held + bytes(9)), "damaged-file"),
}  # fmt: skip


@pytest.mark.parametrize("form", ["plain", "uniform"])
def test_damaged_ends_of_files(files: dict[str, Listed], form: str) -> None:
    for name, (change, rule) in DAMAGES.items():
        assert broken(files[form], change) == {rule}, name


def test_files_in_the_place_of_others(files: dict[str, Listed]) -> None:
    data = {form: path_of(listed).read_bytes() for form, listed in files.items()}
    placed = {
        ("plain", "uniform"): "wrong-footer",
        ("plain", "signed"): "wrong-footer",
        ("uniform", "plain"): "plaintext-file",
        ("signed", "plain"): "plaintext-file",
        ("uniform", "signed"): "plaintext-file",
        ("signed", "uniform"): "wrong-footer",
        ("uniform", "ctr"): "wrong-footer",
        ("uniform", "stock"): "wrong-footer",
        ("keyed", "plain"): "plaintext-file",
        ("keyed", "uniform"): "wrong-digest",
        ("keyed-signed", "others"): "wrong-digest",
    }
    for (there, put), rule in placed.items():
        assert rule in broken(files[there], lambda _, put=put: data[put]), (there, put)
    # Without digests of footers, what files say of themselves tells them apart.
    older = {form: without_digest(files[form]) for form in ("keyed", "stock", "stock-signed", "others")}
    assert broken(older["others"], lambda _: data["signed"]) == {"wrong-footer"}
    for form in ("stock", "stock-signed"):
        sibling = path_of(files[form], 1).read_bytes()
        assert broken(older[form], lambda _, sibling=sibling: sibling) >= {"wrong-footer"}
        assert broken(older["keyed"], lambda _, form=form: data[form]) & {"wrong-footer", "plaintext-file"}


def test_the_digest_of_a_whole_file(files: dict[str, Listed]) -> None:
    listed = one(files["ctr"])
    with changed(path_of(listed), lambda data: data[:50] + bytes((data[50] ^ 1,)) + data[51:]):
        assert rules_of(listed, verify=1.0) == {"wrong-digest"}
        assert rules_of(listed, verify=0.0) == set()


def test_one_bad_file_does_not_hide_another(files: dict[str, Listed]) -> None:
    part, entries = files["plain"]
    paths = [path_of(files["plain"], row) for row in (0, 1)]
    with (
        changed(paths[0], lambda data: data[:-1] + b"2"),
        changed(paths[1], lambda data: data[:-1] + b"E"),
    ):
        problems = [(each.rule, each.path) for each in found((part, entries))]
    assert problems == [("damaged-file", f"file://{paths[0]}"), ("wrong-footer", f"file://{paths[1]}")]


def test_counts_and_bounds_in_manifests_that_contradict_a_footer(files: dict[str, Listed]) -> None:
    listed = files["plain"]
    assert rules_of(one(listed, record_count=5)) == {"wrong-statistics"}
    lower, upper = (dict(value(listed, name)) for name in ("lower_bounds", "upper_bounds"))
    bounded = {2, 3, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}
    assert bounded - lower.keys() == set()
    assert bounded - upper.keys() == {7}
    for number in bounded:
        bound = upper.get(number, b"\xff" * 21)
        problems = found(one(listed, lower_bounds=list((lower | {number: bound}).items())))
        assert [each.rule for each in problems] == ["wrong-statistics"], number
        if number in upper:
            problems = found(one(listed, upper_bounds=list((upper | {number: lower[number]}).items())))
            assert [each.rule for each in problems] == ["wrong-statistics"], number
    for name, number in (("value_counts", 2), ("null_value_counts", 2), ("null_value_counts", 22)):
        counts = dict(value(listed, name))
        assert counts[number] > 0
        counts[number] -= 1
        assert rules_of(one(listed, **{name: list(counts.items())})) == {"wrong-statistics"}, (name, number)
    counts = dict(value(listed, "value_counts")) | {77: 1}
    assert rules_of(one(listed, value_counts=list(counts.items()))) == {"wrong-statistics"}
    # Wider bounds, missing ones, and those that have not their type skip no file.
    wide = lower | {2: struct.pack("<i", -(2**31)), 6: b"", 8: b"\0"}
    del wide[9]
    assert rules_of(one(listed, lower_bounds=list(wide.items()))) == set()


def put(number: int, kind: int, held: Any) -> Callable[[Struct], None]:
    def change(where: Struct) -> None:
        where.fields[number] = Value(kind, held)
        where.fields = dict(sorted(where.fields.items()))

    return change


def of_element(name: bytes, change: Callable[[Struct], None]) -> Callable[[Struct], None]:
    return lambda metadata: change(element(metadata, name))


def of_chunk(place: int, change: Callable[[Struct], None]) -> Callable[[Struct], None]:
    return lambda metadata: change(said(metadata, place))


def _without_groups(metadata: Struct) -> None:
    put(4, thrift.LIST, thrift.Items(thrift.STRUCT, []))(metadata)


def _pages_of_another(metadata: Struct) -> None:
    put(9, thrift.I64, said(metadata, 0).get(9, thrift.I64))(said(metadata, 1))
    put(11, thrift.I64, 0)(said(metadata, 1))


def _elsewhere(metadata: Struct) -> None:
    put(1, thrift.BINARY, b"file:///etc/passwd")(chunk(metadata, 1))


def _encrypted(metadata: Struct) -> None:
    put(8, thrift.STRUCT, Struct({1: Value(thrift.STRUCT, Struct())}))(chunk(metadata, 1))


def _bytes(found: Struct) -> None:
    for number in (6, 10):
        found.fields.pop(number, None)


EDITS: dict[str, tuple[Callable[[Struct], None], str]] = {
    "another type": (of_element(b"i", put(1, thrift.I32, 4)), "wrong-columns"),
    "another decimal": (of_element(b"small", put(7, thrift.I32, 3)), "wrong-columns"),
    "no text": (of_element(b"s", _bytes), "wrong-columns"),
    "two with one id": (of_element(b"i", put(9, thrift.I32, 3)), "wrong-columns"),
    "in another struct": (of_element(b"person", put(9, thrift.I32, 99)), "wrong-columns"),
    "an unknown id": (of_element(b"i", put(9, thrift.I32, 99)), "unknown-columns"),
    "no id": (of_element(b"i", lambda found: found.fields.pop(9)), "unknown-columns"),
    "never null": (of_element(b"truth", put(3, thrift.I32, 0)), "unknown-columns"),
    "null where none can be": (of_element(b"id", put(3, thrift.I32, 1)), "wrong-columns"),
    "rows": (put(3, thrift.I64, 8), "wrong-statistics"),
    "rows of a group": (lambda found: put(3, thrift.I64, 8)(found.structs(4)[0]), "wrong-statistics"),
    "no row group": (_without_groups, "wrong-statistics"),
    "values": (of_chunk(1, put(5, thrift.I64, 8)), "wrong-statistics"),
    "pages elsewhere": (of_chunk(1, put(9, thrift.I64, 1 << 40)), "damaged-file"),
    "pages of another column": (_pages_of_another, "damaged-file"),
    "path of another column": (of_chunk(1, put(3, thrift.LIST, thrift.Items(8, [b"d"]))), "damaged-file"),
    "another file": (_elsewhere, "damaged-file"),
    "an unknown codec": (of_chunk(1, put(4, thrift.I32, 77)), "damaged-file"),
    "encrypted": (_encrypted, "wrong-footer"),
}  # fmt: skip


def test_footers_of_plaintext_files(files: dict[str, Listed]) -> None:
    for name, (edit, rule) in EDITS.items():
        assert rule in broken(files["plain"], edited(edit)), name


def test_columns_of_signed_footers(files: dict[str, Listed]) -> None:
    listed = without_digest(files["keyed-signed"])
    place = [leaf.get(4, thrift.BINARY) for leaf in _leaves(listed)].index(b"s")

    def shown(metadata: Struct) -> None:
        put(12, thrift.STRUCT, Struct({3: Value(thrift.I64, 1)}))(said(metadata, place))

    def in_plaintext(metadata: Struct) -> None:
        for each in (8, 9):
            chunk(metadata, place).fields.pop(each)

    def in_other_plaintext(metadata: Struct) -> None:
        chunk(metadata, 1).fields[8] = chunk(metadata, place).fields[8]

    assert broken(listed, edited(shown)) == {"plaintext-statistics"}
    assert broken(listed, edited(in_plaintext)) == {"wrong-footer"}
    assert broken(listed, edited(in_other_plaintext)) == {"wrong-footer"}
    assert broken(listed, edited(lambda metadata: element(metadata, b"s").fields.pop(9))) >= {"wrong-footer"}
    unsigned = broken(listed, _unsigned)
    assert unsigned == {"plaintext-file"}


def _leaves(listed: Listed) -> list[Struct]:
    data = path_of(listed).read_bytes()
    length = int.from_bytes(data[-TRAILER:-4], "little")
    metadata, _ = thrift.read(data[len(data) - TRAILER - length :])
    return [each for each in metadata.structs(2)[1:] if not each.get(5, thrift.I32)]


def _unsigned(data: bytes) -> bytes:
    return with_footer(data, lambda footer: footer[:-28])


def values(data: bytes) -> dict[Any, str]:
    """What a reader by field ids gets out of a plaintext file."""
    table = pq.read_table(pa.BufferReader(data))
    return {
        (field.metadata or {}).get(b"PARQUET:field_id"): repr(_plain(_whole(column).to_pylist()))
        for field, column in zip(table.schema, table.columns, strict=True)
    }


def _whole(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Days as numbers, and instants without a zone, which readers take from the table."""
    if column.type == pa.date32():
        return column.cast(pa.int32())
    if pa.types.is_timestamp(column.type):
        return column.cast(pa.timestamp(column.type.unit))
    return column


def _plain(held: Any) -> Any:
    """Values without the names of fields, which readers do not go by."""
    if isinstance(held, dict):
        return [_plain(each) for each in held.values()]
    return [_plain(each) for each in held] if isinstance(held, list | tuple) else held


def mutations(data: bytes, share: int, seed: int = 7) -> Iterator[tuple[int, bytes]]:
    """A file with one bit of its footer flipped, at one byte of each step."""
    chosen = random.Random(seed)
    start = len(data) - TRAILER - int.from_bytes(data[-TRAILER:-4], "little")
    for at in range(start, len(data)):
        if chosen.randrange(share) == 0:
            yield at, data[:at] + bytes((data[at] ^ 1 << chosen.randrange(8),)) + data[at + 1 :]


def unnoticed(listed: Listed, share: int, seed: int = 7) -> list[int]:
    """Where a flipped bit is not found, and PyArrow reads other values."""
    path = path_of(listed)
    good = path.read_bytes()
    truth, missed = values(good), []
    for at, data in mutations(good, share, seed):
        with changed(path, lambda _, data=data: data):
            if found(listed, verify=0.0):
                continue
            try:
                same = values(data) == truth
            except (pa.ArrowException, OSError, UnicodeDecodeError, OverflowError, ValueError):
                continue
            if not same:
                missed.append(at)
    return missed


def test_a_flipped_bit_in_a_plaintext_footer_is_found_or_changes_no_value(files: dict[str, Listed]) -> None:
    assert unnoticed(one(files["plain"]), share=10) == []


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(4))
def test_any_flipped_bit_in_a_plaintext_footer(files: dict[str, Listed], seed: int) -> None:
    assert unnoticed(one(files["plain"]), share=1, seed=seed) == []


@pytest.mark.parametrize("form", ["keyed", "keyed-signed", "stock"])
def test_a_flipped_bit_in_a_footer_with_a_digest_is_found(files: dict[str, Listed], form: str) -> None:
    listed = one(files[form])
    good = path_of(listed).read_bytes()
    for at, data in mutations(good, share=20):
        with changed(path_of(listed), lambda _, data=data: data):
            assert found(listed, verify=0.0), at


@pytest.mark.parametrize("form", ["uniform", "signed"])
def test_a_flipped_bit_in_another_encrypted_footer_is_found_or_refused(
    files: dict[str, Listed], form: str, served: Service
) -> None:
    listed = one(files[form])
    good = path_of(listed).read_bytes()
    table = lakewarden.connect(served.url, served.token("alice")).table(f"db.{form}")
    for at, data in mutations(good, share=60):
        with changed(path_of(listed), lambda _, data=data: data):
            if not found(listed, verify=0.0):
                with pytest.raises(LakewardenError):
                    table.scan().to_arrow()
                assert at >= 0
