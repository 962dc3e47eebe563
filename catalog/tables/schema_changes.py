"""Applies an engine's changes of columns to a schema.

pyiceberg's `UpdateSchema` keeps ids and assigns new ones, and never reuses one. Changes that it accepts but
readers cannot follow are refused here first:

- types change only as the specification allows (Iceberg table specification, "Schema Evolution");
- a required column cannot be added, and an optional one cannot become required, since existing rows have no
  value for it;
- identifier fields are required columns of a primitive type, but not floating-point numbers;
- a struct keeps at least one field; elements, keys and values cannot be added or dropped by themselves;
- a name with a dot cannot be used: policies, and pyiceberg, write nested names with dots.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, NoReturn

from pyiceberg.schema import Schema
from pyiceberg.table.update.schema import UpdateSchema
from pyiceberg.types import (
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    PrimitiveType,
    StructType,
)

from policy.errors import RequestInvalid

Path = tuple[str, ...]

#: Permitted type promotions, beside decimals with more digits.
_PROMOTIONS: Final = ((IntegerType(), LongType()), (FloatType(), DoubleType()))


@dataclass(frozen=True, slots=True)
class After:
    """A position among the fields of a struct: after the named sibling."""

    sibling: str


#: The position of a column; None is the end.
Position = Literal["first"] | After | None


@dataclass(frozen=True, slots=True)
class AddColumn:
    """Adds a column. The ids in `type` are ignored."""

    path: Path
    type: IcebergType
    required: bool = False
    doc: str | None = None
    position: Position = None


@dataclass(frozen=True, slots=True)
class RenameColumn:
    """Renames a column."""

    path: Path
    name: str


@dataclass(frozen=True, slots=True)
class DropColumn:
    """Drops a column; with `if_exists`, a missing column is no error."""

    path: Path
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class UpdateType:
    """Widens the type of a column."""

    path: Path
    type: IcebergType


@dataclass(frozen=True, slots=True)
class UpdateDoc:
    """Changes the comment of a column."""

    path: Path
    doc: str


@dataclass(frozen=True, slots=True)
class MakeOptional:
    """Makes a required column optional."""

    path: Path


@dataclass(frozen=True, slots=True)
class MakeRequired:
    """Makes a column required: refused, unless it is required already."""

    path: Path


@dataclass(frozen=True, slots=True)
class SetIdentifierFields:
    """Replaces the identifier fields."""

    paths: tuple[Path, ...]

    @property
    def path(self) -> Path:
        """The first column, for errors."""
        return self.paths[0]


@dataclass(frozen=True, slots=True)
class DropIdentifierFields:
    """Removes columns from the identifier fields."""

    paths: tuple[Path, ...]

    @property
    def path(self) -> Path:
        """The first column, for errors."""
        return self.paths[0]


@dataclass(frozen=True, slots=True)
class MoveColumn:
    """Moves a column among its siblings."""

    path: Path
    position: Position


ColumnChange = (
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
)


def stage(
    update: UpdateSchema,
    schema: Schema,
    sources: frozenset[int],
    change: ColumnChange,
    later: Sequence[ColumnChange] = (),
) -> None:
    """Stage one change.

    Args:
        update: of pyiceberg's, on `schema`; nothing else is staged there.
        schema: the schema that is changed.
        sources: ids of columns that partition or sort the table.
        change: what is asked for.
        later: the changes after it, which can add columns to a struct that loses its last one.

    Raises:
        RequestInvalid: it cannot be done.
        ValueError, ValidationError: as pyiceberg says it.
    """
    _check_names(change)
    match change:
        case AddColumn():
            _add(update, schema, change)
        case RenameColumn():
            _require_field(schema, change.path)
            _require_absent(schema, (*change.path[:-1], change.name))
            update.rename_column(change.path, change.name)
        case DropColumn():
            _drop(update, schema, sources, change, later)
        case UpdateType():
            _require_promotion(schema, change)
            update.update_column(change.path, field_type=change.type)
        case UpdateDoc():
            _require_field(schema, change.path)
            update.update_column(change.path, doc=change.doc)
        case MakeOptional():
            _refuse_identifier(schema, change.path)
            update.make_column_optional(change.path)
        case MakeRequired():
            _require_required(schema, change.path)
        case MoveColumn():
            _require_field(schema, change.path)
            _move(update, schema, change.path, change.position)
        case SetIdentifierFields():
            names = [_identifier(schema, each) for each in change.paths]
            update.set_identifier_fields(*names)
        case DropIdentifierFields():
            update.set_identifier_fields(*_identifiers_without(schema, change.paths))


def _identifier(schema: Schema, path: Path) -> str:
    """Return the full name of a column that can be an identifier field."""
    field = _require_field(schema, path)
    kind = field.field_type
    if not isinstance(kind, PrimitiveType) or isinstance(kind, FloatType | DoubleType):
        _refuse(f"The column {_shown(path)} of type {kind!s:.80} cannot be an identifier field")
    for length in range(1, len(path) + 1):
        if not _require_field(schema, path[:length]).required:
            _refuse(f"The column {_shown(path[:length])} is optional, so it cannot be an identifier field")
    return ".".join(path)


def _identifiers_without(schema: Schema, paths: tuple[Path, ...]) -> set[str]:
    left = set(schema.identifier_field_names())
    for path in paths:
        _require_field(schema, path)
        if ".".join(path) not in left:
            _refuse(f"The column {_shown(path)} is not an identifier field")
        left.discard(".".join(path))
    return left


def _refuse_identifier(schema: Schema, path: Path) -> None:
    """Refuse an optional column where an identifier field is that column, or is nested in it."""
    name = ".".join(path)
    if any(each == name or each.startswith(f"{name}.") for each in schema.identifier_field_names()):
        _refuse(f"The column {_shown(path)} is an identifier field, so it cannot be optional")


def _require_required(schema: Schema, path: Path) -> None:
    field = _found(schema, path)
    if field is None:
        _refuse(f"The column {_shown(path)} does not exist")
    if not field.required:
        raise RequestInvalid(
            f"The column {_shown(path)} cannot become required: existing rows can have no value for it.",
            rule="required-column",
            hint="Create a new table with the column as NOT NULL, and insert the rows.",
        )


def _add(update: UpdateSchema, schema: Schema, change: AddColumn) -> None:
    if change.required:
        raise RequestInvalid(
            f"The column {_shown(change.path)} cannot be required: existing rows have no value for it.",
            rule="required-column",
            hint="Add it as an optional column.",
        )
    _require_absent(schema, change.path)
    _struct_at(schema, change.path[:-1])
    types = [change.type, *(each.field_type for each in _inside(change.type))]
    if any(isinstance(each, StructType) and not each.fields for each in types):
        _refuse(f"The column {_shown(change.path)} has a struct without fields, which no file can hold")
    update.add_column(change.path, change.type, doc=change.doc)
    if change.position is not None:
        _move(update, schema, change.path, change.position)


def _drop(
    update: UpdateSchema,
    schema: Schema,
    sources: frozenset[int],
    change: DropColumn,
    later: Sequence[ColumnChange],
) -> None:
    if change.if_exists and _found(schema, change.path) is None:
        return
    field = _require_field(schema, change.path)
    if sources.intersection(each.field_id for each in (field, *_inside(field.field_type))):
        _refuse(
            f"The column {_shown(change.path)} is used by a partition field or sort order, so it "
            "cannot be dropped"
        )
    refilled = any(isinstance(each, AddColumn) and each.path[:-1] == change.path[:-1] for each in later)
    if len(_struct_at(schema, change.path[:-1]).fields) == 1 and not refilled:
        _refuse(f"The column {_shown(change.path)} is the last one of its struct, so it cannot be dropped")
    update.delete_column(change.path)


def _move(update: UpdateSchema, schema: Schema, path: Path, position: Position) -> None:
    siblings = _struct_at(schema, path[:-1]).fields
    match position:
        case "first":
            update.move_first(path)
        case After(sibling=name):
            update.move_after(path, (*path[:-1], name))
        case None:
            others = [field.name for field in siblings if field.name != path[-1]]
            if others:
                update.move_after(path, (*path[:-1], others[-1]))


def _require_promotion(schema: Schema, change: UpdateType) -> None:
    field = _found(schema, change.path)
    if field is None:
        _refuse(f"The column {_shown(change.path)} does not exist")
    before, after = field.field_type, change.type
    if not can_become(before, after):
        _refuse(
            f"The column {_shown(change.path)} cannot change from {before} to {after}: "
            "supported are int to long, float to double, and decimals with more digits"
        )


def can_become(before: IcebergType, after: IcebergType) -> bool:
    """Return whether values of a type are values of another one: it is the same, or wider."""
    return before == after or (before, after) in _PROMOTIONS or _more_digits(before, after)


def _more_digits(before: IcebergType, after: IcebergType) -> bool:
    return (
        isinstance(before, DecimalType)
        and isinstance(after, DecimalType)
        and (before.scale == after.scale and before.precision < after.precision)
    )


def _check_names(change: ColumnChange) -> None:
    position = getattr(change, "position", None)
    paths = change.paths if isinstance(change, SetIdentifierFields | DropIdentifierFields) else (change.path,)
    names = [name for path in paths for name in path]
    if isinstance(change, RenameColumn):
        names.append(change.name)
    if isinstance(position, After):
        names.append(position.sibling)
    if isinstance(change, AddColumn):
        names += [each.name for each in _inside(change.type)]
    for name in names:
        if not name or "." in name:
            raise RequestInvalid(
                f"{name[:80]!r} is not a valid column name.",
                rule="column-name",
                hint="Give each level of a nested column separately. Names with a dot are not supported.",
            )


def _found(schema: Schema, path: Path) -> NestedField | None:
    try:
        return schema.find_field(".".join(path))
    except ValueError:
        return None


def _require_absent(schema: Schema, path: Path) -> None:
    if _found(schema, path) is not None:
        _refuse(f"The column {_shown(path)} already exists")


def _require_field(schema: Schema, path: Path) -> NestedField:
    """Return a field of a struct, never the element of a list, nor the key or value of a map."""
    _struct_at(schema, path[:-1])
    field = _found(schema, path)
    if field is None:
        _refuse(f"The column {_shown(path)} does not exist")
    return field


def _struct_at(schema: Schema, path: Path) -> StructType:
    if not path:
        return schema.as_struct()
    field = _found(schema, path)
    if field is None:
        _refuse(f"The column {_shown(path)} does not exist")
    if not isinstance(field.field_type, StructType):
        _refuse(f"The column {_shown(path)} is not a struct")
    return field.field_type


def _inside(type_: IcebergType) -> list[NestedField]:
    """Return every field in a type, on every level."""
    match type_:
        case StructType(fields=fields):
            inner = list(fields)
        case ListType():
            inner = [type_.element_field]
        case MapType():
            inner = [type_.key_field, type_.value_field]
        case _:
            inner = []
    return [*inner, *(deeper for each in inner for deeper in _inside(each.field_type))]


def _shown(path: Path) -> str:
    return repr(".".join(path)[:160])


def _refuse(why: str) -> NoReturn:
    raise RequestInvalid(f"{why}.", rule="alter", hint="Load the table's schema, and correct the change.")
