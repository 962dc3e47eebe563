"""Closes a write in the transaction that publishes it, if it is still open.

A write can be aborted, cleaned up or given up while another attempt to commit it is in progress. Its files
are deleted then, so the attempt must not publish them. The write is marked before its files are deleted:
either the mark comes first and the attempt is refused, or the write is published and keeps its files.

So a write is committed exactly if its metadata pointer moved, with the snapshot that was published.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from sqlalchemy import Connection, update

from catalog.db.schema import lw_write
from catalog.state.write_states import ALIVE, WriteState
from policy.errors import RequestInvalid


def not_open() -> RequestInvalid:
    """Build the error for a write that is no longer open."""
    return RequestInvalid(
        "The write is no longer open: it was committed, aborted or cleaned up.",
        rule="write-state",
        hint="Load the table. Begin a new write only if it has no snapshot of this write.",
    )


_current: Final[ContextVar[tuple[str, int | None] | None]] = ContextVar("lakewarden_open_write", default=None)


@contextmanager
def publishing(write_id: str, snapshot_id: int | None) -> Iterator[None]:
    """Close the write when the metadata pointer moves inside of the block.

    Args:
        write_id: the write.
        snapshot_id: its snapshot; None if the write publishes none.
    """
    token = _current.set((write_id, snapshot_id))
    try:
        yield
    finally:
        _current.reset(token)


def settle(connection: Connection) -> None:
    """Close the write of the current commit, in the transaction that moves the pointer.

    Raises:
        RequestInvalid: it is no longer open; the transaction must not take effect.
    """
    current = _current.get()
    if current is None:
        return
    write_id, snapshot_id = current
    mine = (lw_write.c.id == write_id, lw_write.c.state.in_(ALIVE))
    closed = {"state": WriteState.COMMITTED, "snapshot_id": snapshot_id}
    if connection.execute(update(lw_write).where(*mine).values(**closed)).rowcount != 1:
        raise not_open()
