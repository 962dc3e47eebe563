"""Footers by a user who has the footer's key of a file, and not that of a column.

They give what is in plaintext the field id of the column whose key they lack, in each way in which another
reader of the footer could be brought to see another schema than the one that was judged. Nobody can read its
values.

The files here are as if they had been written before key metadata kept digests of footers; others are in
test_footer_digests.py.
"""

from __future__ import annotations

import base64
import contextlib
import struct
import tracemalloc
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import (
    DecimalType,
    IcebergType,
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
)

import lakewarden
from catalog.client import footers, thrift
from catalog.client.footers import FileKeys
from catalog.client.scan import Scan
from catalog.client.thrift import Items, Struct, Value
from catalog.crypto.secret import SecretBytes
from policy.encryption.specification import Algorithm, Footer
from policy.errors import DecryptionRefused
from tests.support.forged_footers import element, forged, local, numbered, read
from tests.support.vectors import each_row

Make = Callable[..., str]
Edit = Callable[[Struct], None]

SCHEMA = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "name", StringType()),
    NestedField(3, "ssn", StringType()),
)
ROWS = pa.table({"id": [1, 2], "name": ["forged", "forged"], "ssn": ["x", "y"]})
PAID = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "pay", LongType()),
    NestedField(3, "bonus", LongType()),
)
TEXTS = ListType(10, StringType())
PAIRS = MapType(10, StringType(), 11, StringType())
REPETITION, NAME, CONVERTED, FIELD_ID, LOGICAL = 3, 4, 6, 9, 10
FORMS = {"keyed": {}, "keyed-signed": {"encryption.footer": "plaintext"}}


@pytest.fixture
def people(make: Make, alice: lakewarden.Connection, form: str) -> Scan:
    """A table with a key for `ssn`."""
    table = alice.table(make(SCHEMA, properties={"encryption.columns": "pii:ssn"} | FORMS[form]))
    table.append(ROWS)
    return table.scan()


@pytest.fixture
def paid(make: Make, alice: lakewarden.Connection, form: str) -> Scan:
    """A table with one key for `pay` and `bonus`."""
    table = alice.table(make(PAID, properties={"encryption.columns": "pii:pay,bonus"} | FORMS[form]))
    table.append(pa.table({"id": [1, 2], "pay": [2**40, 2**41], "bonus": [1, 2]}))
    return table.scan()


@contextlib.contextmanager
def forged_for_now(scan: Scan, edit: Edit) -> Iterator[None]:
    """The one file of a scan with another footer, and then as it was."""
    (file,) = scan._plan().files
    good = local(file).read_bytes()
    forged(scan, edit)
    try:
        yield
    finally:
        local(file).write_bytes(good)


@pytest.mark.parametrize("form", FORMS)
@each_row("edit", ["arrow", "arrow_besides", "wide_id", "wide_number", "empty_group"])
def test_a_column_in_plaintext_that_takes_the_place_of_one_with_a_key(people: Scan, edit: str) -> None:
    with forged_for_now(people, EDITS[edit]):
        refused_or_true(people, "ssn", ["x", "y"])


@pytest.mark.parametrize(("kind", "values"), [(TEXTS, [["f"], ["g"]]), (PAIRS, [[("f", "g")], []])])
def test_elements_in_plaintext_below_a_list_or_map_with_a_key(
    make: Make, alice: lakewarden.Connection, kind: Any, values: list[Any]
) -> None:
    schema = Schema(
        NestedField(1, "id", LongType()), NestedField(2, "open", kind), NestedField(3, "secret", kind)
    )
    table = alice.table(make(schema, properties={"encryption.columns": "pii:secret"}))
    like = pa.map_(pa.string(), pa.string()) if kind is PAIRS else pa.list_(pa.string())
    table.append(pa.table({"id": [1, 2], "open": pa.array(values, like), "secret": pa.array([[], []], like)}))

    def edit(metadata: Struct) -> None:
        numbered(metadata, b"open", element(metadata, b"secret").get(FIELD_ID, thrift.I32))
        numbered(metadata, b"secret", 77)

    forged(table.scan(), edit)
    with pytest.raises(DecryptionRefused, match="field-id"):
        read(table.scan(), "secret")


@pytest.mark.parametrize(("edit", "records"), [("no_groups", 2), ("half_a_group", 2), ("short_group", 5)])
def test_a_footer_with_another_number_of_rows(
    make: Make, alice: lakewarden.Connection, edit: str, records: int
) -> None:
    table = alice.table(make(SCHEMA, properties={"encryption.columns": "pii:ssn"}))
    table.append(ROWS)
    forged(table.scan(), COUNTS[edit])
    with pytest.raises(DecryptionRefused, match="record-count"):
        read(table.scan(), "name", records)


@pytest.mark.parametrize("form", Footer)
def test_a_footer_that_nobody_signed_is_not_taken_apart(form: Footer) -> None:
    """A list of 200,000 empty structures, which each take a byte in the file and some hundred in memory."""
    bomb = b"\x99\xfc" + b"\xc0\x9a\x0c" + bytes(200_000) + b"\x00"
    magic = b"PARE" if form is Footer.ENCRYPTED else b"PAR1"
    data = magic + bomb + bytes(28) + struct.pack("<I4s", len(bomb) + 28, magic)
    keys = FileKeys(Algorithm.AES_GCM_V1, form, SecretBytes(bytes(32)), None, b"prefix")
    tracemalloc.start()
    try:
        with pytest.raises(DecryptionRefused):
            footers.read(lambda start, length: data[start : start + length], len(data), keys)
        assert tracemalloc.get_traced_memory()[1] < 4_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("form", FORMS)
@each_row("edit", ["left_out", "another_type", "another_name"])
def test_a_column_with_a_key_that_is_left_out_or_described_otherwise(paid: Scan, edit: str) -> None:
    """Left out, it would be null; as another one, its bytes would mean other values."""
    assert (read(paid, "pay"), read(paid, "bonus")) == ([2**40, 2**41], [1, 2])
    with forged_for_now(paid, DESCRIBED[edit]):
        for column in ("pay", "bonus"):
            with pytest.raises(DecryptionRefused, match="column-key"):
                read(paid, column)


def test_a_decimal_with_a_key_whose_values_are_said_to_be_shorter(
    make: Make, alice: lakewarden.Connection
) -> None:
    """The bytes of one value would be read as two."""
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "pay", DecimalType(38, 2)))
    table = alice.table(make(schema, properties={"encryption.columns": "pii:pay"}))
    values = pa.array([Decimal("12345678901234567890123456789.25"), Decimal("2.00")], pa.decimal128(38, 2))
    table.append(pa.table({"id": [1, 2], "pay": values}))
    assert read(table.scan(), "pay") == values.to_pylist()

    def edit(metadata: Struct) -> None:
        fields = element(metadata, b"pay").fields
        fields |= {2: Value(thrift.I32, 9), 8: Value(thrift.I32, 20)}
        del fields[LOGICAL]

    forged(table.scan(), edit)
    with pytest.raises(DecryptionRefused, match="column-key"):
        read(table.scan(), "pay")


INSIDE = StructType(NestedField(10, "a", LongType()))


@pytest.mark.parametrize(("kind", "path"), [(LongType(), b"pay"), (INSIDE, b"pay"), (INSIDE, b"a")])
def test_a_column_with_a_key_that_is_said_to_have_no_null(
    make: Make, alice: lakewarden.Connection, kind: IcebergType, path: bytes
) -> None:
    """What says where null is would be read as values."""
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "pay", kind))
    table = alice.table(make(schema, properties={"encryption.columns": "pii:pay"}))
    values = [1, 2] if kind.is_primitive else [{"a": 1}, {"a": 2}]
    table.append(pa.table({"id": [1, 2], "pay": values}))
    assert read(table.scan(), "pay") == values

    def edit(metadata: Struct) -> None:
        element(metadata, path).fields[REPETITION] = Value(thrift.I32, 0)

    forged(table.scan(), edit)
    with pytest.raises(DecryptionRefused, match="column-key"):
        read(table.scan(), "pay")


def test_a_required_column_with_a_key_is_read(make: Make, alice: lakewarden.Connection) -> None:
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "pay", LongType(), required=True))
    table = alice.table(make(schema, properties={"encryption.columns": "pii:pay"}))
    table.append(pa.table({"id": [1, 2], "pay": [1, 2]}))
    assert read(table.scan(), "pay") == [1, 2]


DAY = 86_400_000_000
WRITTEN = {
    "timestamptz": (TimestamptzType(), pa.array([DAY, 1000], pa.timestamp("us", "UTC"))),
    "timestamp": (TimestampType(), pa.array([DAY, 1000], pa.timestamp("us"))),
    "time": (TimeType(), pa.array([3_600_000_000, 1000], pa.time64("us"))),
    "int": (IntegerType(), pa.array([100_000, 1000], pa.int32())),
    "long": (LongType(), pa.array([2**40, 5], pa.int64())),
}
TIME, TIMESTAMP = 7, 8
MILLIS, NANOS = 1, 3


def in_units(logical: int, unit: int, *, adjusted: bool) -> dict[int, Value]:
    """What a footer says of times in other units."""
    named = Struct({unit: Value(thrift.STRUCT, Struct())})
    kind = Struct({1: Value(thrift.TRUE, adjusted), 2: Value(thrift.STRUCT, named)})
    return {LOGICAL: Value(thrift.STRUCT, Struct({logical: Value(thrift.STRUCT, kind)}))}


@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("timestamptz", {CONVERTED: Value(thrift.I32, 9)}),
        ("timestamptz", in_units(TIMESTAMP, MILLIS, adjusted=True)),
        ("timestamptz", in_units(TIMESTAMP, NANOS, adjusted=True)),
        ("timestamp", in_units(TIMESTAMP, NANOS, adjusted=False)),
        ("time", in_units(TIME, NANOS, adjusted=False)),
        ("int", {CONVERTED: Value(thrift.I32, 15)}),
        ("int", {CONVERTED: Value(thrift.I32, 16)}),
        ("int", {CONVERTED: Value(thrift.I32, 13)}),
        ("long", {LOGICAL: Value(thrift.STRUCT, Struct({11: Value(thrift.STRUCT, Struct())}))}),
    ],
    ids=["ms", "ms-logical", "ns", "ns-without-zone", "time-ns", "8 bits", "16 bits", "unsigned", "null"],
)
def test_a_column_with_a_key_whose_values_are_said_to_mean_others(
    make: Make, alice: lakewarden.Connection, written: str, said: dict[int, Value]
) -> None:
    """Its type is not under its own key, and who has the footer's would make days of milliseconds."""
    kind, values = WRITTEN[written]
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "pay", kind))
    table = alice.table(make(schema, properties={"encryption.columns": "pii:pay"}))
    table.append(pa.table({"id": [1, 2], "pay": values}))
    assert read(table.scan(), "pay") == values.to_pylist()

    def edit(metadata: Struct) -> None:
        fields = element(metadata, b"pay").fields
        kept = {number: held for number, held in fields.items() if number not in (CONVERTED, LOGICAL)}
        fields.clear()
        fields.update(sorted((kept | said).items()))

    forged(table.scan(), edit)
    with pytest.raises(DecryptionRefused, match="column-key"):
        read(table.scan(), "pay")


def refused_or_true(scan: Scan, column: str, values: list[Any]) -> None:
    """Nothing but the column's own values is read."""
    with contextlib.suppress(DecryptionRefused):
        assert read(scan, column) == values


def arrow(metadata: Struct) -> None:
    element(metadata, b"name").fields.pop(FIELD_ID)
    numbered(metadata, b"ssn", 77)
    _with_arrow_schema(metadata, {"id": 1, "name": 3, "ssn": 77})


def arrow_besides(metadata: Struct) -> None:
    _with_arrow_schema(metadata, {"id": 1, "name": 3, "ssn": 2})


def wide_id(metadata: Struct) -> None:
    """Of a number of more than 32 bits, other readers see the lower ones."""
    numbered(metadata, b"name", 2**32 + 3)
    numbered(metadata, b"ssn", 77)


def wide_number(metadata: Struct) -> None:
    """The same for the number of a field in the footer: here the field id's, a second time."""
    element(metadata, b"name").fields[2**16 + FIELD_ID] = Value(thrift.I32, 3)
    numbered(metadata, b"ssn", 77)


def empty_group(metadata: Struct) -> None:
    """A group without columns, which shifts them all by one if it is counted as a column."""
    name = element(metadata, b"name")
    name.fields = {number: name.fields[number] for number in (3, NAME)}
    name.fields |= {5: Value(thrift.I32, 0), FIELD_ID: Value(thrift.I32, 50)}
    metadata.fields.pop(7)  # The orders of columns, of which there is one too many now.


def no_groups(metadata: Struct) -> None:
    metadata.fields[3] = Value(thrift.I64, 0)
    metadata.fields[4] = Value(thrift.LIST, Items(thrift.STRUCT, []))


def half_a_group(metadata: Struct) -> None:
    """The group says one row, the file as many as there were."""
    metadata.structs(4)[0].fields[3] = Value(thrift.I64, 1)


def short_group(metadata: Struct) -> None:
    """Of two groups one is left out, and the other says the rows of both: here one says more than it has."""
    metadata.structs(4)[0].fields[3] = Value(thrift.I64, 5)
    metadata.fields[3] = Value(thrift.I64, 5)


def left_out(metadata: Struct) -> None:
    """The last column is gone from the schema and from every row group."""
    metadata.structs(2)[0].fields[5] = Value(thrift.I32, 2)
    kept = [each for each in metadata.structs(2) if each.get(NAME, thrift.BINARY) != b"bonus"]
    metadata.fields[2] = Value(thrift.LIST, Items(thrift.STRUCT, kept))
    for group in metadata.structs(4):
        group.fields[1] = Value(thrift.LIST, Items(thrift.STRUCT, group.structs(1)[:2]))
    metadata.fields.pop(7)


def another_type(metadata: Struct) -> None:
    """Numbers of 64 bits are read as if they had 32, which a column may have been promoted from."""
    element(metadata, b"pay").fields[1] = Value(thrift.I32, 1)


def another_name(metadata: Struct) -> None:
    """Two columns under one key change places: names and ids."""
    pay, bonus = element(metadata, b"pay"), element(metadata, b"bonus")
    pay.fields, bonus.fields = bonus.fields, pay.fields


COUNTS: dict[str, Edit] = {each.__name__: each for each in (no_groups, half_a_group, short_group)}
DESCRIBED: dict[str, Edit] = {each.__name__: each for each in (left_out, another_type, another_name)}
EDITS: dict[str, Edit] = {
    each.__name__: each for each in (arrow, arrow_besides, wide_id, wide_number, empty_group)
}


def _with_arrow_schema(metadata: Struct, ids: dict[str, int]) -> None:
    fields = [
        each.with_metadata({"PARQUET:field_id": str(ids[each.name])}) if each.name in ids else each
        for each in ROWS.schema
    ]
    said = base64.b64encode(pa.schema(fields).serialize().to_pybytes())
    pair = Struct({1: Value(thrift.BINARY, b"ARROW:schema"), 2: Value(thrift.BINARY, said)})
    metadata.fields[5] = Value(thrift.LIST, Items(thrift.STRUCT, [pair]))
    metadata.fields = dict(sorted(metadata.fields.items()))
