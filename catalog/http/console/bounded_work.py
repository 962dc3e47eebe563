"""Limits pages whose work grows with the catalog: in time, and to one at a time in a process.

So users who open them leave threads for others. Commands do the same work without these limits.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from policy.errors import RequestInvalid, Unavailable

#: How long the work of a page takes at most, in seconds.
LONGEST_S: Final = 10.0


class PageBusy(Unavailable):
    """The work of a page is in progress for another request."""


class BoundedWork:
    """The work of a page.

    Args:
        what: what it is, at the beginning of a sentence.
        command: the command that does it without limits.
    """

    def __init__(self, what: str, command: str) -> None:
        self._what = what
        self._command = command
        self.alone: Final = threading.Lock()

    @contextmanager
    def begun(self) -> Iterator[Callable[[], None]]:
        """Begin the work, and yield what it calls between its steps.

        Raises:
            PageBusy: it is in progress for another request.
            RequestInvalid: it takes too long; raised by what is yielded.
        """
        if not self.alone.acquire(blocking=False):
            raise PageBusy(
                f"{self._what} is in progress for another request.",
                rule="console-busy",
                hint="Try again in a moment.",
            )
        try:
            until = time.monotonic() + LONGEST_S
            yield lambda: self._require_before(until)
        finally:
            self.alone.release()

    def _require_before(self, until: float) -> None:
        if time.monotonic() > until:
            raise RequestInvalid(
                f"{self._what} takes longer than {LONGEST_S:g} seconds, more than a page waits.",
                rule="console-size",
                hint=f"Run `{self._command}` on the catalog's host.",
            )
