"""Statements that are prepared read what transactions read, on both kinds of database."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import Engine, bindparam, insert, select, update

from catalog.db.engine import open_database, read, write
from catalog.db.prepared import Prepared
from catalog.db.schema import lw_engine_key, lw_table, lw_token
from policy.errors import StateUnavailable

_TABLE = select(lw_table).where(lw_table.c.id == bindparam("id"), lw_table.c.state == "active")
_FOUND = Prepared(_TABLE)


def _table(table_id: str, *, purging: bool | None) -> dict[str, object]:
    names = {"catalog": "c", "namespace": "n", "name": "t", "owner": "alice", "location": "file:///t"}
    states = {"default_location": True, "state": "active", "created_ms": 2**40, "purging": purging}
    return {"id": table_id, "table_uuid": f"uuid of {table_id}", **names, **states}


@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize("purging", [None, False, True])
def test_a_prepared_statement_finds_the_values_that_a_transaction_finds(
    engine: Engine, purging: bool | None
) -> None:
    with write(engine) as connection:
        connection.execute(insert(lw_table).values(_table("1", purging=purging)))
    with read(engine) as connection:
        expected = tuple(connection.execute(_TABLE, {"id": "1"}).one())
    found = _FOUND.first(engine, id="1")
    assert found == expected
    assert [type(each) for each in found or ()] == [type(each) for each in expected]
    assert _FOUND.named(engine, id="1") == dict(zip(lw_table.c.keys(), expected, strict=True))


def test_a_prepared_statement_finds_bytes(engine: Engine) -> None:
    token = {"kind": "engine", "principal": "e", "secret_sha256": "0" * 64}
    key = {"id": "k", "token_id": "t", "public_key": b"\0\xff" * 16, "created_ms": 1, "expires_ms": 2}
    with write(engine) as connection:
        connection.execute(insert(lw_token).values(id="t", created_ms=1, **token))
        connection.execute(insert(lw_engine_key).values(key))
    statement = select(lw_engine_key.c.public_key).where(lw_engine_key.c.id == bindparam("id"))
    assert Prepared(statement).first(engine, id="k") == (b"\0\xff" * 16,)


def test_a_prepared_statement_finds_each_change_that_was_committed(engine: Engine) -> None:
    assert _FOUND.first(engine, id="1") is None
    with write(engine) as connection:
        connection.execute(insert(lw_table).values(_table("1", purging=None)))
    for owner in ("bob", "carol"):
        with write(engine) as connection:
            connection.execute(update(lw_table).values(owner=owner))
        found = _FOUND.named(engine, id="1")
        assert found is not None and found["owner"] == owner


def test_a_failed_statement_is_an_outage_and_the_next_one_works(engine: Engine) -> None:
    wrong = Prepared(select(lw_token.c.id).where(lw_token.c.id == bindparam("id")))
    with write(engine) as connection:
        connection.execute(insert(lw_table).values(_table("1", purging=None)))
        connection.exec_driver_sql("ALTER TABLE lw_token RENAME TO lw_renamed")
    with pytest.raises(StateUnavailable) as refused:
        wrong.first(engine, id="1")
    assert refused.value.rule == "database"
    assert _FOUND.first(engine, id="1") is not None


def test_a_prepared_statement_of_a_missing_database_is_an_outage(tmp_path: Path) -> None:
    with pytest.raises(StateUnavailable):
        _FOUND.first(open_database(f"sqlite:///{tmp_path}/missing.db"), id="1")
