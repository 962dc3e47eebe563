"""Names in encryption rules: which databases, tables and columns a pattern is about.

Rules:
- ``*`` and ``?`` are those of the access policies (`policy.ranger`), and letter case does not matter.
- A pattern that puts something under a rule also matches what a person would take for it: confusable letters,
  accents, invisible characters and spaces hide no name from a rule. A pattern of an exception matches the
  name itself, and nothing that only looks like it.
- A column pattern is about a column at any depth: ``ssn`` matches ``person.ssn`` and ``ssn.number`` too.
  In an exception it is about the whole dotted name.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from policy.confusables import equal_but_foreign, skeleton_of
from policy.letter_case import fold
from policy.ranger.matching import Pattern
from policy.ranger.servicedef import LEVELS, Level

MAX_PATTERN_LENGTH: Final = 256
"""Longest pattern, in characters."""

_NAME: Final = LEVELS["table"]
#: Two keys of a KMS may differ in letter case alone.
_KEY: Final = Level("master-key", case_sensitive=True)
_NOBODY: Final = ""


def is_literal(value: str) -> bool:
    """Whether a pattern has no wildcard."""
    return not {"*", "?"}.intersection(value)


def _bounded(values: Iterable[str]) -> tuple[str, ...]:
    """The patterns as they are written.

    Raises:
        ValueError: with a sentence, where one is too long.
    """
    bounded = tuple(values)
    if any(len(value) > MAX_PATTERN_LENGTH for value in bounded):
        raise ValueError(f"a pattern must have at most {MAX_PATTERN_LENGTH} characters")
    return bounded


def _pattern(value: str, level: Level) -> Pattern:
    """One pattern.

    Raises:
        ValueError: with a sentence, for braces.
    """
    if "{" in value or "}" in value:
        raise ValueError("encryption rules do not depend on the user, so macros in braces are not supported")
    return Pattern.of(value, level)


@dataclass(frozen=True, slots=True)
class NamePatterns:
    """The patterns of one level of a rule's scope.

    Attributes:
        values: as the document writes them, in order.
    """

    values: tuple[str, ...]
    _exact: tuple[Pattern, ...]
    _seen: tuple[Pattern, ...]
    _seen_literals: tuple[str, ...]
    _differ: bool

    @classmethod
    def of(cls, values: Iterable[str], *, nested: bool) -> NamePatterns:
        """Patterns for names.

        Args:
            values: the patterns.
            nested: whether the names are paths, and a pattern is about any part of one.

        Raises:
            ValueError: with a sentence, for what is not a pattern.
        """
        values = _bounded(values)
        exact = [_pattern(each, _NAME) for value in values for each in _places(value, nested)]
        values_seen = [seen for value in values if (seen := skeleton_of(value))]
        confusables = [_pattern(each, _NAME) for value in values_seen for each in _places(value, nested)]
        literals = tuple(value for value in values_seen if is_literal(value))
        differ = any(skeleton_of(value) != fold(value) for value in values)
        return cls(values, tuple(exact), tuple(confusables), literals, differ)

    def matches(self, name: str) -> bool:
        """Whether the name itself matches."""
        spellings = (fold(name),)
        return any(pattern.matches(spellings, _NOBODY) for pattern in self._exact)

    def resembles(self, name: str) -> bool:
        """Whether the name matches, or what a person takes it for."""
        if self.matches(name):
            return True
        seen = skeleton_of(name)
        if seen == fold(name) and not self._differ:
            return False
        return any(pattern.matches((seen,), _NOBODY) for pattern in self._seen) or self._foreign(seen)

    def _foreign(self, seen: str) -> bool:
        """Letters that no table of confusables has stand for any letter, where most letters are equal."""
        if seen.isascii():
            return False
        parts = (seen, *seen.split("."))
        return any(equal_but_foreign(part, literal) for part in parts for literal in self._seen_literals)


@dataclass(frozen=True, slots=True)
class KeyPatterns:
    """Master key ids that a rule allows; nothing but the id itself counts."""

    values: tuple[str, ...]
    _patterns: tuple[Pattern, ...]

    @classmethod
    def of(cls, values: Iterable[str]) -> KeyPatterns:
        """Patterns for master key ids.

        Raises:
            ValueError: with a sentence, for what is not a pattern.
        """
        values = _bounded(sorted(set(values)))
        return cls(values, tuple(_pattern(value, _KEY) for value in values))

    def allows(self, key_id: str) -> bool:
        """Whether a master key id is one of those allowed."""
        return any(pattern.matches((key_id,), _NOBODY) for pattern in self._patterns)

    @property
    def only(self) -> str | None:
        """The one key that is allowed, where there is just one."""
        return self.values[0] if len(self.values) == 1 and is_literal(self.values[0]) else None


def _places(value: str, nested: bool) -> tuple[str, ...]:
    """The patterns that together are about any part of a path."""
    return (value, f"*.{value}", f"{value}.*", f"*.{value}.*") if nested else (value,)
