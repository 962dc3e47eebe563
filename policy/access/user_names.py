"""Finds the users whose names can matter to a pattern with ``{USER}`` in it.

Rules:
- A name matters if it stands in the text that the pattern is compared with, as a pattern matches as a whole.
- What lies below a location can match a pattern of which only the beginning is in the location. That can end
  inside of a name with a slash, so these names always matter.
- All other names give the same answer, if they are alike: in lower case or not, one path segment or not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from policy.access.people import Users
from policy.letter_case import fold
from policy.location.segments import is_one_name
from policy.ranger.matching import Target
from policy.ranger.model import Policy
from policy.ranger.patterns import Pattern, Wild


class UserNames:
    """The users by their names.

    Args:
        names: the names; their places are the bits of sets.

    Attributes:
        kinds: the users in sets of those whose names are alike.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._exact, self._folded = _Index(names), _Index(map(fold, names))
        self._with_slash: Users = _where(names, lambda name: "/" in name)
        kinds: dict[tuple[bool, bool], Users] = {}
        for place, name in enumerate(names):
            kind = (fold(name) == name, is_one_name(name))
            kinds[kind] = kinds.get(kind, 0) | 1 << place
        self.kinds = tuple(kinds.values())

    def that_matter(self, policy: Policy, target: Target) -> Users:
        """The users whose names can matter to whether a policy is about a resource."""
        found = 0
        for resource in policy.resources:
            for level, spellings in zip(resource.patterns, target.spellings, strict=False):
                for pattern in level.named:
                    if Wild.USER in pattern.tokens:
                        found |= self._in_texts(pattern, spellings)
        return found

    def _in_texts(self, pattern: Pattern, spellings: Sequence[str]) -> Users:
        index = self._exact if pattern.level.case_sensitive else self._folded
        if not pattern.level.location:
            return index.within(pattern, spellings)
        return self._with_slash | index.within(pattern, [f"{each}/" for each in spellings])


class _Index:
    def __init__(self, names: Iterable[str]) -> None:
        self._by_name: dict[str, Users] = {}
        for place, name in enumerate(names):
            self._by_name[name] = self._by_name.get(name, 0) | 1 << place
        self._lengths = sorted({len(name) for name in self._by_name})

    def within(self, pattern: Pattern, texts: Iterable[str]) -> Users:
        """The users whose names stand in a text where a pattern has its ``{USER}``."""
        found = 0
        for text in texts:
            for start in _starts(pattern, text):
                for length in self._lengths:
                    if start + length > len(text):
                        break
                    found |= self._by_name.get(text[start : start + length], 0)
        return found


def _starts(pattern: Pattern, text: str) -> Iterator[int]:
    """Where a name can begin in a text: behind the literal text before it, or anywhere."""
    before, *after = pattern.tokens
    if before is Wild.USER:
        yield 0
    elif isinstance(before, str) and after and after[0] is Wild.USER:
        yield from (len(before),) if text.startswith(before) else ()
        return
    if before is not Wild.USER or Wild.USER in after:
        yield from range(len(text))


def _where(names: Iterable[str], wanted: Callable[[str], bool]) -> Users:
    return sum(1 << place for place, name in enumerate(names) if wanted(name))
