"""The translation of foreign errors is complete."""

from __future__ import annotations

import sqlite3

import pytest
from sqlalchemy import exc

from catalog.db.faults import translate, translate_commit
from policy.errors import CommitStateUnknown, StateUnavailable

psycopg = pytest.importorskip("psycopg")


def _sqlite(name: str, message: str = "told by the driver") -> exc.DBAPIError:
    error = sqlite3.OperationalError(message)
    error.sqlite_errorname = name
    return exc.OperationalError("SELECT 1", None, error)


def _postgres(state: str) -> exc.DBAPIError:
    error = psycopg.errors.lookup(state)("told by the driver")
    return exc.DBAPIError.instance("SELECT 1", None, error, psycopg.Error)  # type: ignore[return-value]


@pytest.mark.parametrize(
    "name",
    [
        "SQLITE_BUSY",
        "SQLITE_BUSY_SNAPSHOT",
        "SQLITE_LOCKED",
        "SQLITE_PROTOCOL",
        "SQLITE_FULL",
        "SQLITE_CANTOPEN",
        "SQLITE_CANTOPEN_ISDIR",
        "SQLITE_PERM",
        "SQLITE_AUTH",
        "SQLITE_READONLY",
        "SQLITE_READONLY_DBMOVED",
        "SQLITE_IOERR",
        "SQLITE_IOERR_FSYNC",
        "SQLITE_CORRUPT",
        "SQLITE_NOTADB",
        "SQLITE_NOLFS",
    ],
)
def test_every_sqlite_outage_is_typed_with_a_hint_and_without_driver_text(name: str) -> None:
    found = translate(_sqlite(name))
    assert isinstance(found, StateUnavailable)
    assert found.hint
    assert "told by the driver" not in str(found)


@pytest.mark.parametrize(
    "state",
    [
        "08006",
        "25006",
        "25P03",
        "28P01",
        "3D000",
        "40001",
        "40P01",
        "42501",
        "42P01",
        "42703",
        "53100",
        "53300",
        "55P03",
        "57014",
        "57P01",
        "58030",
        "XX001",
    ],
)
def test_every_postgres_outage_is_typed_with_a_hint_and_without_driver_text(state: str) -> None:
    found = translate(_postgres(state))
    assert isinstance(found, StateUnavailable)
    assert found.hint
    assert "told by the driver" not in str(found)


@pytest.mark.parametrize("state", ["42601", "22001", "23505"])
def test_mistakes_and_broken_constraints_are_not_translated(state: str) -> None:
    assert translate(_postgres(state)) is None


def test_an_exhausted_pool_is_unavailable() -> None:
    assert isinstance(translate(exc.TimeoutError("QueuePool limit")), StateUnavailable)


@pytest.mark.parametrize("error", [_sqlite("SQLITE_BUSY"), _sqlite("SQLITE_FULL"), _postgres("40001")])
def test_a_commit_that_was_rolled_back_is_unavailable(error: exc.DBAPIError) -> None:
    assert isinstance(translate_commit(error), StateUnavailable)


@pytest.mark.parametrize(
    "error",
    [_sqlite("SQLITE_IOERR_FSYNC"), _postgres("57P01"), _postgres("08006"), exc.InvalidRequestError()],
)
def test_any_other_failure_of_commit_leaves_the_outcome_open(error: exc.SQLAlchemyError) -> None:
    assert isinstance(translate_commit(error), CommitStateUnknown)


def test_a_constraint_that_breaks_at_commit_passes_through() -> None:
    assert translate_commit(_postgres("23503")) is None
