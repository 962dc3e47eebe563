"""Hooks for the points of `catalog.base.crash_points`."""

from __future__ import annotations

from collections.abc import Callable


def once_at(point: str, do: Callable[[], object]) -> Callable[[str], None]:
    """A hook that does something the first time that a point is reached."""
    left = [do]

    def hook(reached: str) -> None:
        if reached == point and left:
            left.pop()()

    return hook
