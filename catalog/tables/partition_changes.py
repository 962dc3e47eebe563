"""Applies an engine's changes of the partitioning and sort order, by column names.

They have Iceberg's meaning, so that a table looks the same whichever engine altered it:

- A field that is added again gets the id, and without a name of its own the name, that it had before.
- Removing a field and adding it again in one commit keeps it, with the new name if there is one.
- A field with the transform ``void``, which format version 1 has left, makes room for a new one of its name.

Source: Iceberg table specification, "Partition Evolution" and "Sorting"; Apache Iceberg's
`BaseUpdatePartitionSpec` and `BaseReplaceSortOrder`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

from pyiceberg.partitioning import (
    PartitionField,
    PartitionSpec,
    _PartitionNameGenerator,
    _visit_partition_field,
)
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, NullOrder, SortDirection, SortField, SortOrder
from pyiceberg.table.update import (
    AddPartitionSpecUpdate,
    AddSortOrderUpdate,
    AssertDefaultSortOrderId,
    AssertDefaultSpecId,
    AssertLastAssignedPartitionId,
    SetDefaultSortOrderUpdate,
    SetDefaultSpecUpdate,
    TableRequirement,
    TableUpdate,
)
from pyiceberg.transforms import IdentityTransform, Transform, VoidTransform

from catalog.iceberg import layout
from catalog.tables.schema_changes import Path
from policy.errors import RequestInvalid

_ADDED_LAST: Final = -1
_FIRST_FIELD_ID: Final = 1000
_SHOWN: Final = 160


@dataclass(frozen=True, slots=True)
class AddPartitionField:
    """Adds a partition field. Without a name, it gets one from its column and transform."""

    path: Path
    transform: Transform[Any, Any]
    name: str | None = None


@dataclass(frozen=True, slots=True)
class RemovePartitionField:
    """Removes a partition field: that of a column and transform, or the one with a name.

    It is the name of a field if the transform is ``identity`` and no column has this name.
    """

    path: Path
    transform: Transform[Any, Any]


@dataclass(frozen=True, slots=True)
class SortBy:
    """One field of a sort order."""

    path: Path
    transform: Transform[Any, Any]
    direction: SortDirection
    nulls: NullOrder


@dataclass(frozen=True, slots=True)
class SetSortOrder:
    """Replaces the sort order; without fields, the table is unsorted."""

    fields: tuple[SortBy, ...]


PartitionChange = AddPartitionField | RemovePartitionField


def partition_updates(
    metadata: TableMetadata, schema: Schema, changes: Sequence[PartitionChange], table: str
) -> tuple[list[TableRequirement], list[TableUpdate]]:
    """Convert changes of the partitioning to requirements and updates of a commit.

    Args:
        metadata: the table's metadata.
        schema: the schema that is current after the commit.
        changes: in order.
        table: dotted name, for errors.

    Raises:
        RequestInvalid: a change cannot be made.
    """
    if not changes:
        return [], []
    draft = _Draft(metadata, schema)
    for change in changes:
        if isinstance(change, AddPartitionField):
            draft.add(change)
        else:
            draft.remove(change)
    spec = draft.spec()
    layout.check_spec(spec, schema, table)
    requirements: list[TableRequirement] = [
        AssertDefaultSpecId(default_spec_id=metadata.default_spec_id),
        AssertLastAssignedPartitionId(last_assigned_partition_id=metadata.last_partition_id),
    ]
    return requirements, _spec_updates(metadata, spec)


def replaced_partitions(
    metadata: TableMetadata, schema: Schema, wanted: PartitionSpec, ids: Mapping[int, int], table: str
) -> list[TableUpdate]:
    """Convert another partitioning to updates of a commit.

    Args:
        metadata: the table's metadata.
        schema: the schema that is current after the commit.
        wanted: the partition spec, by the ids of another schema.
        ids: the field ids of `schema`, by the ids that `wanted` has.
        table: dotted name, for errors.

    Raises:
        RequestInvalid: the spec does not fit the schema.
    """
    draft = _Draft(metadata, schema, removed={each.field_id for each in metadata.spec().fields})
    for each in wanted.fields:
        if each.source_id not in ids:
            _refuse(f"The partition field {each.name[:_SHOWN]!r} has no source column")
        draft.put(ids[each.source_id], each.transform, each.name)
    spec = draft.spec()
    layout.check_redundancy(spec.fields, table)
    layout.check_spec(spec, schema, table)
    return _spec_updates(metadata, spec)


def _spec_updates(metadata: TableMetadata, spec: PartitionSpec) -> list[TableUpdate]:
    known = next((each.spec_id for each in metadata.partition_specs if spec.compatible_with(each)), None)
    if known is not None:
        changed = known != metadata.default_spec_id
        return [SetDefaultSpecUpdate(spec_id=known)] if changed else []
    spec_id = 1 + max(each.spec_id for each in metadata.partition_specs)
    added = PartitionSpec(*spec.fields, spec_id=spec_id)
    return [AddPartitionSpecUpdate(spec=added), SetDefaultSpecUpdate(spec_id=_ADDED_LAST)]


def sort_updates(
    metadata: TableMetadata, schema: Schema, change: SetSortOrder | None, table: str
) -> tuple[list[TableRequirement], list[TableUpdate]]:
    """Convert a change of the sort order to requirements and updates of a commit.

    Raises:
        RequestInvalid: a column does not exist, or cannot sort the table.
    """
    if change is None:
        return [], []
    fields = [
        SortField(_source(schema, each.path), each.transform, each.direction, each.nulls)
        for each in change.fields
    ]
    requirements: list[TableRequirement] = [
        AssertDefaultSortOrderId(default_sort_order_id=metadata.default_sort_order_id)
    ]
    return requirements, order_updates(metadata, schema, fields, table)


def order_updates(
    metadata: TableMetadata, schema: Schema, fields: list[SortField], table: str
) -> list[TableUpdate]:
    """Convert a sort order to updates of a commit; without fields, the table is unsorted.

    Args:
        metadata: the table's metadata.
        schema: the schema that is current after the commit.
        fields: of the sort order, by the ids of `schema`.
        table: dotted name, for errors.

    Raises:
        RequestInvalid: a column does not exist, or cannot sort the table.
    """
    known = next((each.order_id for each in metadata.sort_orders if each.fields == fields), None)
    if known is not None:
        changed = known != metadata.default_sort_order_id
        return [SetDefaultSortOrderUpdate(sort_order_id=known)] if changed else []
    order_id = 1 + max(each.order_id for each in metadata.sort_orders)
    order = SortOrder(*fields, order_id=order_id) if fields else UNSORTED_SORT_ORDER
    layout.check_order(order, schema, table)
    return [
        AddSortOrderUpdate(sort_order=order),
        SetDefaultSortOrderUpdate(sort_order_id=_ADDED_LAST),
    ]


@dataclass
class _Draft:
    """A partition spec while it is changed."""

    metadata: TableMetadata
    schema: Schema
    added: list[PartitionField] = field(default_factory=list)
    removed: set[int] = field(default_factory=set)
    renamed: dict[int, str] = field(default_factory=dict)

    @property
    def current(self) -> Sequence[PartitionField]:
        return self.metadata.spec().fields

    def add(self, change: AddPartitionField) -> None:
        source, transform = _source(self.schema, change.path), change.transform
        existing = _of(self.current, source, transform)
        if existing is not None and existing.field_id in self.removed:
            self.removed.discard(existing.field_id)
            if change.name is not None and change.name != existing.name:
                self._require_unused(change.name)
                self.renamed[existing.field_id] = change.name
            return
        duplicate = existing or _of(self.added, source, transform)
        if duplicate is not None:
            _refuse(f"The table is already partitioned by {duplicate.name[:_SHOWN]!r}, the same transform")
        made = self._recycled(source, transform, change.name)
        self._make_room(made.name)
        self.added.append(made)

    def put(self, source: int, transform: Transform[Any, Any], name: str) -> None:
        """Add a field to a spec that begins anew."""
        made = self._recycled(source, transform, name)
        self._require_unused(name)
        self.added.append(made)

    def remove(self, change: RemovePartitionField) -> None:
        found = self._named(change) or _of(self.current, _source(self.schema, change.path), change.transform)
        if found is None or found.field_id in self.removed:
            shown = ".".join(change.path)[:_SHOWN]
            _refuse(f"The table has no partition field {change.transform}({shown})")
        self.removed.add(found.field_id)

    def spec(self) -> PartitionSpec:
        """Return the spec after the changes."""
        return PartitionSpec(*self._kept(), *self.added)

    def _kept(self) -> list[PartitionField]:
        return [
            PartitionField(
                each.source_id, each.field_id, each.transform, self.renamed.get(each.field_id, each.name)
            )
            for each in self.current
            if each.field_id not in self.removed
        ]

    def _named(self, change: RemovePartitionField) -> PartitionField | None:
        if not isinstance(change.transform, IdentityTransform) or _found(self.schema, change.path):
            return None
        name = ".".join(change.path)
        found = next((each for each in self.current if each.name == name), None)
        if found is None:
            _refuse(f"The table has no column or partition field {name[:_SHOWN]!r}")
        return found

    def _recycled(self, source: int, transform: Transform[Any, Any], name: str | None) -> PartitionField:
        """Return the field that the table had before, or a new one."""
        for each in (each for spec in self.metadata.partition_specs for each in spec.fields):
            same = each.source_id == source and each.transform == transform
            if same and name in (None, each.name):
                return each
        last = max(
            (self.metadata.last_partition_id or _FIRST_FIELD_ID - 1),
            *(each.field_id for each in self.added),
            _FIRST_FIELD_ID - 1,
        )
        unnamed = PartitionField(source, last + 1, transform, name or "unnamed")
        if name is None:
            name = _visit_partition_field(self.schema, unnamed, _PartitionNameGenerator())
        return PartitionField(source, last + 1, transform, name)

    def _make_room(self, name: str) -> None:
        """Rename a void field of this name."""
        for each in self.current:
            if each.name == name and isinstance(each.transform, VoidTransform):
                self.renamed[each.field_id] = f"{each.name}_{each.field_id}"
        self._require_unused(name)

    def _require_unused(self, name: str) -> None:
        if name in {each.name for each in (*self._kept(), *self.added)}:
            _refuse(f"The table already has a partition field named {name[:_SHOWN]!r}")


def _of(
    fields: Iterable[PartitionField], source: int, transform: Transform[Any, Any]
) -> PartitionField | None:
    return next((each for each in fields if each.source_id == source and each.transform == transform), None)


def _found(schema: Schema, path: Path) -> int | None:
    try:
        return schema.find_field(".".join(path)).field_id
    except ValueError:
        return None


def _source(schema: Schema, path: Path) -> int:
    found = _found(schema, path)
    if found is None:
        _refuse(f"The column {'.'.join(path)[:_SHOWN]!r} does not exist")
    return found


def _refuse(why: str) -> NoReturn:
    raise RequestInvalid(
        f"{why}.", rule="alter", hint="Load the table's schema and partition spec, and correct the change."
    )
