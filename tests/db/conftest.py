"""Databases for tests of the database layer: a SQLite file, and a PostgreSQL server where it is installed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine

from catalog.db.engine import open_database
from tests.support.databases import upgrade
from tests.support.postgres import PostgresServer


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty database, of each kind in turn."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/lakewarden.db"
    server: PostgresServer = request.getfixturevalue("postgres")
    return server.create_database()


@pytest.fixture
def engine(url: str) -> Iterator[Engine]:
    """A database with this release's schema, of each kind in turn."""
    engine = open_database(url, busy_timeout_s=0.1)
    upgrade(engine)
    yield engine
    engine.dispose()


@pytest.fixture
def sqlite_engine(tmp_path: Path) -> Iterator[Engine]:
    engine = open_database(f"sqlite:///{tmp_path}/lakewarden.db", busy_timeout_s=0.1)
    upgrade(engine)
    yield engine
    engine.dispose()


@pytest.fixture
def postgres_engine(postgres: PostgresServer) -> Iterator[Engine]:
    engine = open_database(postgres.create_database())
    upgrade(engine)
    yield engine
    engine.dispose()
