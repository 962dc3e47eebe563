"""Transactions and typed errors, on both kinds of database."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path

import pytest
from pydantic import SecretStr
from sqlalchemy import Engine, event, exc, func, insert, select, text

from catalog.db.engine import is_writing, open_database, read, write
from catalog.db.migrate import upgrade
from catalog.db.schema import iceberg_namespace_properties as properties
from catalog.db.schema import iceberg_tables, lw_binding
from policy.errors import CommitStateUnknown, RequestInvalid, StateUnavailable
from tests.support.vectors import each_row


def _row(key: str) -> dict[str, str]:
    return {"catalog_name": "c", "namespace": "n", "property_key": key, "property_value": "v"}


def _count(engine: Engine) -> int:
    with read(engine) as connection:
        return connection.execute(select(func.count()).select_from(properties)).scalar_one()


def test_a_write_block_commits_at_its_end(engine: Engine) -> None:
    with write(engine) as connection:
        connection.execute(insert(properties).values(_row("a")))
    assert _count(engine) == 1


def test_a_write_block_that_raises_changes_nothing(engine: Engine) -> None:
    with pytest.raises(ZeroDivisionError), write(engine) as connection:
        connection.execute(insert(properties).values(_row("a")))
        raise ZeroDivisionError
    assert _count(engine) == 0


def test_a_reader_cannot_write_whatever_its_connection_did_before(engine: Engine) -> None:
    for written in range(3):
        for _ in range(2):
            with pytest.raises(StateUnavailable), read(engine) as connection:
                connection.execute(insert(properties).values(_row("refused")))
            assert _count(engine) == written
        with write(engine) as connection:
            connection.execute(insert(properties).values(_row(f"written {written}")))


def test_readers_go_on_while_a_writer_holds_the_lock(engine: Engine) -> None:
    with write(engine) as connection:
        connection.execute(insert(properties).values(_row("a")))
        assert _count(engine) == 0
    assert _count(engine) == 1


def test_a_broken_constraint_passes_through_and_changes_nothing(engine: Engine) -> None:
    with write(engine) as connection:
        connection.execute(insert(properties).values(_row("a")))
    with pytest.raises(exc.IntegrityError), write(engine) as connection:
        connection.execute(insert(properties).values(_row("b")))
        connection.execute(insert(properties).values(_row("a")))
    assert _count(engine) == 1


def test_foreign_keys_hold(engine: Engine) -> None:
    with pytest.raises(exc.IntegrityError), write(engine) as connection:
        row = {"catalog": "c", "namespace": "n", "name": "t", "folded": "t", "table_id": "none"}
        connection.execute(insert(lw_binding).values(**row))


def test_missing_tables_name_the_upgrade(url: str) -> None:
    engine = open_database(url)
    if engine.dialect.name == "sqlite":
        Path(str(engine.url.database)).touch()
    with pytest.raises(StateUnavailable, match="lakewarden db upgrade"), read(engine) as connection:
        connection.execute(select(iceberg_tables))
    engine.dispose()


def test_a_mistake_in_a_statement_is_not_called_an_outage(engine: Engine) -> None:
    with pytest.raises(exc.DBAPIError), read(engine) as connection:
        connection.execute(text("SELEC 1"))


def test_nested_writes_are_refused_at_once(engine: Engine) -> None:
    with write(engine), pytest.raises(RuntimeError), write(engine):
        pass
    assert not is_writing(engine)


def test_concurrent_writers_lose_nothing(url: str) -> None:
    engine = open_database(url)
    upgrade(engine)

    def work(worker: int) -> None:
        for number in range(10):
            with write(engine) as connection:
                connection.execute(insert(properties).values(_row(f"{worker}-{number}")))

    threads = [threading.Thread(target=work, args=(worker,)) for worker in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert _count(engine) == 80
    engine.dispose()


def test_sqlite_locked_is_unavailable(sqlite_engine: Engine) -> None:
    other = sqlite3.connect(str(sqlite_engine.url.database), isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StateUnavailable, match="locked"), write(sqlite_engine):
        pytest.fail("two writers at once")
    assert _count(sqlite_engine) == 0
    other.execute("ROLLBACK")
    other.close()
    with write(sqlite_engine) as connection:
        connection.execute(insert(properties).values(_row("a")))


@pytest.mark.parametrize("raised", [sqlite3.OperationalError("busy"), exc.OperationalError("", None, None)])
def test_a_commit_that_fails_leaves_no_lock_and_no_open_transaction(
    sqlite_engine: Engine, monkeypatch: pytest.MonkeyPatch, raised: Exception
) -> None:
    def fail(_: object) -> None:
        raise raised

    with monkeypatch.context() as patch:
        patch.setattr(sqlite_engine.dialect, "do_commit", fail)
        with pytest.raises(CommitStateUnknown), write(sqlite_engine) as connection:
            connection.execute(insert(properties).values(_row("a")))
    with write(sqlite_engine) as connection:
        connection.execute(insert(properties).values(_row("b")))
    assert _count(sqlite_engine) == 1


def test_sqlite_full_disk_is_unavailable_and_changes_nothing(sqlite_engine: Engine) -> None:
    sqlite_engine.dispose()
    event.listen(sqlite_engine, "connect", lambda raw, _: raw.execute("PRAGMA max_page_count = 1"))
    rows = [_row(f"{number}-" + "x" * 200) for number in range(2000)]
    with pytest.raises(StateUnavailable, match="full"), write(sqlite_engine) as connection:
        connection.execute(insert(properties), rows)
    assert _count(sqlite_engine) == 0


def test_sqlite_never_creates_a_database_by_itself(tmp_path: Path) -> None:
    path = tmp_path / "mistyped.db"
    engine = open_database(f"sqlite:///{path}")
    with pytest.raises(StateUnavailable), write(engine):
        pytest.fail("connected to nothing")
    assert not path.exists()


def test_sqlite_file_removed_while_open_is_noticed(sqlite_engine: Engine) -> None:
    assert _count(sqlite_engine) == 0
    Path(str(sqlite_engine.url.database)).unlink()
    with pytest.raises(StateUnavailable), write(sqlite_engine):
        pytest.fail("wrote to a file without a name")
    upgrade(sqlite_engine)
    assert _count(sqlite_engine) == 0


def test_sqlite_garbage_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / "garbage.db").write_bytes(b"not a database at all" * 200)
    engine = open_database(f"sqlite:///{tmp_path}/garbage.db")
    with pytest.raises(StateUnavailable, match="damaged"), read(engine):
        pytest.fail("read garbage")


def test_sqlite_is_durable_checks_foreign_keys_and_overwrites_what_is_removed(sqlite_engine: Engine) -> None:
    with read(sqlite_engine) as connection:
        found = {
            name: connection.exec_driver_sql(f"PRAGMA {name}").scalar_one()
            for name in ("journal_mode", "synchronous", "foreign_keys", "secure_delete", "busy_timeout")
        }
    assert found == {
        "journal_mode": "wal",
        "synchronous": 2,
        "foreign_keys": 1,
        "secure_delete": 1,
        "busy_timeout": 100,
    }


def test_sqlite_file_is_for_its_owner_alone(tmp_path: Path) -> None:
    engine = open_database(f"sqlite:///{tmp_path}/new/lakewarden.db")
    upgrade(engine)
    assert (tmp_path / "new" / "lakewarden.db").stat().st_mode & 0o077 == 0
    assert (tmp_path / "new").stat().st_mode & 0o077 == 0
    engine.dispose()


@each_row(
    "url",
    [
        "sqlite://",
        "sqlite:///:memory:",
        "sqlite:///file:x?mode=memory&uri=true",
        "sqlite:////tmp/x.db?mode=ro",
        "mysql://root:hush@host/db",
        "postgresql+psycopg2://root:hush@host/db",
        "postgresql://root:hush@host:port/db",
        "hush",
        "",
    ],
)
def test_urls_of_other_databases_are_refused_without_repeating_them(url: str) -> None:
    with pytest.raises(RequestInvalid) as refused:
        open_database(SecretStr(url))
    assert "hush" not in str(refused.value)
    assert refused.value.hint


def test_the_password_never_shows(tmp_path: Path) -> None:
    engine = open_database(SecretStr("postgresql://ann:hush@127.0.0.1:1/db"))
    with pytest.raises(StateUnavailable) as refused, read(engine):
        pytest.fail("connected to nothing")
    cause: BaseException | None = refused.value
    while cause is not None:
        assert "hush" not in f"{cause!r} {cause}"
        cause = cause.__cause__ or cause.__context__
    assert "hush" not in repr(engine)
