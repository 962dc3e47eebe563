"""CALL: the catalog's own procedures on tables. Any other one is refused.

The table is named in a string, which Spark parses as a name and the procedure takes as one of its catalog,
whatever the current namespace is. Further arguments go by position or by name, and are plain values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from policy.sql_lint.copies import Argument, copy_of, texts
from policy.sql_lint.cursor import Cursor, Name
from policy.sql_lint.lexer import Kind, tokens_of
from policy.sql_lint.options import refuse_of_changes
from policy.sql_lint.problems import Problem
from policy.sql_lint.statements import (
    CallAnalyze,
    CallChangelog,
    CallCopy,
    CallMaintenance,
    CallOnKeys,
    CallRewrite,
)

_Value = Callable[[Cursor], Argument]

_REWRAPS: Final = {"rotate_key": False, "rewrap_keys": True}
_REWRITE: Final = "rewrite_data_files"
_REWRITE_DELETES: Final = "rewrite_position_delete_files"
_FORBID: Final = "FORBID_OLD"
_CHANGELOG: Final = "create_changelog_view"
_VIEW: Final = "CHANGELOG_VIEW"
_ANALYZE: Final = "compute_table_stats"
_COLUMNS: Final = "COLUMNS"


def read_call(
    cursor: Cursor,
) -> CallOnKeys | CallRewrite | CallAnalyze | CallMaintenance | CallCopy | CallChangelog:
    """What is behind CALL.

    Raises:
        Problem: the procedure is not the catalog's, or is not called as it has to be.
    """
    start = cursor.next.start
    procedure = cursor.name()
    called = procedure[-1].lower()
    parameters = _PARAMETERS.get(called, _COPIES.get(called))
    if cursor.hive or parameters is None:
        *first, last = (*_PARAMETERS, *_COPIES)
        raise Problem(
            start,
            "not-supported-yet",
            f"The procedure {'.'.join(procedure)[:80]!a} is not supported, or bypasses the catalog.",
            f"Use one of the procedures {', '.join(first)} and {last}.",
        )
    cursor.expect_symbol("(")
    if called in _COPIES:
        copied = _arguments(cursor, parameters, begun=True)
        cursor.expect_symbol(")")
        return copy_of(procedure, copied, start)
    if cursor.took("TABLE"):
        _arrow(cursor)
    start = cursor.next.start
    table = _name_in(cursor.string(), start)
    given = _arguments(cursor, parameters)
    cursor.expect_symbol(")")
    if called == _CHANGELOG:
        options = given.get("OPTIONS", {})
        assert isinstance(options, Mapping)
        refuse_of_changes(options, start)
        return CallChangelog(procedure, table, _view(table, given.get(_VIEW), start))
    if called in _REWRAPS:
        return CallOnKeys(procedure, table, rewraps=_REWRAPS[called])
    if called in (_REWRITE, _REWRITE_DELETES):
        return CallRewrite(procedure, table, forbids=given.get(_FORBID) == "TRUE")
    if called == _ANALYZE:
        columns = given.get(_COLUMNS)
        return CallAnalyze(procedure, table, columns if isinstance(columns, tuple) else None)
    return CallMaintenance(procedure, table, _OPERATIONS[called])


def _view(table: Name, named: Argument | None, start: int) -> str:
    """The name of the temporary view that a call makes."""
    view = (f"{table[-1]}_changes",) if not isinstance(named, str) else _name_in(named, start)
    if len(view) > 1:
        raise Problem(
            start, "identifier", f"{'.'.join(view)!a} is no name of a temporary view.", "Write one name."
        )
    return view[0]


def _arguments(
    cursor: Cursor, parameters: Mapping[str, _Value], *, begun: bool = False
) -> dict[str, Argument]:
    """The arguments that come next, by the name of their parameter; behind a comma, unless they begin."""
    given: dict[str, Argument] = {}
    named = False
    while begun or cursor.took_symbol(","):
        begun = False
        left = [each for each in parameters if each not in given]
        name = next((each for each in sorted(left) if cursor.ahead(each)), None)
        if left and not named and _is_value(cursor):
            name = left[0]
        elif name is None:
            cursor.refuse("unknown or repeated parameter")
        else:
            named = True
            cursor.take()
            _arrow(cursor)
        given[name] = parameters[name](cursor)
    return given


def _is_value(cursor: Cursor) -> bool:
    """Whether an argument goes by its position, not by a name."""
    if not cursor.ahead("TIMESTAMP"):
        return cursor.next.kind in (Kind.NUMBER, Kind.STRING) or cursor.ahead("MAP|TRUE|FALSE")
    return len(cursor.rest) > 1 and cursor.rest[1].kind is Kind.STRING


def _number(cursor: Cursor) -> str:
    if cursor.next.kind is not Kind.NUMBER:
        cursor.refuse("expected a literal value")
    return cursor.take().text


def _flag(cursor: Cursor) -> str:
    if cursor.took("TRUE"):
        return "TRUE"
    cursor.expect("FALSE")
    return "FALSE"


def _text(cursor: Cursor) -> str:
    if cursor.next.kind is not Kind.STRING:
        cursor.refuse("expected a literal value")
    return cursor.string()


def _time(cursor: Cursor) -> str:
    cursor.took("TIMESTAMP")
    return _text(cursor)


def _table(cursor: Cursor) -> Name:
    start = cursor.next.start
    return _name_in(cursor.string(), start)


def _words(cursor: Cursor) -> str:
    cursor.expect("ARRAY")
    cursor.listed(_text)
    return ""


def _numbers(cursor: Cursor) -> str:
    cursor.expect("ARRAY")
    cursor.listed(_number)
    return ""


def _names(cursor: Cursor) -> Name:
    """Names in `array(…)`."""
    cursor.expect("ARRAY")
    return tuple(cursor.listed(_text))


#: The procedures, and what values the parameters behind the table have.
_PARAMETERS: Final[Mapping[str, Mapping[str, _Value]]] = {
    "rotate_key": {},
    "rewrap_keys": {},
    _REWRITE: {
        "STRATEGY": _text,
        "SORT_ORDER": _text,
        "OPTIONS": texts,
        "WHERE": _text,
        "BRANCH": _text,
        "MAX_GROUPS": _number,
        _FORBID: _flag,
    },
    _REWRITE_DELETES: {"OPTIONS": texts, "WHERE": _text},
    _ANALYZE: {"SNAPSHOT_ID": _number, _COLUMNS: _names},
    "rewrite_manifests": {"SPEC_ID": _number},
    "expire_snapshots": {"OLDER_THAN": _time, "RETAIN_LAST": _number, "SNAPSHOT_IDS": _numbers},
    "remove_orphan_files": {"OLDER_THAN": _time, "LOCATION": _text, "DRY_RUN": _flag},
    "rollback_to_snapshot": {"SNAPSHOT_ID": _number},
    "rollback_to_timestamp": {"TIMESTAMP": _time},
    "set_current_snapshot": {"SNAPSHOT_ID": _number, "REF": _text},
    "cherrypick_snapshot": {"SNAPSHOT_ID": _number},
    "publish_changes": {"WAP_ID": _text},
    "fast_forward": {"BRANCH": _text, "TO": _text},
    "ancestors_of": {"SNAPSHOT_ID": _number},
    _CHANGELOG: {
        _VIEW: _text,
        "OPTIONS": texts,
        "COMPUTE_UPDATES": _flag,
        "IDENTIFIER_COLUMNS": _words,
        "NET_CHANGES": _flag,
    },
}
#: Those that copy rows, whose first parameter can be another one than the table.
_COPIES: Final[Mapping[str, Mapping[str, _Value]]] = {
    "add_files": {
        "TABLE": _table,
        "SOURCE_TABLE": _table,
        "PARTITION_FILTER": texts,
        "CHECK_DUPLICATE_FILES": _flag,
    },
    "snapshot": {"SOURCE_TABLE": _table, "TABLE": _table, "LOCATION": _text, "PROPERTIES": texts},
    "migrate": {"TABLE": _table, "PROPERTIES": texts, "DROP_BACKUP": _flag, "BACKUP_TABLE_NAME": _text},
}
#: What other procedures than those on keys and the rewrites of files do.
_OPERATIONS: Final = {
    "rewrite_manifests": "table.rewrite",
    "expire_snapshots": "table.expire",
    "remove_orphan_files": "table.clean-up",
    "rollback_to_snapshot": "table.roll-back",
    "rollback_to_timestamp": "table.roll-back",
    "set_current_snapshot": "table.roll-back",
    "cherrypick_snapshot": "table.write",
    "publish_changes": "table.write",
    "fast_forward": "table.write",
    "ancestors_of": "table.load",
}


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
