"""Collects what policies can ask of a table: owner, columns, encryption and locations."""

from __future__ import annotations

from pyiceberg.schema import index_by_name

from catalog.authorization.columns import FieldNames
from catalog.authorization.restrictions import columns_of
from catalog.base.errors import NoSuchTable
from catalog.base.identifiers import TableName
from catalog.reading.loading import LoadedTable, TableLoader
from catalog.rules.encryption_policy import facts_of_table
from catalog.writes.filters import partition_columns
from policy.encryption.file_formats import FileFormat, written_format
from policy.sql_lint import TableFacts


def find_facts(loader: TableLoader, name: TableName) -> TableFacts | None:
    """Return the facts of a table; None if it does not exist.

    Raises:
        as `TableLoader.load` otherwise.
    """
    try:
        return facts_of(loader.load(name))
    except NoSuchTable:
        return None


def facts_of(table: LoadedTable) -> TableFacts:
    """Convert a table to the facts that policies are asked with."""
    schema = table.metadata.schema()
    columns = tuple(each.name for each in schema.fields)
    partitioned = partition_columns(table)
    return TableFacts(
        owner=table.record.owner,
        columns=columns,
        nested=tuple(name for name in index_by_name(schema) if name not in columns),
        leaves=facts_of_table(table).columns,
        allowed=table.governed.allowed,
        spec=table.governed.spec,
        file_format=written_format(table.metadata.properties) or FileFormat.AVRO,
        location=table.record.location,
        default_location=table.record.default_location,
        fields=FieldNames(table),
        partitions=tuple(sorted(partitioned.columns | partitioned.nested)),
        schema=columns_of(table),
    )
