"""The trusted state of Lakewarden and everything that serves it; `connect` reads and writes without Spark."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from catalog.client.connection import Connection, Table, connect

__all__ = ["Connection", "Table", "connect"]


def __getattr__(name: str) -> Any:
    """The client is loaded where it is used: it brings PyArrow, which not everything in here needs."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from catalog.client import connection

    return getattr(connection, name)
