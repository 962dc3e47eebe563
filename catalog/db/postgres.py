"""Connections to PostgreSQL through psycopg.

- READ COMMITTED; what must not change in between is compared or locked by the statement that writes.
- Every wait has an end on both sides: the server stops statements and lock waits, and the client gives up on
  a server that is frozen or unreachable and therefore cannot stop anything.
- A connection is tried before it is used, so that a restarted server costs no request.

Parameters: PostgreSQL, "Client Connection Defaults" and libpq "Parameter Key Words".
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

import psycopg
from psycopg.abc import PQGen
from psycopg.pq import TransactionStatus
from sqlalchemy import URL, Dialect, Engine, create_engine, event
from sqlalchemy.pool import ConnectionPoolEntry

from catalog.db.readers import set_readers

_T = TypeVar("_T")

CONNECT_TIMEOUT_S: Final = 3
STATEMENT_TIMEOUT_MS: Final = 4_500
LOCK_TIMEOUT_MS: Final = 3_000
IDLE_TRANSACTION_TIMEOUT_MS: Final = 30_000

#: Longer than the server's own time-out, so that a live server responds first with the reason.
ANSWER_TIMEOUT_S: Final = 5.0

_INTERVAL_S: Final = 0.1


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
    engine = create_engine(
        url.set(drivername="postgresql+psycopg"),
        connect_args={"connect_timeout": CONNECT_TIMEOUT_S, "options": _options(url)},
        isolation_level="READ COMMITTED",
        pool_pre_ping=True,
        pool_size=16,
        max_overflow=16,
        pool_timeout=pool_timeout_s,
        hide_parameters=True,
    )
    event.listen(engine, "do_connect", _connect)
    set_readers(engine, engine.execution_options(postgresql_readonly=True))
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
