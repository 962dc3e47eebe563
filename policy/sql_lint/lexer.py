r"""From the text of a script to tokens with positions, where every reader of it would see the same ones.

Rules:
- Spark, Hive, their command lines and sqlglot end comments, strings and statements at the same place only if
  the text keeps to what all of them agree on. What they read differently is refused, with its position:
  a comment inside of a comment (Spark nests them, Hive does not), a line comment that ends in a backslash
  (Spark goes on with it in the next line) or at a bare carriage return, a semicolon in a comment (command
  lines of Hive end the statement there), raw strings, quotes that stay open.
- Outside of strings, backticks and comments there is ASCII alone: Spark takes `ſELECT` for SELECT and a
  no-break space for a space.
- Whatever is filled in later makes another text of this one. Spark's and Hive's variables (`${…}`) and
  templates (`{{…}}`, `{%…%}`, `{#…#}`) are refused wherever they stand, in comments too.
- After a refusal nobody knows where the next statement begins, so the rest of the text is not looked at.

Source: Spark's SqlBaseLexer.g4 and VariableSubstitution, Hive's HiveLexerParent.g and
CliDriver.splitSemiColon.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from string import ascii_letters, digits
from typing import Final, NoReturn

from policy.sql_lint.problems import Problem

MAX_CHARACTERS: Final = 4_000_000
"""Longest script."""

MAX_TOKENS: Final = 200_000
"""Most tokens of a script."""

_WORD: Final = frozenset(ascii_letters + digits + "_")
_BLANK: Final = frozenset(" \t\r\n")
_SYMBOLS: Final = frozenset("().,;=<>+-*/%|&^~!?:[]@")
_QUOTES: Final = frozenset("'\"")
_HINT: Final = _WORD | _BLANK | frozenset("(),.`")
_FILLED_IN: Final = ("${", "{{", "{%", "{#")


class Kind(Enum):
    """What a token is."""

    WORD = "word"
    NUMBER = "number"
    QUOTED = "quoted name"
    STRING = "string"
    SYMBOL = "symbol"
    HINT = "hint"
    END = "end"


@dataclass(frozen=True, slots=True)
class Token:
    """One token.

    Attributes:
        kind: what it is.
        text: the word as written; the name or string without its quotes; the symbol.
        start: index of its first character.
        end: index behind its last one.
        plain: whether the text of a string means itself: no backslash is in it.
    """

    kind: Kind
    text: str
    start: int
    end: int
    plain: bool = True

    def is_word(self, *words: str) -> bool:
        """Whether it is one of these keywords, in whatever case."""
        return self.kind is Kind.WORD and self.text.upper() in words

    def is_symbol(self, *symbols: str) -> bool:
        """Whether it is one of these symbols."""
        return self.kind is Kind.SYMBOL and self.text in symbols


def tokens_of(text: str, *, hive: bool) -> Iterator[Token]:
    """The tokens of a script, one after the other.

    Args:
        text: the script; a byte order mark at its beginning is passed over.
        hive: whether Hive reads it.

    Raises:
        Problem: what stands next is read differently by different readers, or is no SQL.
    """
    if len(text) > MAX_CHARACTERS:
        raise Problem(
            0, "too-long", f"The script has more than {MAX_CHARACTERS} characters.", "Split the script."
        )
    lexer = _Lexer(text, hive=hive)
    for count, token in enumerate(lexer):
        if count >= MAX_TOKENS:
            raise Problem(
                token.start, "too-long", f"The script has more than {MAX_TOKENS} tokens.", "Split the script."
            )
        yield token


class _Lexer:
    def __init__(self, text: str, *, hive: bool) -> None:
        self._text = text
        self._hive = hive
        self._at = 1 if text.startswith("\ufeff") else 0

    def __iter__(self) -> Iterator[Token]:
        while True:
            self._skip()
            if self._at >= len(self._text):
                return
            yield self._next()

    def _skip(self) -> None:
        """Go past blanks and comments."""
        text = self._text
        while self._at < len(text):
            if text[self._at] in _BLANK:
                self._at += 1
            elif text.startswith("--", self._at):
                self._line_comment()
            elif text.startswith("/*", self._at) and not text.startswith("/*+", self._at):
                self._block_comment()
            else:
                return

    def _line_comment(self) -> None:
        start = self._at
        ends = [found for found in (self._text.find(c, start) for c in "\r\n") if found >= 0]
        end = min(ends, default=len(self._text))
        comment = self._text[start:end]
        if comment.endswith("\\"):
            self._refuse(
                end - 1, "comment", "The comment ends in a backslash, so Spark continues it in the next line."
            )
        if end < len(self._text) and self._text[end] == "\r" and not self._text.startswith("\r\n", end):
            self._refuse(
                end, "comment", "The comment ends at a bare carriage return, where only some engines end it."
            )
        own_line = not self._text[self._text.rfind("\n", 0, start) + 1 : start].strip(" \t\ufeff")
        self._check_comment(start, comment, semicolons=own_line)
        self._at = end

    def _block_comment(self) -> None:
        start = self._at
        end = self._text.find("*/", start + 2)
        if end < 0:
            self._refuse(start, "comment", "The comment is not closed.")
        inside = self._text[start + 2 : end]
        if "/*" in inside:
            self._refuse(start, "comment", "The comment is nested. Engines disagree on where it ends.")
        self._check_comment(start, inside, semicolons=False)
        self._at = end + 2

    def _check_comment(self, start: int, comment: str, *, semicolons: bool) -> None:
        self._refuse_filled_in(start, comment)
        if self._hive and not semicolons and ";" in comment:
            self._refuse(
                start,
                "comment",
                "The comment contains a semicolon, where Hive's command line ends the statement.",
            )

    def _next(self) -> Token:
        character = self._text[self._at]
        if character in _WORD:
            return self._word()
        if character in _QUOTES:
            return self._string(character)
        if character == "`":
            return self._quoted()
        if self._text.startswith("/*+", self._at):
            return self._hint()
        self._refuse_filled_in(self._at, self._text[self._at : self._at + 2])
        if character not in _SYMBOLS:
            self._refuse(
                self._at,
                "character",
                f"The character {character!a} is not allowed outside of quotes.",
                "Quote names with non-ASCII letters in backticks, and use ASCII spaces.",
            )
        return self._token(Kind.SYMBOL, self._at + 1)

    def _word(self) -> Token:
        end = self._past(self._at, _WORD)
        if self._text[self._at : end].upper() == "R" and self._text[end : end + 1] in (*_QUOTES,):
            self._refuse(
                self._at, "string", "Raw strings are not supported, because engines read them differently."
            )
        if not _is_digits(self._text[self._at : end]):
            return self._token(Kind.WORD, end)
        if self._text.startswith(".", end) and self._text[end + 1 : end + 2] in (*digits,):
            end = self._past(end + 1, _WORD)
        return self._token(Kind.NUMBER, end)

    def _string(self, quote: str) -> Token:
        at = self._at + 1
        while at < len(self._text) and self._text[at] != quote:
            at += 2 if self._text[at] == "\\" else 1
        if at >= len(self._text):
            self._refuse(self._at, "string", "The string is not closed.")
        inside = self._text[self._at + 1 : at]
        return self._enclosed(Kind.STRING, inside, at + 1, plain="\\" not in inside)

    def _quoted(self) -> Token:
        end = self._text.find("`", self._at + 1)
        while end >= 0 and self._text.startswith("``", end):
            end = self._text.find("`", end + 2)
        if end < 0:
            self._refuse(self._at, "name", "The name in backticks is not closed.")
        return self._enclosed(Kind.QUOTED, self._text[self._at + 1 : end].replace("``", "`"), end + 1)

    def _hint(self) -> Token:
        end = self._text.find("*/", self._at)
        if end < 0 or not _HINT.issuperset(self._text[self._at + 3 : end]):
            self._refuse(self._at, "hint", "The hint is not closed, or contains more than names.")
        return self._token(Kind.HINT, end + 2)

    def _enclosed(self, kind: Kind, inside: str, end: int, *, plain: bool = True) -> Token:
        self._refuse_filled_in(self._at, inside)
        token = Token(kind, inside, self._at, end, plain)
        self._at = end
        return token

    def _token(self, kind: Kind, end: int) -> Token:
        token = Token(kind, self._text[self._at : end], self._at, end)
        self._at = end
        return token

    def _past(self, start: int, characters: frozenset[str]) -> int:
        end = start
        while end < len(self._text) and self._text[end] in characters:
            end += 1
        return end

    def _refuse_filled_in(self, start: int, text: str) -> None:
        for mark in _FILLED_IN:
            if mark in text:
                self._refuse(
                    start,
                    "filled-in",
                    f"{mark} begins a variable or template, so the final text is unknown.",
                    "Substitute variables first, then lint the result.",
                )

    def _refuse(self, at: int, rule: str, message: str, hint: str | None = None) -> NoReturn:
        raise Problem(at, rule, message, hint or "Rewrite it in a form that every engine reads the same way.")


def _is_digits(text: str) -> bool:
    return all(character in digits for character in text)
