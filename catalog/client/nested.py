"""Values of nested types: elements of lists and maps, and null where the table requires a value."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType

from catalog.iceberg.selection import inner_fields


@dataclass(frozen=True, slots=True)
class Rows:
    """Where the elements of a list or map lie, those of null rows left out.

    Attributes:
        offsets: where the elements of each row begin.
        null: which rows are null.
        places: of the elements among what the array holds: a range, or one by one.
    """

    offsets: pa.Array
    null: pa.Array
    places: range | pa.Array

    @classmethod
    def of(cls, array: pa.Array) -> Rows:
        """Those of a list or a map."""
        null = array.is_null()
        starts = array.offsets.to_numpy()
        lengths = np.diff(starts)
        gone = null.to_numpy(zero_copy_only=False)
        places: range | pa.Array = range(starts[0], starts[-1])
        if lengths[gone].any():
            lengths[gone] = 0
            kept = np.repeat(starts[:-1] - np.cumsum(lengths) + lengths, lengths) + np.arange(lengths.sum())
            places = pa.array(kept)
        return cls(pa.array(np.concatenate(([0], np.cumsum(lengths))), pa.int32()), null, places)

    def elements(self, held: pa.Array) -> pa.Array:
        """The elements out of all that the array holds."""
        if isinstance(self.places, range):
            return held.slice(self.places.start, len(self.places))
        return held.take(self.places)


def relisted(array: pa.ListArray, kind: pa.DataType, made: Callable[[pa.Array], pa.Array]) -> pa.ListArray:
    """A list of a type, of elements that are made of those that it has."""
    rows = Rows.of(array)
    return pa.ListArray.from_arrays(
        rows.offsets, made(rows.elements(array.values)), type=kind, mask=rows.null
    )


def remapped(
    array: pa.MapArray,
    kind: pa.DataType,
    keys: Callable[[pa.Array], pa.Array],
    values: Callable[[pa.Array], pa.Array],
) -> pa.MapArray:
    """A map of a type, of keys and values that are made of those that it has."""
    rows = Rows.of(array)
    made = keys(rows.elements(array.keys)), values(rows.elements(array.items))
    return pa.MapArray.from_arrays(rows.offsets, *made, type=kind, mask=rows.null)


def null_where_none(array: pa.Array, field: NestedField) -> NestedField | None:
    """The column, this or one inside of it, that holds null where the table has none; None if none does."""
    if field.required and array.null_count:
        return field
    inside = (null_where_none(inner, wanted) for inner, wanted in _inside(array, field.field_type))
    return next((each for each in inside if each is not None), None)


def as_written(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """An array as PyArrow's writer of Parquet takes it.

    That refuses null under a field that must not be null, even where what is around it is null: such places
    get some value, which is not written.

    Args:
        array: the values.
        kind: their type; it may differ in the metadata of what is nested.
    """
    if pa.types.is_struct(kind):
        children = [
            as_written(child, each.type) for child, each in zip(_never_null(array), kind, strict=True)
        ]
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=array.is_null())
    if pa.types.is_list(kind):
        return relisted(array, kind, lambda held: as_written(held, kind.value_type))
    if pa.types.is_map(kind):
        return remapped(
            array,
            kind,
            lambda held: as_written(held, kind.key_type),
            lambda held: as_written(held, kind.item_type),
        )
    return array


def _never_null(array: pa.StructArray) -> list[pa.Array]:
    """What is in a struct, with some value where the struct is null."""
    children = [array.field(place) for place in range(array.type.num_fields)]
    if not array.null_count:
        return children
    valid = array.is_valid()
    places = pc.if_else(
        valid, pc.subtract(pc.cumulative_sum(valid.cast(pa.int64())), 1), len(array) - array.null_count
    )
    return [pa.concat_arrays([each.filter(valid), _blank(each.type)]).take(places) for each in children]


def _blank(kind: pa.DataType) -> pa.Array:
    """One value of a type."""
    if pa.types.is_struct(kind):
        return pa.StructArray.from_arrays([_blank(each.type) for each in kind], fields=list(kind))
    if pa.types.is_nested(kind):
        return pa.array([[]], kind)
    if pa.types.is_fixed_size_binary(kind):
        return pa.array([bytes(kind.byte_width)], kind)
    zeros = pa.py_buffer(bytes(64))
    return pa.Array.from_buffers(kind, 1, [None, *[zeros] * (kind.num_buffers - 1)])


def _inside(array: pa.Array, kind: IcebergType) -> Iterator[tuple[pa.Array, NestedField]]:
    """What is nested in an array where it is not null, one level down."""
    fields = inner_fields(kind)
    if isinstance(kind, StructType):
        valid = array.filter(array.is_valid())
        yield from ((valid.field(place), each) for place, each in enumerate(fields))
    elif isinstance(kind, MapType):
        rows = Rows.of(array)
        yield rows.elements(array.keys), fields[0]
        yield rows.elements(array.items), fields[1]
    elif isinstance(kind, ListType):
        yield Rows.of(array).elements(array.values), fields[0]
