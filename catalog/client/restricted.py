"""Shows rows as the restrictions of a plan say: the row filter on unmasked values, then the masks.

- Nothing of the user's is looked at before: their filter is applied to what this module shows.
- A field that is NULL for the user is not read, unless the row filter or a delete file needs it: its key is
  not released.
- The salt of hashes is made for each scan.

Source: docs/plan-format.md, "Restrictions"; Iceberg REST specification, ``ReadRestrictions``.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType

from catalog.client import picked_fields
from catalog.client.columns import arrow_field, arrow_schema, arrow_type
from catalog.client.masks import masked
from catalog.client.nested import relisted, remapped
from catalog.client.row_filters import kept
from catalog.iceberg.selection import all_ids, inner_fields, maps
from policy.errors import NotSupportedYet
from policy.restrictions.actions import MaskAction
from policy.restrictions.model import Restriction
from policy.restrictions.predicate import TRUE

_SALT_BYTES: Final = 32


def types_of(schema: Schema) -> dict[int, str]:
    """The types of all fields by id, as `policy.restrictions` names them."""
    return dict(_types(schema.as_struct().fields))


def _types(fields: Sequence[NestedField]) -> Iterator[tuple[int, str]]:
    for each in fields:
        kind = each.field_type
        nested = {StructType: "struct", ListType: "list", MapType: "map"}
        yield each.field_id, nested.get(type(kind)) or str(kind).replace(" ", "")
        yield from _types(inner_fields(kind))


def require_applicable(schema: Schema, restriction: Restriction) -> None:
    """Check that a restriction can be applied to rows of a schema.

    Raises:
        NotSupportedYet: a field is required and would be NULL, a masked field is in another one or in the key
            of a map, or the row filter reads a field in a list or map.
    """
    masks = restriction.masks.keys()
    keys = frozenset(all_ids(each.key_field for each in maps(schema.fields)))
    for field_id in masks:
        inside = all_ids(inner_fields(schema.find_type(field_id)))
        if field_id in keys or not masks.isdisjoint(inside):
            raise _inapplicable(
                schema, field_id, "masks the field {}, which is in a key of a map or not alone"
            )
    for field_id in _nulled(restriction):
        if schema.find_field(field_id).required:
            raise _inapplicable(schema, field_id, "replaces the required field {} with NULL")
    for field_id in restriction.filters_by:
        if not picked_fields.way(schema.fields, field_id):
            raise _inapplicable(schema, field_id, "filters rows by the field {}, which is in a list or map")


def _inapplicable(schema: Schema, field_id: int, what: str) -> NotSupportedYet:
    return NotSupportedYet(
        f"The catalog {what.format(schema.find_column_name(field_id))}.",
        rule="read-restrictions",
        hint="Ask an administrator for another policy.",
    )


def without_keys(schema: Schema, restriction: Restriction) -> frozenset[int]:
    """The ids of fields that are NULL for the user, or in one that is: no column key of them is released."""
    nulled = (schema.find_field(each) for each in _nulled(restriction))
    return frozenset(all_ids(nulled)) - restriction.filters_by


def _nulled(restriction: Restriction) -> frozenset[int]:
    found = (each for each, mask in restriction.masks.items() if mask.action is MaskAction.REPLACE_WITH_NULL)
    return frozenset(found)


@dataclass(frozen=True, slots=True)
class Restricted:
    """The restrictions of one scan.

    Attributes:
        restriction: what the plan says.
        fields: the columns that are shown, masked or not, as the user sees them.
        schema: of the plan.
        salt: of hashes.
    """

    restriction: Restriction
    fields: tuple[NestedField, ...]
    schema: Schema
    salt: bytes = field(default_factory=lambda: secrets.token_bytes(_SALT_BYTES), repr=False)

    @property
    def read(self) -> tuple[NestedField, ...]:
        """The columns that have to be read: those that are shown, and those of the row filter."""
        filtered = self.restriction.filters_by
        looked_at = picked_fields.only(self.schema.as_struct().fields, filtered)
        return picked_fields.beside(_values_of(self.fields, _nulled(self.restriction)), looked_at)

    @property
    def hides_rows(self) -> bool:
        """Whether a row filter applies."""
        return self.restriction.row_filter != TRUE

    @property
    def masked(self) -> frozenset[int]:
        """The ids of masked fields, of what they are in, and of what is in them."""
        masks = self.restriction.masks.keys()
        tops = ((each, frozenset(all_ids((each,)))) for each in self.schema.as_struct().fields)
        return frozenset().union(*(ids for _, ids in tops if not masks.isdisjoint(ids)))

    def shown(self, rows: pa.Table, fields: Sequence[NestedField]) -> pa.Table:
        """The rows that the user sees, as they see them.

        Args:
            rows: of a file, without those that were deleted.
            fields: of these rows, with all of `read`.
        """
        if self.hides_rows:
            rows = rows.filter(kept(self.restriction.row_filter, rows, fields))
        if not self.fields:
            return rows.select([])
        known = {each.field_id: (place, each) for place, each in enumerate(fields)}
        columns = [self._column(each, rows, known.get(each.field_id)) for each in self.fields]
        return pa.table(columns, schema=arrow_schema(self.fields))

    def _column(
        self, wanted: NestedField, rows: pa.Table, found: tuple[int, NestedField] | None
    ) -> pa.ChunkedArray:
        kind = arrow_type(wanted.field_type)
        if found is None or wanted.field_id in _nulled(self.restriction):
            return pa.chunked_array([pa.nulls(rows.num_rows, kind)])
        place, read = found
        made = [self._part(each, read, wanted) for each in rows.column(place).chunks]
        return pa.chunked_array(made, kind)

    def _part(self, values: pa.Array, read: NestedField, wanted: NestedField) -> pa.Array:
        """The values of a field as they are shown."""
        mask = self.restriction.masks.get(wanted.field_id)
        kind = wanted.field_type
        if mask is not None:
            return masked(mask.action, values, self.salt)
        if isinstance(kind, StructType):
            return self._struct(values, read.field_type, kind)
        if isinstance(kind, ListType):
            assert isinstance(read.field_type, ListType)
            element = partial(self._part, read=read.field_type.element_field, wanted=kind.element_field)
            return relisted(values, arrow_type(kind), element)
        if isinstance(kind, MapType):
            assert isinstance(read.field_type, MapType)
            keys = partial(self._part, read=read.field_type.key_field, wanted=kind.key_field)
            items = partial(self._part, read=read.field_type.value_field, wanted=kind.value_field)
            return remapped(values, arrow_type(kind), keys, items)
        return values

    def _struct(self, values: pa.StructArray, read: IcebergType, kind: StructType) -> pa.Array:
        known = {each.field_id: (place, each) for place, each in enumerate(inner_fields(read))}
        children = []
        for each in kind.fields:
            found = known.get(each.field_id)
            if found is None or each.field_id in _nulled(self.restriction):
                children.append(pa.nulls(len(values), arrow_type(each.field_type)))
            else:
                children.append(self._part(values.field(found[0]), found[1], each))
        arrow = [arrow_field(each) for each in kind.fields]
        return pa.StructArray.from_arrays(children, fields=arrow, mask=pc.is_null(values))


def _values_of(fields: Sequence[NestedField], nulled: frozenset[int]) -> tuple[NestedField, ...]:
    """Fields without those that are NULL for the user. Elements and values of lists and maps stay: they tell
    how many there are.
    """

    def narrowed(each: NestedField) -> NestedField:
        return NestedField(each.field_id, each.name, inside(each.field_type), required=each.required)

    def inside(kind: IcebergType) -> IcebergType:
        if isinstance(kind, StructType):
            return StructType(*_values_of(kind.fields, nulled))
        if isinstance(kind, ListType):
            element = narrowed(kind.element_field)
            # By name, since pyiceberg takes a struct without fields for no element.
            return ListType(
                element.field_id, element_type=element.field_type, element_required=element.required
            )
        if isinstance(kind, MapType):
            key, value = narrowed(kind.key_field), narrowed(kind.value_field)
            return MapType(
                key.field_id, key.field_type, value.field_id, value.field_type, value_required=value.required
            )
        return kind

    return tuple(narrowed(each) for each in fields if each.field_id not in nulled)
