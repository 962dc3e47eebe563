"""The catalog's database is locked, full, read-only, absent, stopped or frozen.

Whenever an operation is refused with `StateUnavailable`, nothing has happened; whenever it is answered, all
of it has; and once the fault is gone everything works again, without a hand laid on it.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

import pytest
from sqlalchemy import text

import catalog.service.context
from catalog.base import crash_points
from catalog.base.errors import CommitConflict
from catalog.db import postgres as postgres_connections
from catalog.db.engine import open_database, write
from policy.errors import CommitStateUnknown, StateUnavailable, StorageUnavailable
from tests.faults.conftest import Shared
from tests.faults.scenarios import SCENARIOS, Scenario, Subject
from tests.support.crash import assert_sound, seen
from tests.support.lake import Lake, open_lake
from tests.support.outages import absent, filled, frozen, full, locked, read_only, small_disk
from tests.support.postgres import PostgresServer, start_postgres
from tests.support.tables import make, name_of, rows

pytestmark = pytest.mark.nightly

Outage = Callable[[Lake], AbstractContextManager[None]]

#: How long an answer may take at the most; nothing is measured, a test that waits longer is ended.
BOUNDED = pytest.mark.timeout(15)

CASES = [
    pytest.param(name, point, id=f"{name}-{point}")
    for name, scenario in SCENARIOS.items()
    for point in scenario.points
]


@pytest.fixture(scope="module")
def impatient(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    """A lake on SQLite whose writers wait a moment for each other, instead of seconds."""
    with pytest.MonkeyPatch.context() as patch:
        hurried = functools.partial(open_database, busy_timeout_s=0.1)
        patch.setattr(catalog.service.context, "open_database", hurried)
        with open_lake(tmp_path_factory.mktemp("lake")) as lake:
            lake.catalog().create_namespace("db")
            yield lake


def database_of(lake: Lake) -> Path:
    """The file of a SQLite database."""
    return Path(str(lake.services.engine.url.database))


OUTAGES: dict[str, Outage] = {
    "locked": lambda lake: locked(database_of(lake)),
    "absent": lambda lake: absent(database_of(lake)),
    "read-only": lambda lake: _remounted(lake),
}


@contextlib.contextmanager
def _remounted(lake: Lake) -> Iterator[None]:
    """The database's file system is read-only for everybody who opens the database from now on."""
    lake.services.engine.dispose()
    with read_only(database_of(lake).parent):
        yield


@BOUNDED
@pytest.mark.parametrize("outage", OUTAGES)
@pytest.mark.parametrize("name", SCENARIOS)
def test_nothing_begins_without_the_database(impatient: Lake, name: str, outage: str) -> None:
    scenario = SCENARIOS[name]
    subject = scenario.before(impatient)
    before = scenario.look(impatient, subject)
    with OUTAGES[outage](impatient), pytest.raises(StateUnavailable) as refusal:
        scenario.act(impatient, subject)
    assert refusal.value.hint
    assert scenario.look(impatient, subject) == before
    scenario.act(impatient, subject)
    assert scenario.look(impatient, subject) != before


@BOUNDED
@pytest.mark.parametrize(("name", "point"), CASES)
def test_a_database_that_is_lost_on_the_way(impatient: Lake, name: str, point: str) -> None:
    scenario = SCENARIOS[name]
    subject = scenario.before(impatient)
    before = scenario.look(impatient, subject)
    refused = not _answered_although(impatient, scenario, subject, point, OUTAGES["locked"])
    assert (scenario.look(impatient, subject) == before) == refused
    assert refused == (not scenario.published(point))
    if refused:
        scenario.act(impatient, subject)
        assert scenario.look(impatient, subject) != before
    assert_sound(impatient)


def _answered_although(lake: Lake, scenario: Scenario, subject: Subject, point: str, outage: Outage) -> bool:
    """Whether an operation is answered although an outage begins at a point; it may say nothing but that."""
    with ExitStack() as stack:

        def hook(name: str) -> None:
            if name == point:
                hooks.close()
                stack.enter_context(outage(lake))

        hooks = ExitStack()
        hooks.enter_context(crash_points.hooked(hook))
        stack.callback(hooks.close)
        try:
            scenario.act(lake, subject)
        except StateUnavailable:
            return False
        return True


@BOUNDED
@pytest.mark.slow
def test_a_lock_is_waited_for_in_bounded_time(on_sqlite: Shared) -> None:
    lake = on_sqlite.lake
    table = make(lake)
    with locked(database_of(lake)), pytest.raises(StateUnavailable):
        table.append(rows(1))
    table.append(rows(1))


def test_reading_goes_on_without_waiting_where_nothing_is_written(impatient: Lake) -> None:
    name = name_of(make(impatient))
    with locked(database_of(impatient)):
        assert seen(impatient, name) is not None


@BOUNDED
def test_a_database_that_may_not_grow(impatient: Lake) -> None:
    table = make(impatient)
    acknowledged: list[int] = []
    with full(impatient.services.engine), pytest.raises(StateUnavailable):
        while True:
            table.append(rows(len(acknowledged)))
            acknowledged += [len(acknowledged), len(acknowledged) + 1]
    stored = impatient.catalog().load_table(table.name()).scan().to_arrow()["id"].to_pylist()
    assert sorted(stored) == acknowledged
    table.append(rows(len(acknowledged)))
    assert_sound(impatient)


@BOUNDED
def test_a_disk_without_a_byte_left(tmp_path: Path) -> None:
    with small_disk(tmp_path, "8m"), open_lake(tmp_path) as lake:
        lake.catalog().create_namespace("db")
        table = make(lake)
        table.append(rows(1))
        before = seen(lake, name_of(table))
        with filled(tmp_path), pytest.raises((StateUnavailable, StorageUnavailable)):
            table.append(rows(3))
        assert seen(lake, name_of(table)) == before
        lake.reopen()
        lake.catalog().load_table(table.name()).append(rows(5))
        found = lake.catalog().load_table(table.name()).scan().to_arrow()
        assert sorted(found["id"].to_pylist()) == [1, 2, 5, 6]
        assert_sound(lake)


@pytest.fixture(scope="module")
def own_server() -> Iterator[PostgresServer]:
    """A server that these tests alone use, so that they can stop it."""
    server, reason = start_postgres()
    if server is None:
        pytest.skip(reason)
    yield server
    server.remove()


@pytest.fixture(scope="module")
def on_own_server(tmp_path_factory: pytest.TempPathFactory, own_server: PostgresServer) -> Iterator[Lake]:
    """A lake on that server."""
    url = own_server.create_database()
    with open_lake(tmp_path_factory.mktemp("lake"), DATABASE__URL=url) as lake:
        lake.catalog().create_namespace("db")
        yield lake


@contextlib.contextmanager
def _stopped(server: PostgresServer) -> Iterator[None]:
    server.stop()
    try:
        yield
    finally:
        server.start()


@pytest.mark.timeout(40)
@pytest.mark.parametrize("point", ["nothing", "prepared", "published"])
def test_postgres_is_stopped(on_own_server: Lake, own_server: PostgresServer, point: str) -> None:
    scenario = SCENARIOS["commit"]
    subject = scenario.before(on_own_server)
    before = scenario.look(on_own_server, subject)
    if point == "nothing":
        with _stopped(own_server), pytest.raises(StateUnavailable):
            scenario.act(on_own_server, subject)
        answered = False
    else:
        answered = _answered_although(on_own_server, scenario, subject, point, lambda _: _stopped(own_server))
    assert answered == (point == "published")
    assert (scenario.look(on_own_server, subject) != before) == answered
    scenario.act(on_own_server, subject)
    assert_sound(on_own_server)


def _postmaster(server: PostgresServer) -> int:
    """The id of the server's first process, as it writes it down itself."""
    return int((server.directory / "data" / "postmaster.pid").read_text().split()[0])


@pytest.mark.timeout(30)
@pytest.mark.slow
def test_postgres_is_frozen(
    on_own_server: Lake, own_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario = SCENARIOS["commit"]
    subject = scenario.before(on_own_server)
    before = scenario.look(on_own_server, subject)
    monkeypatch.setattr(postgres_connections, "ANSWER_TIMEOUT_S", 1.0)
    monkeypatch.setattr(postgres_connections, "CONNECT_TIMEOUT_S", 2)
    with frozen(_postmaster(own_server)), pytest.raises(StateUnavailable):
        scenario.act(on_own_server, subject)
    assert scenario.look(on_own_server, subject) == before
    scenario.act(on_own_server, subject)
    assert scenario.look(on_own_server, subject) != before


_SLOW_COMMIT = """
CREATE FUNCTION linger() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {body}; RETURN NULL; END $$;
CREATE CONSTRAINT TRIGGER linger AFTER UPDATE ON iceberg_tables DEFERRABLE INITIALLY DEFERRED
FOR EACH ROW EXECUTE FUNCTION linger()
"""


@contextlib.contextmanager
def _at_commit(lake: Lake, body: str) -> Iterator[None]:
    """Every transaction that moves a pointer does something at its COMMIT."""
    with write(lake.services.engine) as connection:
        connection.execute(text(_SLOW_COMMIT.format(body=body)))
    try:
        yield
    finally:
        with write(lake.services.engine) as connection:
            connection.execute(text("DROP TRIGGER linger ON iceberg_tables; DROP FUNCTION linger()"))


@pytest.mark.timeout(30)
def test_a_move_whose_answer_comes_late_is_not_called_undone(
    on_own_server: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client gives up on a COMMIT that the server goes on to finish."""
    scenario = SCENARIOS["commit"]
    subject = scenario.before(on_own_server)
    before = scenario.look(on_own_server, subject)
    with _at_commit(on_own_server, "PERFORM pg_sleep(1.5)"), monkeypatch.context() as patch:
        patch.setattr(postgres_connections, "ANSWER_TIMEOUT_S", 1.0)
        # Neither "nothing was changed" nor a conflict, which would make the client do it again.
        with contextlib.suppress(CommitStateUnknown):
            scenario.act(on_own_server, subject)
    assert scenario.look(on_own_server, subject) != before
    assert_sound(on_own_server)


@pytest.mark.timeout(30)
def test_a_move_that_the_server_gave_up_is_found_undone(on_own_server: Lake) -> None:
    """The server cancels the COMMIT by itself, and the client asks what became of it."""
    scenario = SCENARIOS["commit"]
    subject = scenario.before(on_own_server)
    before = scenario.look(on_own_server, subject)
    cancel = "RAISE EXCEPTION USING ERRCODE = 'query_canceled'"
    with _at_commit(on_own_server, cancel), pytest.raises((StateUnavailable, CommitConflict)):
        scenario.act(on_own_server, subject)
    assert scenario.look(on_own_server, subject) == before
    scenario.act(on_own_server, subject)
    assert scenario.look(on_own_server, subject) != before
    assert_sound(on_own_server)
