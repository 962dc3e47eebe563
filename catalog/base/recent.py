"""Remembers values that follow from their key, the recently used ones, within a bound."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

_Kept = TypeVar("_Kept")


class Recent(Generic[_Kept]):
    """Values by key, of any thread.

    Args:
        most: the maximum total weight.
        weight: the weight of a value.
    """

    def __init__(self, most: int, weight: Callable[[_Kept], int]) -> None:
        self._most = most
        self._weight = weight
        self._kept: OrderedDict[Hashable, _Kept] = OrderedDict()
        self._total = 0
        self._lock = threading.Lock()

    def known(self, key: Hashable) -> _Kept | None:
        """Return a value that is remembered; None if it is not."""
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
            return self._kept.get(key)

    def get(self, key: Hashable, make: Callable[[], _Kept]) -> _Kept:
        """Return a value, or make it; a failure is not remembered."""
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        made = make()
        with self._lock:
            if key not in self._kept:
                self._kept[key] = made
                self._total += self._weight(made)
            while self._total > self._most:
                _, dropped = self._kept.popitem(last=False)
                self._total -= self._weight(dropped)
        return made

    def forget(self, key: Hashable) -> None:
        """Forget a value, if it is remembered."""
        with self._lock:
            if key in self._kept:
                self._total -= self._weight(self._kept.pop(key))
