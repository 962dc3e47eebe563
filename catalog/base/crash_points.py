"""Named crash points between the steps of a commit.

Nothing happens at a point unless a hook is installed in this process; the tests install one that kills the
process, to show that no acknowledged commit is lost and no half-made one is seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

_hooks: list[Callable[[str], None]] = []


def point(name: str) -> None:
    """Call the installed hooks for this point."""
    for hook in _hooks:
        hook(name)


@contextmanager
def hooked(hook: Callable[[str], None]) -> Iterator[None]:
    """Install a hook for the duration of a block."""
    _hooks.append(hook)
    try:
        yield
    finally:
        _hooks.remove(hook)
