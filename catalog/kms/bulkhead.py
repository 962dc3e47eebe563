"""Limits concurrent KMS calls (bulkhead).

Rules:
- A call that was given up keeps its slot while it runs, so that calls that hang do not use up threads.
- It keeps the slot for 30 seconds at most. Otherwise a server that never ends its answers would block all
  calls, even after it recovers.
"""

from __future__ import annotations

import threading
from typing import Final

_KEPT_S: Final = 30.0


class Bulkhead:
    """A fixed number of slots; safe for many threads.

    Args:
        count: the number of slots.
    """

    def __init__(self, count: int) -> None:
        self._free = threading.Semaphore(count)

    def take(self, seconds: float) -> Slot | None:
        """Take a slot, waiting for at most `seconds`; `None` if none becomes free."""
        return Slot(self._free) if self._free.acquire(timeout=seconds) else None


class Slot:
    """A taken slot."""

    def __init__(self, free: threading.Semaphore) -> None:
        self._free = free
        self._left = threading.Lock()
        self._expiry = threading.Timer(_KEPT_S, self.leave)
        self._expiry.daemon = True

    def leave(self) -> None:
        """Release the slot, once: its call has ended."""
        self._expiry.cancel()
        if self._left.acquire(blocking=False):
            self._free.release()

    def give_up(self) -> None:
        """Give up the call, once: the slot is released when the call ends, or after 30 seconds."""
        try:
            self._expiry.start()
        except RuntimeError:
            # The process has no thread left, so slots are not what limits calls.
            self.leave()
