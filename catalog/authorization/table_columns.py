"""The fields of an Iceberg schema, as row filters and masks see them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from pyiceberg.schema import Schema, index_by_name
from pyiceberg.types import ListType, MapType, NestedField, StructType

from policy.restrictions.columns import SchemaField, TableColumns


def table_columns(schema: Schema) -> TableColumns:
    """Return the fields of a schema, each with all names by which policies can be about it."""
    names: dict[int, set[str]] = defaultdict(set)
    for name, field_id in index_by_name(schema).items():
        names[field_id].add(name)
    tops = (SchemaField(each.field_id, (each.name,), _type(each), each.required) for each in schema.fields)
    found = [one for top, field in zip(tops, schema.fields, strict=True) for one in _with_inner(top, field)]
    return TableColumns(
        SchemaField(
            each.field_id,
            each.path,
            each.type,
            each.required,
            each.above,
            frozenset(names[each.field_id]),
            each.repeated,
            each.in_key,
        )
        for each in found
    )


def _with_inner(outer: SchemaField, field: NestedField) -> Iterator[SchemaField]:
    """A field, then what is nested in it."""
    yield outer
    kind = field.field_type
    inner: tuple[NestedField, ...] = ()
    if isinstance(kind, StructType):
        inner = kind.fields
    elif isinstance(kind, ListType):
        inner = (kind.element_field,)
    elif isinstance(kind, MapType):
        inner = (kind.key_field, kind.value_field)
    for each in inner:
        is_key = isinstance(kind, MapType) and each is inner[0]
        yield from _with_inner(
            SchemaField(
                each.field_id,
                (*outer.path, each.name),
                _type(each),
                each.required,
                (*outer.above, outer.field_id),
                repeated=outer.repeated or not isinstance(kind, StructType),
                in_key=outer.in_key or is_key,
            ),
            each,
        )


def _type(field: NestedField) -> str:
    kinds = {StructType: "struct", ListType: "list", MapType: "map"}
    kind = kinds.get(type(field.field_type))
    return kind or str(field.field_type).replace(" ", "")
