"""Keeps what a commit records in the transaction that moves the metadata pointer.

So a record is there if the commit took effect, and a record that is refused stops the commit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, Protocol

from sqlalchemy import Connection


class CommitRecord(Protocol):
    """What a commit records."""

    def record(self, connection: Connection, now_ms: int) -> None:
        """Record it in the transaction that publishes the commit; the table's pointer is locked.

        Raises:
            RequestInvalid: it contradicts an earlier record; the transaction must not take effect.
        """


_current: Final[ContextVar[tuple[Sequence[CommitRecord], int]]] = ContextVar(
    "lakewarden_commit_records", default=((), 0)
)


@contextmanager
def recording(records: Sequence[CommitRecord], now_ms: int) -> Iterator[None]:
    """Record this when the metadata pointer moves inside of the block."""
    token = _current.set((records, now_ms))
    try:
        yield
    finally:
        _current.reset(token)


def settle(connection: Connection) -> None:
    """Record what the current commit has to, in the transaction that moves the pointer.

    Raises:
        RequestInvalid: see `CommitRecord.record`.
    """
    records, now_ms = _current.get()
    for each in records:
        each.record(connection, now_ms)
