"""From a script to its statements, each with its place; what cannot be read is a `Problem` at its place.

Statements of tables are in `tables`, queries in `queries`. Everything else that the catalog is asked for by
Spark or Hive is here. What is not listed is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from policy.sql_lint.cursor import Cursor
from policy.sql_lint.lexer import Kind, Token, tokens_of
from policy.sql_lint.problems import Problem
from policy.sql_lint.procedures import read_call
from policy.sql_lint.queries import begins_query, read_query
from policy.sql_lint.settings import check_setting
from policy.sql_lint.statements import (
    AlterProperties,
    Code,
    CreateView,
    DescribeTable,
    DropTable,
    DropView,
    Explain,
    Insert,
    Namespace,
    NoPrivileges,
    Select,
    Statement,
)
from policy.sql_lint.tables import alter_table, create_table

MAX_STATEMENTS: Final = 5_000

_NAMESPACE: Final = ("NAMESPACE", "DATABASE", "SCHEMA")
_NAMESPACES: Final = ("NAMESPACES", "DATABASES", "SCHEMAS")
_NAMESPACE_RESERVED: Final = frozenset({"location", "owner"})
_PLURAL_CODE: Final = ("JAR", "JARS", "FILE", "FILES", "ARCHIVE", "ARCHIVES")
#: What Spark and Hive do past the catalog, or what the catalog does not take from them yet.
_PAST_THE_CATALOG: Final = (
    "REPLACE DELETE UPDATE MERGE TRUNCATE ANALYZE LOAD EXPORT IMPORT MSCK REPAIR OPTIMIZE CACHE UNCACHE "
    "GRANT REVOKE LOCK UNLOCK DFS EXECUTE BEGIN DECLARE RESET ABORT KILL"
)
_NOT_CARRIED_OUT: Final = frozenset(_PAST_THE_CATALOG.split())


@dataclass(frozen=True, slots=True)
class Parsed:
    """One statement, or why there is none.

    Attributes:
        start: index of its first character.
        end: index behind its last one.
        kind: its first words, for people.
        statement: what it says, or the problem that it has.
    """

    start: int
    end: int
    kind: str
    statement: Statement | Problem


def parse(text: str, *, hive: bool) -> Iterator[Parsed]:
    """The statements of a script, in order; after a token that cannot be read nothing follows."""
    held: list[Token] = []
    count = 0
    try:
        for token in tokens_of(text, hive=hive):
            if not token.is_symbol(";"):
                held.append(token)
                continue
            if held:
                count += 1
                if count > MAX_STATEMENTS:
                    raise _too_many(held[0].start)
                yield _parsed(held, token.start, text, hive=hive)
            held = []
    except Problem as problem:
        start = held[0].start if held else problem.at
        yield Parsed(start, len(text), _kind(held), problem)
        return
    if held:
        yield _parsed(held, held[-1].end, text, hive=hive)


def _parsed(tokens: Sequence[Token], end: int, text: str, *, hive: bool) -> Parsed:
    cursor = Cursor(tokens, end, text, hive=hive)
    found: Statement | Problem
    try:
        found = _statement(cursor)
        cursor.expect_end()
    except Problem as problem:
        found = problem
    return Parsed(tokens[0].start, end, _kind(tokens), found)


def _kind(tokens: Sequence[Token]) -> str:
    words: list[str] = []
    for token in tokens[:4]:
        if token.kind is not Kind.WORD or (words and token.text.upper() not in _KIND_WORDS):
            break
        words.append(token.text.upper()[:30])
    return " ".join(words) or "statement"


def _too_many(at: int) -> Problem:
    return Problem(
        at, "too-long", f"The script has more than {MAX_STATEMENTS} statements.", "Split the script."
    )


def _statement(cursor: Cursor) -> Statement:
    if begins_query(cursor):
        return Select(read_query(cursor))
    words = next((words for words in _STATEMENTS if cursor.ahead(*words)), None)
    if words is not None:
        cursor.expect(*words)
        return _STATEMENTS[words](cursor)
    if cursor.next.kind is Kind.WORD and cursor.next.text.upper() in _NOT_CARRIED_OUT:
        raise _not_carried_out(cursor, cursor.next.text.upper())
    cursor.refuse("unknown statement")


def _not_carried_out(cursor: Cursor, what: str) -> Problem:
    return Problem(
        cursor.next.start,
        "not-supported-yet",
        f"{what} is not supported, or bypasses the catalog.",
        "Remove the statement, or use a supported one.",
    )


def _create(cursor: Cursor) -> Statement:
    if cursor.ahead("OR", "REPLACE", "TABLE"):
        raise _not_carried_out(cursor, "REPLACE TABLE")
    replaces = cursor.took("OR", "REPLACE")
    temporary = cursor.took_one("TEMPORARY", "TEMP")
    if cursor.next.is_word("FUNCTION", "MACRO"):
        cursor.rest_taken()
        return Code("CREATE FUNCTION")
    if cursor.took("VIEW"):
        return _create_view(cursor, temporary=temporary)
    if temporary or replaces:
        cursor.refuse("expected VIEW or FUNCTION")
    if cursor.took_one(*_NAMESPACE):
        return _create_namespace(cursor)
    cursor.took("EXTERNAL")
    cursor.expect("TABLE")
    return create_table(cursor)


def _create_view(cursor: Cursor, *, temporary: bool) -> Statement:
    if not temporary:
        raise _not_carried_out(cursor, "CREATE VIEW")
    cursor.took("IF", "NOT", "EXISTS")
    name = cursor.part()
    if cursor.took("COMMENT"):
        cursor.remark()
    cursor.expect("AS")
    return CreateView(name, read_query(cursor))


def _create_namespace(cursor: Cursor) -> Statement:
    cursor.took("IF", "NOT", "EXISTS")
    name, properties = cursor.name(), dict[str, str]()
    seen: set[str] = set()
    while cursor.next.kind is not Kind.END:
        clause = cursor.next.text.upper()
        if clause in seen:
            cursor.refuse("the clause occurs twice")
        seen.add(clause)
        if cursor.took("COMMENT"):
            cursor.remark()
        elif cursor.took("LOCATION"):
            properties["location"] = cursor.string()
        else:
            cursor.expect("WITH")
            properties |= _namespace_properties(cursor)
    return Namespace(name, "create", properties)


def _namespace_properties(cursor: Cursor) -> dict[str, str]:
    if not cursor.took_one("DBPROPERTIES", "PROPERTIES"):
        cursor.refuse("expected DBPROPERTIES")
    start, properties = cursor.next.start, cursor.properties()
    _refuse_reserved(start, properties)
    return properties


def _refuse_reserved(start: int, names: Mapping[str, str]) -> None:
    for name in names:
        if name.lower() in _NAMESPACE_RESERVED:
            raise Problem(
                start,
                "reserved-property",
                f"The namespace property {name[:80]!a} is reserved.",
                "Use the clause LOCATION.",
            )


def _alter(cursor: Cursor) -> Statement:
    if cursor.took("TABLE"):
        return alter_table(cursor)
    if not cursor.took_one(*_NAMESPACE):
        cursor.refuse("ALTER is not supported for this object")
    name = cursor.name()
    if cursor.took("SET", "LOCATION"):
        return Namespace(name, "alter", {"location": cursor.string()})
    if cursor.took("UNSET"):
        if not cursor.took_one("DBPROPERTIES", "PROPERTIES"):
            cursor.refuse("expected PROPERTIES")
        cursor.took("IF", "EXISTS")
        start, removals = cursor.next.start, cursor.property_names()
        _refuse_reserved(start, dict.fromkeys(removals, ""))
        return Namespace(name, "alter", removals=tuple(removals))
    cursor.expect("SET")
    return Namespace(name, "alter", _namespace_properties(cursor))


def _drop(cursor: Cursor) -> Statement:
    if cursor.took("TABLE"):
        cursor.took("IF", "EXISTS")
        name = cursor.name()
        cursor.took("PURGE")
        return DropTable(name)
    if cursor.took("VIEW"):
        cursor.took("IF", "EXISTS")
        return DropView(cursor.name())
    if not cursor.took_one(*_NAMESPACE):
        raise _not_carried_out(cursor, "This DROP")
    cursor.took("IF", "EXISTS")
    name = cursor.name()
    cascades = cursor.took("CASCADE")
    cursor.took("RESTRICT")
    return Namespace(name, "drop", cascades=cascades)


def _insert(cursor: Cursor) -> Statement:
    cursor.took("TABLE")
    name = cursor.name()
    if cursor.took("PARTITION"):
        cursor.listed(lambda: _static_value(cursor))
    cursor.took("BY", "NAME")
    if cursor.next.is_symbol("(") and not _query_in_parentheses(cursor):
        cursor.listed(cursor.name)
    return Insert(name, read_query(cursor))


def _query_in_parentheses(cursor: Cursor) -> bool:
    following = next((each for each in cursor.rest if not each.is_symbol("(")), None)
    return following is not None and following.is_word("SELECT", "WITH", "VALUES", "FROM")


def _static_value(cursor: Cursor) -> None:
    cursor.part()
    if cursor.took_symbol("=") and cursor.take().kind not in (Kind.STRING, Kind.NUMBER):
        cursor.refuse("expected a value before this")


def _insert_overwrite(cursor: Cursor) -> Statement:
    raise _not_carried_out(cursor, "INSERT OVERWRITE")


def _show(cursor: Cursor) -> Statement:
    if cursor.took_one("TBLPROPERTIES") or cursor.took("CREATE", "TABLE"):
        name = cursor.name()
        if cursor.next.is_symbol("("):
            cursor.property_names()
        return DescribeTable(name)
    if cursor.took("COLUMNS"):
        if not cursor.took_one("IN", "FROM"):
            cursor.refuse("expected IN")
        return DescribeTable(cursor.name())
    lists_namespaces = cursor.took_one(*_NAMESPACES)
    if not lists_namespaces:
        cursor.expect("TABLES")
    listed = cursor.name() if cursor.took_one("IN", "FROM") else None
    if cursor.took("LIKE") or cursor.next.kind is Kind.STRING:
        cursor.remark()
    if lists_namespaces and listed is None:
        return NoPrivileges()
    return Namespace(listed, "_any")


def _describe(cursor: Cursor) -> Statement:
    if cursor.took_one(*_NAMESPACE):
        cursor.took("EXTENDED")
        return Namespace(cursor.name(), "_any")
    cursor.took("TABLE")
    cursor.took_one("EXTENDED", "FORMATTED")
    name = cursor.name()
    if cursor.next.kind in (Kind.WORD, Kind.QUOTED):
        cursor.name()
    return DescribeTable(name)


def _use(cursor: Cursor) -> Statement:
    cursor.took_one(*_NAMESPACE)
    return Namespace(cursor.name(), "_any", uses=True)


def _refresh(cursor: Cursor) -> Statement:
    cursor.took("TABLE")
    return DescribeTable(cursor.name())


def _comment_on(cursor: Cursor) -> Statement:
    of_table = cursor.took("TABLE")
    if not of_table and not cursor.took_one(*_NAMESPACE):
        cursor.refuse("expected TABLE or NAMESPACE")
    name = cursor.name()
    cursor.expect("IS")
    if not cursor.took("NULL"):
        cursor.remark()
    return AlterProperties(name) if of_table else Namespace(name, "alter")


def _set(cursor: Cursor) -> Statement:
    check_setting(cursor)
    return NoPrivileges()


def _explain(cursor: Cursor) -> Statement:
    cursor.took_one("EXTENDED", "CODEGEN", "COST", "FORMATTED")
    if cursor.ahead("EXPLAIN"):
        cursor.refuse("expected a statement after EXPLAIN")
    return Explain(_statement(cursor))


def _add(cursor: Cursor) -> Statement:
    if not cursor.next.is_word(*_PLURAL_CODE):
        cursor.refuse("unknown resource kind")
    kind = cursor.take().text.upper()
    cursor.rest_taken()
    return Code(f"ADD {kind}")


def _transforming(cursor: Cursor) -> Statement:
    cursor.rest_taken()
    return Code("MAP or REDUCE with a script")


_STATEMENTS: Final[Mapping[tuple[str, ...], Callable[[Cursor], Statement]]] = {
    ("CREATE",): _create,
    ("ALTER",): _alter,
    ("DROP",): _drop,
    ("INSERT", "INTO"): _insert,
    ("INSERT", "OVERWRITE"): _insert_overwrite,
    ("SHOW",): _show,
    ("DESCRIBE",): _describe,
    ("DESC",): _describe,
    ("USE",): _use,
    ("REFRESH",): _refresh,
    ("COMMENT", "ON"): _comment_on,
    ("SET",): _set,
    ("EXPLAIN",): _explain,
    ("CALL",): read_call,
    ("ADD",): _add,
    ("MAP",): _transforming,
    ("REDUCE",): _transforming,
}
_SECOND_WORDS: Final = (
    "TABLE VIEW NAMESPACE DATABASE SCHEMA EXTERNAL INTO OVERWRITE TEMPORARY TEMP FUNCTION OR REPLACE "
    "ON JAR FILE TBLPROPERTIES TABLES NAMESPACES DATABASES SCHEMAS COLUMNS CREATE"
)
_KIND_WORDS: Final = frozenset(_SECOND_WORDS.split())
