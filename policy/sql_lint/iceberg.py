"""Iceberg's extensions of Spark's ALTER TABLE: partition fields, order of writes, branches and tags.

Source: Apache Iceberg's `IcebergSqlExtensions.g4`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from policy.sql_lint.columns import column_name, partition_source
from policy.sql_lint.cursor import Cursor, Name
from policy.sql_lint.lexer import Kind
from policy.sql_lint.statements import AlterColumns, AlterLayout, AlterReference, Statement

_UNITS: Final = "DAYS|HOURS|MINUTES"
_REFERENCES: Final = ("BRANCH", "TAG")


def _add_field(cursor: Cursor, name: Name) -> Statement:
    source = partition_source(cursor)
    _named(cursor)
    return AlterLayout(name, (source,))


def _drop_field(cursor: Cursor, name: Name) -> Statement:
    partition_source(cursor)
    return AlterLayout(name)


def _replace_field(cursor: Cursor, name: Name) -> Statement:
    partition_source(cursor)
    return _add_field(cursor.expect("WITH"), name)


def _named(cursor: Cursor) -> None:
    if cursor.took("AS"):
        cursor.part()


def _write(cursor: Cursor, name: Name) -> Statement:
    """The clauses of WRITE, each once and in either order."""
    sources: tuple[Name, ...] = ()
    distributed = ordered = False
    while cursor.next.kind is not Kind.END:
        if not distributed and cursor.took("DISTRIBUTED BY PARTITION"):
            distributed = True
        elif not ordered and cursor.took("UNORDERED"):
            ordered = True
        elif not ordered and cursor.past("LOCALLY").took("ORDERED BY"):
            sources, ordered = _order(cursor), True
        else:
            cursor.refuse("expected DISTRIBUTED BY PARTITION, ORDERED BY or UNORDERED, each once")
    if not distributed and not ordered:
        cursor.refuse("expected DISTRIBUTED BY PARTITION, ORDERED BY or UNORDERED")
    return AlterLayout(name, sorted_by=sources)


def _order(cursor: Cursor) -> tuple[Name, ...]:
    return tuple(cursor.listed(_sorted) if cursor.next.is_symbol("(") else cursor.several(_sorted))


def _sorted(cursor: Cursor) -> Name:
    source = partition_source(cursor)
    cursor.took("ASC|DESC")
    if cursor.took("NULLS"):
        cursor.expect("FIRST|LAST")
    return source


def _identifier_fields(cursor: Cursor, name: Name) -> Statement:
    cursor.several(column_name)
    return AlterColumns(name)


def _set_reference(kind: str, *, replaces: bool) -> Callable[[Cursor, Name], Statement]:
    def read(cursor: Cursor, name: Name) -> Statement:
        if not replaces:
            cursor.took("IF NOT EXISTS")
        cursor.part()
        if cursor.took("AS OF VERSION"):
            _number(cursor)
        if cursor.took("RETAIN"):
            _age(cursor)
        if kind == "BRANCH" and cursor.took("WITH SNAPSHOT RETENTION"):
            _retention(cursor)
        return AlterReference(name, takes_back=replaces and kind == "BRANCH")

    return read


def _drop_reference(kind: str) -> Callable[[Cursor, Name], Statement]:
    def read(cursor: Cursor, name: Name) -> Statement:
        cursor.past("IF EXISTS").part()
        return AlterReference(name, takes_back=kind == "BRANCH")

    return read


def _retention(cursor: Cursor) -> None:
    _number(cursor)
    if cursor.took(_UNITS):
        return
    cursor.expect("SNAPSHOTS")
    if cursor.next.kind is Kind.NUMBER:
        _age(cursor)


def _age(cursor: Cursor) -> None:
    _number(cursor)
    cursor.expect(_UNITS)


def _number(cursor: Cursor) -> None:
    if cursor.next.kind is not Kind.NUMBER or not cursor.next.text.isdecimal():
        cursor.refuse("expected a whole number")
    cursor.take()


#: What stands behind the table's name, and what reads the rest; the first one counts.
ALTERATIONS: Final[dict[str, Callable[[Cursor, Name], Statement]]] = {
    "ADD PARTITION FIELD": _add_field,
    "DROP PARTITION FIELD": _drop_field,
    "REPLACE PARTITION FIELD": _replace_field,
    "WRITE": _write,
    "SET|DROP IDENTIFIER FIELDS": _identifier_fields,
    **{f"CREATE {kind}": _set_reference(kind, replaces=False) for kind in _REFERENCES},
    **{f"CREATE OR REPLACE {kind}": _set_reference(kind, replaces=True) for kind in _REFERENCES},
    **{f"REPLACE {kind}": _set_reference(kind, replaces=True) for kind in _REFERENCES},
    **{f"DROP {kind}": _drop_reference(kind) for kind in _REFERENCES},
}
