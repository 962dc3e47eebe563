"""A cached property without a lock.

`functools.cached_property` of Python 3.11 holds one lock for all instances of a class while it computes. A
property that reads storage or the database would let all requests wait for one that is slow. Two threads that
ask one instance at the same time compute twice here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Self, TypeVar, overload

T = TypeVar("T")


class CachedProperty(Generic[T]):
    """Computes the value of an attribute when it is read first, and keeps it.

    Args:
        compute: computes the value for an instance.
    """

    def __init__(self, compute: Callable[..., T]) -> None:
        self._compute = compute
        self._name = compute.__name__
        self.__doc__ = compute.__doc__

    @overload
    def __get__(self, instance: None, owner: type[object]) -> Self: ...

    @overload
    def __get__(self, instance: object, owner: type[object]) -> T: ...

    def __get__(self, instance: object | None, owner: type[object]) -> Self | T:
        """Return the value; the next read finds it on the instance."""
        if instance is None:
            return self
        value = instance.__dict__[self._name] = self._compute(instance)
        return value
