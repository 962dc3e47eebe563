"""Converts columns of metadata tables to Arrow.

Values keep their type: NULL, NaN, decimals, dates, timestamps in microseconds, and structs. Bounds are
decoded from Iceberg's single-value form; a bound that does not have its column's type is null.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Context
from typing import Any, Final

import numpy as np
import pyarrow as pa
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

from catalog.iceberg.bounds import NumberBounds, bounds_of

_PRIMITIVES: Final[Mapping[type[IcebergType], pa.DataType]] = {
    BooleanType: pa.bool_(),
    IntegerType: pa.int32(),
    LongType: pa.int64(),
    FloatType: pa.float32(),
    DoubleType: pa.float64(),
    StringType: pa.string(),
    BinaryType: pa.binary(),
    DateType: pa.date32(),
    TimeType: pa.time64("us"),
    TimestampType: pa.timestamp("us"),
    TimestamptzType: pa.timestamp("us", "UTC"),
    UUIDType: pa.binary(),
    FixedType: pa.binary(),
}
_EXACT: Final = Context(prec=100)


def arrow_type(kind: IcebergType) -> pa.DataType:
    """Return the Arrow type of a column; nanoseconds and geometries are shown as their bytes."""
    match kind:
        case StructType():
            return pa.struct([arrow_field(each) for each in kind.fields])
        case ListType():
            return pa.list_(pa.field("element", arrow_type(kind.element_type), not kind.element_required))
        case MapType():
            value = pa.field("value", arrow_type(kind.value_type), not kind.value_required)
            return pa.map_(arrow_type(kind.key_type), value)
        case DecimalType():
            return pa.decimal128(kind.precision, kind.scale)
        case _:
            return _PRIMITIVES.get(type(kind), pa.binary())


def arrow_field(field: NestedField) -> pa.Field:
    """Return a column as an Arrow field."""
    return pa.field(field.name, arrow_type(field.field_type), nullable=not field.required)


def struct_array(kind: StructType, arrays: Iterable[pa.Array], count: int) -> pa.StructArray:
    """Return a struct of arrays; one without fields has only its length."""
    fields = [arrow_field(each) for each in kind.fields]
    if not fields:
        return pa.array([{}] * count, pa.struct([]))
    return pa.StructArray.from_arrays(list(arrays), fields=fields)


def typed_bounds(kind: IcebergType, raw: pa.Array) -> pa.Array:
    """Decode bounds of a column (Iceberg table specification, "Appendix D: Single-value serialization")."""
    target = arrow_type(kind)
    found = bounds_of(kind, raw)
    if isinstance(found, NumberBounds):
        return _numbers(found, target)
    if isinstance(kind, DecimalType):
        return pa.array([_decimal(each, kind) for each in raw.to_pylist()], target)
    if isinstance(kind, StringType):
        return _texts(raw)
    return raw.cast(target)


def _numbers(bounds: NumberBounds, target: pa.DataType) -> pa.Array:
    values, absent = bounds.values, ~bounds.present
    if pa.types.is_boolean(target):
        return pa.array(values != 0, mask=absent)
    if pa.types.is_floating(target):
        return pa.array(values.astype(target.to_pandas_dtype()), mask=absent)
    wide = pa.array(values, pa.int64(), mask=absent)
    # Dates have 32 bits; Arrow converts only 32 bits to them.
    return (wide.cast(pa.int32()) if target.bit_width == 32 else wide).cast(target)


def _decimal(raw: bytes | None, kind: DecimalType) -> Any:
    if not raw or len(raw) > 16:
        return None
    unscaled = int.from_bytes(raw, "big", signed=True)
    if abs(unscaled) >= 10**kind.precision:
        return None
    return _EXACT.create_decimal(unscaled).scaleb(-kind.scale, _EXACT)


def _texts(raw: pa.Array) -> pa.Array:
    try:
        return raw.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([_text(each) for each in raw.to_pylist()], pa.string())


def _text(raw: bytes | None) -> str | None:
    try:
        return None if raw is None else raw.decode("utf-8")
    except UnicodeDecodeError:
        return None


def map_array(
    kind: pa.DataType, counts: np.ndarray[Any, Any], keys: pa.Array, items: pa.Array, absent: Any
) -> pa.MapArray:
    """Return maps of some lengths.

    Args:
        kind: their type.
        counts: how many keys each map has.
        keys: of all maps, one map after the other.
        items: their values.
        absent: which maps are null.
    """
    offsets = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=offsets[1:])
    return pa.MapArray.from_arrays(pa.array(offsets), keys, items, type=kind, mask=pa.array(absent))
