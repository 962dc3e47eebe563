"""Alters tables for engines, in one commit.

Columns, partition fields, sort order, branches, tags, location and properties can be changed. Engines name
columns; field ids are assigned here, on the metadata that the commit is based on. The commit is checked like
every other: privileges and encryption rules are the same. After a conflict with another commit, the changes
are applied again on top of it, as if they were requested then.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, cast

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import ValidationError as IcebergValidationError
from pyiceberg.io import FileIO
from pyiceberg.schema import Schema
from pyiceberg.table import Table, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import (
    AddSchemaUpdate,
    AssertCurrentSchemaId,
    AssertLastAssignedFieldId,
    RemovePropertiesUpdate,
    SetCurrentSchemaUpdate,
    SetLocationUpdate,
    SetPropertiesUpdate,
    TableRequirement,
    TableUpdate,
)

from catalog.authorization.authorizer import Caller
from catalog.base.identifiers import TableName
from catalog.commits.committer import Committer
from catalog.commits.conflicts import made_anew
from catalog.context import ServiceContext
from catalog.reading.loading import LoadedTable
from catalog.state.idempotency import succeeds_unchanged
from catalog.tables.partition_changes import (
    AddPartitionField,
    PartitionChange,
    RemovePartitionField,
    SetSortOrder,
    partition_updates,
    sort_updates,
)
from catalog.tables.ref_changes import DropRef, RefChange, SetRef, ref_updates
from catalog.tables.schema_changes import ColumnChange, stage
from policy.encryption import governed as governed_names
from policy.errors import LakewardenError, RequestInvalid
from policy.privileges.operations import required

_MESSAGE_LENGTH: Final = 300
_ADDED_LAST: Final = -1


@dataclass(frozen=True, slots=True)
class SetProperty:
    """Sets a table property, ordinary or governed."""

    name: str
    value: str


@dataclass(frozen=True, slots=True)
class RemoveProperty:
    """Removes a table property; a missing one is no error."""

    name: str


@dataclass(frozen=True, slots=True)
class SetLocation:
    """Changes the location for new metadata and data files; existing files stay where they are."""

    location: str


PropertyChange = SetProperty | RemoveProperty
Change = ColumnChange | PartitionChange | SetSortOrder | RefChange | SetLocation | PropertyChange


class Alterer:
    """Alters tables.

    Args:
        context: the parts that services share.
        committer: commits the changes.
    """

    def __init__(self, context: ServiceContext, committer: Committer) -> None:
        self._context = context
        self._committer = committer

    def alter(self, caller: Caller, name: TableName, changes: Sequence[Change]) -> LoadedTable:
        """Apply changes, in order, in one commit.

        Raises:
            NotAuthorized: ALTER on the table is needed, and what the changes themselves need. Changes of
                branches and tags alone need UPDATE, or ALTER for those that take a branch back.
            RequestInvalid: a change cannot be made; nothing was changed.
            as `Committer.commit` otherwise.
        """
        # Nothing about the columns is revealed to callers who cannot alter them.
        on = self._context.on(caller, name)
        needed = required(first_operation(changes), on)
        self._context.authorizer.screen(caller, "table.commit", str(name), *needed)

        def look() -> LoadedTable:
            with self._context.authorizer.recorded(caller, "table.commit", str(name)):
                return self._context.loader.load_sealed(name)

        return made_anew(look, lambda table: self._make(caller, table, changes))

    def _make(self, caller: Caller, table: LoadedTable, changes: Sequence[Change]) -> LoadedTable:
        name = table.record.name
        requirements, updates = _commit_of(table, changes)
        if updates:
            return self._committer.commit(caller, name, requirements, updates)
        operation = "table.write" if first_operation(changes) == "table.commit" else "table.alter"
        requests = required(operation, self._context.on(caller, name))
        self._context.authorizer.require(caller, "table.commit", table.name, requests)
        succeeds_unchanged(table.metadata_location)
        return table


def first_operation(changes: Sequence[Change]) -> str:
    """Return the operation whose privileges callers need first; branches and tags are data of the table."""
    return "table.commit" if all(isinstance(each, RefChange) for each in changes) else "table.alter"


def _commit_of(
    table: LoadedTable, changes: Sequence[Change]
) -> tuple[tuple[TableRequirement, ...], tuple[TableUpdate, ...]]:
    """Convert changes to the requirements and updates of a client's commit.

    Columns change first, then partition fields and sort order, which can use new columns.
    """
    metadata = table.metadata
    columns = [each for each in changes if isinstance(each, ColumnChange)]
    schema, updates = _schema_updates(table, columns)
    requirements: list[TableRequirement] = []
    if columns:
        requirements.append(AssertCurrentSchemaId(current_schema_id=metadata.current_schema_id))
        requirements.append(AssertLastAssignedFieldId(last_assigned_field_id=metadata.last_column_id))
    fields = [each for each in changes if isinstance(each, AddPartitionField | RemovePartitionField)]
    orders = [each for each in changes if isinstance(each, SetSortOrder)]
    refs = [each for each in changes if isinstance(each, SetRef | DropRef)]
    try:
        parts = [
            partition_updates(metadata, schema, fields, table.name),
            sort_updates(metadata, schema, orders[-1] if orders else None, table.name),
            ref_updates(metadata, refs),
        ]
    except LakewardenError as refusal:
        refusal.table = table.name
        raise
    for required_too, more in parts:
        requirements += required_too
        updates += more
    moves = [each for each in changes if isinstance(each, SetLocation)]
    updates += [SetLocationUpdate(location=each.location) for each in moves]
    updates += _property_updates([each for each in changes if isinstance(each, PropertyChange)])
    return tuple(requirements) if updates else (), tuple(updates)


def _schema_updates(table: LoadedTable, changes: Sequence[ColumnChange]) -> tuple[Schema, list[TableUpdate]]:
    """Return the schema after the changes, and the updates that lead to it."""
    # The transaction is never committed, so it needs no catalog.
    identifier = (*table.record.name.namespace, table.record.name.name)
    transaction = Transaction(
        Table(identifier, table.metadata, table.metadata_location, cast(FileIO, None), cast(Catalog, None))
    )
    for number, change in enumerate(changes, start=1):
        _make(transaction, change, changes[number:], table.name)
    before, after = table.metadata, transaction.table_metadata.schema()
    if after == before.schema():
        return after, []
    mappings = [update for update in transaction._updates if isinstance(update, SetPropertiesUpdate)]
    return after, [*_current_schema(before, after), *mappings]


def _make(transaction: Transaction, change: ColumnChange, later: Sequence[ColumnChange], table: str) -> None:
    """Apply one change after the previous ones and before the later ones."""
    metadata = transaction.table_metadata
    try:
        with transaction.update_schema() as update:
            stage(update, metadata.schema(), _sources(metadata), change, later)
        transaction.table_metadata.schema().check_format_version_compatibility(metadata.format_version)
    except LakewardenError as refusal:
        refusal.table = table
        raise
    except (IcebergValidationError, ValueError, KeyError, TypeError) as error:
        # pydantic's ValidationError is a ValueError. Its text can repeat input, so the message names only
        # its type.
        plain = type(error) in (ValueError, IcebergValidationError)
        text = str(error)[:_MESSAGE_LENGTH] if plain else type(error).__name__
        raise RequestInvalid(
            f"The column {'.'.join(change.path)[:160]!r} cannot be changed: {text}.",
            table=table,
            rule="alter",
            hint="Load the table's schema, and correct the change.",
        ) from error


def _current_schema(before: TableMetadata, after: Schema) -> list[TableUpdate]:
    """Return the updates for the final schema: a new one, or one that the table had before."""
    known = next((each.schema_id for each in before.schemas if each == after), None)
    if known is not None:
        return [SetCurrentSchemaUpdate(schema_id=known)]
    schema_id = 1 + max(each.schema_id for each in before.schemas)
    schema = Schema(*after.fields, schema_id=schema_id, identifier_field_ids=after.identifier_field_ids)
    return [AddSchemaUpdate(schema_=schema), SetCurrentSchemaUpdate(schema_id=_ADDED_LAST)]


def _sources(metadata: TableMetadata) -> frozenset[int]:
    """Return the columns that partition or sort the table."""
    partitioned = [field.source_id for field in metadata.spec().fields if str(field.transform) != "void"]
    sorted_by = [field.source_id for field in metadata.sort_order().fields if str(field.transform) != "void"]
    return frozenset(partitioned + sorted_by)


def _property_updates(changes: Sequence[PropertyChange]) -> list[TableUpdate]:
    """Return the property updates. The last value of an ordinary one counts; governed ones must agree."""
    governed = [each for each in changes if governed_names.is_governed(each.name)]
    last: dict[str, str | None] = {
        each.name: each.value if isinstance(each, SetProperty) else None
        for each in changes
        if not governed_names.is_governed(each.name)
    }
    given = {name: value for name, value in last.items() if value is not None}
    removed = [name for name, value in last.items() if value is None]
    updates: list[TableUpdate] = [_property_update(each) for each in governed]
    if given:
        updates.append(SetPropertiesUpdate(updates=given))
    if removed:
        updates.append(RemovePropertiesUpdate(removals=removed))
    return updates


def _property_update(change: PropertyChange) -> TableUpdate:
    if isinstance(change, SetProperty):
        return SetPropertiesUpdate(updates={change.name: change.value})
    return RemovePropertiesUpdate(removals=[change.name])
