"""What only a server can do: stop, freeze, lose a connection at the wrong moment."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import pytest
from sqlalchemy import Engine, exc, insert, select, text

from catalog.db import postgres as postgres_module
from catalog.db.engine import open_database, read, write
from catalog.db.schema import iceberg_namespace_properties as properties
from policy.errors import CommitStateUnknown, StateUnavailable
from tests.support.databases import upgrade
from tests.support.postgres import PostgresServer

_ROW = {"catalog_name": "c", "namespace": "n", "property_key": "k", "property_value": "v"}


def _read_one(engine: Engine) -> int:
    with read(engine) as connection:
        return connection.execute(text("SELECT 1")).scalar_one()


def test_a_stopped_server_is_unavailable_until_it_is_back(postgres: PostgresServer) -> None:
    engine = open_database(postgres.create_database())
    upgrade(engine)
    postgres.stop()
    try:
        with pytest.raises(StateUnavailable):
            _read_one(engine)
    finally:
        postgres.start()
    assert _read_one(engine) == 1
    engine.dispose()


def test_an_absent_database_is_unavailable(postgres: PostgresServer) -> None:
    engine = open_database(postgres.url("no_such_database"))
    with pytest.raises(StateUnavailable):
        _read_one(engine)


def test_connections_from_before_a_restart_cost_no_request(postgres: PostgresServer) -> None:
    engine = open_database(postgres.create_database())
    assert _read_one(engine) == 1
    postgres.stop()
    postgres.start()
    assert _read_one(engine) == 1
    engine.dispose()


@pytest.mark.parametrize("idle_s", [0.0, 3600.0])
def test_connections_that_the_server_ended_cost_no_request_however_long_they_were_idle(
    postgres_engine: Engine, monkeypatch: pytest.MonkeyPatch, idle_s: float
) -> None:
    assert _read_one(postgres_engine) == 1
    with write(postgres_engine) as other:
        ended = other.execute(
            text(
                "SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity "
                "WHERE pid <> pg_backend_pid() AND datname = current_database()"
            )
        )
        assert ended.scalar_one() >= 1
    now = time.monotonic
    monkeypatch.setattr(postgres_module.time, "monotonic", lambda: now() + idle_s)
    assert _read_one(postgres_engine) == 1


def test_a_connection_that_was_idle_is_tried_before_it_is_used(
    postgres_engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A network can forget a connection, and tell neither end."""
    monkeypatch.setattr(postgres_module, "ANSWER_TIMEOUT_S", 0.3)
    with read(postgres_engine) as connection:
        backend = connection.execute(text("SELECT pg_backend_pid()")).scalar_one()
    now = time.monotonic
    monkeypatch.setattr(postgres_module.time, "monotonic", lambda: now() + 3600)
    os.kill(backend, signal.SIGSTOP)
    try:
        with read(postgres_engine) as connection:
            assert connection.execute(text("SELECT pg_backend_pid()")).scalar_one() != backend
    finally:
        os.kill(backend, signal.SIGCONT)


def test_a_frozen_server_is_given_up_and_its_connection_thrown_away(
    postgres_engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_module, "ANSWER_TIMEOUT_S", 0.3)
    with pytest.raises(StateUnavailable) as refused, read(postgres_engine) as connection:
        backend = connection.execute(text("SELECT pg_backend_pid()")).scalar_one()
        os.kill(backend, signal.SIGSTOP)
        try:
            connection.execute(text("SELECT 1"))
        finally:
            os.kill(backend, signal.SIGCONT)
    assert isinstance(refused.value.__cause__, exc.DBAPIError)
    assert refused.value.__cause__.connection_invalidated
    assert _read_one(postgres_engine) == 1


def test_a_statement_that_takes_too_long_is_stopped(postgres_engine: Engine) -> None:
    with pytest.raises(StateUnavailable, match="in time"), write(postgres_engine) as connection:
        connection.execute(text("SET LOCAL statement_timeout = 50"))
        connection.execute(text("SELECT pg_sleep(30)"))


def test_a_lock_that_is_held_too_long_is_given_up(postgres_engine: Engine) -> None:
    with postgres_engine.begin() as holder:
        holder.execute(text("LOCK TABLE lw_token IN ACCESS SHARE MODE"))
        with pytest.raises(StateUnavailable, match="locked"), write(postgres_engine) as waiting:
            waiting.execute(text("SET LOCAL lock_timeout = 50"))
            waiting.execute(text("LOCK TABLE lw_token IN ACCESS EXCLUSIVE MODE"))


def test_a_reader_takes_no_transaction_and_sees_what_is_committed_between_two_statements(
    postgres_engine: Engine,
) -> None:
    with read(postgres_engine) as reader:
        assert reader.execute(select(properties)).all() == []
        with write(postgres_engine) as connection:
            connection.execute(insert(properties).values(_ROW))
        assert len(reader.execute(select(properties)).all()) == 1
        driver: Any = reader.connection.dbapi_connection
        assert driver.info.transaction_status.name == "IDLE"


def test_every_connection_has_limits_and_reads_committed(postgres_engine: Engine) -> None:
    names = (
        "statement_timeout",
        "lock_timeout",
        "idle_in_transaction_session_timeout",
        "transaction_isolation",
    )
    with write(postgres_engine) as connection:
        found = [connection.execute(text(f"SHOW {name}")).scalar_one() for name in names]
    assert found == ["4500ms", "3s", "30s", "read committed"]


def test_a_connection_lost_at_commit_leaves_the_outcome_open(postgres_engine: Engine) -> None:
    with pytest.raises(CommitStateUnknown), write(postgres_engine) as connection:
        connection.execute(insert(properties).values(_ROW))
        _end_backend(postgres_engine, connection.execute(text("SELECT pg_backend_pid()")).scalar_one())
    with read(postgres_engine) as connection:
        assert connection.execute(select(properties)).all() == []


def test_a_connection_lost_before_commit_has_changed_nothing(postgres_engine: Engine) -> None:
    with pytest.raises(StateUnavailable), write(postgres_engine) as connection:
        _end_backend(postgres_engine, connection.execute(text("SELECT pg_backend_pid()")).scalar_one())
        connection.execute(insert(properties).values(_ROW))


def _end_backend(engine: Engine, backend: int) -> None:
    with engine.connect() as other:
        ended = other.execute(text("SELECT pg_terminate_backend(:pid, 5000)"), {"pid": backend})
        assert ended.scalar_one() is True
