"""The trusted state of Lakewarden and everything that serves it; `connect` reads and writes without Spark."""

from catalog.client.connection import Connection, Table, connect

__all__ = ["Connection", "Table", "connect"]
