"""From a script to its statements, each with its place; what cannot be read is a `Problem` at its place.

Statements of tables are in `tables`, queries in `queries`. Everything else that the catalog is asked for by
Spark or Hive is here. What is not listed is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from policy.sql_lint.cursor import Cursor, Name
from policy.sql_lint.lexer import Kind, Token, tokens_of
from policy.sql_lint.options import WRITE, refuse_of_overwrites, took_options
from policy.sql_lint.problems import Problem
from policy.sql_lint.procedures import read_call
from policy.sql_lint.queries import begins_query, read_query
from policy.sql_lint.row_changes import (
    by_name,
    inserted_into,
    read_delete,
    read_merge,
    read_overwrite,
    read_replacement,
    read_replacing,
    read_truncate,
    read_update,
    took_evolution,
)
from policy.sql_lint.settings import read_reset, read_setting
from policy.sql_lint.statements import (
    AlterProperties,
    ChangeRows,
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
from policy.sql_lint.tables import alter_table, create_table, replace_table
from policy.sql_lint.views import read_alter_view, read_create_view

MAX_STATEMENTS: Final = 5_000

_Read: TypeAlias = Callable[[Cursor], Statement]
_NAMESPACE: Final = "NAMESPACE|DATABASE|SCHEMA"
_NAMESPACE_RESERVED: Final = frozenset({"location", "owner"})
#: What Spark and Hive do past the catalog, or what the catalog does not take from them yet.
_PAST_THE_CATALOG: Final = (
    "REPLACE ANALYZE LOAD EXPORT IMPORT MSCK REPAIR OPTIMIZE CACHE UNCACHE "
    "GRANT REVOKE LOCK UNLOCK DFS EXECUTE BEGIN DECLARE ABORT KILL"
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
    for phrase, read in _STATEMENTS.items():
        if cursor.took(phrase):
            return read(cursor)
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


def _denied(what: str) -> _Read:
    def read(cursor: Cursor) -> Statement:
        raise _not_carried_out(cursor, what)

    return read


def _code(what: str) -> _Read:
    def read(cursor: Cursor) -> Statement:
        cursor.rest_taken()
        return Code(what)

    return read


def _create(cursor: Cursor) -> Statement:
    if cursor.took("OR REPLACE TABLE"):
        return _replace(cursor, creates=True)
    replaces = cursor.took("OR REPLACE")
    temporary = cursor.took("TEMPORARY|TEMP")
    if cursor.took("FUNCTION|MACRO"):
        return _code("CREATE FUNCTION")(cursor)
    if cursor.took("VIEW"):
        return _create_view(cursor) if temporary else read_create_view(cursor, replaces=replaces)
    if temporary or replaces:
        cursor.refuse("expected VIEW or FUNCTION")
    if cursor.took(_NAMESPACE):
        return _create_namespace(cursor)
    return create_table(cursor.past("EXTERNAL").expect("TABLE"))


def _replace(cursor: Cursor, *, creates: bool = False) -> Statement:
    if cursor.hive:
        raise _not_carried_out(cursor, "REPLACE TABLE")
    return replace_table(cursor, creates=creates)


def _create_view(cursor: Cursor) -> Statement:
    name = cursor.past("IF NOT EXISTS").part()
    cursor.took_comment()
    return CreateView(name, read_query(cursor.expect("AS")))


def _create_namespace(cursor: Cursor) -> Statement:
    name, properties = cursor.past("IF NOT EXISTS").name(), dict[str, str]()
    seen: set[str] = set()
    while cursor.next.kind is not Kind.END:
        clause = cursor.next.text.upper()
        if clause in seen:
            cursor.refuse("the clause occurs twice")
        seen.add(clause)
        if cursor.took("LOCATION"):
            properties["location"] = cursor.string()
        elif not cursor.took_comment():
            properties |= _namespace_properties(cursor.expect("WITH"))
    return Namespace(name, "namespace.create", properties)


def _namespace_properties(cursor: Cursor) -> dict[str, str]:
    start = cursor.expect("DBPROPERTIES|PROPERTIES").next.start
    properties = cursor.properties()
    _refuse_reserved(start, properties)
    return properties


def _refuse_reserved(start: int, names: Iterable[str]) -> None:
    for name in names:
        if name.lower() in _NAMESPACE_RESERVED:
            raise Problem(
                start,
                "reserved-property",
                f"The namespace property {name[:80]!a} is reserved.",
                "Use the clause LOCATION.",
            )


def _alter_namespace(cursor: Cursor) -> Statement:
    name = cursor.name()
    if cursor.took("SET LOCATION"):
        return Namespace(name, "namespace.update", {"location": cursor.string()})
    if cursor.took("UNSET"):
        start = cursor.expect("PROPERTIES|DBPROPERTIES").past("IF EXISTS").next.start
        removals = cursor.property_names()
        _refuse_reserved(start, removals)
        return Namespace(name, "namespace.update", removals=tuple(removals))
    return Namespace(name, "namespace.update", _namespace_properties(cursor.expect("SET")))


def _drop_table(cursor: Cursor) -> Statement:
    name = cursor.past("IF EXISTS").name()
    cursor.took("PURGE")
    return DropTable(name)


def _drop_namespace(cursor: Cursor) -> Statement:
    name, cascades = cursor.past("IF EXISTS").name(), cursor.took("CASCADE")
    cursor.took("RESTRICT")
    return Namespace(name, "namespace.drop", cascades=cascades)


def _insert(cursor: Cursor) -> Statement:
    evolves = took_evolution(cursor)
    if cursor.took("OVERWRITE"):
        return read_overwrite(cursor, evolves=evolves)
    name, alias = inserted_into(cursor.expect("INTO").past("TABLE"))
    options = took_options(cursor, WRITE)
    if cursor.took("PARTITION"):
        cursor.listed(_static_value)
    by_name(cursor)
    if not cursor.hive and cursor.took("REPLACE WHERE"):
        return read_replacement(cursor, name, evolves=evolves)
    if not cursor.hive and (alias is not None or cursor.ahead("REPLACE")):
        cursor.expect("REPLACE")
        if options:
            cursor.refuse("options are not supported before this")
        return read_replacing(cursor, name, alias, evolves=evolves)
    refuse_of_overwrites(cursor, options)
    return Insert(name, read_query(cursor), evolves=evolves)


def _static_value(cursor: Cursor) -> None:
    cursor.part()
    if cursor.took_symbol("=") and cursor.take().kind not in (Kind.STRING, Kind.NUMBER):
        cursor.refuse("expected a value before this")


def _show_table(cursor: Cursor) -> Statement:
    name = cursor.name()
    if cursor.next.is_symbol("("):
        cursor.property_names()
    return DescribeTable(name)


def _show_namespaces(cursor: Cursor) -> Statement:
    listed = _listed_in(cursor)
    return NoPrivileges() if listed is None else Namespace(listed, "namespace.load")


def _listed_in(cursor: Cursor) -> Name | None:
    listed = cursor.name() if cursor.took("IN|FROM") else None
    if cursor.took("LIKE") or cursor.next.kind is Kind.STRING:
        cursor.remark()
    return listed


def _describe(cursor: Cursor) -> Statement:
    name = cursor.past("TABLE").past("EXTENDED|FORMATTED").name()
    if cursor.next.kind in (Kind.WORD, Kind.QUOTED):
        cursor.name()
    return DescribeTable(name)


def _comment_on(cursor: Cursor) -> Statement:
    of_table = cursor.took("TABLE")
    if not of_table and not cursor.took(_NAMESPACE):
        cursor.refuse("expected TABLE or NAMESPACE")
    name = cursor.name()
    if not cursor.expect("IS").took("NULL"):
        cursor.remark()
    return AlterProperties(name) if of_table else Namespace(name, "namespace.update")


def _explain(cursor: Cursor) -> Statement:
    if cursor.past("EXTENDED|CODEGEN|COST|FORMATTED").ahead("EXPLAIN"):
        cursor.refuse("expected a statement after EXPLAIN")
    start = cursor.next.start
    statement = _statement(cursor)
    if isinstance(statement, Insert | ChangeRows) and statement.evolves:
        raise Problem(
            start,
            "explain-evolution",
            "The engine refuses EXPLAIN of a statement WITH SCHEMA EVOLUTION.",
            "Explain the statement without WITH SCHEMA EVOLUTION.",
        )
    return Explain(statement)


def _add(cursor: Cursor) -> Statement:
    if not cursor.ahead("JAR|JARS|FILE|FILES|ARCHIVE|ARCHIVES"):
        cursor.refuse("unknown resource kind")
    return _code(f"ADD {cursor.take().text.upper()}")(cursor)


#: What statements begin with, and what reads the rest; the first one counts.
_STATEMENTS: Final[Mapping[str, _Read]] = {
    "CREATE": _create,
    "REPLACE TABLE": _replace,
    "ALTER TABLE": alter_table,
    f"ALTER {_NAMESPACE}": _alter_namespace,
    "ALTER VIEW": read_alter_view,
    "ALTER": lambda cursor: cursor.refuse("ALTER is not supported for this object"),
    "DROP TABLE": _drop_table,
    "DROP VIEW": lambda cursor: DropView(cursor.past("IF EXISTS").name()),
    f"DROP {_NAMESPACE}": _drop_namespace,
    "DROP": _denied("This DROP"),
    "INSERT": _insert,
    "DELETE": read_delete,
    "UPDATE": read_update,
    "MERGE": read_merge,
    "TRUNCATE": read_truncate,
    "SHOW TBLPROPERTIES": _show_table,
    "SHOW CREATE TABLE": _show_table,
    "SHOW COLUMNS": lambda cursor: DescribeTable(cursor.expect("IN|FROM").name()),
    "SHOW NAMESPACES|DATABASES|SCHEMAS": _show_namespaces,
    "SHOW": lambda cursor: Namespace(_listed_in(cursor.expect("TABLES|VIEWS")), "namespace.load"),
    f"DESCRIBE|DESC {_NAMESPACE}": lambda cursor: Namespace(cursor.past("EXTENDED").name(), "namespace.load"),
    "DESCRIBE|DESC": _describe,
    "USE": lambda cursor: Namespace(cursor.past(_NAMESPACE).name(), "namespace.load", uses=True),
    "REFRESH": lambda cursor: DescribeTable(cursor.past("TABLE").name()),
    "COMMENT ON": _comment_on,
    "SET": read_setting,
    "RESET": read_reset,
    "EXPLAIN": _explain,
    "CALL": read_call,
    "ADD": _add,
    "MAP|REDUCE": _code("MAP or REDUCE with a script"),
}
_SECOND_WORDS: Final = (
    "TABLE VIEW NAMESPACE DATABASE SCHEMA EXTERNAL INTO OVERWRITE TEMPORARY TEMP FUNCTION OR REPLACE "
    "ON JAR FILE TBLPROPERTIES TABLES NAMESPACES DATABASES SCHEMAS COLUMNS CREATE WITH EVOLUTION"
)
_KIND_WORDS: Final = frozenset(_SECOND_WORDS.split())
