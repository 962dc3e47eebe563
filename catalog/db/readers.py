"""Ties the engine of a database to the one whose connections only read."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Engine

_READERS: Final = "lakewarden_readers"


def set_readers(engine: Engine, readers: Engine) -> None:
    """Let `readers` serve the read-only transactions of an engine."""
    engine.update_execution_options(**{_READERS: readers})


def readers_of(engine: Engine) -> Engine:
    """Return the engine that serves the read-only transactions of an engine."""
    readers: Engine = engine.get_execution_options()[_READERS]
    return readers
