"""Checks that a write is still open, in the transaction that publishes it.

A write can be aborted, cleaned up or given up while another attempt to commit it is in progress. Its files
are deleted then, so the attempt must not publish them. The write is marked before its files are deleted:
either the mark comes first and the attempt is refused, or the write is published and keeps its files.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from sqlalchemy import Connection, select

from catalog.db.schema import lw_write
from catalog.state.write_states import ALIVE
from policy.errors import RequestInvalid


def not_open() -> RequestInvalid:
    """Build the error for a write that is no longer open."""
    return RequestInvalid(
        "The write is no longer open: it was committed, aborted or cleaned up.",
        rule="write-state",
        hint="Load the table. Begin a new write only if it has no snapshot of this write.",
    )


_current: Final[ContextVar[str | None]] = ContextVar("lakewarden_open_write", default=None)


@contextmanager
def publishing(write_id: str) -> Iterator[None]:
    """Check that the write is open when the metadata pointer moves inside of the block."""
    token = _current.set(write_id)
    try:
        yield
    finally:
        _current.reset(token)


def settle(connection: Connection) -> None:
    """Check the write of the current commit, in the transaction that moves the pointer, and lock its row.

    Raises:
        RequestInvalid: it is no longer open; the transaction must not take effect.
    """
    write_id = _current.get()
    if write_id is None:
        return
    mine = (lw_write.c.id == write_id, lw_write.c.state.in_(ALIVE))
    if connection.scalar(select(lw_write.c.id).where(*mine).with_for_update()) is None:
        raise not_open()
