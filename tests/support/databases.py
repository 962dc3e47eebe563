"""Databases of this release's schema, made once and copied: the steps take longer than many a test.

SQL is compiled once for all databases of a process, too: each test that opens one would compile it again.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from sqlalchemy import Connection, Engine, event

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


@event.listens_for(Engine, "engine_connect")
def _share_compiled(connection: Connection) -> None:
    connection.execution_options(compiled_cache=_COMPILED)


def upgrade(engine: Engine) -> None:
    """Bring a database to the present schema; a new SQLite file is a copy of one that was brought there."""
    path = Path(str(engine.url.database))
    if engine.dialect.name == "sqlite" and not path.exists():
        create_file(engine)
        path.write_bytes(_new_database())
    else:
        migrate.upgrade(engine)


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
