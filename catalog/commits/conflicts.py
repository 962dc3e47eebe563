"""Retries changes that conflict with other commits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from catalog.base.errors import CommitConflict, KeysChanged

#: Number of attempts before the conflict is reported to the user.
ATTEMPTS: Final = 100

Seen = TypeVar("Seen")
Done = TypeVar("Done")


def made_anew(look: Callable[[], Seen], act: Callable[[Seen], Done]) -> Done:
    """Make a change, and repeat it while other commits come first.

    Args:
        look: reads the state that the change is based on. A conflict here is final, except when keys change
            during the read.
        act: makes the change. After a conflict, both are called again.

    Raises:
        CommitConflict: other commits came first in every attempt.
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
