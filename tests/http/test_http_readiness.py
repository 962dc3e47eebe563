"""Readiness says what cannot be served, to everybody, and names nothing of the lake."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import select

import catalog.http.app
import catalog.service.context
from catalog.db.engine import open_database, read
from catalog.db.schema import lw_replica
from catalog.service import probes
from catalog.service.probes import ANSWER_S, Ability, Probe, Problem
from tests.support.clock import Clock
from tests.support.lake import Lake, open_lake
from tests.support.outages import absent, filled, locked, read_only, small_disk
from tests.support.service import running
from tests.support.tables import ENCRYPTED, rows

EVERYTHING = ["encrypted-tables", "reading", "writing"]
LOST = frozenset({Ability.WRITING})


@contextmanager
def ready_lake(root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lake]:
    """A lake with a table, whose results are not kept, and whose writers wait a moment for each other."""
    hurried = functools.partial(open_database, busy_timeout_s=0.1)
    monkeypatch.setattr(catalog.service.context, "open_database", hurried)
    with open_lake(root) as lake:
        for probe in lake.services.readiness._probes:
            probe._kept_s = 0.0
        lake.catalog().create_namespace("secretdb")
        yield lake


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lake]:
    """The lake of a test."""
    with ready_lake(tmp_path, monkeypatch) as made:
        yield made


def readiness(url: str) -> tuple[int, dict[str, Any]]:
    """What anybody is told."""
    answer = httpx.get(f"{url}/readyz", timeout=20)
    return answer.status_code, answer.json()


def database_of(lake: Lake) -> Path:
    """The file of a SQLite database."""
    return Path(str(lake.services.engine.url.database))


@contextmanager
def away(path: Path, *, empty: bool = False) -> Iterator[None]:
    """A file or directory is gone, or is an empty directory, as a mount point is."""
    elsewhere = path.with_name(f"away-{path.name}")
    path.rename(elsewhere)
    if empty:
        path.mkdir()
    try:
        yield
    finally:
        if empty:
            path.rmdir()
        elsewhere.rename(path)


FAULTS: dict[str, tuple[Callable[[Lake], AbstractContextManager[None]], list[str]]] = {
    "the database is locked": (lambda lake: locked(database_of(lake)), EVERYTHING),
    "the database is absent": (lambda lake: absent(database_of(lake)), EVERYTHING),
    "the warehouse is read-only": (lambda lake: read_only(lake.warehouse), ["writing"]),
    "the warehouse is gone": (lambda lake: away(lake.warehouse), EVERYTHING),
    "the warehouse is not mounted": (lambda lake: away(lake.warehouse, empty=True), EVERYTHING),
    "the KMS does not answer": (
        lambda lake: away(Path(lake.settings.kms.options.keystore)),
        ["encrypted-tables"],
    ),
}


@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize("fault", FAULTS)
def test_what_cannot_be_served_is_reported_by_name_and_ends_with_the_fault(lake: Lake, fault: str) -> None:
    begin, lost = FAULTS[fault]
    lake.catalog().create_table("secretdb.t", rows(1).schema, properties=ENCRYPTED)
    with running(lake) as service:
        assert readiness(service.url) == (200, {"status": "ready"})
        with begin(lake):
            status, told = readiness(service.url)
            assert (status, told["status"], told["unavailable"]) == (503, "unavailable", lost)
            assert told["problems"]
            assert not any(word in str(told) for word in (str(lake.root), "secretdb", "alice"))
            assert httpx.get(f"{service.url}/livez").json() == {"status": "alive"}
        assert readiness(service.url) == (200, {"status": "ready"})


@pytest.mark.nightly
@pytest.mark.parametrize(("full", "lost"), [("", EVERYTHING), ("warehouse", ["writing"])])
def test_a_full_disk_is_not_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, full: str, lost: list[str]
) -> None:
    disk = tmp_path / full
    disk.mkdir(exist_ok=True)
    with small_disk(disk, "32m"), ready_lake(tmp_path, monkeypatch) as lake, running(lake) as service:
        lake.catalog().create_table("secretdb.t", rows(1).schema).append(rows(1))
        assert readiness(service.url)[0] == 200
        with filled(disk):
            status, told = readiness(service.url)
            assert (status, told["unavailable"]) == (503, lost)
            assert "full" in told["problems"][0]
        assert readiness(service.url)[0] == 200


def test_a_kms_is_asked_only_where_encryption_is_used(lake: Lake) -> None:
    lake.catalog().create_table("secretdb.plain", rows(1).schema)
    with running(lake) as service, away(Path(lake.settings.kms.options.keystore)):
        assert readiness(service.url) == (200, {"status": "ready"})


def test_a_new_warehouse_is_ready_and_nothing_is_created_in_it(tmp_path: Path) -> None:
    with open_lake(tmp_path) as lake, running(lake) as service:
        assert readiness(service.url) == (200, {"status": "ready"})
        assert not lake.warehouse.exists()


@pytest.mark.nightly
def test_a_database_that_hangs_is_answered_in_time_and_holds_no_other_request(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = threading.Event()
    probe = lake.services.readiness._probes[0]
    monkeypatch.setattr(probe, "_check", lambda: ends.wait(60) and None)
    monkeypatch.setattr(lake.services.readiness, "_probes", (probe,))
    monkeypatch.setattr(probes, "ANSWER_S", 0.2)
    monkeypatch.setattr(catalog.http.app, "ANSWER_S", 0.2)
    with running(lake) as service:
        told = [readiness(service.url) for _ in range(50)]
        assert {status for status, _ in told} == {503}
        assert told[0][1]["problems"] == ["The database does not answer in time."]
        names = [thread.name for thread in threading.enumerate()]
        assert names.count("lakewarden-probe") == 1
        ends.set()


def probe_of(check: Callable[[], Problem | None], clock: Clock) -> Probe:
    """A probe whose clock a test moves."""
    return Probe("thing", check, LOST, kept_s=5.0, seconds=clock)


def run(probe: Probe) -> Problem | None:
    """The result for a request that waits."""
    if (running := probe.begin()) is not None:
        running.result(20)
    return probe.problem()


def test_a_flood_of_requests_makes_one_check() -> None:
    checks: list[None] = []
    clock = Clock()
    probe = probe_of(lambda: checks.append(None), clock)
    assert [run(probe) for _ in range(1_000)] == [None] * 1_000
    assert len(checks) == 1
    clock.now += 5.0
    run(probe)
    assert len(checks) == 2


def test_a_check_that_does_not_end_is_a_problem_until_it_ends() -> None:
    clock, ends = Clock(), threading.Event()
    probe = probe_of(lambda: ends.wait(20) and None, clock)
    running = probe.begin()
    assert running is not None and probe.begin() is running
    clock.now += ANSWER_S
    assert probe.begin() is None
    problem = probe.problem()
    assert problem is not None and problem.lost == LOST
    ends.set()
    running.result(20)
    assert probe.problem() is None


def test_a_check_that_fails_is_a_problem() -> None:
    def fail() -> None:
        raise KeyError("secret")

    problem = run(probe_of(fail, Clock()))
    assert problem is not None and problem.lost == LOST and "secret" not in problem.text


def test_a_process_that_was_announced_is_no_replica_after_its_end(lake: Lake) -> None:
    replicas, engine = lake.services.replicas, lake.services.engine
    for _ in range(2):
        replicas.announce()
    with read(engine) as connection:
        assert len(connection.execute(select(lw_replica.c.id)).all()) == 1
    replicas.leave()
    with read(engine) as connection:
        assert not connection.execute(select(lw_replica.c.id)).all()
