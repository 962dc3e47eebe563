"""Connections to the embedded SQLite database.

- A connection never creates the database: a mistyped path, or a volume that is not mounted, must not look
  like an empty catalog. Only `create_file` makes one, for `catalog.db.migrate.upgrade`.
- A connection whose file was removed or replaced is thrown away before its next use; otherwise what is
  written to it would be acknowledged and lost.
- Write-ahead log with `synchronous=FULL`: an acknowledged commit survives a power failure (SQLite, "PRAGMA
  synchronous").
- What is removed is overwritten (`secure_delete`): a key that was destroyed is not left in a free page.
- The driver never begins a transaction by itself; a reader is `BEGIN` under `query_only`, and a writer is
  `BEGIN IMMEDIATE`, so that a second writer waits where it begins instead of failing half way (SQLAlchemy,
  "SQLite: Using SQLAlchemy to emit BEGIN in lieu of SQLite's transaction control").
- Readers and writers have connections of their own: each change of `query_only` voids the statements that a
  connection has prepared.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final
from urllib.parse import quote

from sqlalchemy import URL, Connection, Engine, create_engine, event, exc
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.pool import ConnectionPoolEntry, PoolProxiedConnection, QueuePool

from catalog.db.driver import wrapped
from catalog.db.readers import set_readers
from policy.errors import RequestInvalid, StateUnavailable

_RETRY_S: Final = 0.02


def open_sqlite(url: URL, *, busy_timeout_s: float, pool_timeout_s: float) -> Engine:
    """Create an engine for a database file; its connections write, those of `readers_of` it read.

    Raises:
        RequestInvalid: the URL does not name a file.
    """
    path = _file_of(url)
    connector = _connector(path, busy_timeout_s)
    writers = _opened(path, connector, pool_timeout_s)
    readers = _opened(path, connector, pool_timeout_s)
    event.listen(readers, "connect", _never_write)
    event.listen(readers, "begin", _begin("BEGIN"))
    event.listen(writers, "begin", _begin("BEGIN IMMEDIATE"))
    event.listen(writers, "engine_disposed", lambda _: readers.dispose())
    set_readers(writers, readers)
    return writers


def _opened(path: Path, connector: Callable[[], sqlite3.Connection], pool_timeout_s: float) -> Engine:
    engine = create_engine(
        URL.create("sqlite", database=str(path)),
        creator=connector,
        poolclass=QueuePool,
        pool_size=16,
        max_overflow=16,
        pool_timeout=pool_timeout_s,
        hide_parameters=True,
    )
    event.listen(engine, "connect", _remember_file(path))
    event.listen(engine, "checkout", _require_same_file(path))
    return engine


def _begin(statement: str) -> Callable[[Connection], None]:
    def begin(connection: Connection) -> None:
        cursor = connection.connection.cursor()
        try:
            cursor.execute(statement)
        except sqlite3.Error as error:
            raise wrapped(connection.dialect, error) from error
        finally:
            cursor.close()

    return begin


def create_file(engine: Engine) -> None:
    """Create the database file with access for its owner only, if there is none.

    Raises:
        StateUnavailable: the file or its directory cannot be created.
    """
    path = Path(str(engine.url.database))
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    except OSError as error:
        raise StateUnavailable(
            f"The catalog's database file cannot be created: {error.strerror}.",
            rule="database",
            hint="Check `database.url` and `data_dir`, and the permissions of the directory.",
        ) from error


def _file_of(url: URL) -> Path:
    name = url.database or ""
    if name in ("", ":memory:") or name.startswith("file:") or url.query or url.host:
        raise RequestInvalid(
            "The database URL does not name a SQLite file.",
            rule="database-url",
            hint="Write it as sqlite:////absolute/path/lakewarden.db, without parameters.",
        )
    return Path(name).absolute()


def _connector(path: Path, busy_timeout_s: float) -> Callable[[], sqlite3.Connection]:
    uri = f"file:{quote(str(path))}?mode=rw"

    def connect() -> sqlite3.Connection:
        connection = sqlite3.connect(
            uri, uri=True, timeout=busy_timeout_s, isolation_level=None, check_same_thread=False
        )
        try:
            _enter_wal(connection, time.monotonic() + busy_timeout_s)
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA foreign_keys = ON")
            connection.execute("PRAGMA secure_delete = ON")
        except BaseException:
            connection.close()
            raise
        return connection

    return connect


def _enter_wal(connection: sqlite3.Connection, deadline: float) -> None:
    """Switch to the write-ahead log.

    SQLite answers "busy" at once, without waiting, when two processes switch at the same time.
    """
    while True:
        try:
            (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
            break
        except sqlite3.OperationalError as error:
            if not error.sqlite_errorname.startswith("SQLITE_BUSY") or time.monotonic() >= deadline:
                raise
            time.sleep(_RETRY_S)
    if mode != "wal":
        raise StateUnavailable(
            "The file system of the catalog's database does not support a write-ahead log.",
            rule="database",
            hint="Put the database on a local disk, or use PostgreSQL.",
        )


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _remember_file(path: Path) -> Callable[[DBAPIConnection, ConnectionPoolEntry], None]:
    def remember(_: DBAPIConnection, entry: ConnectionPoolEntry) -> None:
        entry.info["file"] = _identity(path)

    return remember


def _require_same_file(
    path: Path,
) -> Callable[[DBAPIConnection, ConnectionPoolEntry, PoolProxiedConnection], None]:
    def require(_: DBAPIConnection, entry: ConnectionPoolEntry, __: PoolProxiedConnection) -> None:
        found = _identity(path)
        if found is None or found != entry.info.get("file"):
            raise exc.DisconnectionError("the database file was removed or replaced")

    return require


def _never_write(connection: DBAPIConnection, _: ConnectionPoolEntry) -> None:
    connection.cursor().execute("PRAGMA query_only = ON")
