"""CALL: the catalog's own procedures on a table's keys. Any other one is refused.

The table is named in a string, which Spark parses as a name and the procedure takes as one of its catalog,
whatever the current namespace is.
"""

from __future__ import annotations

from typing import Final

from policy.ddl.cursor import Cursor, Name
from policy.ddl.lexer import tokens_of
from policy.ddl.problems import Problem
from policy.ddl.statements import CallOnKeys

#: The procedures, and whether it is data keys that they move.
_REWRAPS: Final = {"rotate_key": False, "rewrap_keys": True}


def read_call(cursor: Cursor) -> CallOnKeys:
    """What is behind CALL.

    Raises:
        Problem: the procedure is not the catalog's, or is not called as it has to be.
    """
    start = cursor.next.start
    procedure = cursor.name()
    if cursor.hive or procedure[-1].lower() not in _REWRAPS:
        raise Problem(
            start,
            "not-supported-yet",
            f"CALL of {'.'.join(procedure)[:80]!a} is not carried out by the catalog, or goes past it.",
            f"The catalog has the procedures {' and '.join(_REWRAPS)}; leave others out.",
        )
    cursor.expect_symbol("(")
    if cursor.took("TABLE"):
        cursor.expect_symbol("=")
        cursor.expect_symbol(">")
    start = cursor.next.start
    table = _name_in(cursor.string(), start)
    cursor.expect_symbol(")")
    return CallOnKeys(procedure, table, rewraps=_REWRAPS[procedure[-1].lower()])


def _name_in(text: str, start: int) -> Name:
    """The name in a string that stands at `start`."""
    try:
        inner = Cursor(list(tokens_of(text, hive=False)), len(text), text, hive=False)
        name = inner.name()
        inner.expect_end()
    except Problem as problem:
        raise Problem(
            start, "identifier", f"{text[:80]!a} does not name a table.", "Name it as 'NAMESPACE.TABLE'."
        ) from problem
    return name
