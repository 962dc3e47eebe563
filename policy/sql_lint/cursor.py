"""Reading tokens one after the other: names, strings, keywords, lists of properties.

Whatever is not expected is a `Problem` at its place; nothing is passed over.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NoReturn, Self, TypeVar

from policy.sql_lint.lexer import Kind, Token
from policy.sql_lint.problems import Problem

MAX_NAME_PARTS: Final = 16

Name = tuple[str, ...]
T = TypeVar("T")

_END: Final = "the end of the statement"


class Cursor:
    """A place in the tokens of one statement.

    Args:
        tokens: of the statement, without its semicolon.
        end: index of the character behind the statement.
        text: the script, for what is read by another parser.
        hive: whether Hive reads it.
    """

    def __init__(self, tokens: Sequence[Token], end: int, text: str, *, hive: bool) -> None:
        self._tokens = tokens
        self._text = text
        self._end = Token(Kind.END, _END, end, end)
        self._at = 0
        self.hive = hive

    @property
    def next(self) -> Token:
        """The token that comes next; at the end one of the kind END."""
        return self._tokens[self._at] if self._at < len(self._tokens) else self._end

    @property
    def rest(self) -> Sequence[Token]:
        """All tokens that were not taken yet."""
        return self._tokens[self._at :]

    def rest_taken(self) -> tuple[int, str, Sequence[Token]]:
        """Take everything that is left: where it begins, its text, and its tokens."""
        start, rest = self.next.start, self.rest
        self._at = len(self._tokens)
        return start, self._text[start : rest[-1].end] if rest else "", rest

    def balanced(
        self, *stops: str, commas: bool = False, until: Callable[[Cursor], bool] = lambda _: False
    ) -> str:
        """The text up to a keyword, closing parenthesis or comma, but for those in parentheses or CASE … END.

        Args:
            stops: the keywords.
            commas: whether a comma ends it.
            until: whether it ends here; asked outside of parentheses.

        Raises:
            Problem: there is none.
        """
        begun, depth, end = self.next, 0, self.next.start
        while self.next.kind is not Kind.END:
            token = self.next
            closes = token.is_symbol(")", "]")
            ends = closes or token.is_word(*stops) or (commas and token.is_symbol(","))
            if depth == 0 and (ends or until(self)):
                break
            depth += token.is_symbol("(", "[") or token.is_word("CASE")
            depth -= closes or token.is_word("END")
            end = self.take().end
        if self.next is begun:
            self.refuse("expected an expression")
        return self._text[begun.start : end]

    def ahead(self, phrase: str) -> bool:
        """Whether the keywords of a phrase come next; `A|B` stands for one of them."""
        words = phrase.split()
        tokens = self._tokens[self._at : self._at + len(words)]
        return len(tokens) == len(words) and all(
            token.is_word(*word.split("|")) for token, word in zip(tokens, words, strict=True)
        )

    def behind(self, word: str) -> bool:
        """Whether the token that was taken last is a keyword."""
        return self._at > 0 and self._tokens[self._at - 1].is_word(word)

    def take(self) -> Token:
        """The next token, which is then taken."""
        token = self.next
        if token.kind is Kind.END:
            self.refuse()
        self._at += 1
        return token

    def took(self, phrase: str) -> bool:
        """Take the keywords of a phrase if they come next."""
        if not self.ahead(phrase):
            return False
        self._at += len(phrase.split())
        return True

    def past(self, phrase: str) -> Self:
        """Itself, behind the keywords of a phrase if they come next."""
        self.took(phrase)
        return self

    def took_symbol(self, symbol: str) -> bool:
        """Take a symbol if it comes next."""
        if not self.next.is_symbol(symbol):
            return False
        self._at += 1
        return True

    def expect(self, phrase: str) -> Self:
        """Itself, behind the keywords of a phrase.

        Raises:
            Problem: something else comes next.
        """
        if not self.took(phrase):
            self.refuse(f"expected {phrase.partition('|')[0]}")
        return self

    def expect_symbol(self, symbol: str) -> None:
        """Take a symbol.

        Raises:
            Problem: something else comes next.
        """
        if not self.took_symbol(symbol):
            self.refuse(f"expected {symbol}")

    def expect_end(self) -> None:
        """Make sure that everything was taken.

        Raises:
            Problem: something is left.
        """
        if self.next.kind is not Kind.END:
            self.refuse()

    def part(self) -> str:
        """One part of a name."""
        token = self.next
        if token.kind not in (Kind.WORD, Kind.QUOTED):
            self.refuse("expected a name")
        self._at += 1
        if token.is_word("IDENTIFIER") and self.next.is_symbol("("):
            self.refuse("computed names are not supported")
        return token.text

    def name(self) -> Name:
        """A name with dots between its parts."""
        start = self.next.start
        parts = [self.part()]
        while self.took_symbol("."):
            parts.append(self.part())
        if len(parts) > MAX_NAME_PARTS:
            raise Problem(start, "name", f"A name has more than {MAX_NAME_PARTS} parts.", "Shorten the name.")
        return tuple(parts)

    def string(self) -> str:
        """A string whose text means itself, such as a location.

        Raises:
            Problem: there is none, or one with escapes, or several in a row, which Spark joins.
        """
        token = self._any_string()
        if not token.plain:
            raise Problem(
                token.start,
                "escape",
                "The string contains a backslash, whose meaning depends on the engine's settings.",
                "Write the string without escapes.",
            )
        return token.text

    def remark(self) -> None:
        """A string whose content means nothing, such as a comment."""
        self._any_string(joined=True)

    def took_comment(self) -> bool:
        """Take COMMENT and its string if they come next."""
        if not self.took("COMMENT"):
            return False
        self.remark()
        return True

    def listed(self, item: Callable[[Cursor], T]) -> list[T]:
        """Items in parentheses, with commas between them; at least one."""
        self.expect_symbol("(")
        items = self.several(item)
        self.expect_symbol(")")
        return items

    def several(self, item: Callable[[Cursor], T]) -> list[T]:
        """Items with commas between them; at least one."""
        items = [item(self)]
        while self.took_symbol(","):
            items.append(item(self))
        return items

    def properties(self) -> dict[str, str]:
        """`(key = value, …)`.

        Raises:
            Problem: a key stands twice, a value is missing or is computed.
        """
        found: dict[str, str] = {}
        for start, key, value in self.listed(Cursor._property):
            if key in found:
                raise Problem(
                    start, "duplicate-key", f"The property {key[:80]!a} occurs twice.", "Remove one."
                )
            found[key] = value
        return found

    def property_names(self) -> list[str]:
        """`(key, …)`."""
        return self.listed(Cursor._key)

    def refuse(self, why: str = "unsupported syntax") -> NoReturn:
        """Refuse what comes next.

        Raises:
            Problem: always.
        """
        token = self.next
        shown = _END if token.kind is Kind.END else ascii(token.text[:60])
        raise Problem(
            token.start,
            "syntax",
            f"At {shown}: {why}.",
            "Rewrite the statement as docs/lint.md shows, or ask an administrator to review it.",
        )

    def _any_string(self, *, joined: bool = False) -> Token:
        if self.next.kind is not Kind.STRING:
            self.refuse("expected a string")
        token = self.take()
        while self.next.kind is Kind.STRING:
            if not joined:
                self.refuse("adjacent strings are ambiguous: only some engines join them")
            self._at += 1
        return token

    def _property(self) -> tuple[int, str, str]:
        start, key = self.next.start, self._key()
        if not self.took_symbol("=") and self.hive:
            self.refuse("expected =")
        return start, key, self._value()

    def _key(self) -> str:
        if self.next.kind is Kind.STRING:
            return self.string()
        if self.hive:
            self.refuse("expected a quoted property name")
        return ".".join(self.name())

    def _value(self) -> str:
        if self.next.kind is Kind.STRING:
            return self.string()
        if self.next.kind is Kind.NUMBER and not self.hive:
            return self.take().text
        if self.next.is_word("TRUE", "FALSE") and not self.hive:
            return self.take().text.lower()
        self.refuse("expected a quoted value")
