"""Builds the errors about catalog objects that exist or do not exist.

Iceberg's compatibility kit looks for the reference implementation's texts in these messages, so they are
written in one place. The text that it looks for comes first.

Source: Apache Iceberg, `CatalogTests` and `ViewCatalogTests`.
"""

from __future__ import annotations

from catalog.base.errors import (
    NamespaceExists,
    NamespaceNotEmpty,
    NoSuchNamespace,
    NoSuchTable,
    NoSuchView,
    TableExists,
    ViewExists,
)
from catalog.base.identifiers import Namespace, TableName


def no_namespace(namespace: Namespace) -> NoSuchNamespace:
    """Return the error for a namespace that does not exist."""
    return NoSuchNamespace(f"Namespace does not exist: {'.'.join(namespace)}")


def namespace_exists(namespace: Namespace) -> NamespaceExists:
    """Return the error for a new namespace whose name is taken."""
    return NamespaceExists(f"Namespace already exists: {'.'.join(namespace)}")


def namespace_not_empty(namespace: Namespace) -> NamespaceNotEmpty:
    """Return the error for dropping a namespace that has something in it."""
    return NamespaceNotEmpty(
        f"Namespace {'.'.join(namespace)} is not empty.", hint="Drop its tables, views and namespaces first."
    )


def no_table(name: TableName) -> NoSuchTable:
    """Return the error for a table that does not exist."""
    return NoSuchTable(f"Table does not exist: {name}", table=str(name))


def no_view(name: TableName) -> NoSuchView:
    """Return the error for a view that does not exist."""
    return NoSuchView(f"View does not exist: {name}", table=str(name))


def table_exists(name: TableName, *, is_view: bool = False) -> TableExists:
    """Return the error for a new table whose name a table, or a view, has."""
    taken = f"View with same name already exists: {name}" if is_view else f"Table already exists: {name}"
    return TableExists(taken, table=str(name))


def staged_table_exists(name: TableName) -> TableExists:
    """Return the error for completing the creation of a staged table, when a table has its name by now."""
    return TableExists(f"Requirement failed: table already exists: {name}", table=str(name))


def view_exists(name: TableName, *, is_table: bool = False) -> ViewExists:
    """Return the error for a new view whose name a view, or a table, has."""
    taken = f"Table with same name already exists: {name}" if is_table else f"View already exists: {name}"
    return ViewExists(taken, table=str(name))


def table_rename_taken(source: TableName, target: TableName, *, is_view: bool = False) -> TableExists:
    """Return the error for renaming a table to the name of another table, or of a view."""
    return TableExists(_rename_taken(source, target, "View" if is_view else "Table"), table=str(target))


def view_rename_taken(source: TableName, target: TableName, *, is_table: bool = False) -> ViewExists:
    """Return the error for renaming a view to the name of another view, or of a table."""
    return ViewExists(_rename_taken(source, target, "Table" if is_table else "View"), table=str(target))


def _rename_taken(source: TableName, target: TableName, kind: str) -> str:
    return f"Cannot rename {source} to {target}. {kind} already exists"
