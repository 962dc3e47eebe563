"""Reads statements about permanent views of Spark: CREATE VIEW, ALTER VIEW, DROP VIEW."""

from __future__ import annotations

from policy.sql_lint.cursor import Cursor, Name
from policy.sql_lint.problems import Problem
from policy.sql_lint.queries import read_query
from policy.sql_lint.statements import ChangeView, Statement


def read_create_view(cursor: Cursor, *, replaces: bool) -> Statement:
    """What follows CREATE [OR REPLACE] VIEW."""
    _require_spark(cursor, "CREATE VIEW")
    may_exist = cursor.took("IF NOT EXISTS") or replaces
    name, seen, properties = cursor.name(), set[str](), tuple[str, ...]()
    if cursor.next.is_symbol("("):
        cursor.listed(_column)
    while not cursor.took("AS"):
        clause = cursor.next.text.upper()
        if clause in seen:
            cursor.refuse("the clause occurs twice")
        seen.add(clause)
        properties += _clause(cursor)
    operations = ("view.create", "view.replace") if replaces else ("view.create",)
    return ChangeView(name, operations, read_query(cursor), properties=properties, may_exist=may_exist)


def read_alter_view(cursor: Cursor) -> Statement:
    """What follows ALTER VIEW."""
    _require_spark(cursor, "ALTER VIEW")
    name = cursor.name()
    if cursor.took("AS"):
        return ChangeView(name, ("view.replace",), read_query(cursor))
    if cursor.took("RENAME TO"):
        return ChangeView(name, ("view.rename",), target=cursor.name())
    properties: tuple[str, ...] = ()
    if cursor.took("SET TBLPROPERTIES"):
        properties = tuple(cursor.properties())
    elif cursor.took("UNSET TBLPROPERTIES"):
        cursor.past("IF EXISTS").property_names()
    else:
        _schema_mode(cursor)
    return ChangeView(name, ("view.replace",), properties=properties)


def _column(cursor: Cursor) -> Name:
    name = cursor.part()
    cursor.took_comment()
    return (name,)


def _clause(cursor: Cursor) -> tuple[str, ...]:
    """Read a clause before AS; the properties that it sets."""
    if cursor.took("TBLPROPERTIES"):
        return tuple(cursor.properties())
    if not cursor.took_comment():
        _schema_mode(cursor)
    return ()


def _schema_mode(cursor: Cursor) -> None:
    cursor.expect("WITH SCHEMA")
    if not cursor.took("TYPE EVOLUTION"):
        cursor.expect("BINDING|COMPENSATION|EVOLUTION")


def _require_spark(cursor: Cursor, what: str) -> None:
    if cursor.hive:
        raise Problem(
            cursor.next.start,
            "not-supported-yet",
            f"{what} of Hive is not supported.",
            "Create the view in Spark.",
        )
