"""Loads many tables for a report, some at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeAlias, TypeVar

from policy.errors import LakewardenError, StateUnavailable

#: Called with the number of tables that are done, and the number of all.
Advance: TypeAlias = Callable[[int, int], None]

_AT_A_TIME: Final = 8
_BATCH: Final = 32
_Item = TypeVar("_Item")
_Found = TypeVar("_Found")


def silently(_done: int, _total: int) -> None:
    """Show no progress."""


def of_each(
    items: Sequence[_Item], look: Callable[[_Item], _Found], advance: Advance = silently
) -> Iterator[tuple[_Item, _Found | LakewardenError]]:
    """Yield what was found out about each table, in their order, or why it could not be.

    Args:
        items: the tables.
        look: finds it out; called by several threads.
        advance: is told the progress.

    Raises:
        StateUnavailable: the catalog's database does not answer.
    """

    def found(item: _Item) -> _Found | LakewardenError:
        try:
            return look(item)
        except StateUnavailable:
            raise
        except LakewardenError as problem:
            return problem

    with ThreadPoolExecutor(_AT_A_TIME) as pool:
        # In batches, so that a caller who stops reading does not have all the others loaded.
        for start in range(0, len(items), _BATCH):
            batch = items[start : start + _BATCH]
            yield from zip(batch, pool.map(found, batch), strict=True)
            advance(min(start + _BATCH, len(items)), len(items))
