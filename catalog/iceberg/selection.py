"""Which fields of a schema are read with those that are asked for.

A map has no value without its key, and no reader makes a map without values:

- who reads something of a map's values reads its keys, too;
- who reads something of its keys alone reads the whole map.

Source: Apache Iceberg, ``PruneColumns``: how its readers select fields by id.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType


def inner_fields(kind: IcebergType) -> tuple[NestedField, ...]:
    """What is nested in a type, one level down."""
    if isinstance(kind, StructType):
        return kind.fields
    if isinstance(kind, ListType):
        return (kind.element_field,)
    return (kind.key_field, kind.value_field) if isinstance(kind, MapType) else ()


def all_ids(fields: Iterable[NestedField]) -> Iterator[int]:
    """The ids of fields and of everything nested in them."""
    for each in fields:
        yield each.field_id
        yield from all_ids(inner_fields(each.field_type))


def with_entries(schema: Schema, field_ids: Iterable[int]) -> frozenset[int]:
    """Fields with the keys and values of maps that are read with them."""
    asked = frozenset(field_ids)
    return asked.union(*(_entries(each, asked) for each in maps(schema.fields)))


def maps(fields: Iterable[NestedField]) -> Iterator[MapType]:
    """The maps among some fields and in them."""
    for each in fields:
        if isinstance(each.field_type, MapType):
            yield each.field_type
        yield from maps(inner_fields(each.field_type))


def _entries(kind: MapType, asked: frozenset[int]) -> tuple[int, ...]:
    """What is read of a map beside what is asked for."""
    if not asked.isdisjoint(all_ids((kind.value_field,))):
        return (kind.key_id,)
    return () if asked.isdisjoint(all_ids((kind.key_field,))) else (kind.key_id, kind.value_id)
