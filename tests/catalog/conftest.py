"""What the tests of the catalog's core share: databases of each kind, and a lake for each module."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine

from catalog.db.engine import open_database
from catalog.db.migrate import upgrade
from tests.support.lake import Lake, open_lake
from tests.support.postgres import PostgresServer, start_postgres


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer | str]:
    """The server, or the reason why there is none."""
    server, reason = start_postgres()
    yield server or reason
    if server is not None:
        server.remove()


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty database, of each kind in turn."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/lakewarden.db"
    server: PostgresServer | str = request.getfixturevalue("postgres_server")
    if isinstance(server, str):
        pytest.skip(server)
    return server.create_database()


@pytest.fixture
def engine(url: str) -> Iterator[Engine]:
    """A database with this release's schema, of each kind in turn."""
    engine = open_database(url)
    upgrade(engine)
    yield engine
    engine.dispose()


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    """A catalog with the namespaces `db` and `bobs`, one for all tests of a module."""
    with open_lake(tmp_path_factory.mktemp("lake")) as lake:
        for namespace in ("db", "bobs"):
            lake.catalog().create_namespace(namespace)
        yield lake
