"""CALL of the procedures that copy rows of files outside of the catalog: add_files, snapshot, migrate.

The source is a string: ``parquet.`PATH` ``, ``orc.`PATH` ``, or the name of a table in Spark's own catalog.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from policy.sql_lint.cursor import Cursor, Name
from policy.sql_lint.problems import Problem
from policy.sql_lint.statements import CallCopy, CreateTable
from policy.sql_lint.tables import refuse_reserved

#: Spark's own catalog.
_SESSION: Final = "spark_catalog"
_FORMATS: Final = ("parquet", "orc")

Argument = str | Name | Mapping[str, str]


def texts(cursor: Cursor) -> dict[str, str]:
    """`map('NAME', 'VALUE', …)`.

    Raises:
        Problem: a name stands twice or has no value.
    """
    start = cursor.expect("MAP").next.start
    given = cursor.listed(Cursor.string)
    found = dict(zip(given[::2], given[1::2], strict=False))
    if len(given) != 2 * len(found):
        raise Problem(
            start, "duplicate-key", "A name in map(…) occurs twice, or has no value.", "Correct it."
        )
    return found


def copy_of(procedure: Name, given: Mapping[str, Argument], start: int) -> CallCopy:
    """What a call copies, and where to.

    Args:
        procedure: its name as it is written.
        given: the arguments; names of tables as names.
        start: where the call stands.

    Raises:
        Problem: an argument is missing, or the source is neither such a path nor such a table.
    """
    called, table = procedure[-1].lower(), _named(given, "TABLE", start)
    if called == "migrate":
        table = table[1:] if table[0] == _SESSION else table
    else:
        _require_source(_named(given, "SOURCE_TABLE", start), called, start)
    if called == "add_files":
        return CallCopy(procedure, table)
    properties, location = given.get("PROPERTIES", {}), given.get("LOCATION")
    assert isinstance(properties, Mapping) and (location is None or isinstance(location, str))
    refuse_reserved(properties, start, hive=False)
    return CallCopy(procedure, table, CreateTable(table, properties, location))


def _named(given: Mapping[str, Argument], parameter: str, start: int) -> Name:
    name = given.get(parameter)
    if not isinstance(name, tuple):
        raise Problem(start, "syntax", f"The parameter {parameter.lower()} is missing.", "Give it a value.")
    return name


def _require_source(source: Name, called: str, start: int) -> None:
    is_path = len(source) == 2 and source[0].lower() in _FORMATS
    if is_path and called == "add_files":
        return
    if len(source) == 2 + (source[0] == _SESSION) and not is_path:
        return
    raise Problem(
        start,
        "not-supported-yet",
        f"{'.'.join(source)[:80]!a} cannot be the source of {called}.",
        "Name a table of Spark's own catalog; for add_files, also parquet.`PATH` or orc.`PATH`.",
    )
