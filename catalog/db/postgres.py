"""Connections to PostgreSQL through psycopg.

- READ COMMITTED; what must not change in between is compared or locked by the statement that writes. So a
  reader needs no transaction: it would cost two messages to the server, and each of its statements would see
  a state of its own all the same. Readers have connections of their own, which cannot write.
- Every wait has an end on both sides: the server stops statements and lock waits, and the client gives up on
  a server that is frozen or unreachable and therefore cannot stop anything.
- A connection is tried before it is used, so that a restarted server costs no request: it has nothing to
  say, and answers if it was idle for a second. The server says so when it ends a connection, and only a
  network that forgot one says nothing.

Parameters: PostgreSQL, "Client Connection Defaults" and libpq "Parameter Key Words".
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable
from typing import Any, Final, TypeVar

import psycopg
from psycopg.abc import PQGen
from psycopg.pq import TransactionStatus
from sqlalchemy import URL, Dialect, Engine, create_engine, event, exc
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.pool import ConnectionPoolEntry, PoolProxiedConnection

from catalog.db.readers import set_readers

_T = TypeVar("_T")

CONNECT_TIMEOUT_S: Final = 3
STATEMENT_TIMEOUT_MS: Final = 4_500
LOCK_TIMEOUT_MS: Final = 3_000
IDLE_TRANSACTION_TIMEOUT_MS: Final = 30_000

#: Longer than the server's own time-out, so that a live server responds first with the reason.
ANSWER_TIMEOUT_S: Final = 5.0

_INTERVAL_S: Final = 0.1
#: A connection that was used as lately is not tried again.
_TRUSTED_S: Final = 1.0
_USED_AT: Final = "used_at"
_NEVER_WRITE: Final = "-c default_transaction_read_only=on"


class BoundedConnection(psycopg.Connection[Any]):
    """A connection that gives up on a server that does not respond."""

    def wait(self, gen: PQGen[_T], interval: float = _INTERVAL_S, timeout: float | None = None) -> _T:
        """Wait for the server, for at most `ANSWER_TIMEOUT_S` seconds.

        Raises:
            psycopg.OperationalError: no answer in time; the connection is closed, for what the server makes
                of the statement is unknown.
        """
        try:
            return super().wait(gen, interval, ANSWER_TIMEOUT_S if timeout is None else timeout)
        except psycopg.OperationalError:
            if self.pgconn.transaction_status == TransactionStatus.ACTIVE:
                self.pgconn.finish()
            raise


def open_postgres(url: URL, *, pool_timeout_s: float) -> Engine:
    """Create an engine for a PostgreSQL server; does not connect yet."""
    writers = _opened(url, _options(url), "READ COMMITTED", pool_timeout_s)
    readers = _opened(url, f"{_options(url)} {_NEVER_WRITE}", "AUTOCOMMIT", pool_timeout_s)
    event.listen(writers, "engine_disposed", lambda _: readers.dispose())
    set_readers(writers, readers)
    return writers


def _opened(url: URL, options: str, isolation_level: str, pool_timeout_s: float) -> Engine:
    engine = create_engine(
        url.set(drivername="postgresql+psycopg"),
        connect_args={"connect_timeout": CONNECT_TIMEOUT_S, "options": options},
        isolation_level=isolation_level,
        pool_size=16,
        max_overflow=16,
        pool_timeout=pool_timeout_s,
        hide_parameters=True,
    )
    event.listen(engine, "do_connect", _connect)
    event.listen(engine, "checkin", _remember_use)
    event.listen(engine, "checkout", _require_alive(engine.dialect))
    return engine


def _options(url: URL) -> str:
    given = url.query.get("options", "")
    ours = (
        f"-c statement_timeout={STATEMENT_TIMEOUT_MS}"
        f" -c lock_timeout={LOCK_TIMEOUT_MS}"
        f" -c idle_in_transaction_session_timeout={IDLE_TRANSACTION_TIMEOUT_MS}"
    )
    return f"{given if isinstance(given, str) else ' '.join(given)} {ours}".strip()


def _connect(
    dialect: Dialect, entry: ConnectionPoolEntry, arguments: list[Any], options: dict[str, Any]
) -> BoundedConnection:
    return BoundedConnection.connect(*arguments, **options)


def _remember_use(_: DBAPIConnection | None, entry: ConnectionPoolEntry) -> None:
    entry.info[_USED_AT] = time.monotonic()


def _require_alive(dialect: Dialect) -> Callable[[Any, ConnectionPoolEntry, PoolProxiedConnection], None]:
    def require(connection: Any, entry: ConnectionPoolEntry, _: PoolProxiedConnection) -> None:
        used_at = entry.info.get(_USED_AT)
        if used_at is None:
            return
        if _has_news(connection):
            raise exc.DisconnectionError("the server ended the connection")
        if time.monotonic() - used_at > _TRUSTED_S:
            try:
                dialect.do_ping(connection)
            except psycopg.Error as error:
                raise exc.DisconnectionError("the server does not answer on the connection") from error

    return require


def _has_news(connection: BoundedConnection) -> bool:
    """Return whether the server sent something on a connection that is not in use."""
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    return bool(poll.poll(0))
