"""Columns, their types, and partitioning, in both dialects.

Only what Iceberg has a like for is read. A clause that would be lost (a default, a constraint, a collation)
is refused, as the catalog refuses it.

Both engines find a column whatever the letter case, and have no two that differ in it alone. Hive makes small
letters of every name; Spark keeps names as they are typed, and the catalog goes by that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Final

from policy.sql_lint.cursor import Cursor, Name
from policy.sql_lint.lexer import Kind
from policy.sql_lint.problems import Problem
from policy.sql_lint.statements import Column

MAX_COLUMNS: Final = 5_000
MAX_TYPE_DEPTH: Final = 32

_BOTH_TYPES: Final = (
    "BOOLEAN TINYINT SMALLINT INT INTEGER BIGINT FLOAT DOUBLE STRING BINARY DATE TIMESTAMP DECIMAL "
    "NUMERIC CHAR VARCHAR"
)
_SPARKS_TYPES: Final = "BYTE SHORT LONG REAL TIMESTAMP_NTZ TIMESTAMP_LTZ DEC CHARACTER"
_HIVE_TYPES: Final = frozenset(_BOTH_TYPES.split())
_SPARK_TYPES: Final = _HIVE_TYPES | frozenset(_SPARKS_TYPES.split())
_SIZED: Final = frozenset({"DECIMAL", "DEC", "NUMERIC", "CHAR", "CHARACTER", "VARCHAR"})
_UNITS: Final = frozenset({"YEAR", "MONTH", "DAY", "HOUR"})
_TRANSFORMS: Final = frozenset({"BUCKET", "TRUNCATE", *_UNITS, *(f"{unit}S" for unit in _UNITS)})


def columns_of(cursor: Cursor) -> tuple[Column, ...]:
    """The columns of a new table, in parentheses."""
    start = cursor.next.start
    columns = tuple(cursor.listed(column))
    if any(len(each.name) > 1 for each in columns):
        raise _twice(start)
    _refuse_twice(start, (each.name[-1] for each in columns))
    if len(columns) > MAX_COLUMNS:
        raise Problem(start, "columns", f"The table has more than {MAX_COLUMNS} columns.", "Remove columns.")
    return columns


def column(cursor: Cursor, *, required: bool = True) -> Column:
    """One column with its type.

    Args:
        cursor: where it stands.
        required: whether it may be NOT NULL; one that is added to a table may not.
    """
    name = column_name(cursor)
    inside = column_type(cursor)
    while not cursor.next.is_symbol(",", ")") and cursor.next.kind is not Kind.END:
        if cursor.took_comment() or (required and cursor.took("NOT NULL")):
            continue
        if cursor.ahead("FIRST|AFTER"):
            break
        cursor.refuse("the catalog does not support this column clause")
    return Column(name, tuple(_below(".".join(name), inside)))


def column_name(cursor: Cursor) -> Name:
    """The name of a column, as the engine hands it on."""
    name = cursor.name()
    return tuple(each.lower() for each in name) if cursor.hive else name


def column_type(cursor: Cursor, depth: int = 0) -> tuple[str, ...]:
    """A type; the names of what is nested in it, dotted, as Iceberg names them."""
    if depth > MAX_TYPE_DEPTH:
        cursor.refuse("the type is nested too deeply")
    start = cursor.next.start
    word = cursor.part().upper()
    if word == "ARRAY":
        return _elements(cursor, ("element",), depth)
    if word == "MAP":
        return _elements(cursor, ("key", "value"), depth)
    if word == "STRUCT":
        return _fields(cursor, depth)
    if word not in (_HIVE_TYPES if cursor.hive else _SPARK_TYPES):
        raise Problem(
            start, "column-type", f"The column type {word[:40]!a} is not supported.", "Use an Iceberg type."
        )
    if word in _SIZED and cursor.next.is_symbol("("):
        cursor.listed(_number)
    if word == "DOUBLE":
        cursor.took("PRECISION")
    return ()


def partitioned_by(cursor: Cursor) -> tuple[tuple[Name, ...], tuple[Column, ...]]:
    """PARTITIONED BY: the columns whose values show in paths, and the columns that it adds to the table."""
    cursor.took("SPEC")
    found = cursor.listed(_partition)
    return tuple(name for name, _ in found), tuple(added for _, added in found if added is not None)


def partition_source(cursor: Cursor) -> Name:
    """The column of a partition field or sort field: a column, or a transform of one."""
    start, name = cursor.next.start, column_name(cursor)
    return _source(cursor, start, name) if cursor.next.is_symbol("(") else name


def _partition(cursor: Cursor) -> tuple[Name, Column | None]:
    start, name = cursor.next.start, column_name(cursor)
    if cursor.next.is_symbol("("):
        return _source(cursor, start, name), None
    if cursor.next.is_symbol(",", ")"):
        return name, None
    inside = column_type(cursor)
    cursor.took_comment()
    return name, Column(name, tuple(_below(".".join(name), inside)))


def _source(cursor: Cursor, start: int, transform: Name) -> Name:
    """The one column among the arguments of a partition transform."""
    arguments = cursor.listed(_argument)
    sources = [each for each in arguments if each is not None]
    if len(transform) > 1 or transform[0].upper() not in _TRANSFORMS or len(sources) != 1:
        raise Problem(
            start,
            "partition-transform",
            f"The partition transform {'.'.join(transform)[:60]!a} with these arguments is not supported.",
            "Use a column, bucket(n, c), truncate(w, c), years(c), months(c), days(c) or hours(c).",
        )
    return sources[0]


def _argument(cursor: Cursor) -> Name | None:
    if cursor.next.kind is Kind.NUMBER:
        cursor.take()
        return None
    return column_name(cursor)


def _elements(cursor: Cursor, names: tuple[str, ...], depth: int) -> tuple[str, ...]:
    found: list[str] = []
    for before, name in zip("<,", names, strict=False):
        cursor.expect_symbol(before)
        found += (name, *_below(name, column_type(cursor, depth + 1)))
    cursor.expect_symbol(">")
    return tuple(found)


def _fields(cursor: Cursor, depth: int) -> tuple[str, ...]:
    start = cursor.next.start
    cursor.expect_symbol("<")
    fields = cursor.several(lambda each: _field(each, depth))
    cursor.expect_symbol(">")
    _refuse_twice(start, (each[0] for each in fields))
    return tuple(chain.from_iterable(fields))


def _field(cursor: Cursor, depth: int) -> tuple[str, ...]:
    name = cursor.part().lower() if cursor.hive else cursor.part()
    cursor.took_symbol(":")
    inside = column_type(cursor, depth + 1)
    cursor.past("NOT NULL").took_comment()
    return name, *_below(name, inside)


def _below(name: str, inside: Iterable[str]) -> Iterator[str]:
    return (f"{name}.{each}" for each in inside)


def _refuse_twice(start: int, names: Iterable[str]) -> None:
    folded = [each.lower() for each in names]
    if len(set(folded)) < len(folded):
        raise _twice(start)


def _twice(start: int) -> Problem:
    return Problem(start, "columns", "A column name occurs twice, or contains a dot.", "Rename the column.")


def _number(cursor: Cursor) -> str:
    if cursor.next.kind is not Kind.NUMBER:
        cursor.refuse("expected a number")
    return cursor.take().text
