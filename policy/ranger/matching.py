"""Whether a policy's resources are what a request is about.

Rules:
- What one value matches stands in `policy.ranger.patterns`. ``isExcludes`` turns a level's answer around.
  A level whose value the request leaves out is matched only by ``*``, and by nothing if that is excluded.
- A request that names fewer levels than the policy matches the policy's resource itself only if the remaining
  levels are all ``*`` (`Match.SELF_AND_BELOW`); else the policy is about something below (`Match.BELOW`). A
  request that names more levels than the policy does not match (`Match.ABOVE`).
- A location stands for everything below it. So a policy that certainly matches all of that too, as a
  recursive one does, is `Match.SELF_AND_BELOW`; one that matches the location alone is `Match.SELF`; and one
  whose pattern can match something below it, but not the location, is `Match.BELOW`.
- Where letter case is passed over, a macro that stands for a name not in lower case excludes nothing.

Source: Ranger's default policy resource matcher (``getMatchType``). Beyond Ranger: the last two rules.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass

from policy.privileges.requests import Resource
from policy.ranger.patterns import MACROS, Pattern, spellings_of
from policy.ranger.servicedef import LEVELS, Level

__all__ = ["LevelPattern", "Match", "Pattern", "ResourcePattern", "Target"]


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


@dataclass(frozen=True, slots=True)
class Target:
    """A requested resource, prepared for comparison.

    Attributes:
        levels: names of the levels, from the top.
        spellings: per level, the texts that mean its value; the first is the canonical one.
    """

    levels: tuple[str, ...]
    spellings: tuple[tuple[str, ...], ...]

    @property
    def is_location(self) -> bool:
        """Whether it stands for everything below it too."""
        return LEVELS[self.levels[-1]].location

    @classmethod
    def of(cls, resource: Resource) -> Target:
        """Prepare what a request asks for."""
        pairs = zip(resource.levels, resource.values, strict=True)
        return cls(resource.levels, tuple(spellings_of(LEVELS[name], value) for name, value in pairs))


@dataclass(frozen=True, slots=True)
class LevelPattern:
    """What a policy says about one level of its hierarchy.

    Attributes:
        patterns: its values.
        excludes: whether it is about all values but these.
        is_any: whether one of them matches everything.
        named: those of them that have a macro in them.
    """

    patterns: tuple[Pattern, ...]
    excludes: bool
    is_any: bool
    named: tuple[Pattern, ...]

    @classmethod
    def of(cls, patterns: Sequence[Pattern], excludes: bool) -> LevelPattern:
        """One ``*`` among the values makes it match everything."""
        named = tuple(pattern for pattern in patterns if not MACROS.isdisjoint(pattern.tokens))
        return cls(tuple(patterns), excludes, any(pattern.is_any for pattern in patterns), named)

    def matches(self, spellings: Sequence[str], user: str, owner: str | None = None) -> bool:
        """Whether the level's value matches."""
        hit = self.is_any or any(
            pattern.matches(spellings, user, owner)
            for pattern in self.patterns
            if not (self.excludes and pattern.names_several(user, owner))
        )
        return hit != self.excludes

    def takes_in_below(self, spellings: Sequence[str], user: str, owner: str | None) -> bool:
        """Whether everything below the location with these spellings matches for certain."""
        return any(pattern.takes_in_below(spellings, user, owner) for pattern in self.patterns)

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

    def match(self, target: Target, user: str, owner: str | None = None) -> Match:
        """How these resources relate to `target`, for a request by `user` on what `owner` owns."""
        asked = len(target.levels)
        # A level has one parent, so the lowest level asked for stands for those above it.
        if asked > len(self.hierarchy) or self.hierarchy[asked - 1].name != target.levels[-1]:
            return Match.NONE
        for pattern, spellings in zip(self.patterns, target.spellings, strict=False):
            if not pattern.matches(spellings, user, owner):
                return self._below_location(target, user, owner)
        missing = self.patterns[asked:]
        if any(pattern.is_any and pattern.excludes for pattern in missing):
            return Match.NONE
        if asked == len(self.patterns):
            tree = self.hierarchy[asked - 1].location
            whole = tree and self.patterns[-1].takes_in_below(target.spellings[-1], user, owner)
            return Match.SELF_AND_BELOW if whole else Match.SELF
        if asked > len(self.patterns):
            return Match.ABOVE
        return Match.SELF_AND_BELOW if all(pattern.is_any for pattern in missing) else Match.BELOW

    def _below_location(self, target: Target, user: str, owner: str | None) -> Match:
        """What did not match a location may still match something below it."""
        *upper, lowest = self.patterns
        if not self.hierarchy[-1].location or not all(
            pattern.matches(spellings, user, owner)
            for pattern, spellings in zip(upper, target.spellings[:-1], strict=True)
        ):
            return Match.NONE
        below = any(pattern.reaches_below(target.spellings[-1], user, owner) for pattern in lowest.patterns)
        return Match.BELOW if below else Match.NONE
