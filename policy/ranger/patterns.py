r"""One value of a policy's resource as a pattern, and what it matches.

Rules:
- ``*`` stands for any run of characters, ``?`` for exactly one; both cross ``/``. ``{USER}`` and ``{OWNER}``
  stand for the names of the requesting user and of the resource's owner, taken literally; what nobody owns is
  not matched by ``{OWNER}``. A request's own names are always literal.
- Letter case does not matter for database, table, column and engine names; it does for locations and keys.
- A recursive location matches itself and everything below, by whole segments; one with wildcards matches what
  lies below any location that it matches.
- Equal spellings of a location are one, as `policy.location` says: ``s3a:`` is ``s3:``, ``file:/x`` is
  ``file:///x``, a host has no case, and a trailing slash does not count.
- A location that cannot be named in a request is refused in a policy, because a denial of it would be without
  effect. A scheme that is not understood is kept as it is, since nothing with that scheme can be asked for.

Source: Ranger's default and URL resource matchers and its string token replacer. Beyond Ranger: equal
spellings, literal names, and that what matches nothing is refused.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from policy.errors import LocationInvalid
from policy.letter_case import fold
from policy.location.location import Location
from policy.location.schemes import SCHEMES
from policy.location.segments import problem_with_name
from policy.ranger.servicedef import Level

_TOKEN: Final = re.compile(r"\{USER\}|\{OWNER\}|[*?]")
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_OPEN_SCHEME: Final = re.compile(r"([^/]*)(/*)(.*)", re.DOTALL)
_OPEN_END: Final = re.compile(r"(?:\{USER\}|\{OWNER\}|[*?:])\Z")
_OPEN_AUTHORITY: Final = re.compile(r"[^:/]+://[^/]*")
_NO_NAME: Final = "the pattern matches no location: empty names and dot segments are not allowed"
_CANONICAL_SCHEMES: Final = {spelling: rules.name for rules in SCHEMES for spelling in rules.spellings}
_SPELLINGS: Final = {rules.name: rules.spellings for rules in SCHEMES}


class Wild(enum.Enum):
    """A part of a pattern that is not literal text."""

    MANY = "*"
    ONE = "?"
    USER = "{USER}"
    OWNER = "{OWNER}"


Token = str | Wild
MACROS: Final = frozenset({Wild.USER, Wild.OWNER})


def spellings_of(level: Level, value: str) -> tuple[str, ...]:
    """The texts that mean a requested value; the first is the canonical one."""
    if not level.location:
        return (value if level.case_sensitive else fold(value),)
    text = value.removesuffix("/")
    scheme, _, rest = text.partition(":")
    if scheme == "file":
        return (text, f"file:{rest.removeprefix('//')}")
    return (text, *(f"{other}:{rest}" for other in _SPELLINGS.get(scheme, ()) if other != scheme))


@dataclass(frozen=True, slots=True)
class Pattern:
    """One value of a policy's resource.

    Attributes:
        tokens: literal texts, wildcards and macros, folded where letter case does not matter.
        text: the whole pattern where it is literal, else None.
        expression: the compiled pattern; None for literal text and for one with macros.
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
            ValueError: with a sentence, for another macro, and for a location that nothing can be asked by.
        """
        text = _location_pattern(value) if level.location else value
        tokens = _tokens(text if level.case_sensitive else _around_macros(fold, text))
        if any(isinstance(token, str) and ("{" in token or "}" in token) for token in tokens):
            raise ValueError("braces are only allowed in the macros {USER} and {OWNER}")
        return cls._from_tokens(tokens, level, recursive)

    @classmethod
    def _from_tokens(cls, tokens: tuple[Token, ...], level: Level, recursive: bool) -> Pattern:
        literal = "".join(token for token in tokens if isinstance(token, str))
        wild = [token for token in tokens if isinstance(token, Wild)]
        expression = _compiled(tokens, recursive) if wild and MACROS.isdisjoint(wild) else None
        return cls(tokens, None if wild else literal, expression, level, recursive)

    @property
    def is_any(self) -> bool:
        """Whether every value matches, a missing one too."""
        return self.tokens == (Wild.MANY,)

    def matches(self, spellings: Sequence[str], user: str, owner: str | None = None) -> bool:
        """Whether the value with these spellings matches, for a request by `user` on what `owner` owns."""
        if self.text is not None:
            canonical = spellings[0]
            return canonical == self.text or (self.recursive and canonical.startswith(self.text + "/"))
        if self.expression is None:
            named = self.named(user, owner)
            return named is not None and named.matches(spellings, user, owner)
        expression = self.expression
        return any(expression.fullmatch(text) is not None for text in self._relevant(spellings))

    def reaches_below(self, spellings: Sequence[str], user: str, owner: str | None = None) -> bool:
        """Whether something below the location with these spellings can match."""
        named = self.named(user, owner)
        if named is None:
            return False
        return any(_can_continue(named.tokens, text + "/") for text in self._relevant(spellings))

    def takes_in_below(self, spellings: Sequence[str], user: str, owner: str | None = None) -> bool:
        """Whether everything below the location with these spellings matches for certain."""
        named = self.named(user, owner)
        if named is None:
            return False
        if named.recursive and named.matches(spellings, user, owner):
            return True
        tokens = units(named.tokens)
        texts = self._relevant(spellings)
        return any(len(tokens) in run(tokens, (*text, "/", Wild.MANY)) for text in texts)

    def named(self, user: str, owner: str | None = None) -> Pattern | None:
        """The same pattern with names for its macros; None where it names an owner and there is none."""
        if MACROS.isdisjoint(self.tokens):
            return self
        if owner is None and Wild.OWNER in self.tokens:
            return None
        names = {Wild.USER: user, Wild.OWNER: owner or ""}
        plain = {macro: name if self.level.case_sensitive else fold(name) for macro, name in names.items()}
        tokens = _joined(
            plain.get(token, token) if isinstance(token, Wild) else token for token in self.tokens
        )
        return self._from_tokens(tokens, self.level, self.recursive)

    def macro_names(self, user: str, owner: str | None) -> list[str]:
        """The names that stand for its macros."""
        names = {Wild.USER: user, Wild.OWNER: owner}
        return [name for macro, name in names.items() if name is not None and macro in self.tokens]

    def names_several(self, user: str, owner: str | None) -> bool:
        """Whether a name that stands for one of its macros means others too, letter case passed over."""
        names = self.macro_names(user, owner)
        return not self.level.case_sensitive and any(fold(name) != name for name in names)

    def _relevant(self, spellings: Sequence[str]) -> Sequence[str]:
        """All spellings where the pattern leaves the scheme open, else the canonical one."""
        first = self.tokens[0]
        return spellings if isinstance(first, Wild) or ":" not in first else spellings[:1]


def _location_pattern(value: str) -> str:
    """The canonical spelling of a location pattern; what a wildcard leaves open stays open."""
    head, colon, _ = value.partition(":")
    if value[0] in "*?" or (colon and "/" not in head and _TOKEN.search(head)):
        return _open_scheme(value).removesuffix("/")
    scheme = _SCHEME.match(value)
    if scheme is None:
        raise ValueError("a location must begin with a scheme, such as s3:// or file:///")
    name = scheme[1].lower()
    text = f"{name}{value[scheme.end(1) :]}"
    if name not in _CANONICAL_SCHEMES:
        return text.removesuffix("/")
    return _understood_pattern(text, name).removesuffix("/")


def _open_scheme(value: str) -> str:
    """A pattern that leaves its scheme open; scheme and bucket are asked for in lower case."""
    _require_plain(value)
    found = _OPEN_SCHEME.fullmatch(value)
    scheme, slashes, rest = found.groups() if found else ("", "", value)
    # Two slashes in a row stand behind the scheme's colon alone, and three in file:///.
    if len(slashes) > 1 and not (rest and len(slashes) < 4 and _OPEN_END.search(scheme)):
        raise ValueError(_NO_NAME)
    if slashes != "//" or not scheme.endswith(":"):
        _require_possible(f"/{rest}")
        return value
    authority, slash, path = rest.partition("/")
    _require_possible(f"{authority}{slash}{path}")
    return f"{_around_macros(str.lower, scheme)}//{_around_macros(str.lower, authority)}{slash}{path}"


def _understood_pattern(text: str, scheme: str) -> str:
    """A pattern whose scheme is known: canonical up to the last whole name before its first wildcard."""
    wild = _TOKEN.search(text)
    literal = text if wild is None else text[: wild.start()]
    if _OPEN_AUTHORITY.fullmatch(literal) and (wild is not None or literal.endswith("://")):
        _require_possible(text.removeprefix(f"{scheme}://"))
        return _open_authority(text, scheme)
    directory = literal.removesuffix("/") if wild is None else literal.rpartition("/")[0]
    rest = text[len(directory) :]
    _require_possible(rest)
    try:
        # A name below it, because the root of a host is no location, and can be what a policy is about.
        return Location.parse(f"{directory}/x").canonical.removesuffix("/x") + rest
    except LocationInvalid as problem:
        raise ValueError(f"the pattern matches no location: {problem.message}".removesuffix(".")) from problem


def _require_possible(rest: str) -> None:
    """Refuse what no location has: `rest` is from the first open name on, after an authority or a slash."""
    names = rest.removesuffix("/").split("/")[1:]
    if {"", ".", ".."} & set(names):
        raise ValueError(_NO_NAME)
    plain = (name for name in names if _TOKEN.search(name) is None)
    if (problem := next(filter(None, map(problem_with_name, plain)), None)) is not None:
        raise ValueError(f"the pattern matches no location: the location {problem}")
    _require_plain(rest)


def _require_plain(text: str) -> None:
    if "\\" in text or "#" in text:
        raise ValueError("the pattern matches no location: backslashes and fragments (#) are not allowed")


def _open_authority(text: str, scheme: str) -> str:
    """A pattern that leaves its bucket or host open; those are in lower case whenever they are asked for."""
    authority, slash, path = text.removeprefix(f"{scheme}://").partition("/")
    return f"{_CANONICAL_SCHEMES[scheme]}://{_around_macros(str.lower, authority)}{slash}{path}"


def _around_macros(change: Callable[[str], str], text: str) -> str:
    """`text`, changed everywhere but in its macros."""
    at = 0
    found = []
    for token in _TOKEN.finditer(text):
        found += [change(text[at : token.start()]), token.group()]
        at = token.end()
    return "".join([*found, change(text[at:])])


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


def units(tokens: Iterable[Token]) -> list[Token]:
    """A pattern as single characters and wildcards."""
    return [unit for token in tokens for unit in (token if isinstance(token, str) else (token,))]


def run(pattern: Sequence[Token], symbols: Iterable[Token]) -> set[int]:
    """The positions in `pattern` at which a match of all `symbols` can stand; none if they do not match.

    A symbol may be a wildcard too; then only positions are given that are right whatever it stands for: ``*``
    is absorbed by ``*`` alone, ``?`` by ``?`` as well.
    """
    states = _past_many({0}, pattern)
    for symbol in symbols:
        stepped = set()
        for state in states:
            unit = pattern[state] if state < len(pattern) else None
            if unit is Wild.MANY:
                stepped.add(state)
            elif unit == symbol or (unit is Wild.ONE and symbol is not Wild.MANY):
                stepped.add(state + 1)
        states = _past_many(stepped, pattern)
        if not states:
            break
    return states


def _can_continue(tokens: tuple[Token, ...], text: str) -> bool:
    """Whether some text that begins with `text` matches."""
    first = tokens[0]
    if isinstance(first, str) and not (first.startswith(text) or text.startswith(first)):
        return False
    return bool(run(units(tokens), text))


def _past_many(states: set[int], pattern: Sequence[Token]) -> set[int]:
    """The states, and those past a ``*`` that stands for nothing."""
    found = set(states)
    for state in states:
        if state < len(pattern) and pattern[state] is Wild.MANY:
            found.add(state + 1)
    return found
