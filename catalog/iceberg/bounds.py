"""Column bounds in a form that can be compared with a value for many files at once.

Manifests contain bounds in single-value form (Iceberg table specification, "Appendix D"). Numbers become
NumPy arrays. Text and bytes are compared byte by byte, which for UTF-8 is the order of code points. Decimals
become bytes of one width with the sign bit inverted, which sort like the numbers.

A bound that does not have its type (a wrong length) counts as missing, so its file is not skipped.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Context, Decimal
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    StringType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

Mask = NDArray[np.bool_]

_NUMBERS: Final[dict[type[IcebergType], tuple[str, ...]]] = {
    BooleanType: ("u1",),
    IntegerType: ("<i4",),
    DateType: ("<i4",),
    LongType: ("<i8", "<i4"),
    TimeType: ("<i8",),
    TimestampType: ("<i8",),
    TimestamptzType: ("<i8",),
    TimestampNanoType: ("<i8",),
    TimestamptzNanoType: ("<i8",),
    FloatType: ("<f4",),
    DoubleType: ("<f8", "<f4"),
}
_BYTES: Final = (StringType, BinaryType, FixedType, UUIDType)
_DECIMAL_BYTES: Final = 16
#: Python's default context would round values to 28 digits.
_EXACT: Final = Context(prec=100)


class Bounds(Protocol):
    """The lower or upper bound of each file. Comparisons are false where a bound is missing or NaN."""

    @property
    def present(self) -> Mask:
        """Return where a bound is present."""

    @property
    def nan(self) -> Mask:
        """Return where the bound is NaN, and so proves nothing."""

    def below(self, value: Any) -> Mask:
        """Return where the bound is less than the value."""

    def above(self, value: Any) -> Mask:
        """Return where the bound is greater than the value."""

    def equal(self, value: Any) -> Mask:
        """Return where the bound equals the value."""


@dataclass(frozen=True)
class NumberBounds:
    """Bounds of numbers, dates, times and booleans."""

    values: NDArray[Any]
    present: Mask
    nan: Mask

    def below(self, value: Any) -> Mask:
        return np.asarray(self.present & (self.values < value), np.bool_)

    def above(self, value: Any) -> Mask:
        return np.asarray(self.present & (self.values > value), np.bool_)

    def equal(self, value: Any) -> Mask:
        return np.asarray(self.present & (self.values == value), np.bool_)


@dataclass(frozen=True)
class ByteBounds:
    """Bounds that sort as bytes; `scale` is given for decimals."""

    values: pa.Array
    present: Mask
    nan: Mask
    scale: int | None = None

    def below(self, value: Any) -> Mask:
        return _mask(pc.less(self.values, self._key(value)))

    def above(self, value: Any) -> Mask:
        return _mask(pc.greater(self.values, self._key(value)))

    def equal(self, value: Any) -> Mask:
        return _mask(pc.equal(self.values, self._key(value)))

    def cut(self, length: int) -> ByteBounds:
        """Return the bounds, truncated to `length` bytes."""
        return ByteBounds(pc.binary_slice(self.values, 0, length), self.present, self.nan)

    def _key(self, value: Any) -> pa.Scalar:
        if self.scale is not None:
            return pa.scalar(_decimal_key(value, self.scale), pa.binary())
        return pa.scalar(as_bytes(value), pa.binary())


def as_bytes(value: Any) -> bytes:
    """Return text and bytes as the bytes by which they sort."""
    return value.encode("utf-8") if isinstance(value, str) else bytes(value)


def bounds_of(kind: IcebergType, raw: pa.Array) -> Bounds | None:
    """Return the bounds of a column of a type, or None if bounds of that type are not compared.

    Args:
        kind: the column's type.
        raw: bounds in single-value form, null for a missing bound.
    """
    if isinstance(kind, DecimalType):
        return _decimal_bounds(raw, kind.scale)
    if isinstance(kind, _BYTES):
        present = _mask(raw.is_valid())
        return ByteBounds(raw, present, np.zeros(len(raw), np.bool_))
    formats = _NUMBERS.get(type(kind))
    return None if formats is None else _number_bounds(raw, formats)


def _number_bounds(raw: pa.Array, formats: tuple[str, ...]) -> NumberBounds:
    widest = np.dtype(formats[0])
    truth = widest.kind == "u"
    values = np.zeros(len(raw), np.float64 if widest.kind == "f" else np.int64)
    present = np.zeros(len(raw), np.bool_)
    lengths = np.asarray(pc.binary_length(raw).fill_null(0))
    for form in (np.dtype(each) for each in formats):
        rows = np.flatnonzero(lengths == form.itemsize)
        if len(rows):
            values[rows] = _joined(raw, rows).view(form) != 0 if truth else _joined(raw, rows).view(form)
            present[rows] = True
    nan = np.isnan(values) if values.dtype.kind == "f" else np.zeros(len(raw), np.bool_)
    return NumberBounds(values, present, nan)


def _joined(raw: pa.Array, rows: NDArray[np.int64]) -> NDArray[np.uint8]:
    """Concatenate the bytes of some rows."""
    taken = raw if len(rows) == len(raw) else raw.take(pa.array(rows))
    offsets = np.frombuffer(taken.buffers()[1], np.int32)[taken.offset : taken.offset + len(taken) + 1]
    data = np.frombuffer(taken.buffers()[2], np.uint8)
    return data[offsets[0] : offsets[-1]]


def _decimal_bounds(raw: pa.Array, scale: int) -> ByteBounds:
    """Extend big-endian two's complement of up to 16 bytes to 16 bytes."""
    lengths = np.asarray(pc.binary_length(raw).fill_null(0))
    present = (lengths > 0) & (lengths <= _DECIMAL_BYTES)
    wide = np.zeros((len(raw), _DECIMAL_BYTES), np.uint8)
    for length in np.unique(lengths[present]).tolist():
        rows = np.flatnonzero(lengths == length)
        digits = _joined(raw, rows).reshape(-1, length)
        wide[rows, _DECIMAL_BYTES - length :] = digits
        wide[rows, : _DECIMAL_BYTES - length] = np.where(digits[:, :1] >= 0x80, 0xFF, 0)
    wide[:, 0] ^= 0x80
    keys = pa.Array.from_buffers(pa.binary(_DECIMAL_BYTES), len(raw), [None, pa.py_buffer(wide.tobytes())])
    masked = pc.if_else(pa.array(present), keys.cast(pa.binary()), pa.scalar(None, pa.binary()))
    return ByteBounds(masked, present, np.zeros(len(raw), np.bool_), scale)


def _decimal_key(value: Decimal, scale: int) -> bytes:
    """Return the sort key of a value; values outside of 128 bits are clamped."""
    unscaled = int(value.scaleb(scale, _EXACT))
    half = 1 << (8 * _DECIMAL_BYTES - 1)
    return min(max(unscaled + half, 0), 2 * half - 1).to_bytes(_DECIMAL_BYTES, "big")


def _mask(flags: pa.Array) -> Mask:
    made: Mask = np.asarray(pc.fill_null(flags, False))
    return made
