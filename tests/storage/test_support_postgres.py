"""The throw-away PostgreSQL that other tests rely on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import sqlalchemy as sa

from tests.support import postgres
from tests.support.postgres import PostgresServer, start_postgres


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    server, reason = start_postgres()
    if server is None:
        pytest.skip(reason)
    yield server
    server.remove()
    assert not server.directory.exists()


def test_databases_are_apart(server: PostgresServer) -> None:
    first, second = (sa.create_engine(server.create_database()) for _ in range(2))
    with first.begin() as connection:
        connection.execute(sa.text("CREATE TABLE t (x int)"))
    assert sa.inspect(first).get_table_names() == ["t"]
    assert sa.inspect(second).get_table_names() == []
    first.dispose()
    second.dispose()


@pytest.mark.nightly
def test_a_stopped_server_refuses_and_a_restarted_one_remembers(server: PostgresServer) -> None:
    engine = sa.create_engine(server.create_database())
    with engine.begin() as connection:
        connection.execute(sa.text("CREATE TABLE t (x int)"))
    server.stop()
    with pytest.raises(sa.exc.OperationalError), engine.connect() as connection:
        connection.execute(sa.text("SELECT 1"))
    server.start()
    assert sa.inspect(engine).get_table_names() == ["t"]
    engine.dispose()


def test_absent_binaries_give_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres, "find_binaries", lambda: None)
    server, reason = start_postgres()
    assert server is None
    assert "not installed" in reason
