"""Converts decoded columns to Arrow arrays.

Numbers are checked by the range of their Arrow type, and text is checked to be UTF-8. Arrow copies bytes once
from the chunk: one array covers the whole chunk, with the gaps between values as extra values, and only the
needed values are taken from it.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from catalog.iceberg.avro.columns import Column, Flags, Index, Items, Longs, Maybe, Parts, Raw, Spans
from catalog.iceberg.avro.malformed import Malformed
from catalog.iceberg.avro.schema import Field, Option, Scalar

_INT = (-(2**31), 2**31 - 1)
_RANGES: Final = {pa.int8(): (-(2**7), 2**7 - 1), pa.int32(): _INT, pa.date32(): _INT}
_WIDE_DECIMAL: Final = 16
#: The metadata key of a partition field's id in its Arrow type.
FIELD_ID: Final = "field-id"


class ArrowMaker:
    """Converts the columns of one chunk to Arrow arrays.

    Args:
        payload: the bytes of the chunk.
    """

    def __init__(self, payload: bytes) -> None:
        self._buffer = pa.py_buffer(payload)
        self._data = np.frombuffer(payload, np.uint8)

    def numbers(self, column: Column, kind: pa.DataType) -> pa.Array:
        """Convert numbers or booleans to an array of `kind`.

        Raises:
            Malformed: a number is out of range.
        """
        valid, inner = _split(column)
        values = _longs(inner)
        low, high = _RANGES.get(kind, (None, None))
        if low is not None and len(values) and (values.min() < low or values.max() > high):
            raise Malformed("number", "a number is out of range")
        target = np.bool_ if pa.types.is_boolean(kind) else _numpy_type(kind)
        typed: np.ndarray[tuple[int], np.dtype[np.generic]] = values.astype(target)
        return (pa.array(typed) if valid is None else _masked(typed, valid)).cast(kind)

    def binary(self, column: Column) -> pa.Array:
        """Convert bytes of varying length."""
        valid, inner = _split(column)
        if not isinstance(inner, Spans):
            raise TypeError("not a column of bytes")
        return self._slices(inner.starts, inner.stops, valid)

    def text(self, column: Column) -> pa.Array:
        """Convert text.

        Raises:
            Malformed: the text is not UTF-8.
        """
        try:
            return self.binary(column).cast(pa.string())
        except pa.ArrowInvalid as problem:
            raise Malformed("utf-8", "a text in it is not UTF-8") from problem

    def list_of(self, column: Column, kind: pa.DataType) -> pa.Array:
        """Convert lists of numbers."""
        valid, inner = _split(column)
        if not isinstance(inner, Items):
            raise TypeError("not a column of arrays")
        offsets, mask = _offsets(inner, valid)
        return pa.ListArray.from_arrays(offsets, self.numbers(inner.inner, kind), mask=mask)

    def map_of(self, column: Column, value: str) -> pa.Array:
        """Convert maps of numbers to numbers, or of numbers to bytes.

        Raises:
            Malformed: a map contains a key twice.
        """
        valid, inner = _split(column)
        if not isinstance(inner, Items) or not isinstance(inner.inner, Parts):
            raise TypeError("not a column of maps")
        keys, values = inner.inner.columns
        _refuse_repeated(_longs(keys), inner.counts)
        offsets, mask = _offsets(inner, valid)
        made = self.binary(values) if value == "bytes" else self.numbers(values, pa.int64())
        return pa.MapArray.from_arrays(offsets, self.numbers(keys, pa.int32()), made, mask=mask)

    def partition(self, fields: tuple[Field, ...], column: Column, cursors: int) -> pa.Array:
        """Convert partition values to a struct of typed fields, each with its field id in its metadata.

        Raises:
            Malformed: the type of a field is not possible for partition values.
        """
        valid, inner = _split(column)
        if valid is not None or not isinstance(inner, Parts):
            raise TypeError("not a column of records")
        arrays = [
            self._partition_value(field.node, part) for field, part in zip(fields, inner.columns, strict=True)
        ]
        kinds = [
            pa.field(field.name, array.type, metadata={FIELD_ID: str(field.field_id)})
            for field, array in zip(fields, arrays, strict=True)
        ]
        return pa.StructArray.from_buffers(pa.struct(kinds), cursors, [None], children=arrays)

    def _partition_value(self, node: object, column: Column) -> pa.Array:
        """Convert partition values of one field (Iceberg specification, "Appendix A, Avro")."""
        scalar = node.inner if isinstance(node, Option) else node
        if not isinstance(scalar, Scalar):
            raise Malformed("partition", "a partition field has a type that is not primitive")
        valid, inner = _split(column)
        if scalar.logical == "decimal":
            return self._decimals(scalar, inner, valid)
        match scalar.kind:
            case "string":
                return self.text(column)
            case "bytes":
                return self.binary(column)
            case "float" | "double" | "fixed":
                return self._raw(scalar, inner, valid)
            case "null":
                return pa.nulls(len(_longs(inner)))
            case _:
                return self.numbers(column, _number_type(scalar))

    def _raw(self, scalar: Scalar, inner: Column, valid: Flags | None) -> pa.Array:
        matrix = self._matrix(inner)
        if scalar.kind == "fixed":
            kind = pa.binary(scalar.size)
            made = pa.Array.from_buffers(kind, len(matrix), [None, pa.py_buffer(matrix.tobytes())])
        else:
            made = pa.array(matrix.view("<f4" if scalar.kind == "float" else "<f8")[:, 0])
        return made if valid is None else made.take(_picks(valid))

    def _matrix(self, inner: Column) -> np.ndarray[tuple[int, int], np.dtype[np.uint8]]:
        if not isinstance(inner, Raw):
            raise TypeError("not a column of fixed bytes")
        return np.ascontiguousarray(self._data[inner.starts[:, None] + np.arange(inner.size)])

    def _decimals(self, scalar: Scalar, inner: Column, valid: Flags | None) -> pa.Array:
        """Convert big-endian two's complement numbers of at most 16 bytes."""
        if isinstance(inner, Spans):
            pieces = [self._data[a:b].tobytes() for a, b in zip(inner.starts, inner.stops, strict=True)]
        else:
            pieces = [row.tobytes() for row in self._matrix(inner)]
        if any(not 0 < len(piece) <= _WIDE_DECIMAL for piece in pieces):
            raise Malformed("partition", "a decimal partition value has no bytes, or more than 16")
        wide = b"".join(
            int.from_bytes(piece, "big", signed=True).to_bytes(_WIDE_DECIMAL, "little", signed=True)
            for piece in pieces
        )
        kind = pa.decimal128(max(scalar.precision, 1), scalar.scale)
        made = pa.Array.from_buffers(kind, len(pieces), [None, pa.py_buffer(wide)])
        return made if valid is None else made.take(_picks(valid))

    def _slices(self, starts: Index, stops: Index, valid: Flags | None) -> pa.Array:
        if not len(starts):
            return pa.nulls(0 if valid is None else len(valid), pa.binary())
        bounds = np.empty(2 * len(starts), np.int32)
        bounds[0::2], bounds[1::2] = starts, stops
        overlaid = pa.Array.from_buffers(
            pa.binary(), len(bounds) - 1, [None, pa.py_buffer(bounds), self._buffer]
        )
        if valid is None:
            return overlaid.take(pa.array(np.arange(0, len(bounds), 2)))
        return overlaid.take(_picks(valid, 2))


def _split(column: Column) -> tuple[Flags | None, Column]:
    """Return which cursors have a value (none if all do), and the values."""
    if not isinstance(column, Maybe):
        return None, column
    return (None if column.valid.all() else column.valid), column.inner


def _longs(column: Column) -> Index:
    if not isinstance(column, Longs):
        raise TypeError("not a column of numbers")
    return column.values


def _numpy_type(kind: pa.DataType) -> type:
    return {1: np.int8, 4: np.int32}.get(kind.bit_width // 8, np.int64)


def _picks(valid: Flags, step: int = 1) -> pa.Array:
    """Return for each cursor the index of its value among the valid cursors, or null."""
    return pa.array((np.cumsum(valid) - 1) * step, mask=~valid)


def _masked(values: np.ndarray[tuple[int], np.dtype[np.generic]], valid: Flags) -> pa.Array:
    full = np.zeros(len(valid), values.dtype)
    full[valid] = values
    return pa.array(full, mask=~valid)


def _offsets(items: Items, valid: Flags | None) -> tuple[pa.Array, pa.Array | None]:
    counts = items.counts
    if valid is not None:
        counts = np.zeros(len(valid), np.int64)
        counts[valid] = items.counts
    offsets = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=offsets[1:])
    return pa.array(offsets), None if valid is None else pa.array(~valid)


def _refuse_repeated(keys: Index, counts: Index) -> None:
    """Refuse a map that contains a key twice. Keys are mostly in order, which is fast to check."""
    if len(keys) < 2:
        return
    owners = np.repeat(np.arange(len(counts), dtype=np.int64), counts)
    if ((np.diff(keys) > 0) | (np.diff(owners) > 0)).all():
        return
    order = np.lexsort((keys, owners))
    same = (np.diff(keys[order]) == 0) & (np.diff(owners[order]) == 0)
    if same.any():
        raise Malformed("duplicate-field-id", "statistics of an entry contain a column twice")


def _number_type(scalar: Scalar) -> pa.DataType:
    zone = "UTC" if scalar.utc else None
    logical = {
        "date": pa.date32(),
        "time-micros": pa.time64("us"),
        "timestamp-micros": pa.timestamp("us", zone),
        "timestamp-nanos": pa.timestamp("ns", zone),
    }
    if scalar.kind == "boolean":
        return pa.bool_()
    plain = pa.int32() if scalar.kind == "int" else pa.int64()
    return logical.get(scalar.logical or "", plain)
