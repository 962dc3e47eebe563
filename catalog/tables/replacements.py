"""Makes the updates that replace a table's definition and rows, as Iceberg's replace transaction does.

- Snapshots, branches other than `main`, tags, schemas and partition specs stay, so that earlier states can be
  read. `main` is removed: the table has no rows until the next snapshot.
- A column keeps its field id if the table has a column of the same name in the same place, and its type can
  become the new one. Any other column gets a new id, so that files never hold two kinds of values under one
  id. The last column id never decreases.
- Partition fields that the table had before keep their ids.
- The sort order is the one that is asked for. Properties that are not asked for stay.

Source: Apache Iceberg's `TableMetadata.buildReplacement`; table specification, "Column Projection".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.sorting import SortField, SortOrder
from pyiceberg.table.update import (
    AddSchemaUpdate,
    RemoveSnapshotRefUpdate,
    SetCurrentSchemaUpdate,
    SetLocationUpdate,
    SetPropertiesUpdate,
    TableUpdate,
)
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType

from catalog.tables.drafts import NewTable
from catalog.tables.partition_changes import order_updates, replaced_partitions
from catalog.tables.schema_changes import can_become

_ADDED_LAST: Final = -1


def replacing_updates(base: TableMetadata, new: NewTable) -> list[TableUpdate]:
    """Return the updates of a commit that replaces a table.

    Args:
        base: the table's metadata.
        new: what it becomes; its location and properties stay where they are not given.

    Raises:
        RequestInvalid: the partition spec does not fit the schema.
    """
    name = str(new.name)
    schema, ids = numbered(new.schema, base)
    updates: list[TableUpdate] = [RemoveSnapshotRefUpdate(ref_name=MAIN_BRANCH)]
    updates += _schema_updates(base, schema)
    updates += replaced_partitions(base, schema, new.partition_spec, ids, name)
    updates += order_updates(base, schema, _order(new.sort_order, ids), name)
    if new.location is not None and new.location != base.location:
        updates.append(SetLocationUpdate(location=new.location))
    if new.properties:
        updates.append(SetPropertiesUpdate(updates=new.properties))
    return updates


def numbered(schema: Schema, base: TableMetadata) -> tuple[Schema, dict[int, int]]:
    """Return the schema with field ids of the table.

    Args:
        schema: a schema with ids of its own.
        base: the table's metadata.

    Returns:
        the schema, and its field ids by the ids that `schema` has.
    """
    numbers = _Numbers(base.last_column_id)
    fields = numbers.fields(schema.fields, base.schema().as_struct())
    identifiers = [numbers.ids[each] for each in schema.identifier_field_ids]
    return Schema(*fields, identifier_field_ids=identifiers), numbers.ids


@dataclass
class _Numbers:
    """Gives out field ids.

    Fields are looked for in the type that is around them in the table, not by their full name: a name with a
    dot can be that of a nested field.
    """

    last: int

    def __post_init__(self) -> None:
        self.ids: dict[int, int] = {}

    def fields(self, fields: tuple[NestedField, ...], before: IcebergType | None) -> list[NestedField]:
        had = {each.name: each for each in before.fields} if isinstance(before, StructType) else {}
        return [self._field(each, had.get(each.name)) for each in fields]

    def _field(self, field: NestedField, before: NestedField | None) -> NestedField:
        """Return a field with its id: that of the field before, if it stays."""
        kept = before if before is not None and _stays(before.field_type, field.field_type) else None
        if kept is None:
            self.last += 1
        number = self.last if kept is None else kept.field_id
        self.ids[field.field_id] = number
        kind = self._type(field.field_type, None if kept is None else kept.field_type)
        return field.model_copy(update={"field_id": number, "field_type": kind})

    def _type(self, kind: IcebergType, before: IcebergType | None) -> IcebergType:
        match kind:
            case StructType():
                return StructType(*self.fields(kind.fields, before))
            case ListType():
                had = before.element_field if isinstance(before, ListType) else None
                element = self._field(kind.element_field, had)
                return ListType(element.field_id, element.field_type, kind.element_required)
            case MapType():
                key = self._field(kind.key_field, before.key_field if isinstance(before, MapType) else None)
                had = before.value_field if isinstance(before, MapType) else None
                value = self._field(kind.value_field, had)
                return MapType(
                    key.field_id, key.field_type, value.field_id, value.field_type, kind.value_required
                )
            case _:
                return kind


def _stays(before: IcebergType, after: IcebergType) -> bool:
    """Return whether values of the type before are values of the other one."""
    nested = (StructType, ListType, MapType)
    if isinstance(before, nested) or isinstance(after, nested):
        return type(before) is type(after)
    return can_become(before, after)


def _schema_updates(base: TableMetadata, schema: Schema) -> list[TableUpdate]:
    same = next((each.schema_id for each in base.schemas if each == schema), None)
    if same is not None:
        return [] if same == base.current_schema_id else [SetCurrentSchemaUpdate(schema_id=same)]
    next_id = 1 + max(each.schema_id for each in base.schemas)
    return [
        AddSchemaUpdate(schema_=schema.model_copy(update={"schema_id": next_id})),
        SetCurrentSchemaUpdate(schema_id=_ADDED_LAST),
    ]


def _order(order: SortOrder, ids: dict[int, int]) -> list[SortField]:
    return [each.model_copy(update={"source_id": ids.get(each.source_id, -1)}) for each in order.fields]
