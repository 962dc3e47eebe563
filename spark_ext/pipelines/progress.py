"""Shows how far a run is: bars on a terminal, and otherwise a line on standard error every ten seconds."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from catalog.cli import output

#: Seconds until the first line, and between two of them.
_QUIET_S: Final = 10.0

Tell = Callable[[str, int, int], None]


@contextmanager
def progress(show: bool, clock: Callable[[], float] = time.monotonic) -> Iterator[Tell]:
    """Yield a function of what is being done, how many items are done, and how many there are.

    Args:
        show: whether anything is shown.
        clock: monotonic, in seconds.
    """
    if not show:
        yield lambda what, done, total: None
    elif sys.stderr.isatty():
        with output.progress() as advance:
            yield advance
    else:
        yield _Lines(clock).tell


class _Lines:
    """Progress as lines, with rate and estimate."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._began: dict[str, tuple[float, int]] = {}
        self._told = clock()

    def tell(self, what: str, done: int, total: int) -> None:
        """Print a line, unless the last one was just printed."""
        now = self._clock()
        began, before = self._began.setdefault(what, (now, done))
        if now - self._told < _QUIET_S:
            return
        self._told = now
        output.note(estimated(what, done, total, done - before, now - began))


def estimated(what: str, done: int, total: int, fresh: int, seconds: float) -> str:
    """Return one sentence about what is done and left, the rate, and the time for the rest at this rate.

    Args:
        what: what is being done.
        done, total: items.
        fresh: items that were done in the time that was measured.
        seconds: that time.
    """
    text = f"{what}: {done:,} of {total:,} items, {total - done:,} left"
    if fresh <= 0 or seconds <= 0:
        return f"{text}."
    rate = fresh / seconds
    return f"{text}, {rate:,.3g} a second, about {_span((total - done) / rate)} to go."


def _span(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 5_400 else f"{seconds / 3600:.1f} hours"
