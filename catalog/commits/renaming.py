"""Finds the columns that a commit renames.

Policies refer to columns by name. To rename a column, a user needs SELECT on every name that it had:
otherwise a permission on the new name would bypass a denial of an old one. This also applies to fields in
structs, to a column that is restored, and to schemas that are added but not current.
"""

from __future__ import annotations

from collections.abc import Iterator

from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata

from catalog.authorization.columns import every_name
from catalog.reading.loading import LoadedTable
from policy.view import ColumnNames


def former_names(table: LoadedTable, after: TableMetadata) -> ColumnNames:
    """Return all earlier names of the columns that a commit renames, and of their parent fields.

    Args:
        table: before the commit.
        after: the metadata after the commit.
    """
    before = table.metadata
    renamed = frozenset(field_id for schema in _shown(before, after) for field_id in _renamed(before, schema))
    return every_name(table, renamed) if renamed else ColumnNames()


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


def _renamed(before: TableMetadata, schema: Schema) -> Iterator[int]:
    today = before.schema()
    for field_id in schema.field_ids:
        name = schema.find_column_name(field_id)
        if name == today.find_column_name(field_id):
            continue
        if any(each.find_column_name(field_id) not in (None, name) for each in before.schemas):
            yield field_id
