"""Opens the catalog's database and its transactions.

- Every transaction goes through `read` or `write`. A reader never takes the write lock and cannot write; a
  writer holds the lock from its first statement (SQLite) and commits when the block ends without an error.
- Foreign errors are translated here and nowhere else (`catalog.db.faults`). A broken constraint,
  `sqlalchemy.exc.IntegrityError`, passes through: only the caller knows what it means.
- Every wait has an end, after at most five seconds.
- A commit whose outcome is unknown is `CommitStateUnknown`, never "nothing was changed".
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from pydantic import SecretStr
from sqlalchemy import URL, Connection, Engine, RootTransaction, exc, make_url

from catalog.base.outside_calls import Part, outside_call
from catalog.db.faults import translate, translate_commit
from catalog.db.readers import readers_of
from catalog.db.sqlite import open_sqlite
from policy.errors import RequestInvalid

_POOL_TIMEOUT_S: Final = 3.0
#: Shorter than the wait for an audit record, so that its error has the reason.
BUSY_TIMEOUT_S: Final = 4.5
_POSTGRES_DRIVERS: Final = frozenset({"postgresql", "postgresql+psycopg"})
_SQLITE_DRIVERS: Final = frozenset({"sqlite", "sqlite+pysqlite"})

_thread = threading.local()


def open_database(url: SecretStr | str, *, busy_timeout_s: float = BUSY_TIMEOUT_S) -> Engine:
    """Create an engine for the catalog's database. Nothing is connected or created yet.

    Args:
        url: ``sqlite:////absolute/path/file.db`` or ``postgresql://user:password@host/database``.
        busy_timeout_s: seconds that a SQLite writer waits for another one.

    Raises:
        RequestInvalid: the URL is malformed, of another database, or its driver is not installed.
    """
    parsed = _parse(url.get_secret_value() if isinstance(url, SecretStr) else url)
    if parsed.drivername in _SQLITE_DRIVERS:
        return open_sqlite(parsed, busy_timeout_s=busy_timeout_s, pool_timeout_s=_POOL_TIMEOUT_S)
    if parsed.drivername in _POSTGRES_DRIVERS:
        return _open_postgres(parsed)
    raise RequestInvalid(
        "The database URL names a database that is not supported.",
        rule="database-url",
        hint="Use sqlite:////absolute/path/file.db or postgresql://user:password@host/database.",
    )


@contextmanager
def read(engine: Engine) -> Iterator[Connection]:
    """Run a read-only transaction.

    Raises:
        StateUnavailable: the database does not answer, in bounded time.
    """
    with (
        outside_call(Part.DATABASE, "read"),
        translated(),
        readers_of(engine).connect() as connection,
        connection.begin(),
    ):
        yield connection


@contextmanager
def write(engine: Engine) -> Iterator[Connection]:
    """Run a transaction; it is committed at the end of the block, and rolled back if the block raises.

    Raises:
        StateUnavailable: the database does not answer; nothing was changed.
        CommitStateUnknown: the commit may or may not have taken effect.
        sqlalchemy.exc.IntegrityError: a constraint does not hold; nothing was changed.
        RuntimeError: this thread is inside another `write` on the same engine, and would wait for itself.
    """
    with (
        _alone(engine),
        outside_call(Part.DATABASE, "write"),
        translated(),
        engine.connect() as connection,
        connection.begin() as transaction,
    ):
        yield connection
        _commit(connection, transaction)


def is_writing(engine: Engine) -> bool:
    """Return whether the current thread is inside a `write` block on this engine."""
    return engine in _writing()


@contextmanager
def translated() -> Iterator[None]:
    """Raise failures of the database as typed errors (`catalog.db.faults`)."""
    try:
        yield
    except exc.SQLAlchemyError as error:
        known = translate(error)
        if known is None:
            raise
        raise known from error


def _parse(url: str) -> URL:
    try:
        return make_url(url)
    except (exc.ArgumentError, ValueError):
        # The cause can quote the URL, including the password.
        raise RequestInvalid(
            "The database URL cannot be parsed.",
            rule="database-url",
            hint="Use sqlite:////absolute/path/file.db or postgresql://user:password@host/database; "
            "percent-encode special characters of the password.",
        ) from None


def _open_postgres(url: URL) -> Engine:
    try:
        from catalog.db.postgres import open_postgres
    except ImportError as error:
        raise RequestInvalid(
            "The driver for PostgreSQL is not installed.",
            rule="database-url",
            hint='Run `pip install "lakewarden[postgres]"`.',
        ) from error
    return open_postgres(url, pool_timeout_s=_POOL_TIMEOUT_S)


def _commit(connection: Connection, transaction: RootTransaction) -> None:
    try:
        transaction.commit()
    except exc.SQLAlchemyError as error:
        # The database can keep the transaction open, with its locks; the pool would keep both.
        connection.invalidate()
        known = translate_commit(error)
        if known is None:
            raise
        raise known from error


def _writing() -> set[Engine]:
    if not hasattr(_thread, "writing"):
        _thread.writing = set()
    found: set[Engine] = _thread.writing
    return found


@contextmanager
def _alone(engine: Engine) -> Iterator[None]:
    if is_writing(engine):
        raise RuntimeError("write() inside write() on the same engine would deadlock")
    _writing().add(engine)
    try:
        yield
    finally:
        _writing().discard(engine)
