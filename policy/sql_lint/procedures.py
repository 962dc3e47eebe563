"""CALL: the catalog's own procedures on tables. Any other one is refused.

The table is named in a string, which Spark parses as a name and the procedure takes as one of its catalog,
whatever the current namespace is. Further parameters are named, and have plain values.
"""

from __future__ import annotations

from typing import Final

from policy.sql_lint.cursor import Cursor, Name
from policy.sql_lint.lexer import Kind, tokens_of
from policy.sql_lint.problems import Problem
from policy.sql_lint.statements import CallOnKeys, CallRewrite

#: The procedures on keys, and whether it is data keys that they move.
_REWRAPS: Final = {"rotate_key": False, "rewrap_keys": True}
_REWRITE: Final = "rewrite_data_files"
_FORBID: Final = "FORBID_OLD"
#: What else rewriting takes, and what the values are.
_OPTIONS: Final = {"BRANCH": Kind.STRING, "MAX_GROUPS": Kind.NUMBER, "MAX_GROUP_BYTES": Kind.NUMBER}


def read_call(cursor: Cursor) -> CallOnKeys | CallRewrite:
    """What is behind CALL.

    Raises:
        Problem: the procedure is not the catalog's, or is not called as it has to be.
    """
    start = cursor.next.start
    procedure = cursor.name()
    called = procedure[-1].lower()
    if cursor.hive or called not in (*_REWRAPS, _REWRITE):
        raise Problem(
            start,
            "not-supported-yet",
            f"The procedure {'.'.join(procedure)[:80]!a} is not supported, or bypasses the catalog.",
            f"Use one of the procedures {', '.join(_REWRAPS)} and {_REWRITE}.",
        )
    cursor.expect_symbol("(")
    if cursor.took("TABLE"):
        _arrow(cursor)
    start = cursor.next.start
    table = _name_in(cursor.string(), start)
    if called in _REWRAPS:
        cursor.expect_symbol(")")
        return CallOnKeys(procedure, table, rewraps=_REWRAPS[called])
    forbids = _options(cursor)
    cursor.expect_symbol(")")
    return CallRewrite(procedure, table, forbids=forbids)


def _options(cursor: Cursor) -> bool:
    """The parameters behind the table; whether old epochs are to be forbidden."""
    left, forbids = {*_OPTIONS, _FORBID}, False
    while cursor.took_symbol(","):
        name = next((each for each in sorted(left) if cursor.ahead(each)), None)
        if name is None:
            cursor.refuse("unknown or repeated parameter")
        left.remove(name)
        cursor.take()
        _arrow(cursor)
        if name != _FORBID and cursor.next.kind is not _OPTIONS[name]:
            cursor.refuse("expected a literal value")
        if name == "BRANCH":
            cursor.string()
        elif name != _FORBID:
            cursor.take()
        elif cursor.took("TRUE"):
            forbids = True
        else:
            cursor.expect("FALSE")
    return forbids


def _arrow(cursor: Cursor) -> None:
    cursor.expect_symbol("=")
    cursor.expect_symbol(">")


def _name_in(text: str, start: int) -> Name:
    """The name in a string that stands at `start`."""
    try:
        inner = Cursor(list(tokens_of(text, hive=False)), len(text), text, hive=False)
        name = inner.name()
        inner.expect_end()
    except Problem as problem:
        raise Problem(
            start, "identifier", f"{text[:80]!a} is not a table name.", "Write 'NAMESPACE.TABLE'."
        ) from problem
    return name
