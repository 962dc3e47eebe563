r"""Whether a policy's resources are what a request is about.

Rules:
- ``*`` stands for any run of characters, ``?`` for exactly one, ``{USER}`` for the requesting user's name
  taken literally. Both wildcards cross ``/``. A request's own names are always literal.
- Letter case does not matter for database, table, column, key and engine names; it does for locations.
- ``isExcludes`` turns the answer of a level around. A level whose value the request leaves out is matched
  only by ``*``, and by nothing if that is excluded.
- A recursive location matches itself and everything below, by whole segments; one with wildcards matches what
  lies below any location that it matches.
- Equal spellings of a location are one: ``s3a:`` and ``s3n:`` are ``s3:``, ``file:/x`` is ``file:///x``, and
  a trailing slash does not count.
- A request that names fewer levels than the policy matches the policy's resource itself only if the remaining
  levels are all ``*`` (`Match.SELF_AND_BELOW`); else the policy is about something below (`Match.BELOW`). A
  request that names more levels than the policy does not match (`Match.ABOVE`).
- A location stands for everything below it, so a policy whose pattern can match something below it is
  `Match.BELOW`.

Source: Ranger's default policy resource matcher and its default and URL resource matchers. Beyond Ranger: the
last rule, equal spellings, and that names are literal.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from policy.ranger.servicedef import LEVELS, Level
from policy.requests import Resource

_TOKEN: Final = re.compile(r"\{USER\}|[*?]")
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_S3_SCHEMES: Final = ("s3:", "s3a:", "s3n:")


class Wild(enum.Enum):
    """A part of a pattern that is not literal text."""

    MANY = "*"
    ONE = "?"
    USER = "{USER}"


class Match(enum.Enum):
    """How a policy's resources relate to the requested one."""

    NONE = enum.auto()
    SELF = enum.auto()
    SELF_AND_BELOW = enum.auto()
    BELOW = enum.auto()
    ABOVE = enum.auto()

    @property
    def covers(self) -> bool:
        """Whether the policy speaks about the requested resource itself."""
        return self is Match.SELF or self is Match.SELF_AND_BELOW


Token = str | Wild


def fold(text: str) -> str:
    """`text` for comparison without regard to letter case, character by character (so never longer)."""
    return text.lower() if text.isascii() else "".join(map(_fold_one, text))


def _fold_one(character: str) -> str:
    upper = character.upper()
    one = upper if len(upper) == 1 else character
    lower = one.lower()
    return lower if len(lower) == 1 else one


@dataclass(frozen=True, slots=True)
class Target:
    """A requested resource, prepared for comparison.

    Attributes:
        levels: names of the levels, from the top.
        spellings: per level, the texts that mean its value; the first is the canonical one.
    """

    levels: tuple[str, ...]
    spellings: tuple[tuple[str, ...], ...]

    @classmethod
    def of(cls, resource: Resource) -> Target:
        """Prepare what a request asks for."""
        pairs = zip(resource.levels, resource.values, strict=True)
        return cls(resource.levels, tuple(_spellings(LEVELS[name], value) for name, value in pairs))


def _spellings(level: Level, value: str) -> tuple[str, ...]:
    if not level.location:
        return (value if level.case_sensitive else fold(value),)
    text = value.removesuffix("/")
    scheme, _, rest = text.partition(":")
    if scheme == "file":
        return (text, f"file:{rest.removeprefix('//')}")
    return (text, *(f"{other}{rest}" for other in _S3_SCHEMES if other != f"{scheme}:"))


@dataclass(frozen=True, slots=True)
class Pattern:
    """One value of a policy's resource.

    Attributes:
        tokens: literal texts and wildcards, folded where letter case does not matter.
        text: the whole pattern where it is literal, else None.
        expression: the compiled pattern; None for literal text and for one with ``{USER}``.
        level: the level that it is for.
        recursive: whether it also matches what lies below.
    """

    tokens: tuple[Token, ...]
    text: str | None
    expression: re.Pattern[str] | None
    level: Level
    recursive: bool

    @classmethod
    def of(cls, value: str, level: Level, recursive: bool = False) -> Pattern:
        """The pattern that `value` writes.

        Raises:
            ValueError: with a sentence, for a macro other than ``{USER}`` and a location without a scheme.
        """
        text = _location_pattern(value) if level.location else value
        tokens = _tokens(text if level.case_sensitive else _fold_around_macros(text))
        if any(isinstance(token, str) and ("{" in token or "}" in token) for token in tokens):
            raise ValueError("the only macro in a resource is {USER}, and braces have no other use")
        return cls._from_tokens(tokens, level, recursive)

    @classmethod
    def _from_tokens(cls, tokens: tuple[Token, ...], level: Level, recursive: bool) -> Pattern:
        literal = "".join(token for token in tokens if isinstance(token, str))
        wild = [token for token in tokens if isinstance(token, Wild)]
        expression = _compiled(tokens, recursive) if wild and Wild.USER not in wild else None
        return cls(tokens, None if wild else literal, expression, level, recursive)

    @property
    def is_any(self) -> bool:
        """Whether every value matches, a missing one too."""
        return self.tokens == (Wild.MANY,)

    def matches(self, spellings: Sequence[str], user: str) -> bool:
        """Whether the value with these spellings matches, for a request by `user`."""
        if self.text is not None:
            canonical = spellings[0]
            return canonical == self.text or (self.recursive and canonical.startswith(self.text + "/"))
        if self.expression is None:
            return self._for_user(user).matches(spellings, user)
        expression = self.expression
        return any(expression.fullmatch(text) is not None for text in self._relevant(spellings))

    def reaches_below(self, spellings: Sequence[str], user: str) -> bool:
        """Whether something below the location with these spellings can match, for a request by `user`."""
        tokens = self._for_user(user).tokens
        return any(_can_continue(tokens, text + "/") for text in self._relevant(spellings))

    def _for_user(self, user: str) -> Pattern:
        """The same pattern with the user's name as literal text."""
        if Wild.USER not in self.tokens:
            return self
        name = user if self.level.case_sensitive else fold(user)
        tokens = _joined(name if token is Wild.USER else token for token in self.tokens)
        return self._from_tokens(tokens, self.level, self.recursive)

    def _relevant(self, spellings: Sequence[str]) -> Sequence[str]:
        """All spellings where the pattern leaves the scheme open, else the canonical one."""
        first = self.tokens[0]
        return spellings if isinstance(first, Wild) or ":" not in first else spellings[:1]


@dataclass(frozen=True, slots=True)
class LevelPattern:
    """What a policy says about one level of its hierarchy."""

    patterns: tuple[Pattern, ...]
    excludes: bool
    is_any: bool

    @classmethod
    def of(cls, patterns: Sequence[Pattern], excludes: bool) -> LevelPattern:
        """One ``*`` among the values makes it match everything."""
        return cls(tuple(patterns), excludes, any(pattern.is_any for pattern in patterns))

    def matches(self, spellings: Sequence[str], user: str) -> bool:
        """Whether the level's value matches."""
        hit = self.is_any or any(pattern.matches(spellings, user) for pattern in self.patterns)
        return hit != self.excludes

    @property
    def literals(self) -> tuple[str, ...] | None:
        """The values that match, where all are known by name; else None."""
        texts = tuple(pattern.text for pattern in self.patterns if pattern.text is not None)
        return texts if len(texts) == len(self.patterns) and not self.excludes else None


@dataclass(frozen=True, slots=True)
class ResourcePattern:
    """The resources that a policy is about: a pattern for each level, from the top of one hierarchy.

    Attributes:
        hierarchy: all levels of the hierarchy.
        patterns: for its first levels, as many as the policy names.
    """

    hierarchy: tuple[Level, ...]
    patterns: tuple[LevelPattern, ...]

    def match(self, target: Target, user: str) -> Match:
        """How these resources relate to `target`, for a request by `user`."""
        asked = len(target.levels)
        # A level has one parent, so the lowest level asked for stands for those above it.
        if asked > len(self.hierarchy) or self.hierarchy[asked - 1].name != target.levels[-1]:
            return Match.NONE
        for pattern, spellings in zip(self.patterns, target.spellings, strict=False):
            if not pattern.matches(spellings, user):
                return self._below_location(target, user)
        missing = self.patterns[asked:]
        if any(pattern.is_any and pattern.excludes for pattern in missing):
            return Match.NONE
        if asked == len(self.patterns):
            return Match.SELF
        if asked > len(self.patterns):
            return Match.ABOVE
        return Match.SELF_AND_BELOW if all(pattern.is_any for pattern in missing) else Match.BELOW

    def _below_location(self, target: Target, user: str) -> Match:
        """What did not match a location may still match something below it."""
        *upper, lowest = self.patterns
        if not self.hierarchy[-1].location or not all(
            pattern.matches(spellings, user)
            for pattern, spellings in zip(upper, target.spellings[:-1], strict=True)
        ):
            return Match.NONE
        below = any(pattern.reaches_below(target.spellings[-1], user) for pattern in lowest.patterns)
        return Match.BELOW if below else Match.NONE


def _location_pattern(value: str) -> str:
    """The canonical spelling of a location pattern; what a wildcard leaves open stays open."""
    if value[0] in "*?":
        return value.removesuffix("/")
    scheme = _SCHEME.match(value)
    if scheme is None:
        if ":" in value and _TOKEN.search(value.partition(":")[0]):
            return value.removesuffix("/")
        raise ValueError("a location begins with its scheme, such as s3:// or file:///")
    name, rest = scheme.group().lower(), value[scheme.end() :]
    if name in _S3_SCHEMES:
        name = "s3:"
    if name == "file:" and re.match(r"/(?!/)", rest):
        rest = f"//{rest}"
    return f"{name}{rest}".removesuffix("/")


def _fold_around_macros(text: str) -> str:
    return "{USER}".join(fold(part) for part in text.split("{USER}"))


def _tokens(text: str) -> tuple[Token, ...]:
    found: list[Token] = []
    at = 0
    for wild in _TOKEN.finditer(text):
        found += [text[at : wild.start()], Wild(wild.group())]
        at = wild.end()
    return _joined([*found, text[at:]])


def _joined(tokens: Iterable[Token]) -> tuple[Token, ...]:
    """Neighbouring texts as one, without empty ones; neighbouring ``*`` as one."""
    found: list[Token] = []
    for token in tokens:
        if token == "":
            continue
        if found and isinstance(token, str) and isinstance(found[-1], str):
            found[-1] += token
        elif not (found and token is Wild.MANY and found[-1] is Wild.MANY):
            found.append(token)
    return tuple(found)


def _compiled(tokens: tuple[Token, ...], recursive: bool) -> re.Pattern[str]:
    """A regular expression that cannot backtrack over more than one ``*``.

    The leftmost place for what stands between two ``*`` is always good enough, so it is taken for good
    (an atomic group); only what follows the last ``*`` looks further.
    """
    pieces = [""]
    for token in tokens:
        if token is Wild.MANY:
            pieces.append("")
        else:
            pieces[-1] += "." if token is Wild.ONE else re.escape(str(token))
    first, *later = pieces
    between = "".join(f"(?>.*?{piece})" for piece in later[:-1])
    last = f".*{later[-1]}" if later else ""
    return re.compile(first + between + last + ("(?:/.*)?" if recursive else ""), re.DOTALL)


def _can_continue(tokens: tuple[Token, ...], text: str) -> bool:
    """Whether some text that begins with `text` matches: a run over all states at once."""
    first = tokens[0]
    if isinstance(first, str) and not (first.startswith(text) or text.startswith(first)):
        return False
    units = [unit for token in tokens for unit in (token if isinstance(token, str) else (token,))]
    states = _reachable({0}, units)
    for character in text:
        stepped = set()
        for state in states:
            unit = units[state] if state < len(units) else None
            if unit is Wild.MANY:
                stepped.add(state)
            elif unit is Wild.ONE or unit == character:
                stepped.add(state + 1)
        states = _reachable(stepped, units)
        if not states:
            return False
    return True


def _reachable(states: set[int], units: Sequence[str | Wild]) -> set[int]:
    """The states, and those past a ``*`` that stands for nothing."""
    found = set(states)
    for state in states:
        if state < len(units) and units[state] is Wild.MANY:
            found.add(state + 1)
    return found
