"""What a manifest list says of a manifest contains every file of it, for partition values of every type."""

from __future__ import annotations

import math
import struct
from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import IdentityTransform

from catalog.iceberg.manifests import ManifestContent, ManifestListEntry, PartitionSummary
from catalog.iceberg.manifests.descriptions import check_described
from policy.errors import MetadataInvalid
from tests.support.vectors import each_row

FIELD = 1000
NAN = math.nan
#: More digits than Python's own context keeps; rounded to those, the first is not the greater one.
LONG, SHORTER = Decimal("12345678901234567890123456789012345.67"), 1234567890123456789012345678901234566
LOW, HIGH = b"\x00" * 16, b"\xff" * 16
NEGATIVE, POSITIVE = b"\x80" + b"\x00" * 15, b"\x7f" + b"\xff" * 15


def check(values: pa.Array, *said: PartitionSummary, field_id: int = FIELD) -> None:
    """Compare a list that says this with a manifest whose files have these partition values."""
    kind = pa.struct([pa.field("p", values.type, metadata={"field-id": str(field_id)})])
    count = len(values)
    entries = pa.table(
        {
            "status": pa.array([1] * count, pa.int32()),
            "record_count": pa.array([1] * count, pa.int64()),
            "sequence_number": pa.array([1] * count, pa.int64()),
            "partition": pa.StructArray.from_arrays([values], fields=list(kind)),
        }
    )
    counts = (count, 0, 0, count, 0, 0)
    entry = ManifestListEntry("m.avro", 1, 0, ManifestContent.DATA, 1, 1, 1, *counts, said, None, None)
    spec = PartitionSpec(PartitionField(1, FIELD, IdentityTransform(), "p"))
    check_described(entry, entries, spec, "db.t")


def between(lower: bytes | None, upper: bytes | None, nan: bool | None = False) -> PartitionSummary:
    return PartitionSummary(False, nan, lower, upper)


def of(form: str, lower: Any, upper: Any) -> PartitionSummary:
    return between(struct.pack(form, lower), struct.pack(form, upper))


def unscaled(number: int) -> bytes:
    return number.to_bytes(16, "big", signed=True)


SOUND = {
    "integers": (pa.array([1, 5], pa.int32()), of("<i", 1, 5)),
    "bounds of before the type was widened": (pa.array([1, 5], pa.int64()), of("<i", 1, 5)),
    "floats of before the type was widened": (pa.array([1.0, 5.0]), of("<f", 1, 5)),
    "NaN that is said": (pa.array([1.0, NAN]), between(*[struct.pack("<d", 1)] * 2, nan=True)),
    "NaN of which nothing is said": (pa.array([1.0, NAN]), between(*[struct.pack("<d", 1)] * 2, nan=None)),
    "NaN alone": (pa.array([NAN]), between(None, None, nan=True)),
    "booleans": (pa.array([False, True]), between(b"\0", b"\1")),
    "texts": (pa.array(["a", "ü"]), between(b"a", "ü".encode())),
    "days": (pa.array([date(1970, 1, 3)]), of("<i", 2, 2)),
    "times": (pa.array([7], pa.timestamp("us")), of("<q", 7, 7)),
    "decimals": (pa.array([LONG]), between(unscaled(SHORTER + 1), unscaled(SHORTER + 1))),
    "fixed": (pa.array([b"abcd"], pa.binary(4)), between(b"abc", b"abce")),
    "UUIDs in the order of bytes": (pa.array([LOW, HIGH], pa.binary(16)), between(LOW, HIGH)),
    "UUIDs in Java's order": (pa.array([NEGATIVE, POSITIVE], pa.binary(16)), between(NEGATIVE, POSITIVE)),
}
UNSOUND = {
    "no lower bound": (pa.array([1], pa.int32()), between(None, struct.pack("<i", 1))),
    "no upper bound": (pa.array([1], pa.int32()), between(struct.pack("<i", 1), None)),
    "a bound of another length": (pa.array([1], pa.int64()), of("<h", 1, 1)),
    "a bound longer than its type": (pa.array([1], pa.int32()), of("<q", 1, 1)),
    "NaN that is denied": (pa.array([1.0, NAN]), of("<d", 1, 1)),
    "a number beside NaN": (pa.array([1.0, NAN]), between(*[struct.pack("<d", 2)] * 2, nan=True)),
    "booleans": (pa.array([False, True]), between(b"\0", b"\0")),
    "an empty bound of booleans": (pa.array([True]), between(b"", b"\1")),
    "texts": (pa.array(["a", "ü"]), between(b"a", b"u")),
    "a bound that is no text": (pa.array(["a"]), between(b"a", b"\xff")),
    "days": (pa.array([date(1970, 1, 3)]), of("<i", 0, 1)),
    "decimals": (pa.array([LONG]), between(unscaled(0), unscaled(SHORTER))),
    "an empty bound of decimals": (pa.array([LONG]), between(b"", unscaled(SHORTER + 1))),
    "fixed": (pa.array([b"abcd"], pa.binary(4)), between(b"abc", b"abcc")),
    "UUIDs in no order": (pa.array([LOW, HIGH], pa.binary(16)), between(LOW, NEGATIVE)),
    "UUIDs of another length": (pa.array([LOW], pa.binary(16)), between(b"", HIGH + b"\xff")),
}


@each_row(("values", "said"), SOUND.values())
def test_a_summary_that_contains_its_values(values: pa.Array, said: PartitionSummary) -> None:
    check(values, said)


@each_row(("values", "said"), UNSOUND.values())
def test_a_summary_that_leaves_a_value_out(values: pa.Array, said: PartitionSummary) -> None:
    """A planner would pass over the value's file."""
    _refused(values, said)


def test_each_partition_field_has_one_summary() -> None:
    values, said = pa.array([1], pa.int32()), of("<i", 1, 1)
    _refused(values)
    _refused(values, said, said)
    _refused(values, said, field_id=FIELD + 1)


def _refused(values: pa.Array, *said: PartitionSummary, field_id: int = FIELD) -> None:
    with pytest.raises(MetadataInvalid) as refusal:
        check(values, *said, field_id=field_id)
    assert refusal.value.rule == "partition-summary" and refusal.value.path == "m.avro"
