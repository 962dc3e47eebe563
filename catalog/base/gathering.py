"""Gathers values into lists of a bounded weight."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


def gathered(values: Iterable[T], weight: Callable[[T], int], most: int) -> Iterator[list[T]]:
    """Gather values into lists, in their order; a value that is heavier than a list may be is alone in one.

    Args:
        values: the values.
        weight: the weight of one.
        most: the maximum total weight of a list.
    """
    taken: list[T] = []
    total = 0
    for each in values:
        more = weight(each)
        if taken and total + more > most:
            yield taken
            taken, total = [], 0
        taken.append(each)
        total += more
    if taken:
        yield taken
