"""Finds the columns that a commit renames, or whose names it forgets.

Policies refer to columns by name. To rename a column, a user needs SELECT on every name that it had:
otherwise a permission on the new name would bypass a denial of an old one. This also applies to fields in
structs, to a column that is restored, and to schemas that are added but not current. To remove the last
schema that has a name of a column takes the same: a later commit could rename it.
"""

from __future__ import annotations

from collections.abc import Iterator

from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata

from catalog.authorization.columns import every_name
from catalog.reading.loading import LoadedTable
from policy.view import ColumnNames


def former_names(table: LoadedTable, after: TableMetadata) -> ColumnNames:
    """Return all earlier names of the columns that a commit renames or forgets, and of their parent fields.

    Args:
        table: before the commit.
        after: the metadata after the commit.
    """
    before = table.metadata
    renamed = {field_id for schema in _shown(before, after) for field_id in _renamed(before, schema)}
    renamed |= _forgotten(before, after)
    return every_name(table, frozenset(renamed)) if renamed else ColumnNames()


def _shown(before: TableMetadata, after: TableMetadata) -> Iterator[Schema]:
    """Yield the new schemas, and the schema that becomes current."""
    known = {each.schema_id: each for each in before.schemas}
    for schema in after.schemas:
        # Comparing wide schemas is slow, and most of them are the same object.
        same = known.get(schema.schema_id)
        if same is not schema and same != schema:
            yield schema
    if after.current_schema_id != before.current_schema_id:
        yield after.schema()


def _forgotten(before: TableMetadata, after: TableMetadata) -> set[int]:
    """Return the columns that had a name which only removed schemas have."""
    kept = {each.schema_id for each in after.schemas}
    removed = [each for each in before.schemas if each.schema_id not in kept]
    if not removed:
        return set()
    lost = {named for each in removed for named in _named(each)}
    return {field_id for field_id, _ in lost.difference(*map(_named, after.schemas))}


def _named(schema: Schema) -> set[tuple[int, str | None]]:
    return {(field_id, schema.find_column_name(field_id)) for field_id in schema.field_ids}


def _renamed(before: TableMetadata, schema: Schema) -> Iterator[int]:
    today = before.schema()
    for field_id in schema.field_ids:
        name = schema.find_column_name(field_id)
        if name == today.find_column_name(field_id):
            continue
        if any(each.find_column_name(field_id) not in (None, name) for each in before.schemas):
            yield field_id
