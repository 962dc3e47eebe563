"""Whether one policy's resources take in, or could meet, those of another.

Rules:
- `covers` is certain: every resource that the narrow policy can be about is one of the wide policy's, for
  every user. What cannot be shown is not covered. Wildcards and macros of the narrow policy stand for
  whatever they can match; macros of the wide one for the names of the user who is asking now.
- A level that the narrow policy leaves out is covered by ``*`` only. A policy that names more levels than the
  wide one is about other resources.
- `overlaps` is possible: only what cannot meet is apart, which is known of literal names alone.

Source: the resource check of Ranger's delegated administration (RangerDefaultPolicyResourceMatcher.isMatch on
a policy's resources). Stricter than Ranger, which looks at the narrow policy's values as if they were names
(so ``a?`` covers ``a*``) and does not look at its isExcludes and isRecursive.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from policy.ranger.matching import LevelPattern, ResourcePattern
from policy.ranger.patterns import MACROS, Pattern, Token, Wild, run, spellings_of, units


def covers(wide: ResourcePattern, narrow: ResourcePattern, user: str) -> bool:
    """Whether `wide`, read for `user`, certainly takes in all of `narrow`."""
    if wide.hierarchy != narrow.hierarchy or len(narrow.patterns) > len(wide.patterns):
        return False
    named = len(narrow.patterns)
    return all(
        _covers_level(ours, theirs, user)
        for ours, theirs in zip(wide.patterns, narrow.patterns, strict=False)
    ) and all(level.is_any and not level.excludes for level in wide.patterns[named:])


def overlaps(one: ResourcePattern, other: ResourcePattern, user: str) -> bool:
    """Whether something can be about both, the macros of `one` read for `user`."""
    return all(ours == theirs for ours, theirs in zip(_names(one), _names(other), strict=False)) and not any(
        _apart(ours, theirs, user) for ours, theirs in zip(one.patterns, other.patterns, strict=False)
    )


def _names(resource: ResourcePattern) -> Iterator[str]:
    return (level.name for level, _ in zip(resource.hierarchy, resource.patterns, strict=False))


def _covers_level(wide: LevelPattern, narrow: LevelPattern, user: str) -> bool:
    if wide.is_any:
        return not wide.excludes
    if narrow.excludes:
        # Everything but `b` takes in everything but `a` and `b`; whom a macro stands for then, is open.
        plain = [each for each in narrow.patterns if MACROS.isdisjoint(each.tokens)]
        return wide.excludes and all(_takes_in(plain, ours) for ours in wide.patterns)
    if wide.excludes:
        return all(_certainly_outside(theirs, wide, user) for theirs in narrow.patterns)
    plain = [named for each in wide.patterns if (named := each.named(user)) is not None]
    return all(_takes_in(plain, theirs) for theirs in narrow.patterns)


def _takes_in(wide: Sequence[Pattern], narrow: Pattern) -> bool:
    """Whether patterns without macros together match whatever `narrow` stands for."""
    variants = [variant for pattern in wide for variant in _variants(pattern)]
    return all(
        any(len(variant) in run(variant, symbols) for variant in variants) for symbols in _variants(narrow)
    )


def _variants(pattern: Pattern) -> Iterator[list[Token]]:
    """The pattern itself and, if it is recursive, what lies below."""
    symbols = _symbols(pattern)
    yield symbols
    if pattern.recursive:
        yield [*symbols, "/", Wild.MANY]


def _symbols(pattern: Pattern) -> list[Token]:
    """A pattern as single characters and wildcards, its macros as any name."""
    return [Wild.MANY if unit in MACROS else unit for unit in units(pattern.tokens)]


def _certainly_outside(pattern: Pattern, excluded: LevelPattern, user: str) -> bool:
    """Whether a literal name is none of the excluded ones."""
    if pattern.text is None:
        return False
    named = [each.named(user) for each in excluded.patterns]
    return not any(each is None or each.matches((pattern.text,), user) for each in named)


def _apart(one: LevelPattern, other: LevelPattern, user: str) -> bool:
    return not (one.excludes or other.excludes) and all(
        _patterns_apart(ours, theirs, user) for ours in one.patterns for theirs in other.patterns
    )


def _patterns_apart(one: Pattern, other: Pattern, user: str) -> bool:
    """Whether no name matches both; for locations, also none below what `other` names."""
    named = one.named(user)
    if named is None:
        return False
    if other.text is not None:
        spellings = spellings_of(one.level, other.text)
        meets = named.matches(spellings, user)
        return not (meets or (one.level.location and named.reaches_below(spellings, user)))
    symbols = _symbols(other)
    return named.text is not None and not one.level.location and len(symbols) not in run(symbols, named.text)
