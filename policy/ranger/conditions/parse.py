"""Reads the boolean expressions of Ranger's conditions.

Rules:
- A condition is one expression, or statements of the forms ``ctx.result = expression`` and
  ``if (expression) statement else statement``, with braces and semicolons as in JavaScript.
- An expression has texts, numbers, lists, comparisons, ``&&``, ``||``, ``!``, the names and functions of
  `policy.ranger.conditions.names`, and the functions of lists and texts of `policy.ranger.conditions.values`.
- A value of ``&&`` or ``||`` is not compared with anything: it is that of an operand.
- Its length, its number of tokens and its depth are bounded.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from policy.ranger.conditions.lexer import NotUnderstood, Token, tokens_of
from policy.ranger.conditions.names import (
    BY_NAME,
    CALLS,
    FUNCTIONS,
    MACROS,
    MEMBERS,
    NAMES,
    OF_NAMED_TAGS,
    RANGES,
    TIMED,
)
from policy.ranger.conditions.syntax import (
    SIGNS,
    All,
    AnyOf,
    Compare,
    Constant,
    Expression,
    Function,
    If,
    ListOf,
    Member,
    Method,
    Named,
    Not,
    Result,
    Statement,
    Within,
)
from policy.ranger.conditions.times import span_of

_MAX_DEPTH: Final = 48
_WORDS: Final = {"true": True, "false": False, "null": None, "undefined": None}
_EQUALITY: Final = tuple(sign for sign in SIGNS if "=" in sign and sign[0] not in "<>")
_ORDER: Final = tuple(sign for sign in SIGNS if sign not in _EQUALITY)
_LINE_END: Final = re.compile(r"[\r\n]")
#: What Ranger replaces by a call of split().
_SPLIT: Final = re.compile(r"""\[\[[A-Za-z0-9_.\[\]"]+(?:,(?:'[^'"]+'|"[^'"]+"))?\]\]""")


@dataclass(frozen=True, slots=True)
class Script:
    """A condition that was read.

    Attributes:
        statements: what it does.
        is_timed: whether it looks at the time.
        looks_at_names: whether it looks at the names of the resource, or at tags that go by these names.
    """

    statements: tuple[Statement, ...]
    is_timed: bool
    looks_at_names: bool


def parse_script(text: str) -> Script:
    """Read a condition.

    Raises:
        NotUnderstood: it is outside of the language.
    """
    reader = _Reader(text, tokens_of(text))
    statements = reader.script()
    return Script(statements, reader.is_timed, reader.looks_at_names)


@dataclass
class _Reader:
    """Reads tokens from the first to the last."""

    text: str
    tokens: list[Token]
    place: int = 0
    depth: int = 0
    is_timed: bool = False
    looks_at_names: bool = False

    @property
    def next(self) -> Token:
        return self.tokens[self.place]

    def take(self, *marks: str) -> Token | None:
        """The next token, if it is one of these; else None."""
        found = self.next
        if found.kind not in ("mark", "name") or found.text not in marks:
            return None
        self.place += 1
        return found

    def need(self, *marks: str) -> Token:
        found = self.take(*marks)
        if found is None:
            raise self.unexpected(f"expected {' or '.join(marks)}")
        return found

    def unexpected(self, why: str) -> NotUnderstood:
        found = self.next
        shown = "its end" if found.kind == "end" else repr(self.text[found.start : found.end][:40])
        return NotUnderstood(f"{shown} at character {found.start + 1} is not supported: {why}")

    @contextmanager
    def deeper(self) -> Iterator[None]:
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            raise NotUnderstood(f"it is nested more than {_MAX_DEPTH} levels deep")
        yield
        self.depth -= 1

    def script(self) -> tuple[Statement, ...]:
        if self._is_statement():
            found = self.statements(lambda: self.next.kind == "end")
        else:
            found = (Result(self.expression()),)
            self._semicolons()
        if self.next.kind != "end":
            raise self.unexpected("a condition is one expression, or sets ctx.result")
        return found

    def statements(self, ended: Callable[[], bool]) -> tuple[Statement, ...]:
        found: list[Statement] = []
        while not found or not ended():
            found.append(self.statement())
            self._semicolons()
        return tuple(found)

    def statement(self) -> Statement:
        with self.deeper():
            return self._if() if self.take("if") else self._assignment()

    def _is_statement(self) -> bool:
        words = [each.text for each in self.tokens[self.place : self.place + 4]]
        return words[0] == "if" or words in (["ctx", ".", "result", "="], ["ctx", ".", "setResult", "("])

    def _semicolons(self) -> None:
        while self.take(";"):
            pass

    def _assignment(self) -> Result:
        if not self._is_statement():
            raise self.unexpected("expected ctx.result =")
        self.place += 4
        called = self.tokens[self.place - 1].text == "("
        found = Result(self.expression())
        if called:
            self.need(")")
        self._end_of_statement()
        return found

    def _end_of_statement(self) -> None:
        """A semicolon, or where JavaScript supplies one."""
        before, found = self.tokens[self.place - 1], self.next
        if self.take(";") or found.kind == "end" or (found.kind, found.text) == ("mark", "}"):
            return
        if not _LINE_END.search(self.text, before.end, found.start):
            raise self.unexpected("expected ;")

    def _if(self) -> If:
        self.need("(")
        test = self.expression()
        self.need(")")
        then = self._block()
        return If(test, then, self._block() if self.take("else") else ())

    def _block(self) -> tuple[Statement, ...]:
        if not self.take("{"):
            return (self.statement(),)
        return self.statements(lambda: self.take("}") is not None)

    def expression(self) -> Expression:
        with self.deeper():
            parts = [self.conjunction()]
            while self.take("||"):
                parts.append(self.conjunction())
            return parts[0] if len(parts) == 1 else AnyOf(tuple(parts))

    def conjunction(self) -> Expression:
        parts = [self.comparison(_EQUALITY, lambda: self.comparison(_ORDER, self.unary))]
        while self.take("&&"):
            parts.append(self.comparison(_EQUALITY, lambda: self.comparison(_ORDER, self.unary)))
        return parts[0] if len(parts) == 1 else All(tuple(parts))

    def comparison(self, signs: tuple[str, ...], operand: Callable[[], Expression]) -> Expression:
        left = operand()
        sign = self.take(*signs)
        if sign is None:
            return left
        found = Compare(sign.text, self.value(left), self.value(operand()))
        if self.next.text in signs and self.next.kind == "mark":
            raise self.unexpected("a comparison has two operands")
        return found

    def value(self, found: Expression) -> Expression:
        """An expression whose value is used for something other than being true or false."""
        if isinstance(found, All | AnyOf):
            raise self.unexpected("the value of && or || cannot be compared or passed")
        return found

    def unary(self) -> Expression:
        with self.deeper():
            if self.take("!"):
                return Not(self.unary())
            if self.take("-"):
                if self.next.kind != "number":
                    raise self.unexpected("expected a number")
                return Constant(-float(self._advance().text))
            return self.postfix()

    def _advance(self) -> Token:
        self.place += 1
        return self.tokens[self.place - 1]

    def postfix(self) -> Expression:
        found = self.primary()
        steps = 0
        while sign := self.take(".", "["):
            steps += 1
            if steps > _MAX_DEPTH:
                raise self.unexpected("too many steps")
            found = self._named_member(found) if sign.text == "." else self._indexed(found)
        return found

    def _named_member(self, of: Expression) -> Expression:
        if self.next.kind != "name":
            raise self.unexpected("expected a name")
        name = self._advance().text
        if self.take("("):
            arguments = self.arguments(")")
            if of == Named("tagAttr") and name == "get" and len(arguments) == 1:
                return Member(of, arguments[0])
            return Method(of, name, arguments)
        return self.member(of, Constant(name))

    def _indexed(self, of: Expression) -> Expression:
        name = self.value(self.expression())
        self.need("]")
        if isinstance(name, Constant) and not isinstance(name.value, str):
            raise self.unexpected("an index must be a text")
        return self.member(of, name)

    def member(self, of: Expression, name: Expression) -> Expression:
        if isinstance(of, Named) and of.name in MEMBERS:
            known = MEMBERS[of.name]
            if of.name == "REQ" and name == Constant("resource"):
                return self._word(Token("name", "RES", 0, 0))
            if not (isinstance(name, Constant) and name.value in known):
                raise NotUnderstood(
                    f"of {of.name}, only these members are supported: {', '.join(sorted(known))}"
                )
        return Member(of, name)

    def primary(self) -> Expression:
        token = self.next
        if token.kind in ("number", "text"):
            self.place += 1
            return Constant(float(token.text) if token.kind == "number" else token.text)
        if self.take("("):
            found = self.expression()
            self.need(")")
            return found
        if self.take("["):
            touching = self.next.text == "[" and self.next.kind == "mark" and self.next.start == token.end
            return self._split(token.start) if touching else ListOf(self.arguments("]"))
        if token.kind != "name":
            raise self.unexpected("expected a value")
        return self._word(self._advance())

    def _split(self, start: int) -> Expression:
        """``[[value]]``, which Ranger replaces by ``value.split(",")``."""
        self.need("[")
        value = self.value(self.expression())
        separator = Constant(",")
        if self.take(","):
            if self.next.kind != "text":
                raise self.unexpected("expected a text")
            separator = Constant(self._advance().text)
        self.need("]")
        end = self.need("]").end
        if not _SPLIT.fullmatch(self.text[start:end]) or self.next.text not in (".", ")"):
            raise NotUnderstood("Ranger replaces [[name]] only without spaces, before a call")
        return Method(value, "split", (separator,))

    def arguments(self, closing: str) -> tuple[Expression, ...]:
        if self.take(closing):
            return ()
        found = [self.value(self.expression())]
        while not self.take(closing):
            self.need(",")
            found.append(self.value(self.expression()))
        return tuple(found)

    def _word(self, token: Token) -> Expression:
        word = token.text
        if word in _WORDS:
            return Constant(_WORDS[word])
        if word in NAMES:
            self.looks_at_names = self.looks_at_names or word in BY_NAME
            return Named(word)
        if word in CALLS:
            name, plain = CALLS[word]
            return self.call(name, ()) if plain else Not(self.call(name, ()))
        if word in MACROS:
            self.need("(")
            return self.function(MACROS[word])
        if word == "ctx":
            self.need(".")
            name = self._advance().text
            if name in FUNCTIONS or name in RANGES:
                self.need("(")
                return self.function(name)
            word = f"ctx.{name}"
        raise NotUnderstood(f"{word[:40]!r} at character {token.start + 1} is not supported")

    def function(self, name: str) -> Expression:
        return self.call(name, self.arguments(")"))

    def call(self, name: str, arguments: tuple[Expression, ...]) -> Expression:
        counts = RANGES[name] if name in RANGES else FUNCTIONS[name][0]
        if len(arguments) not in counts:
            raise NotUnderstood(f"{name}() takes other arguments")
        self.is_timed = self.is_timed or name in TIMED or name in RANGES
        of_named_tag = name in OF_NAMED_TAGS and len(arguments) == 2
        self.looks_at_names = self.looks_at_names or name in BY_NAME or of_named_tag
        return _span(name, arguments) if name in RANGES else Function(name, arguments)


def _span(name: str, arguments: tuple[Expression, ...]) -> Expression:
    texts = [each.value for each in arguments if isinstance(each, Constant) and isinstance(each.value, str)]
    if len(texts) != len(arguments):
        raise NotUnderstood(f"the arguments of {name}() must be texts")
    try:
        return Within(span_of(name, texts))
    except ValueError as problem:
        raise NotUnderstood(f"{problem}") from problem
