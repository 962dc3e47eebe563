"""Retries changes that conflict with other commits."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Final, TypeVar

from catalog.base.errors import CommitConflict, KeysChanged

#: Number of attempts before the conflict is reported to the user.
ATTEMPTS: Final = 100

#: Limits of the pause between two attempts, in seconds: after the first conflict, and after many.
SHORTEST_PAUSE: Final = 0.002
LONGEST_PAUSE: Final = 0.25

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
    for attempt in range(ATTEMPTS - 1):
        try:
            seen = look()
        except KeysChanged:
            _pause(attempt)
            continue
        try:
            return act(seen)
        except CommitConflict:
            _pause(attempt)
    return act(look())


def _pause(attempt: int) -> None:
    """Wait for a random time, so that changes that run at the same time do not keep meeting each other."""
    time.sleep(random.uniform(0, min(LONGEST_PAUSE, SHORTEST_PAUSE * 2**attempt)))
