"""Encrypted statistics: bounds and counts of encrypted columns, sealed into the key metadata of their file.

Rules:
- Statistics of a key's columns are sealed under that key's PEK only, so that permission for the key is
  permission for its statistics.
- A sealed value is bound like the file's wrapped keys, under its own purpose: it does not open in another
  table, for another file, key or group of columns, nor in place of a data key.
- Each value has one encoding, padded to a multiple of 256 bytes: lengths reveal almost nothing of values.
- Statistics that do not open, or are malformed, are `DecryptionRefused`, never "no bounds".

Source: docs/key-metadata.md, "Encrypted statistics".
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Final, NamedTuple

from catalog.crypto.aead import OVERHEAD
from catalog.envelope.key_metadata import BOUNDS_STEP, MAX_BYTES
from policy.errors import DecryptionRefused

#: The maximum length of a bound; longer ones are left out. Writers truncate texts and bytes far below this.
MAX_BOUND_BYTES: Final = 255
_MAX_COUNT: Final = 2**63 - 1
_COUNT: Final = struct.Struct(">H")
#: Flags for the counts of values, nulls and NaN, and for the lower and upper bound.
COUNT_FLAGS: Final = (0x01, 0x02, 0x04)
END_FLAGS: Final = (0x08, 0x10)
_ALL: Final = 0x1F
_LENGTH_BYTES: Final = 2
_PER_COLUMN: Final = 5 + 2
_PER_NUMBER: Final = 8


class ColumnBounds(NamedTuple):
    """The statistics of a column in one file; None if unknown.

    Attributes:
        values: number of values, nulls and NaN included.
        nulls: number of nulls.
        nans: number of NaN.
        lower: a lower bound in single-value form (Iceberg table specification, "Appendix D").
        upper: an upper bound.
    """

    values: int | None = None
    nulls: int | None = None
    nans: int | None = None
    lower: bytes | None = None
    upper: bytes | None = None


class Directory(NamedTuple):
    """The common layout of the plaintexts of many files: columns, and the statistics of each.

    Attributes:
        columns: field ids with their flags, ascending by field id.
        lengths_at: where the lengths of bounds begin.
        counts_at: where the counts begin.
        bounds_at: where the bounds begin.
    """

    columns: tuple[tuple[int, int], ...]
    lengths_at: int
    counts_at: int
    bounds_at: int


def encode(columns: Mapping[int, ColumnBounds]) -> bytes:
    """Encode the plaintext of encrypted statistics; columns without statistics are left out.

    Args:
        columns: by field id, each in storable form (`storable`).
    """
    known = [(field_id, columns[field_id], _flags(columns[field_id])) for field_id in sorted(columns)]
    known = [each for each in known if each[2]]
    parts = [_COUNT.pack(len(known))]
    parts += [struct.pack(">iB", field_id, flags) for field_id, _, flags in known]
    parts += [bytes((len(each.lower or b""), len(each.upper or b""))) for _, each, _ in known]
    parts += [
        struct.pack(">q", count)
        for _, each, _ in known
        for count in (each.values, each.nulls, each.nans)
        if count is not None
    ]
    parts += [bound for _, each, _ in known for bound in (each.lower, each.upper) if bound is not None]
    data = b"".join(parts)
    return data + bytes(padded(len(data)) - len(data))


def storable(column: ColumnBounds) -> ColumnBounds:
    """Return the column without values that the format cannot store: long bounds and invalid counts."""
    values, nulls, nans, lower, upper = column
    return ColumnBounds(_count(values), _count(nulls), _count(nans), _bound(lower), _bound(upper))


def padded(length: int) -> int:
    """Return the length of a plaintext with its padding."""
    return max(-(-length // BOUNDS_STEP), 1) * BOUNDS_STEP


def fitting(groups: Sequence[Mapping[int, ColumnBounds]], before: int) -> list[dict[int, ColumnBounds]]:
    """Return as many columns as fit into the key metadata of one file, lowest field ids first.

    Args:
        groups: the columns of each key that covers columns.
        before: number of bytes of key metadata before the sealed bounds.

    Returns:
        the columns of each key that are stored; empty if nothing is known or there is no room.
    """
    sizes = [_COUNT.size] * len(groups)
    left = MAX_BYTES - before - sum(_sealed_length(size) for size in sizes)
    if left < 0 or not any(groups):
        return []
    kept: list[dict[int, ColumnBounds]] = [{} for _ in groups]
    columns = [(field_id, place) for place, group in enumerate(groups) for field_id in group]
    for field_id, place in sorted(columns):
        column = storable(groups[place][field_id])
        grown = sizes[place] + _size(column)
        more = _sealed_length(grown) - _sealed_length(sizes[place])
        if more > left:
            break
        sizes[place], left = grown, left - more
        kept[place][field_id] = column
    return kept


def directory(data: bytes) -> Directory:
    """Parse the layout of a plaintext.

    Raises:
        DecryptionRefused: it is malformed.
    """
    if not data or len(data) % BOUNDS_STEP:
        raise malformed()
    (count,) = _COUNT.unpack_from(data)
    lengths_at = _COUNT.size + 5 * count
    counts_at = lengths_at + _LENGTH_BYTES * count
    if counts_at > len(data):
        raise malformed()
    columns = tuple(struct.iter_unpack(">iB", data[_COUNT.size : lengths_at]))
    ids = [field_id for field_id, _ in columns]
    if any(low >= high for low, high in pairwise([-1, *ids])) or any(
        not 0 < flags <= _ALL for _, flags in columns
    ):
        raise malformed()
    numbers = sum(counts_in(flags) for _, flags in columns)
    return Directory(columns, lengths_at, counts_at, counts_at + _PER_NUMBER * numbers)


def decode(data: bytes) -> dict[int, ColumnBounds]:
    """Decode the encoding of `encode`.

    Raises:
        DecryptionRefused: it is not exactly in the format.
    """
    found = directory(data)
    lengths = data[found.lengths_at : found.counts_at]
    ends = list(accumulate(lengths, initial=found.bounds_at))
    if found.bounds_at > len(data) or padded(ends[-1]) != len(data) or any(data[ends[-1] :]):
        raise malformed()
    numbers = (number for (number,) in struct.iter_unpack(">q", data[found.counts_at : found.bounds_at]))
    columns = {}
    for place, (field_id, flags) in enumerate(found.columns):
        counts = [next(numbers) if flags & flag else None for flag in COUNT_FLAGS]
        bounds = [
            data[ends[2 * place + side] : ends[2 * place + side + 1]] if flags & flag else None
            for side, flag in enumerate(END_FLAGS)
        ]
        absent = any(lengths[2 * place + side] and bound is None for side, bound in enumerate(bounds))
        if absent or any(count is not None and count < 0 for count in counts):
            raise malformed()
        columns[field_id] = ColumnBounds(*counts, *bounds)
    return columns


def counts_in(flags: int) -> int:
    """Return the number of counts of a column with these flags."""
    return (flags & sum(COUNT_FLAGS)).bit_count()


def malformed() -> DecryptionRefused:
    """Build the error for a malformed plaintext."""
    return DecryptionRefused(
        "The encrypted statistics of a file are malformed.",
        rule="sealed-bounds",
        hint="Restore the table's metadata from a sealed version (`lakewarden table restore`).",
    )


def _count(count: int | None) -> int | None:
    return count if count is not None and 0 <= count <= _MAX_COUNT else None


def _bound(bound: bytes | None) -> bytes | None:
    return bound if bound is not None and len(bound) <= MAX_BOUND_BYTES else None


def _flags(column: ColumnBounds) -> int:
    flags = (*COUNT_FLAGS, *END_FLAGS)
    return sum(flag for flag, value in zip(flags, column, strict=True) if value is not None)


def _size(column: ColumnBounds) -> int:
    flags = _flags(column)
    ends = len(column.lower or b"") + len(column.upper or b"")
    return _PER_COLUMN + _PER_NUMBER * counts_in(flags) + ends if flags else 0


def _sealed_length(plain: int) -> int:
    """Return the length of encrypted statistics in key metadata, with their length field."""
    return 2 + OVERHEAD + padded(plain)
