"""Changes that are made again where another commit came first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from catalog.base.errors import CommitConflict, KeysChanged

#: How often something is tried before whoever asked for it is told of the conflict.
ATTEMPTS: Final = 100

Seen = TypeVar("Seen")
Done = TypeVar("Done")


def made_anew(look: Callable[[], Seen], act: Callable[[Seen], Done]) -> Done:
    """What a change answers that no other commit came ahead of.

    Args:
        look: looks at what the change is built on; a conflict here is final, unless it is keys that changed
            while it looked.
        act: makes the change; where it meets a conflict, both are done again.

    Raises:
        CommitConflict: other commits came first again and again.
    """
    for _ in range(ATTEMPTS - 1):
        try:
            seen = look()
        except KeysChanged:
            continue
        try:
            return act(seen)
        except CommitConflict:
            continue
    return act(look())
