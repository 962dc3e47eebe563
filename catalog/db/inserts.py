"""Inserts that say what happens to a row that is there already, for both kinds of database."""

from __future__ import annotations

from sqlalchemy import Connection, Table
from sqlalchemy.dialects import postgresql, sqlite


def insert_into(connection: Connection, table: Table) -> postgresql.Insert | sqlite.Insert:
    """Return an INSERT with `on_conflict_do_update` and `on_conflict_do_nothing`."""
    return postgresql.insert(table) if connection.dialect.name == "postgresql" else sqlite.insert(table)
