"""Finds the locations of tables that meet a location, among many."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from policy.location.location import Location

_AFTER_ALL: Final = "\U0010ffff"


@dataclass(frozen=True, slots=True)
class Claim:
    """A location of a table, or one that it can be read from.

    Attributes:
        table_id: identifies the table.
        name: its dotted name, or that at its drop.
        location: in canonical form.
        dropped: whether it was dropped, and can be registered again.
    """

    table_id: str
    name: str
    location: str
    dropped: bool


class Claims:
    """All locations of a catalog's tables, to look up those that meet a location."""

    def __init__(self, claims: Sequence[Claim]) -> None:
        self._claims = sorted(claims, key=lambda each: f"{each.location}/")
        self._keys = [f"{each.location}/" for each in self._claims]

    def meeting(self, location: Location) -> Iterator[Claim]:
        """Return the claims that contain a location or lie in it."""
        start = f"{location.canonical}/"
        for above in with_ancestors(location)[:-1]:
            yield from self._between(f"{above}/", f"{above}/")
        yield from self._between(start, start + _AFTER_ALL)

    def _between(self, first: str, last: str) -> Iterator[Claim]:
        for place in range(bisect_left(self._keys, first), len(self._keys)):
            if self._keys[place] > last:
                return
            yield self._claims[place]


def with_ancestors(location: Location) -> list[str]:
    """Return the location and every directory above it, in canonical form."""
    root = location.canonical[: len(location.canonical) - sum(len(name) + 1 for name in location.segments)]
    found = [root]
    for name in location.segments:
        found.append(f"{found[-1]}/{name}")
    return found
