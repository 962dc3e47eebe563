"""Two worker processes behind one socket: one service for clients, with one set of limits and metrics."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Final

import httpx
import pytest

from catalog.audit.trail import read
from catalog.http.connections import Connections
from catalog.http.metrics import Metrics
from catalog.http.tallies import SharedRows, Tally
from catalog.settings.sections import HttpSettings
from tests.support.crash import assert_sound
from tests.support.http_calls import new_table
from tests.support.lake import BOB, policy, tables
from tests.support.postgres import PostgresServer
from tests.support.service import ENGINE, Service
from tests.support.workers import Workers, workers

PATIENCE_S = 30.0
POLL_S = 0.5


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.nightly)])
def served(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Workers]:
    """Two workers on each database."""
    overrides = {"POLICIES_POLL_S": str(POLL_S), "AUDIT__STREAM_FILE": str(tmp_path / "audit.jsonl")}
    if request.param == "postgres":
        server: PostgresServer = request.getfixturevalue("postgres")
        overrides["DATABASE__URL"] = server.create_database()
    with workers(tmp_path, **overrides) as running:
        _until(lambda: len(running.pids()) == 2)
        yield running


def _until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def _prepare(service: Service, names: str) -> None:
    with service.client() as client:
        assert client.post(f"{service.prefix}/namespaces", json={"namespace": ["db"]}).status_code == 200
        for name in names:
            assert new_table(client, service.prefix, "db", name).status_code == 200


def _mark(service: Service, table: str, mark: str) -> int:
    """Commit a property over a new connection; return the status."""
    body = {"requirements": [], "updates": [{"action": "set-properties", "updates": {mark: "1"}}]}
    with service.client() as client:
        return client.post(f"{service.prefix}/namespaces/db/tables/{table}", json=body).status_code


def _marks(service: Service, table: str) -> set[str]:
    return {
        name for name in service.iceberg().load_table(f"db.{table}").properties if name.startswith("mark-")
    }


def _number(service: Service, series: str) -> float:
    with service.client() as client:
        text = client.get("/metrics").text
    found = re.search(rf"^{re.escape(series)} (\S+)$", text, re.MULTILINE)
    return float(found[1]) if found else 0.0


def test_two_workers_are_one_service(served: Workers) -> None:
    """Commits, metrics, health, policies and the end, over both workers."""
    service = served.service
    _prepare(service, "abcd")

    def act(table: str) -> set[str]:
        return {mark for mark in (f"mark-{turn}" for turn in range(6)) if _mark(service, table, mark) == 200}

    with ThreadPoolExecutor(4) as pool:
        told = dict(zip("abcd", pool.map(act, "abcd"), strict=True))
    assert all(len(marks) == 6 for marks in told.values())
    assert {table: _marks(service, table) for table in "abcd"} == told
    commits = 'lakewarden_commits_total{kind="commit"}'
    _until(lambda: _number(service, commits) == 24)
    assert [_number(service, commits) for _ in range(6)] == [24] * 6
    assert httpx.get(f"{service.url}/healthz").json() == {"status": "ok"}

    document = {"policies": [policy("bob", tables("db"), {BOB: ["select"]})]}
    with service.client() as client:
        put = client.put("/admin/v1/policies/documents/ranger/bob", json=document)
        assert put.status_code in (200, 201), put.text
    # After this time, no worker decides by the former policies.
    time.sleep(2 * POLL_S + 1)
    assert {_loads(service) for _ in range(12)} == {200}

    assert _sent_again(service) == [200] + [401] * 12

    served.supervisor.send_signal(signal.SIGTERM)
    assert served.supervisor.wait(PATIENCE_S) == 0, served.log.read_text()
    assert "Traceback" not in served.log.read_text()
    assert_sound(service.lake)


def _sent_again(service: Service) -> list[int]:
    """Attack: send a request that an engine signed once more, over new connections."""
    url = f"{service.prefix}/namespaces/db/tables/a"
    with service.client(engine=ENGINE) as engine:
        first = engine.get(url)
    again = [httpx.get(f"{service.url}{url}", headers=dict(first.request.headers)) for _ in range(12)]
    return [first.status_code, *(each.status_code for each in again)]


def _loads(service: Service) -> int:
    with service.client(BOB) as bob:
        return bob.get(f"{service.prefix}/namespaces/db/tables/a").status_code


@pytest.mark.nightly
def test_the_supervisor_opens_nothing_and_its_end_ends_the_workers(tmp_path: Path) -> None:
    """Neither database nor keystore is open in the process that forks, and no thread runs in it."""
    with workers(tmp_path) as running:
        _until(lambda: len(running.pids()) == 2)
        process = Path(f"/proc/{running.supervisor.pid}")
        opened = {os.readlink(each) for each in (process / "fd").iterdir()}
        assert not [each for each in opened if "lakewarden.db" in each or "keystore" in each]
        assert len(list((process / "task").iterdir())) == 1
        pids = running.pids()
        running.supervisor.kill()
        running.supervisor.wait()
        _until(lambda: not any(_lives(each) for each in pids))


_WITHOUT_PROCESSES: Final = """
import errno, os, signal, socket, sys, time
from pathlib import Path
from catalog.http.workers import Supervisor

real, calls = os.fork, []

def fork():
    calls.append(1)
    if len(calls) in (3, 4):
        raise OSError(errno.EAGAIN, "no process is left")
    return real()

def run(worker):
    worker.ready()
    if len(calls) == 2:
        os._exit(1)
    signal.pause()

os.fork = fork
code = Supervisor(run, socket.socket(), 2, Path(sys.argv[1])).run(lambda: None)
print(len(calls), code)
"""


@pytest.mark.nightly
def test_a_worker_that_cannot_be_forked_is_forked_later_and_the_others_serve(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", _WITHOUT_PROCESSES, tmp_path],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    begun = time.monotonic()
    try:
        _until(lambda: time.monotonic() > begun + 3 and len(children.read_text().split()) == 2)
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
    assert out == "5 0\n", err
    assert err.count("cannot be replaced") == 2


def _lives(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


@pytest.mark.nightly
def test_limits_hold_for_the_service_and_requests_are_finished(tmp_path: Path) -> None:
    """Of many connections of one address, as many are served as the limit says, over both workers."""
    limit = 6
    with workers(tmp_path, HTTP__MAX_CONNECTIONS_PER_ADDRESS=str(limit)) as running:
        _until(lambda: len(running.pids()) == 2)
        host, port = running.service.url.removeprefix("http://").split(":")
        opened = [socket.create_connection((host, int(port)), timeout=PATIENCE_S) for _ in range(4 * limit)]
        try:
            for each in opened:
                each.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
            answers = [(each, _answer(each)) for each in opened]
            served = [each for each, answer in answers if answer.startswith(b"HTTP/1.1 200")]
            refused = [each for each, answer in answers if answer.startswith(b"HTTP/1.1 503")]
            assert len(served) <= limit and len(served) + len(refused) == len(opened)
            assert served
            token = running.service.token("alice")
            body = json.dumps({"namespace": ["late"]}).encode()
            head = (
                f"POST {running.service.prefix}/namespaces HTTP/1.1\r\nHost: localhost\r\n"
                f"Authorization: Bearer {token}\r\nContent-Type: application/json\r\n"
                f"Content-Length: {len(body)}\r\n\r\n"
            )
            served[0].sendall(head.encode() + body[:5])
            time.sleep(0.5)
            running.supervisor.send_signal(signal.SIGTERM)
            time.sleep(0.5)
            served[0].sendall(body[5:])
            assert _answer(served[0]).startswith(b"HTTP/1.1 200")
        finally:
            for each in opened:
                each.close()
        assert running.supervisor.wait(PATIENCE_S) == 0


@pytest.mark.nightly
def test_a_worker_that_closes_the_catalog_is_not_ended_by_further_signals(tmp_path: Path) -> None:
    """The supervisor repeats its signal, and refusals that were counted still have to be recorded."""
    with workers(tmp_path) as running:
        _until(lambda: len(running.pids()) == 2)
        refused = 0
        for _ in range(12):
            with httpx.Client(base_url=running.service.url) as client:
                refused += sum(client.get("/v1/config").status_code == 401 for _ in range(3))
        pids = running.pids()
        running.supervisor.send_signal(signal.SIGTERM)
        while running.supervisor.poll() is None:
            for pid in filter(_lives, pids):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGTERM)
            time.sleep(0.002)
        assert running.supervisor.returncode == 0
        engine = running.service.lake.services.engine
        found = [each.record.decisions for each in read(engine, principal="", limit=1_000)]
    assert (refused, sum(found)) == (36, 36)


def _answer(connection: socket.socket) -> bytes:
    """Receive one answer with its body."""
    answer = b""
    while not answer.endswith(b"}"):
        received = connection.recv(64 * 1024)
        if not received:
            break
        answer += received
    return answer


@pytest.mark.nightly
def test_a_killed_worker_is_replaced_and_nothing_acknowledged_is_lost(served: Workers) -> None:
    service = served.service
    _prepare(service, "ab")
    kills = 3

    def act(table: str) -> set[str]:
        done = set()
        for turn in range(40):
            try:
                if _mark(service, table, f"mark-{turn}") == 200:
                    done.add(f"mark-{turn}")
            except httpx.TransportError:
                continue
        return done

    with ThreadPoolExecutor(2) as pool:
        running = [pool.submit(act, table) for table in "ab"]
        for _ in range(kills):
            before = served.pids()
            os.kill(min(before), signal.SIGKILL)
            _until(lambda before=before: len(served.pids()) == 2 and served.pids() != before)  # type: ignore[misc]
        told = {table: each.result() for table, each in zip("ab", running, strict=True)}
    assert all(told[table] <= _marks(service, table) for table in "ab")
    _until(lambda: httpx.get(f"{service.url}/healthz").json() == {"status": "ok"})
    assert served.log.read_text().count("and is replaced") == kills
    served.supervisor.send_signal(signal.SIGTERM)
    assert served.supervisor.wait(PATIENCE_S) == 0
    assert_sound(service.lake)
    lines = [json.loads(line) for line in (served.log.parent / "audit.jsonl").read_text().splitlines()]
    numbers: dict[str, set[int]] = {}
    for line in lines:
        numbers.setdefault(line["writer"], set()).add(line["sequence"])
    # No record of a chain is left out of the export, whichever worker died.
    for writer, found in numbers.items():
        assert found == set(range(min(found), max(found) + 1)), writer


def test_a_limit_counts_over_all_workers() -> None:
    rows, http = SharedRows(2), HttpSettings(max_connections=3, max_connections_per_address=2)
    first, second = (Connections(http, Metrics(), opened=Tally(rows, row)) for row in range(2))
    assert first.enter("a") is None and second.enter("a") is None
    assert "connections-of-address" in str(first.enter("a"))
    assert second.enter("b") is None
    assert "connections" in str(first.enter("c"))
    second.leave("b")
    assert first.enter("c") is None
    rows.clear(1)
    assert first.enter("a") is None
