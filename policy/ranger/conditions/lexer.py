"""Splits the text of a condition into tokens.

Rule: what is not one of the tokens below is outside of the language. So are comments, escapes other than of
quotes and backslashes, and texts that Ranger would change before it reads them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from policy.ranger.conditions.names import CALLS, MACROS

MAX_LENGTH: Final = 4096
"""Longest condition, in characters."""

MAX_TOKENS: Final = 512

_TOKEN: Final = re.compile(
    r"""(?P<space>[ \t\r\n]+)
      | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
      | (?P<number>(?:0|[1-9][0-9]{0,14})(?:\.[0-9]{1,15})?(?![A-Za-z0-9_.]))
      | (?P<text>'(?:[^'\\\x00-\x1f\u2028\u2029]|\\['"\\])*'|"(?:[^"\\\x00-\x1f\u2028\u2029]|\\['"\\])*")
      | (?P<mark>===|!==|==|!=|<=|>=|&&|\|\||[<>!()\[\]{},;.=-])
    """,
    re.VERBOSE,
)
_ESCAPED: Final = re.compile(r"\\(.)")
#: Ranger replaces these inside of texts, too.
_REPLACED: Final = re.compile(rf"\[\[|\b(?:{'|'.join((*MACROS, *CALLS))}|(?:GET|TAG|UG|UR|USER)_[A-Z_]+)\b")


class NotUnderstood(Exception):
    """A condition that is outside of the language; its text is the reason."""


@dataclass(frozen=True, slots=True)
class Token:
    """A token.

    Attributes:
        kind: ``name``, ``number``, ``text``, ``mark`` or ``end``.
        text: as written; of a text, what it means.
        start, end: where it stands in the condition, from 0.
    """

    kind: str
    text: str
    start: int
    end: int


def tokens_of(text: str) -> list[Token]:
    """The tokens of a condition, with one for its end.

    Raises:
        NotUnderstood: it is too long, or has something else in it.
    """
    if len(text) > MAX_LENGTH:
        raise NotUnderstood(f"it has {len(text)} characters, but at most {MAX_LENGTH} are allowed")
    found, place = [], 0
    while place < len(text):
        match = _TOKEN.match(text, place)
        if match is None or match.lastgroup is None:
            raise NotUnderstood(f"{text[place : place + 20]!r} is not supported")
        if match.lastgroup != "space":
            found.append(Token(match.lastgroup, _meaning(match), place, match.end()))
        place = match.end()
    if len(found) > MAX_TOKENS:
        raise NotUnderstood(f"it has {len(found)} words and signs, but at most {MAX_TOKENS} are allowed")
    return [*found, Token("end", "", len(text), len(text))]


def _meaning(match: re.Match[str]) -> str:
    if match.lastgroup != "text":
        return match[0]
    if _REPLACED.search(match[0]):
        raise NotUnderstood(f"Ranger replaces words in the text {match[0][:40]}")
    return _ESCAPED.sub(r"\1", match[0][1:-1])
