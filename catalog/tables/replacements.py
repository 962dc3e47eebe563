"""Makes the updates that replace a table's definition and rows, as Iceberg's replace transaction does.

- Snapshots, branches other than `main`, tags, schemas and partition specs stay, so that earlier states can be
  read. `main` is removed: the table has no rows until the next snapshot.
- A column keeps its field id if the table has a column of the same full name, and its type can become the new
  one. Any other column gets a new id, so that files never hold two kinds of values under one id. The last
  column id never decreases.
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
    numbers = _Numbers(base.schema(), base.last_column_id)
    fields = numbers.fields(schema.fields, "", known=True)
    identifiers = [numbers.ids[each] for each in schema.identifier_field_ids]
    return Schema(*fields, identifier_field_ids=identifiers), numbers.ids


@dataclass
class _Numbers:
    """Gives out field ids."""

    before: Schema
    last: int

    def __post_init__(self) -> None:
        self.ids: dict[int, int] = {}

    def fields(self, fields: tuple[NestedField, ...], path: str, *, known: bool) -> list[NestedField]:
        return [self._field(each, f"{path}{each.name}", known=known) for each in fields]

    def _field(self, field: NestedField, path: str, *, known: bool) -> NestedField:
        """Return a field with its id; `known` says whether the field around it is one that the table has."""
        field_id, known = self._id(path, field.field_id, field.field_type, known=known)
        return field.model_copy(
            update={"field_id": field_id, "field_type": self._type(field.field_type, path, known=known)}
        )

    def _type(self, kind: IcebergType, path: str, *, known: bool) -> IcebergType:
        match kind:
            case StructType():
                return StructType(*self.fields(kind.fields, f"{path}.", known=known))
            case ListType():
                element = self._field(kind.element_field, f"{path}.element", known=known)
                return ListType(element.field_id, element.field_type, kind.element_required)
            case MapType():
                key = self._field(kind.key_field, f"{path}.key", known=known)
                value = self._field(kind.value_field, f"{path}.value", known=known)
                return MapType(
                    key.field_id, key.field_type, value.field_id, value.field_type, kind.value_required
                )
            case _:
                return kind

    def _id(self, path: str, asked: int, kind: IcebergType, *, known: bool) -> tuple[int, bool]:
        """Return the id of a field, and whether it is one that the table has."""
        found = _found(self.before, path) if known else None
        kept = found is not None and _stays(found.field_type, kind)
        if found is not None and kept:
            self.ids[asked] = found.field_id
        else:
            self.last += 1
            self.ids[asked] = self.last
        return self.ids[asked], kept


def _found(schema: Schema, path: str) -> NestedField | None:
    try:
        return schema.find_field(path)
    except ValueError:
        return None


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
