"""Compares a manifest list's record of a manifest with the manifest.

Rules (Iceberg specification, "Manifest Lists"):

- The counts of added, existing and deleted files, and of their rows, are exact. Version 1 can leave them out.
- `min_sequence_number` is at most the minimum data sequence number of the live files. With a greater one, a
  writer could drop delete files that still apply.
- A partition summary contains the value of every live file: null, NaN or within the bounds. A planner skips
  values that it does not contain. The summaries can be left out as a whole.

Readers order UUIDs in two ways, as unsigned bytes and, in Java, as two signed numbers. Bounds in either order
are accepted.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from decimal import Context, Decimal
from functools import partial
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.partitioning import PartitionSpec

from catalog.iceberg.avro.arrow import FIELD_ID
from catalog.iceberg.manifests.manifest_list import ManifestListEntry, PartitionSummary
from catalog.iceberg.manifests.statuses import ADDED, DELETED, EXISTING, alive
from policy.errors import MetadataInvalid

_STATUSES: Final = {"added": ADDED, "existing": EXISTING, "deleted": DELETED}
_UUID_BYTES: Final = 16
_WIDTHS: Final = (4, 8)
_FLOATS: Final = {4: "<f", 8: "<d"}
#: Python's default context rounds numbers to 28 digits.
_EXACT: Final = Context(prec=100)


def check_described(entry: ManifestListEntry, entries: pa.Table, spec: PartitionSpec, table: str) -> None:
    """Compare a record of a manifest list with the manifest's entries.

    Args:
        entry: the record.
        entries: the manifest's entries, with what they inherit.
        spec: the manifest's partition spec.
        table: dotted name, for errors.

    Raises:
        MetadataInvalid: they do not agree; the error names the manifest.
    """
    _check_counts(entry, entries, table)
    files = alive(entries)
    least = pc.min(files["sequence_number"]).as_py()
    if least is not None and entry.min_sequence_number > least:
        raise _wrong(
            entry,
            table,
            "min-sequence-number",
            f"min_sequence_number {entry.min_sequence_number}, but the manifest lists a file with "
            f"the number {least}",
        )
    _check_summaries(entry, files, spec, table)


def _check_counts(entry: ManifestListEntry, entries: pa.Table, table: str) -> None:
    for name, status in _STATUSES.items():
        mine = entries.filter(pc.equal(entries["status"], status))
        true = {f"{name}_files_count": mine.num_rows, f"{name}_rows_count": _sum(mine["record_count"])}
        for field, number in true.items():
            said = getattr(entry, field)
            if said is not None and said != number:
                raise _wrong(
                    entry, table, "manifest-counts", f"{field} {said}, but the manifest has {number}"
                )


def _sum(numbers: pa.ChunkedArray) -> int:
    total: int = pc.sum(numbers).as_py() or 0
    return total


def _check_summaries(entry: ManifestListEntry, files: pa.Table, spec: PartitionSpec, table: str) -> None:
    if entry.partitions is None:
        return
    if len(entry.partitions) != len(spec.fields):
        raise _wrong(
            entry,
            table,
            "partition-summary",
            f"{len(entry.partitions)} partition summaries, but its spec has {len(spec.fields)} fields",
        )
    if not spec.fields or not files.num_rows:
        return
    struct_column = files["partition"].combine_chunks()
    places = {int(kind.metadata[FIELD_ID.encode()]): place for place, kind in enumerate(struct_column.type)}
    for field, summary in zip(spec.fields, entry.partitions, strict=True):
        place = places.get(field.field_id)
        if place is None:
            raise _wrong(
                entry, table, "partition-summary", f"a summary of {field.name}, which the manifest lacks"
            )
        missing = _missing(summary, struct_column.field(place))
        if missing:
            raise _wrong(
                entry,
                table,
                "partition-summary",
                f"a summary of {field.name!r} that does not contain {missing}",
            )


def _missing(summary: PartitionSummary, values: pa.Array) -> str | None:
    """Describe the values that a partition field's summary does not contain; None if it contains all."""
    if values.null_count and not summary.contains_null:
        return "null"
    present = values.drop_null()
    if pa.types.is_floating(present.type):
        nan = pc.is_nan(present)
        if pc.any(nan).as_py() and summary.contains_nan is False:
            return "NaN"
        present = present.filter(pc.invert(nan))
    if not len(present) or pa.types.is_null(present.type):
        return None
    if summary.lower_bound is None or summary.upper_bound is None:
        return "its values: a bound is missing"
    try:
        within = _within(summary.lower_bound, summary.upper_bound, present)
    except (ValueError, struct.error):
        return "its values: a bound is not of their type"
    return None if within else "all of its values"


def _within(lower: bytes, upper: bytes, values: pa.Array) -> bool:
    kind = values.type
    if pa.types.is_fixed_size_binary(kind) and kind.byte_width == _UUID_BYTES:
        distinct = [value for value in pc.unique(values).to_pylist() if isinstance(value, bytes)]
        return any(_between(lower, upper, distinct, order) for order in (bytes, _signed_halves))
    if pa.types.is_fixed_size_binary(kind):
        values = values.cast(pa.binary())
    elif pa.types.is_temporal(kind):
        width = pa.int32() if kind.bit_width == 32 else pa.int64()
        values = values.cast(width)
    ends = pc.min_max(values).as_py()
    decode = _decoder(kind)
    return bool(decode(lower) <= ends["min"] and ends["max"] <= decode(upper))


def _between(lower: bytes, upper: bytes, values: list[bytes], order: Callable[[bytes], Any]) -> bool:
    if {len(lower), len(upper)} != {_UUID_BYTES}:
        return False
    low, high = order(lower), order(upper)
    return all(low <= order(value) <= high for value in values)


def _signed_halves(value: bytes) -> tuple[int, int]:
    high, low = struct.unpack(">qq", value)
    return high, low


def _decoder(kind: pa.DataType) -> Callable[[bytes], Any]:
    """Return the decoder of bounds (Iceberg specification, "Binary single-value serialization")."""
    if pa.types.is_boolean(kind):
        return lambda data: int(struct.unpack("<?", data)[0])
    if pa.types.is_floating(kind):
        return lambda data: struct.unpack(_FLOATS[_width(data, kind)], data)[0]
    if pa.types.is_decimal(kind):
        return lambda data: _decimal(data, kind.scale)
    if pa.types.is_string(kind):
        return lambda data: data.decode("utf-8")
    return (
        bytes if pa.types.is_binary(kind) or pa.types.is_fixed_size_binary(kind) else partial(_integer, kind)
    )


def _integer(kind: pa.DataType, data: bytes) -> int:
    _width(data, kind)
    return int.from_bytes(data, "little", signed=True)


def _width(data: bytes, kind: pa.DataType) -> int:
    """Return the width of a bound.

    Bounds from before a type was widened are shorter. A longer bound is refused, because readers use its
    first bytes.
    """
    if len(data) not in _WIDTHS or len(data) * 8 > kind.bit_width:
        raise ValueError("neither a 32-bit nor a 64-bit number, or a longer one than its type")
    return len(data)


def _decimal(data: bytes, scale: int) -> Decimal:
    if not data:
        raise ValueError("no number")
    return Decimal(int.from_bytes(data, "big", signed=True)).scaleb(-scale, _EXACT)


def _wrong(entry: ManifestListEntry, table: str, rule: str, said: str) -> MetadataInvalid:
    return MetadataInvalid(
        f"The manifest list states about a manifest: {said}.",
        table=table,
        path=entry.manifest_path,
        rule=rule,
        hint="Write the manifest list from the content of the manifest. `rewrite_manifests` writes "
        "both again.",
    )
