"""Converts bodies that request a new table, created at once or with a write, to the catalog's form."""

from __future__ import annotations

from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER

from catalog.base.identifiers import TableName, table_name
from catalog.http.bodies import namespace_from_path, partition_spec_of, schema_of, sort_order_of
from catalog.http.engine_models import ReplaceTable, StageWrite
from catalog.http.iceberg_models import CreateTable
from catalog.tables.drafts import NewTable


def new_table_of(namespace: str, body: CreateTable | StageWrite) -> NewTable:
    """Convert a body to a new table in the namespace of the path.

    Raises:
        RequestInvalid: the name, schema, partition spec or sort order is not valid.
    """
    return _defined(table_name(namespace_from_path(namespace), body.name), body)


def replacement_of(name: TableName, body: ReplaceTable) -> NewTable:
    """Convert a body to what a table becomes.

    Raises:
        RequestInvalid: the schema, partition spec or sort order is not valid.
    """
    return _defined(name, body)


def _defined(name: TableName, body: CreateTable | StageWrite | ReplaceTable) -> NewTable:
    spec, order = body.partition_spec, body.write_order
    return NewTable(
        name=name,
        schema=schema_of(body.table_schema),
        location=body.location,
        partition_spec=UNPARTITIONED_PARTITION_SPEC if spec is None else partition_spec_of(spec),
        sort_order=UNSORTED_SORT_ORDER if order is None else sort_order_of(order),
        properties=body.properties or {},
    )
