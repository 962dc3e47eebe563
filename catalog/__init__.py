"""The trusted state of Lakewarden and everything that serves it; `connect` reads and writes without Spark."""

from catalog.client.connection import Connection, connect

__all__ = ["Connection", "connect"]
