"""What the tests of the catalog's core share: a database of each kind and a lake for each module."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from uuid import uuid4

import pytest
from sqlalchemy import Engine

from catalog.db.engine import open_database
from tests.support.clock import Clock
from tests.support.databases import upgrade
from tests.support.lake import ALLOWS_UNSEALED, BOB, Lake, open_lake, policy, standard_policies, tables
from tests.support.postgres import PostgresServer


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The URL of a database, of each kind in turn."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path_factory.mktemp('database')}/lakewarden.db"
    server: PostgresServer | str = request.getfixturevalue("postgres_server")
    if isinstance(server, str):
        pytest.skip(server)
    return server.create_database()


@pytest.fixture(scope="module")
def engine(url: str) -> Iterator[Engine]:
    """A database with this release's schema, of each kind in turn."""
    engine = open_database(url)
    upgrade(engine)
    yield engine
    engine.dispose()


@pytest.fixture
def clock() -> Clock:
    """A clock that goes when the test says so."""
    return Clock()


@pytest.fixture
def long_reload_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """New policies are waited for, however slow the machine is."""
    monkeypatch.setattr("catalog.policy_store.in_force._RELOAD_WAIT_S", 60.0)


@pytest.fixture(autouse=True)
def _shared(every_refusal_has_a_record: None) -> None:
    """Tests of a module share a lake."""


@pytest.fixture
def catalog_name() -> str:
    """The name of a catalog of its own, so that tests can share a database."""
    return f"lake-{uuid4().hex}"


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    """A catalog with the namespaces `db` and `bobs`, one for all tests of a module."""
    with _open(tmp_path_factory) as lake:
        yield lake


@pytest.fixture(scope="module")
def lake_on_each(tmp_path_factory: pytest.TempPathFactory, url: str) -> Iterator[Lake]:
    """The same on a database of each kind in turn."""
    with _open(tmp_path_factory, DATABASE__URL=url) as lake:
        yield lake


@contextmanager
def _open(tmp_path_factory: pytest.TempPathFactory, **overrides: str) -> Iterator[Lake]:
    with open_lake(tmp_path_factory.mktemp("lake"), **overrides) as lake:
        for namespace in ("db", "bobs"):
            lake.catalog().create_namespace(namespace, ALLOWS_UNSEALED)
        yield lake


@pytest.fixture
def bob_alters(lake: Lake) -> Iterator[None]:
    """Bob may alter tables and use keys, and may not drop protection."""
    altering = policy("bob-alters", tables("db"), {BOB: ["alter", "select"]})
    keys = policy("bob-keys", {"key": ["*"]}, {BOB: ["use"]})
    lake.set_policies([*standard_policies(), altering, keys])
    yield
    lake.set_policies(standard_policies())
