"""Picks fields of schemas by id, through structs, and their values in rows that were read with them."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import IcebergType, NestedField, StructType


def only(fields: Sequence[NestedField], field_ids: frozenset[int]) -> tuple[NestedField, ...]:
    """The columns that hold some primitive fields, with no others in them. Their ids are their names."""
    found = []
    for each in fields:
        kind = each.field_type
        if isinstance(kind, StructType):
            inner = only(kind.fields, field_ids)
            if inner:
                found.append(_named(each, StructType(*inner)))
        elif each.field_id in field_ids:
            found.append(_named(each, kind))
    return tuple(found)


def _named(column: NestedField, kind: IcebergType) -> NestedField:
    return NestedField(column.field_id, str(column.field_id), kind, required=False)


def beside(wanted: Sequence[NestedField], others: Sequence[NestedField]) -> tuple[NestedField, ...]:
    """Some columns with others; what is added stands behind, under names that no column has."""
    read = {each.field_id: each for each in wanted}
    names = {each.name for each in wanted}
    for other in others:
        found = read.get(other.field_id)
        if found is None:
            name = other.name
            while name in names:
                name += "_"
            read[other.field_id] = other.model_copy(update={"name": name})
        elif isinstance(found.field_type, StructType) and isinstance(other.field_type, StructType):
            inner = StructType(*beside(found.field_type.fields, other.field_type.fields))
            read[other.field_id] = found.model_copy(update={"field_type": inner})
    return tuple(read.values())


def way(fields: Sequence[NestedField], field_id: int) -> tuple[int, ...]:
    """By which fields a primitive one is reached; nothing if it is not there."""
    for each in fields:
        if each.field_id == field_id:
            return (field_id,)
        inner = way(each.field_type.fields, field_id) if isinstance(each.field_type, StructType) else ()
        if inner:
            return (each.field_id, *inner)
    return ()


def values(rows: pa.Table, fields: Sequence[NestedField], way: Sequence[int]) -> pa.ChunkedArray:
    """The values of a primitive field; null where a struct around it is."""
    first, *inner = way
    outer = next(each for each in fields if each.field_id == first)
    values = rows[outer.name]
    for field_id in inner:
        assert isinstance(outer.field_type, StructType)
        places = [each.field_id for each in outer.field_type.fields]
        values = pc.struct_field(values, [places.index(field_id)])
        outer = outer.field_type.fields[places.index(field_id)]
    return values
