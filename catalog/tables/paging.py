"""Reads lists of names in pages, in the order of the names in the database (keyset pagination).

- A page begins after a name, not at a number. So a name that exists the whole time is listed exactly once,
  whatever is created and dropped between two pages.
- Only what the caller sees counts: a page is filled up with visible names, and another page is announced only
  if there is another visible name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

#: The most names of one page.
MAX_PAGE: Final = 1_000

_FIRST_BATCH: Final = 100
_LARGEST_BATCH: Final = 5_000

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class PageRequest:
    """A request for one page.

    Attributes:
        after: the last name of the page before; None for the first page.
        size: the maximum number of names.
    """

    after: str | None = None
    size: int = MAX_PAGE


@dataclass(frozen=True, slots=True)
class ListPage(Generic[T]):
    """A page of a list, or the whole list.

    Attributes:
        entries: what the caller sees of it.
        following: the name that the next page begins after; None if there is no more.
    """

    entries: list[T]
    following: str | None = None


def visible_page(
    read: Callable[[str | None, int | None], Sequence[T]],
    name_of: Callable[[T], str],
    seen: Callable[[Sequence[T]], list[T]],
    wanted: PageRequest | None,
) -> ListPage[T]:
    """Read a page of a list.

    Args:
        read: returns this many entries after a name, in the database's order of names; None for no limit.
        name_of: the name that an entry is ordered by.
        seen: returns those entries that the caller sees, in the same order.
        wanted: the page; None for the whole list.
    """
    if wanted is None:
        return ListPage(seen(read(None, None)))
    found: list[T] = []
    after, batch = wanted.after, min(max(wanted.size + 1, _FIRST_BATCH), _LARGEST_BATCH)
    while True:
        entries = read(after, batch)
        found += seen(entries)
        if len(found) > wanted.size:
            page = found[: wanted.size]
            return ListPage(page, name_of(page[-1]))
        if len(entries) < batch:
            return ListPage(found)
        after, batch = name_of(entries[-1]), min(2 * batch, _LARGEST_BATCH)
