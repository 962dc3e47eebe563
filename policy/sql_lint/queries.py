"""What a query reads: its tables, the columns that it names, and the code that it runs. Parsed by sqlglot.

sqlglot is made for translating, not for refusing: it passes over clauses that it does not keep, and reads
some forms as others. So a query counts only if

- every node of the tree is of a kind that `query_nodes` lists, and
- the tree, written out again, has every name and every string of the text, as often as the text has it.

Functions are kept under the names that the text gives them: sqlglot's own knowledge of functions is switched
off. What neither Spark nor Hive brings along is taken for code of users.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Final

import sqlglot
from sqlglot import exp
from sqlglot.dialects.hive import Hive
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ErrorLevel, SqlglotError
from sqlglot.parsers.hive import HiveParser
from sqlglot.parsers.spark import SparkParser

from policy.sql_lint.cursor import Cursor
from policy.sql_lint.lexer import Kind, Token, tokens_of
from policy.sql_lint.options import without_options
from policy.sql_lint.problems import Problem
from policy.sql_lint.query_nodes import is_known
from policy.sql_lint.reading import Reader
from policy.sql_lint.statements import Query

MAX_TOKENS: Final = 20_000
MAX_PARENTHESES: Final = 60
#: Deepest tree; each operator in a row of `AND` is a level of its own.
MAX_LEVELS: Final = 400

_HINT: Final = "Simplify the query, or ask an administrator to review it."
_BEGIN: Final = ("SELECT", "WITH", "VALUES", "FROM")
#: Functions with a syntax of their own, and the names of hints, which sqlglot reads like functions.
_OWN_SYNTAX: Final = (
    "CAST TRY_CAST EXTRACT TRIM SUBSTRING SUBSTR POSITION CEIL FLOOR OVERLAY LISTAGG STRING_AGG BROADCAST "
    "BROADCASTJOIN MAPJOIN MERGE MERGEJOIN SHUFFLEMERGE SHUFFLE_HASH SHUFFLE_REPLICATE_NL"
)
#: Words that may be written in another way, or not at all, without another meaning.
_SYNTAX_WORDS: Final = (
    "all and anti any as asc between binary boolean both by byte bigint case cast ceil ceiling char "
    "character cluster cross current current_date current_timestamp current_user date day days dec "
    "decimal desc distinct distribute div double else end escape except exists extract false filter "
    "first float floor following for from full group hour hours if ignore in inner int integer "
    "intersect interval is join last lateral leading left like limit listagg long map minus minute "
    "minutes mod month months not now null nulls numeric of offset on or order outer over partition "
    "percent position preceding range real recursive regexp respect right rlike row rows second "
    "seconds select semi short smallint sort string string_agg struct substr substring system_time "
    "system_version table tablesample then timestamp timestamp_ltz timestamp_ntz tinyint trailing "
    "trim true try_cast unbounded union user using values varchar version view when where with within "
    "year years array"
)
_SYNTAX: Final = frozenset(_SYNTAX_WORDS.split())
#: Words in front of a function that returns a table; sqlglot takes them for names.
_BEFORE_FUNCTIONS: Final = frozenset({"natural", "stream"})
_TYPE_LETTERS: Final = 2


class _SparkParser(SparkParser):
    FUNCTIONS: ClassVar[dict[str, Callable[..., Any]]] = {}
    FUNCTION_PARSERS: ClassVar[dict[str, Callable[..., Any]]] = {
        name: SparkParser.FUNCTION_PARSERS[name] for name in _OWN_SYNTAX.split()
    }


class _HiveParser(HiveParser):
    FUNCTIONS: ClassVar[dict[str, Callable[..., Any]]] = {}
    FUNCTION_PARSERS: ClassVar[dict[str, Callable[..., Any]]] = {
        name: HiveParser.FUNCTION_PARSERS[name]
        for name in _OWN_SYNTAX.split()
        if name in HiveParser.FUNCTION_PARSERS
    }


class _SparkQueries(Spark):
    Parser = _SparkParser


class _HiveQueries(Hive):
    Parser = _HiveParser


def begins_query(cursor: Cursor) -> bool:
    """Whether a query comes next."""
    following = next((each for each in cursor.rest if not each.is_symbol("(")), None)
    return following is not None and following.is_word(*_BEGIN)


def read_query(cursor: Cursor) -> Query:
    """Read the rest of a statement as a query.

    Raises:
        Problem: it is none, or not all of it was understood.
    """
    if not begins_query(cursor):
        cursor.refuse("expected a query")
    start, text, tokens = cursor.rest_taken()
    stood: Mapping[int, int] = {}
    if not cursor.hive:
        text, tokens, stood = without_options(start, text, tokens)
    _check_size(start, tokens)
    dialect = _HiveQueries if cursor.hive else _SparkQueries
    try:
        tree = sqlglot.parse_one(text, dialect=dialect, error_level=ErrorLevel.IMMEDIATE)
        _check_nodes(start, tree)
        _check_options(tree, stood)
        _check_kept(start, tokens, tree.sql(dialect=dialect, comments=False), hive=cursor.hive)
        return Reader(tree, start).read()
    except SqlglotError as error:
        raise Problem(start, "query", f"The query cannot be parsed: {_place(error)}.", _HINT) from error
    except RecursionError as error:
        raise Problem(start, "query", "The query is nested too deeply.", _HINT) from error


def _place(error: SqlglotError) -> str:
    found = getattr(error, "errors", None) or [{}]
    near = found[0].get("highlight")
    return f"at {str(near)[:60]!a}" if near else "unknown syntax"


def _check_size(start: int, tokens: Sequence[Token]) -> None:
    depth = deepest = 0
    for token in tokens:
        depth += token.is_symbol("(", "[") - token.is_symbol(")", "]")
        deepest = max(deepest, depth)
        if token.is_symbol("?", "@", "|") and not _is_concatenation(token, tokens):
            raise Problem(
                token.start, "query", f"The operator {token.text} is not supported in a query.", _HINT
            )
    if len(tokens) > MAX_TOKENS or deepest > MAX_PARENTHESES:
        raise Problem(start, "query", "The query is too long, or nested too deeply.", _HINT)


def _is_concatenation(token: Token, tokens: Sequence[Token]) -> bool:
    """A bar is half of `||` or stands for "or" on bits; `|>` begins a step of a pipe."""
    if token.text != "|":
        return False
    return not any(each.is_symbol(">") and each.start == token.end for each in tokens)


def _check_nodes(start: int, tree: exp.Expr) -> None:
    if not isinstance(tree, exp.Query | exp.Values):
        raise Problem(start, "query", f"{type(tree).__name__} is not a query.", _HINT)
    left: list[tuple[exp.Expr, int]] = [(tree, 0)]
    while left:
        node, level = left.pop()
        if not is_known(node):
            raise Problem(
                start, "query", f"The query contains unsupported syntax ({type(node).__name__}).", _HINT
            )
        if level > MAX_LEVELS:
            raise Problem(start, "query", "The query is nested too deeply.", _HINT)
        left += [(each, level + 1) for each in node.iter_expressions()]


def _check_options(tree: exp.Expr, stood: Mapping[int, int]) -> None:
    """Check that a table is in front of what was taken for options: a function can be called `with`, too."""
    names = (each.parts[-1] for each in tree.find_all(exp.Table))
    ends = {each.meta.get("end", -1) + 1 for each in names if not _begins_function(each)}
    for end, start in stood.items():
        if end not in ends:
            raise Problem(
                start,
                "option",
                "WITH (…) does not stand behind a table's name.",
                "Write TABLE WITH (NAME = VALUE). To call a function of that name, quote the name.",
            )


def _begins_function(name: exp.Expr) -> bool:
    """Whether it is no table's name, but can be a word in front of a function."""
    if not isinstance(name, exp.Identifier):
        return True
    word = name.name.lower()
    return not name.args.get("quoted") and (word in _SYNTAX or word in _BEFORE_FUNCTIONS)


def _check_kept(start: int, tokens: Iterable[Token], written: str, *, hive: bool) -> None:
    """Compare what sqlglot understood with what is written."""
    try:
        kept = _contents(tokens_of(written, hive=hive))
    except Problem as problem:
        raise Problem(start, "query", f"The query cannot be parsed: {problem.message}", _HINT) from problem
    lost = _contents(each for each in tokens if not _is_syntax(each)) - kept
    if lost:
        shown = ascii(min(lost)[1][:60])
        raise Problem(start, "query", f"The query parser ignores {shown}.", _HINT)


def _contents(tokens: Iterable[Token]) -> Counter[tuple[str, str]]:
    """Every name and every string whose text means itself, with how often it stands there."""
    found: Counter[tuple[str, str]] = Counter()
    for token in tokens:
        if token.kind in (Kind.WORD, Kind.QUOTED):
            found["name", token.text.lower()] += 1
        elif token.kind is Kind.STRING and token.plain:
            found["string", token.text] += 1
    return found


def _is_syntax(token: Token) -> bool:
    if token.kind is not Kind.WORD:
        return False
    return token.text.lower() in _SYNTAX or _is_number(token.text.upper())


def _is_number(word: str) -> bool:
    """Whether a word is a number with an exponent or a letter for its type, such as `1L` and `2E5`."""
    mantissa, _, exponent = word.partition("E")
    bare = mantissa.rstrip("LSYDFB")
    return (
        bare.isdigit() and len(mantissa) - len(bare) <= _TYPE_LETTERS and (not exponent or exponent.isdigit())
    )
