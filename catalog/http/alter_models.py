"""The body of `/engine/v1/tables/{namespace}/{table}/alter`: one model per action."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field
from pyiceberg.table.sorting import NullOrder, SortDirection
from pyiceberg.transforms import Transform, parse_transform
from pyiceberg.types import IcebergType, NestedField

from catalog.http.base_models import OwnBody
from catalog.http.bodies import iceberg_part
from catalog.tables import alter, partition_changes, ref_changes, schema_changes

_MAX_CHANGES = 1_000

Name = Annotated[str, Field(max_length=1_000)]
ColumnPath = Annotated[list[Name], Field(min_length=1, max_length=64)]
ColumnPaths = Annotated[list[ColumnPath], Field(min_length=1, max_length=_MAX_CHANGES)]
TransformText = Annotated[
    str, Field(max_length=100, description="A transform in Iceberg's JSON form, such as bucket[16].")
]
Positive = Annotated[int, Field(ge=1, le=2**63 - 1)]
TypeJson = Annotated[Any, Field(description="A type in Iceberg's JSON form; its ids count for nothing.")]


class After(OwnBody):
    """A position after another field of the same struct."""

    after: Name


Position = Literal["first"] | After | None


class AddColumn(OwnBody):
    """Add a column."""

    action: Literal["add-column"]
    path: ColumnPath
    type: TypeJson
    required: bool = False
    doc: str | None = None
    position: Position = None

    def to_change(self) -> alter.Change:
        """Convert the action to a change."""
        return schema_changes.AddColumn(
            tuple(self.path), _type(self.type), self.required, self.doc, _position(self.position)
        )


class RenameColumn(OwnBody):
    """Rename a column."""

    action: Literal["rename-column"]
    path: ColumnPath
    name: Name

    def to_change(self) -> alter.Change:
        """Convert the action to a change."""
        return schema_changes.RenameColumn(tuple(self.path), self.name)


class DropColumn(OwnBody):
    """Drop a column."""

    action: Literal["drop-column"]
    path: ColumnPath
    if_exists: bool = False

    def to_change(self) -> alter.Change:
        """Convert the action to a change."""
        return schema_changes.DropColumn(tuple(self.path), self.if_exists)


class UpdateType(OwnBody):
    """Widen the type of a column."""

    action: Literal["update-type"]
    path: ColumnPath
    type: TypeJson

    def to_change(self) -> alter.Change:
        """Convert the action to a change."""
        return schema_changes.UpdateType(tuple(self.path), _type(self.type))


class UpdateDoc(OwnBody):
    """Change the comment of a column."""

    action: Literal["update-doc"]
    path: ColumnPath
    doc: str

    def to_change(self) -> alter.Change:
        """Convert the action to a change."""
        return schema_changes.UpdateDoc(tuple(self.path), self.doc)


class MakeOptional(OwnBody):
    """Make a required column optional."""

    action: Literal["make-optional"]
    path: ColumnPath

    def to_change(self) -> alter.Change:
        """Convert the action to a change."""
        return schema_changes.MakeOptional(tuple(self.path))


class MakeRequired(OwnBody):
    """Make a column required; refused for an optional one."""

    action: Literal["make-required"]
    path: ColumnPath

    def to_change(self) -> alter.Change:
        """Convert the action to a change."""
        return schema_changes.MakeRequired(tuple(self.path))


class SetIdentifierFields(OwnBody):
    """Replace the identifier fields."""

    action: Literal["set-identifier-fields"]
    paths: ColumnPaths

    def to_change(self) -> alter.Change:
        """Convert the action to a change."""
        return schema_changes.SetIdentifierFields(tuple(map(tuple, self.paths)))


class DropIdentifierFields(OwnBody):
    """Remove columns from the identifier fields."""

    action: Literal["drop-identifier-fields"]
    paths: ColumnPaths

    def to_change(self) -> alter.Change:
        """Convert the action to a change."""
        return schema_changes.DropIdentifierFields(tuple(map(tuple, self.paths)))


class AddPartitionField(OwnBody):
    """Add a partition field."""

    action: Literal["add-partition-field"]
    path: ColumnPath
    transform: TransformText
    name: Name | None = None

    def to_change(self) -> alter.Change:
        """Convert the action to a change."""
        return partition_changes.AddPartitionField(tuple(self.path), _transform(self.transform), self.name)


class RemovePartitionField(OwnBody):
    """Remove a partition field."""

    action: Literal["remove-partition-field"]
    path: ColumnPath
    transform: TransformText

    def to_change(self) -> alter.Change:
        """Convert the action to a change."""
        return partition_changes.RemovePartitionField(tuple(self.path), _transform(self.transform))


class SortBy(OwnBody):
    """A field of a sort order."""

    path: ColumnPath
    transform: TransformText
    direction: Literal["asc", "desc"]
    null_order: Literal["nulls-first", "nulls-last"]

    def to_field(self) -> partition_changes.SortBy:
        """Convert the field."""
        return partition_changes.SortBy(
            tuple(self.path),
            _transform(self.transform),
            SortDirection(self.direction),
            NullOrder(self.null_order),
        )


class SetSortOrder(OwnBody):
    """Replace the sort order."""

    action: Literal["set-sort-order"]
    fields: Annotated[list[SortBy], Field(max_length=_MAX_CHANGES)]

    def to_change(self) -> alter.Change:
        """Convert the action to a change."""
        return partition_changes.SetSortOrder(tuple(each.to_field() for each in self.fields))


class SetBranch(OwnBody):
    """Create or replace a branch."""

    action: Literal["set-branch"]
    name: Name
    mode: ref_changes.Mode
    snapshot_id: Positive | None = None
    max_ref_age_ms: Positive | None = None
    max_snapshot_age_ms: Positive | None = None
    min_snapshots_to_keep: Positive | None = None

    def to_change(self) -> alter.Change:
        """Convert the action to a change."""
        retention = ref_changes.Retention(
            self.max_ref_age_ms, self.max_snapshot_age_ms, self.min_snapshots_to_keep
        )
        return ref_changes.SetRef("branch", self.name, self.mode, self.snapshot_id, retention)


class SetTag(OwnBody):
    """Create or replace a tag."""

    action: Literal["set-tag"]
    name: Name
    mode: ref_changes.Mode
    snapshot_id: Positive | None = None
    max_ref_age_ms: Positive | None = None

    def to_change(self) -> alter.Change:
        """Convert the action to a change."""
        retention = ref_changes.Retention(self.max_ref_age_ms)
        return ref_changes.SetRef("tag", self.name, self.mode, self.snapshot_id, retention)


class DropRef(OwnBody):
    """Remove a branch or tag."""

    action: Literal["drop-branch", "drop-tag"]
    name: Name
    if_exists: bool = False

    def to_change(self) -> alter.Change:
        """Convert the action to a change."""
        return ref_changes.DropRef(
            "branch" if self.action == "drop-branch" else "tag", self.name, self.if_exists
        )


class SetLocation(OwnBody):
    """Change the table's location."""

    action: Literal["set-location"]
    location: Annotated[str, Field(max_length=10_000)]

    def to_change(self) -> alter.Change:
        """Convert the action to a change."""
        return alter.SetLocation(self.location)


class MoveColumn(OwnBody):
    """Move a column to another position in its struct."""

    action: Literal["move-column"]
    path: ColumnPath
    position: Position

    def to_change(self) -> alter.Change:
        """Convert the action to a change."""
        return schema_changes.MoveColumn(tuple(self.path), _position(self.position))


class SetProperty(OwnBody):
    """Set a property."""

    action: Literal["set-property"]
    name: str
    value: str

    def to_change(self) -> alter.Change:
        """Convert the action to a change."""
        return alter.SetProperty(self.name, self.value)


class RemoveProperty(OwnBody):
    """Remove a property."""

    action: Literal["remove-property"]
    name: str

    def to_change(self) -> alter.Change:
        """Convert the action to a change."""
        return alter.RemoveProperty(self.name)


Change = Annotated[
    AddColumn
    | RenameColumn
    | DropColumn
    | UpdateType
    | UpdateDoc
    | MakeOptional
    | MakeRequired
    | MoveColumn
    | SetIdentifierFields
    | DropIdentifierFields
    | AddPartitionField
    | RemovePartitionField
    | SetSortOrder
    | SetBranch
    | SetTag
    | DropRef
    | SetLocation
    | SetProperty
    | RemoveProperty,
    Field(discriminator="action"),
]


class AlterBody(OwnBody):
    """The changes to make, in order."""

    changes: Annotated[list[Change], Field(min_length=1, max_length=_MAX_CHANGES)]

    def to_changes(self) -> list[alter.Change]:
        """Convert the body to changes.

        Raises:
            RequestInvalid: a type or transform is not one of Iceberg's.
        """
        return [each.to_change() for each in self.changes]


def _type(value: object) -> IcebergType:
    field = {"id": 1, "name": "column", "type": value, "required": False}
    return iceberg_part(NestedField.model_validate, field, "type").field_type


def _transform(text: str) -> Transform[Any, Any]:
    return iceberg_part(parse_transform, text, "transform")


def _position(given: Position) -> schema_changes.Position:
    return schema_changes.After(given.after) if isinstance(given, After) else given
