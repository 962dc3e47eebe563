"""The body of `/engine/v1/tables/{namespace}/{table}/alter`: one model per action."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field
from pyiceberg.types import IcebergType, NestedField

from catalog.http.base_models import OwnBody
from catalog.http.bodies import iceberg_part
from catalog.tables import alter, schema_changes

_MAX_CHANGES = 1_000

Name = Annotated[str, Field(max_length=1_000)]
ColumnPath = Annotated[list[Name], Field(min_length=1, max_length=64)]
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
    | MoveColumn
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
            RequestInvalid: a type is not an Iceberg type.
        """
        return [each.to_change() for each in self.changes]


def _type(value: object) -> IcebergType:
    field = {"id": 1, "name": "column", "type": value, "required": False}
    return iceberg_part(NestedField.model_validate, field, "type").field_type


def _position(given: Position) -> schema_changes.Position:
    return schema_changes.After(given.after) if isinstance(given, After) else given
