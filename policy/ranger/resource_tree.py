"""A tree of resources by their levels: what can be about a resource is found without asking all.

The levels are database, table and column, or storage type and location. At each level an entry stands under
the names that it writes, or under the text before its first wildcard or macro; where it is open from some
level on, it ends. A request is looked up by its name and by the beginnings of its name. A location is also
looked up among what lies below it, since an entry about that can count. What is found is then matched one by
one, so the tree changes no answer.

The idea of looking up policies by the text before a wildcard is that of Ranger's RangerResourceTrie.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field
from itertools import product
from math import prod
from typing import Final, Self, TypeAlias

from policy.letter_case import fold
from policy.ranger.matching import ResourcePattern, Target
from policy.ranger.patterns import Pattern
from policy.ranger.servicedef import LEVELS, Level

_MAX_KEYS: Final = 256
"""A policy with more combinations of names than this counts as open at the lowest level, or at more."""
#: The character after the slash: what lies below a location is in order between the two.
_AFTER_SLASH: Final = chr(ord("/") + 1)

_DATABASE: Final = "database"


@dataclass(frozen=True, slots=True)
class _Key:
    """What a policy is found under at one level.

    Attributes:
        text: the name, or what a name begins with.
        whole: whether it is the whole name.
    """

    text: str
    whole: bool


_OPEN: Final = _Key("", whole=False)
_ALL_OPEN: Final = frozenset((_OPEN,))


@dataclass(slots=True)
class _Node:
    """The policies under the keys of the levels above.

    Attributes:
        positions: where all of these policies stand.
        ends: where those of them stand that are open from here on.
        whole: the next level by whole names.
        begun: the next level by beginnings of names.
        lengths: the lengths of these beginnings, in order.
        order: these beginnings, in order.
    """

    positions: set[int] = field(default_factory=set)
    ends: list[int] = field(default_factory=list)
    whole: dict[str, _Node] = field(default_factory=dict)
    begun: dict[str, _Node] = field(default_factory=dict)
    lengths: tuple[int, ...] = ()
    order: tuple[str, ...] = ()

    def add(self, position: int, keys: Sequence[_Key]) -> None:
        """Add a policy under the keys of the levels from here on."""
        self.positions.add(position)
        if not keys:
            self.ends.append(position)
        else:
            nodes = self.whole if keys[0].whole else self.begun
            nodes.setdefault(keys[0].text, _Node()).add(position, keys[1:])

    def complete(self, pause: Callable[[], None]) -> None:
        """Prepare look-ups, after the last policy was added."""
        pause()
        self.lengths = tuple(sorted({len(text) for text in self.begun}))
        self.order = tuple(sorted(self.begun))
        for node in (*self.whole.values(), *self.begun.values()):
            node.complete(pause)

    def find(self, target: Target, depth: int) -> Iterator[frozenset[int]]:
        """Where the policies stand that can be about `target`, of which `depth` levels are looked up."""
        if depth == len(target.levels):
            yield frozenset(self.positions)
            return
        if self.ends:
            yield frozenset(self.ends)
        for node in self.following(target.spellings[depth][0], LEVELS[target.levels[depth]]):
            yield from node.find(target, depth + 1)

    def open(self) -> Iterator[Set[int]]:
        """Where the policies stand that can be about every name of the next level."""
        yield frozenset(self.ends)
        if (node := self.begun.get("")) is not None:
            yield node.positions

    def following(self, name: str, level: Level) -> Iterator[_Node]:
        if (node := self.whole.get(name)) is not None:
            yield node
        for length in self.lengths:
            if length > len(name):
                break
            if (node := self.begun.get(name[:length])) is not None:
                yield node
        if level.location:
            first = bisect_left(self.order, f"{name}/")
            last = bisect_left(self.order, f"{name}{_AFTER_SLASH}")
            yield from (self.begun[text] for text in self.order[first:last])


@dataclass(frozen=True, slots=True)
class PossibleNames:
    """Names that a resource can have, for a policy to say something to a user; folded.

    Attributes:
        whole: whole names; none of them begins with one of `begun`.
        begun: what others begin with, in order; none begins with another one. The empty text is for all.
    """

    whole: frozenset[str]
    begun: tuple[str, ...]

    @classmethod
    def of(cls, whole: Iterable[str], begun: Iterable[str]) -> Self:
        """The same names, each by one entry only."""
        shortest: list[str] = []
        for text in sorted(begun):
            if not (shortest and text.startswith(shortest[-1])):
                shortest.append(text)
        texts = tuple(shortest)
        return cls(frozenset(name for name in whole if not name.startswith(texts)), texts)

    @property
    def is_every(self) -> bool:
        """Whether they are all names."""
        return self.begun == ("",)

    def __contains__(self, name: str) -> bool:
        """Whether a policy can say something about this name, folded or not; False is certain."""
        folded = fold(name)
        return folded in self.whole or folded.startswith(self.begun)

    def __or__(self, other: PossibleNames) -> PossibleNames:
        """The names of both."""
        if not (other.whole or other.begun):
            return self
        return PossibleNames.of(self.whole | other.whole, (*self.begun, *other.begun))


#: No name at all.
NO_NAMES: Final = PossibleNames(frozenset(), ())
_EVERY_NAME: Final = PossibleNames(frozenset(), ("",))

#: Whether some entries, of those that name at least this number of levels, are looked for.
Wanted: TypeAlias = Callable[[Set[int], int], bool]


class ResourceTree:
    """Resources, each under the number of the entry that it belongs to.

    Args:
        entries: the resources of each entry, which is numbered by its place.
        pause: is called often, so that others can use the interpreter meanwhile.
    """

    __slots__ = ("_by_names",)

    def __init__(
        self, entries: Iterable[Iterable[ResourcePattern]], pause: Callable[[], None] = lambda: None
    ) -> None:
        self._by_names: dict[str, _Node] = {}
        for position, resources in enumerate(entries):
            pause()
            for resource in resources:
                root = self._by_names.setdefault(resource.hierarchy[0].name, _Node())
                for keys in _keys(resource):
                    root.add(position, keys)
        for root in self._by_names.values():
            root.complete(pause)

    def about(self, target: Target) -> tuple[frozenset[int], ...]:
        """The entries that can match `target`, in sets that were made before; some of them may not match."""
        root = self._by_names.get(target.levels[0])
        return () if root is None else tuple(root.find(target, 0))

    def names(self, database: str | None, wanted: Wanted) -> PossibleNames:
        """Names of databases, or of tables of one, that wanted entries are about, or about what is below."""
        root = self._by_names.get(_DATABASE)
        if root is None:
            return NO_NAMES
        if database is None:
            return _names([root], wanted, 1)
        if wanted(frozenset(root.ends), 2):
            return _EVERY_NAME
        return _names(list(root.following(fold(database), LEVELS[_DATABASE])), wanted, 2)


def _names(nodes: Sequence[_Node], wanted: Wanted, levels: int) -> PossibleNames:
    """Names of the next level, by entries that name at least this number of levels."""
    if any(wanted(positions, levels) for node in nodes for positions in node.open()):
        return _EVERY_NAME
    return PossibleNames.of(
        {name for node in nodes for name, each in node.whole.items() if wanted(each.positions, 0)},
        {text for node in nodes for text, each in node.begun.items() if wanted(each.positions, levels)},
    )


def _keys(resource: ResourcePattern) -> Iterable[tuple[_Key, ...]]:
    """The keys under which a policy is found: one for each level until it is open, in all combinations."""
    levels = [_level_keys(resource, depth) for depth in range(len(resource.patterns))]
    while levels and (levels[-1] == _ALL_OPEN or prod(map(len, levels)) > _MAX_KEYS):
        levels.pop()
    return product(*levels)


def _level_keys(resource: ResourcePattern, depth: int) -> frozenset[_Key]:
    """The keys for one level; a level that the policy excludes names of is open."""
    if resource.patterns[depth].excludes:
        return _ALL_OPEN
    return frozenset(map(_key, resource.patterns[depth].patterns))


def _key(pattern: Pattern) -> _Key:
    """What every name that a pattern matches is, or begins with.

    A location also matches what lies below it, so its text is a beginning. Where it does not have a whole
    scheme, it is compared with every spelling of a location (`Pattern.matches`), so that it is open.
    """
    first = pattern.tokens[0]
    if not isinstance(first, str) or (pattern.level.location and ":" not in first):
        return _OPEN
    return _Key(first, whole=pattern.text is not None and not pattern.level.location)
