"""Which columns a commit shows under other names than they had.

Policies go by names. Whoever gives a column another name needs the right to read it under every name that it
had: a right on the new name must not be a way around a denial of an old one. That holds of fields in structs
too, and of a column that comes back, or comes by a schema that is not current yet.
"""

from __future__ import annotations

from collections.abc import Iterator

from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata

from catalog.authorization.columns import every_name
from catalog.reading.loading import LoadedTable
from policy.view import ColumnNames


def former_names(table: LoadedTable, after: TableMetadata) -> ColumnNames:
    """Every name that the columns had which a commit renames, and the names of what they are nested in.

    Args:
        table: as it is.
        after: the metadata that comes.
    """
    before = table.metadata
    renamed = frozenset(field_id for schema in _shown(before, after) for field_id in _renamed(before, schema))
    return every_name(table, renamed) if renamed else ColumnNames()


def _shown(before: TableMetadata, after: TableMetadata) -> Iterator[Schema]:
    """The schemas that are new, and the one that becomes current."""
    known = {each.schema_id: each for each in before.schemas}
    for schema in after.schemas:
        # Most schemas are the very same objects, and wide ones take long to compare.
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
