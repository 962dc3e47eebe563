"""Parses the text of a row filter into a tree of SQL, strictly.

sqlglot is made for translating, not for refusing: it passes over what it takes for a comment of any dialect,
and reads operators and literals of all of them. So each token is looked at before it is parsed, and every
node is read by `parts`, which refuses the parts that its reader does not know.

Refused is what Spark reads in one of two ways, by its settings or by the schema: a backslash, a double quote.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, Final

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ErrorLevel, SqlglotError
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokenizer_core import Token, TokenType

from policy.errors import PolicyInvalid
from policy.restrictions.dates import refused

MAX_LENGTH: Final = 16 * 1024
"""Longest filter, in characters."""
MAX_NODES: Final = 2_000
"""Most parts of a filter."""
MAX_LEVELS: Final = 50
"""Deepest nesting of a filter; conditions that one AND or OR joins are one level."""

SHOWN: Final = 60
"""Characters that a message shows of what it refuses."""
NO_MACROS: Final = "Use current_user() for the user's name, and is_member('group') for groups."
"""What to write in the place of a macro."""

_FUNCTIONS: Final = (
    "current_user is_member current_date date_add date_sub add_months isnull isnotnull isnan startswith"
)
_CONTROL: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")
#: What can stand between tokens: spaces, and comments to the end of the line.
_BETWEEN: Final = re.compile(r"(?:[ \t\r\n]|--[^\r\n]*+)*+")
_SIGNS: Final = frozenset({*"(),.=<>+-!", "==", "<>", "!=", "<=", ">=", "<=>"})
#: A name, a keyword or a number. Of other letters, sqlglot takes some for those of keywords: a dotless i.
_WORD: Final = re.compile(r"\w+|\d*\.?\d*(?:[eE][+-]?\d+)?", re.ASCII)
_QUOTED: Final = frozenset({TokenType.STRING, TokenType.IDENTIFIER})
#: A count, with its unit or without. sqlglot passes over what it does not know in it, such as a sign.
_INTERVAL: Final = re.compile(r"-?\d+( [A-Za-z]+)?", re.ASCII)


class _Parser(SparkParser):
    """Keeps functions under the names that the text gives them."""

    FUNCTIONS: ClassVar[dict[str, Callable[..., Any]]] = {}
    FUNCTION_PARSERS: ClassVar[dict[str, Callable[..., Any]]] = {"CAST": SparkParser.FUNCTION_PARSERS["CAST"]}


class _Dialect(Spark):
    Parser = _Parser


_DIALECT: Final = _Dialect()


def tree_of(text: str) -> exp.Expr:
    """Parse the text of a row filter.

    Raises:
        PolicyInvalid: it is no expression, is too large, or has a token that cannot be in a filter.
    """
    if len(text) > MAX_LENGTH:
        raise refused(f"it has more than {MAX_LENGTH} characters")
    if "\\" in text:
        raise refused("it has a backslash, which Spark reads in one of two ways")
    if (control := _CONTROL.search(text)) is not None:
        raise refused(f"it has the character U+{ord(control[0]):04X}")
    try:
        tokens = _DIALECT.tokenize(text)
        _check_tokens(text, tokens)
        parser = _DIALECT.parser(error_level=ErrorLevel.IMMEDIATE)
        (tree,) = parser.parse_into(exp.Condition, tokens, text)
    except (SqlglotError, RecursionError, ValueError) as error:
        raise _no_predicate(text) from error
    if tree is None:
        raise _no_predicate(text)
    _check_size(tree)
    return tree


def _no_predicate(text: str) -> PolicyInvalid:
    return refused(f"{text[:SHOWN]!a} is not a predicate in Spark's SQL")


def _check_tokens(text: str, tokens: Sequence[Token]) -> None:
    """Check that the tokens are all that the text has, and that Spark has each of them."""
    end, before = 0, None
    for token in tokens:
        _check_between(text[end : token.start])
        written, end = text[token.start : token.end + 1], token.end + 1
        if written.startswith('"'):
            raise refused(
                f"{written[:SHOWN]!a} is a string or a column, which depends on Spark's settings",
                "Write 'strings' and `columns`.",
            )
        if before is TokenType.INTERVAL and token.token_type is TokenType.STRING:
            _check_interval(token.text)
        elif token.token_type not in _QUOTED and written not in _SIGNS:
            _check_word(written)
        before = token.token_type
    _check_between(text[end:])


def _check_between(text: str) -> None:
    if not _BETWEEN.fullmatch(text):
        raise refused(f"{text.strip()[:SHOWN]!a} is not supported", "Use -- for a comment, or none.")


def _check_interval(text: str) -> None:
    if not _INTERVAL.fullmatch(text):
        raise refused(f"{text[:SHOWN]!a} is not an interval", "Write INTERVAL 30 DAYS.")


def _check_word(written: str) -> None:
    if written[:1] in ("$", "{"):
        raise refused("it has a macro outside of a string, which row filters do not replace", NO_MACROS)
    if not _WORD.fullmatch(written):
        raise refused(
            f"{written[:SHOWN]!a} is not supported",
            "Write `columns` whose names have letters other than a to z.",
        )


def _check_size(tree: exp.Expr) -> None:
    left: list[tuple[exp.Expr, int]] = [(tree, 0)]
    count = 0
    while left:
        node, level = left.pop()
        count += 1
        if count > MAX_NODES or level > MAX_LEVELS:
            raise refused("it is too long, or nested too deeply")
        for each in node.iter_expressions():
            joined = type(each) is type(node) and isinstance(node, exp.And | exp.Or)
            left.append((each, level if joined else level + 1))


def parts(node: exp.Expr, *names: str) -> dict[str, Any]:
    """The parts of a node, which has no others than these.

    Raises:
        PolicyInvalid: it has another one.
    """
    found = {name: value for name, value in node.args.items() if value not in (None, False, [])}
    if not found.keys() <= set(names):
        raise unknown(node)
    return found


def joined(node: exp.Expr, kind: type[exp.Expr]) -> Iterator[exp.Expr]:
    """The conditions that one kind of operator joins, in order; sqlglot nests them to the left."""
    left = [node]
    while left:
        each = left.pop()
        if type(each) is kind:
            sides = parts(each, "this", "expression")
            left += [sides["expression"], sides["this"]]
        else:
            yield each


def call(node: exp.Anonymous) -> tuple[str, list[exp.Expr]]:
    """The name of a function in lower case, and its arguments."""
    found = parts(node, "this", "expressions")
    return str(found["this"]).lower(), list(found.get("expressions") or ())


def shown(node: exp.Expr) -> str:
    """A node in a message."""
    return ascii(node.sql(dialect=_Dialect, comments=False)[:SHOWN])


def unknown(node: exp.Expr) -> PolicyInvalid:
    """The refusal of a node, to be raised."""
    return refused(f"{shown(node)} is not supported")


def unknown_function(node: exp.Expr) -> PolicyInvalid:
    """The refusal of a function, to be raised."""
    return refused(
        f"{shown(node)} is not a supported function", f"Use one of: {', '.join(_FUNCTIONS.split())}."
    )
