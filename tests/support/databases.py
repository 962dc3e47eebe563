"""Databases of this release's schema, made once and copied: the steps take longer than many a test."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from sqlalchemy import Engine

from catalog.db import migrate
from catalog.db.engine import open_database
from catalog.db.sqlite import create_file


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
