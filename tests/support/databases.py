"""Databases of this release's schema, made once and copied: the steps take longer than many a test.

SQL is compiled once for all databases of a process, too: each test that opens one would compile it again.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from sqlalchemy import Connection, Engine, NullPool, create_engine, event, inspect, text

from catalog.db import migrate
from catalog.db.engine import open_database
from catalog.db.sqlite import create_file


class _Compiled(dict[Any, Any]):
    """SQLAlchemy's compiled statements, by kind of database in place of the dialect of one engine."""

    def get(self, key: Any, default: Any = None) -> Any:
        return super().get((type(key[0]), *key[1:]), default)

    def __getitem__(self, key: Any) -> Any:
        return super().__getitem__((type(key[0]), *key[1:]))

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__((type(key[0]), *key[1:]), value)


_COMPILED = _Compiled()

#: The database that those of a cluster of PostgreSQL are copied from, and the clusters that have it.
_COPY: Final = "lw_of_this_release"
_COPIED: Final[set[str]] = set()


@event.listens_for(Engine, "engine_connect")
def _share_compiled(connection: Connection) -> None:
    connection.execution_options(compiled_cache=_COMPILED)


def upgrade(engine: Engine) -> None:
    """Bring a database to the present schema; an empty one becomes a copy of one that was brought there."""
    if engine.dialect.name == "postgresql" and not inspect(engine).get_table_names():
        _upgrade_postgres(engine)
    elif engine.dialect.name == "sqlite" and not Path(str(engine.url.database)).exists():
        create_file(engine)
        Path(str(engine.url.database)).write_bytes(_new_database())
    else:
        migrate.upgrade(engine)


def _upgrade_postgres(engine: Engine) -> None:
    """The first database of a cluster takes the steps, and the others are copies of its copy."""
    server = str(engine.url.query["host"])
    if server not in _COPIED:
        migrate.upgrade(engine)
        _on_server(engine, f'CREATE DATABASE {_COPY} TEMPLATE "{engine.url.database}"')
        _COPIED.add(server)
    else:
        _on_server(
            engine,
            f'DROP DATABASE "{engine.url.database}"',
            f'CREATE DATABASE "{engine.url.database}" TEMPLATE {_COPY}',
        )


def _on_server(engine: Engine, *statements: str) -> None:
    """Statements beside a database, which has no connection then."""
    engine.dispose()
    server = create_engine(
        engine.url.set(database="postgres"), isolation_level="AUTOCOMMIT", poolclass=NullPool
    )
    with server.connect() as connection:
        for each in statements:
            connection.execute(text(each))


@cache
def _new_database() -> bytes:
    with TemporaryDirectory() as directory:
        path = Path(directory) / "new.db"
        engine = open_database(f"sqlite:///{path}")
        try:
            migrate.upgrade(engine)
        finally:
            engine.dispose()
        return path.read_bytes()
