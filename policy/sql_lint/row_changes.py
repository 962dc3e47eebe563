"""DELETE, UPDATE, MERGE, TRUNCATE and overwrites of Spark: which table is changed, and what is read for it.

What a statement reads is written as a query and read like one (`queries`): the expressions of an UPDATE or
MERGE as columns of a SELECT, its conditions as filters. Copy-on-write reads every column of the table, so a
change of rows that needs a scan requires all of them. A MERGE that only inserts reads those that it compares.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NoReturn

from policy.sql_lint.columns import column_name
from policy.sql_lint.cursor import Cursor, Name
from policy.sql_lint.lexer import Kind, tokens_of
from policy.sql_lint.options import WRITE, took_options
from policy.sql_lint.problems import Problem
from policy.sql_lint.queries import begins_query, read_query
from policy.sql_lint.statements import ChangeRows, Insert, Query


@dataclass(frozen=True, slots=True)
class _Source:
    """A table or query in a FROM.

    Attributes:
        text: as a query writes it.
        name: by which it is known there; empty if it has none.
    """

    text: str
    name: str


_CONDITION: Final = "WHERE|USING|SET|ON"
_QUERY: Final = "SELECT|WITH|VALUES|FROM"
_AFTER_TABLE: Final = "WITH|PARTITION|BY|REPLACE"


def read_delete(cursor: Cursor) -> ChangeRows:
    """What is behind DELETE."""
    _refuse_hive(cursor, "DELETE")
    target, source = _target(cursor.expect("FROM"))
    if not cursor.took("WHERE"):
        return ChangeRows(target)
    return ChangeRows(target, _query(cursor, f"SELECT * FROM {source.text} WHERE {_expression(cursor)}"))


def read_update(cursor: Cursor) -> ChangeRows:
    """What is behind UPDATE."""
    _refuse_hive(cursor, "UPDATE")
    target, source = _target(cursor)
    read = ["*", *_assignments(cursor.expect("SET"), "WHERE")]
    condition = f" WHERE {_expression(cursor)}" if cursor.took("WHERE") else ""
    return ChangeRows(target, _query(cursor, f"SELECT {', '.join(read)} FROM {source.text}{condition}"))


def read_merge(cursor: Cursor) -> ChangeRows:
    """What is behind MERGE."""
    _refuse_hive(cursor, "MERGE")
    evolves = took_evolution(cursor)
    target, into = _target(cursor.expect("INTO"))
    cursor.expect("USING")
    source = _source(cursor)
    condition = _expression(cursor.expect("ON"), "WHEN")
    if not cursor.ahead("WHEN"):
        cursor.refuse("expected WHEN")
    read, inserts = list[str](), True
    while cursor.took("WHEN"):
        inserted, values = _clause(cursor, source)
        read, inserts = read + values, inserts and inserted
    if not inserts:
        read.append(f"{_quoted((into.name,))}.*")
    text = f"SELECT {', '.join(read)} FROM {into.text} JOIN {source.text} ON {condition}"
    return ChangeRows(target, _query(cursor, text), evolves, inserts)


def read_truncate(cursor: Cursor) -> ChangeRows:
    """What is behind TRUNCATE."""
    _refuse_hive(cursor, "TRUNCATE")
    return ChangeRows(cursor.expect("TABLE").name())


def took_evolution(cursor: Cursor) -> bool:
    """Take WITH SCHEMA EVOLUTION of Spark if it comes next."""
    return not cursor.hive and cursor.took("WITH SCHEMA EVOLUTION")


def read_overwrite(cursor: Cursor, *, evolves: bool) -> Insert:
    """What is behind INSERT OVERWRITE."""
    _refuse_hive(cursor, "INSERT OVERWRITE")
    if cursor.ahead("DIRECTORY") or cursor.ahead("LOCAL DIRECTORY"):
        _refuse(cursor, "INSERT OVERWRITE DIRECTORY")
    name = cursor.past("TABLE").name()
    took_options(cursor, WRITE)
    compared = cursor.listed(_partition_value) if cursor.took("PARTITION") else []
    if cursor.took("IF NOT EXISTS"):
        cursor.refuse("IF NOT EXISTS is not supported")
    by_name(cursor)
    columns = [each for each in compared if each is not None]
    filtered = (
        _query(cursor, f"SELECT {', '.join(map(_quoted, columns))} FROM {_quoted(name)}") if columns else None
    )
    return Insert(name, read_query(cursor), filtered, evolves, compares=True, overwrites=True)


def read_replacement(cursor: Cursor, name: Name, *, evolves: bool) -> Insert:
    """What is behind INSERT INTO a table REPLACE WHERE."""
    condition = _expression(cursor, *_QUERY.split("|"))
    filtered = f"SELECT 1 FROM {_quoted(name)} WHERE {condition}"
    return Insert(name, read_query(cursor), _query(cursor, filtered), evolves, overwrites=True)


def inserted_into(cursor: Cursor) -> tuple[Name, str | None]:
    """The table of INSERT INTO, and its alias if it has one, which it can have before REPLACE alone."""
    name = cursor.name()
    if cursor.hive or begins_query(cursor) or cursor.ahead(_AFTER_TABLE):
        return name, None
    if cursor.took("AS") or cursor.next.kind in (Kind.WORD, Kind.QUOTED):
        return name, cursor.part()
    return name, None


def read_replacing(cursor: Cursor, name: Name, alias: str | None, *, evolves: bool) -> ChangeRows:
    """What is behind INSERT INTO a table REPLACE: USING and columns, or ON and a condition.

    Spark deletes the rows that match and inserts all rows of the query, as a MERGE.
    """
    into = _Source(_quoted(name), name[-1])
    if alias is not None:
        into = _Source(f"{into.text} AS {_quoted((alias,))}", alias)
    every = f"{_quoted((into.name,))}.*"
    if cursor.took("USING"):
        columns = [f"{_quoted((into.name,))}.{_quoted(each)}" for each in cursor.listed(_single_name)]
        read, condition = [*columns, every], "true"
    else:
        condition = f"({cursor.expect('ON').balanced(until=_begins_rows)})"
        read = [every]
    source = _replacing_rows(cursor)
    text = f"SELECT {', '.join(read)} FROM {into.text} JOIN {source.text} ON {condition}"
    return ChangeRows(name, _query(cursor, text), evolves)


def _begins_rows(cursor: Cursor) -> bool:
    """Whether a query comes next behind a condition, which can have IS DISTINCT FROM."""
    return begins_query(cursor) and not cursor.behind("DISTINCT")


def _single_name(cursor: Cursor) -> Name:
    return (cursor.part(),)


def _replacing_rows(cursor: Cursor) -> _Source:
    """The rest of the statement: a query, or one in parentheses that can have an alias."""
    if not begins_query(cursor):
        cursor.refuse("expected a query")
    inner = ""
    if cursor.took_symbol("("):
        inner = f"({cursor.balanced()})"
        cursor.expect_symbol(")")
        if cursor.took("AS") or cursor.next.kind is Kind.QUOTED or _is_last(cursor):
            return _Source(f"{inner} AS {_quoted((cursor.part(),))}", "")
    rest = "" if cursor.next.kind is Kind.END else cursor.balanced()
    return _Source(f"({inner} {rest})", "")


def _is_last(cursor: Cursor) -> bool:
    """Whether one word is left."""
    return cursor.next.kind is Kind.WORD and len(cursor.rest) == 1


def by_name(cursor: Cursor) -> None:
    """Take BY NAME, or the list of columns of an INSERT."""
    cursor.took("BY NAME")
    if cursor.next.is_symbol("(") and not begins_query(cursor):
        cursor.listed(Cursor.name)


def _clause(cursor: Cursor, source: _Source) -> tuple[bool, list[str]]:
    """Whether a WHEN clause inserts rows, and what it reads."""
    every = f"{_quoted((source.name,))}.*" if source.name else "*"
    cursor.took("NOT")
    cursor.expect("MATCHED").took("BY SOURCE|TARGET")
    read = [_expression(cursor, "THEN")] if cursor.took("AND") else []
    cursor.expect("THEN")
    if cursor.took("DELETE"):
        return False, read
    if cursor.took("UPDATE SET"):
        return False, read + ([every] if cursor.took_symbol("*") else _assignments(cursor, "WHEN"))
    cursor.expect("INSERT")
    if cursor.took_symbol("*"):
        return True, [*read, every]
    if cursor.next.is_symbol("("):
        cursor.listed(column_name)
    cursor.expect("VALUES").expect_symbol("(")
    values = [_expression(cursor, commas=True)]
    while cursor.took_symbol(","):
        values.append(_expression(cursor, commas=True))
    cursor.expect_symbol(")")
    return True, read + values


def _assignments(cursor: Cursor, *stops: str) -> list[str]:
    """The values of `column = value, …`."""
    values = []
    while True:
        column_name(cursor)
        cursor.expect_symbol("=")
        values.append(_expression(cursor, *stops, commas=True))
        if not cursor.took_symbol(","):
            return values


def _target(cursor: Cursor) -> tuple[Name, _Source]:
    """The table that is changed, and how a query reads it."""
    name = cursor.name()
    return name, _aliased(cursor, _quoted(name), name[-1])


def _source(cursor: Cursor) -> _Source:
    """What a MERGE compares the table with."""
    if cursor.took_symbol("("):
        inner = cursor.balanced()
        cursor.expect_symbol(")")
        return _aliased(cursor, f"({inner})", "")
    name = cursor.name()
    return _aliased(cursor, _quoted(name), name[-1])


def _aliased(cursor: Cursor, text: str, name: str) -> _Source:
    if not cursor.took("AS") and (
        cursor.ahead(_CONDITION) or cursor.next.kind not in (Kind.WORD, Kind.QUOTED)
    ):
        return _Source(text, name)
    alias = cursor.part()
    return _Source(f"{text} AS {_quoted((alias,))}", alias)


def _partition_value(cursor: Cursor) -> Name | None:
    """A field of PARTITION (…): the column that is compared with a value; None if rows have the value."""
    name = (cursor.part(),)
    if not cursor.took_symbol("="):
        return None
    if cursor.take().kind not in (Kind.STRING, Kind.NUMBER):
        cursor.refuse("expected a value before this")
    return name


def _expression(cursor: Cursor, *stops: str, commas: bool = False) -> str:
    """An expression up to a keyword or a comma, in parentheses: nothing else can follow it."""
    return f"({cursor.balanced(*stops, commas=commas)})"


def _query(cursor: Cursor, text: str) -> Query:
    """Read a query that a statement stands for; its problems are told at the place that was reached."""
    try:
        inner = Cursor(list(tokens_of(text, hive=False)), len(text), text, hive=False)
        return read_query(inner)
    except Problem as problem:
        raise Problem(cursor.next.start, problem.rule, problem.message, problem.hint) from problem


def _quoted(name: Sequence[str]) -> str:
    return ".".join("`" + part.replace("`", "``") + "`" for part in name)


def _refuse_hive(cursor: Cursor, what: str) -> None:
    if cursor.hive:
        _refuse(cursor, what)


def _refuse(cursor: Cursor, what: str) -> NoReturn:
    raise Problem(
        cursor.next.start,
        "not-supported-yet",
        f"{what} is not supported, or bypasses the catalog.",
        "Remove the statement, or use a supported one.",
    )
