"""The states of a write."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class WriteState(StrEnum):
    """The state of a write."""

    OPEN = "open"
    COMMITTING = "committing"
    COMMITTED = "committed"
    CLOSED = "closed"
    CLEARING = "clearing"
    ABORTED = "aborted"
    SWEPT = "swept"


#: A write that can still be committed.
ALIVE: Final = (WriteState.OPEN, WriteState.COMMITTING)
#: A write whose commit is known to be published.
DONE: Final = (WriteState.COMMITTED, WriteState.CLOSED)
#: A write that can have files that nothing references: open, or one that a clean-up has yet to process.
UNCLOSED: Final = (WriteState.OPEN, WriteState.CLEARING, WriteState.COMMITTED, WriteState.COMMITTING)
