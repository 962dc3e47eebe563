"""One attempt at a request at a time: repetitions wait for it, its lease passes on, its outcome expires."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import select, update

from catalog.base import crash_points
from catalog.db.engine import read, write
from catalog.db.schema import lw_idempotency
from catalog.http import idempotency as http_idempotency
from catalog.http.server import served as serving
from catalog.service.services import Services
from catalog.state import idempotency
from catalog.state.idempotency import Attempt, IdempotencyKeys, Kept, KeyedRequest
from catalog.writes.steps import Writes
from policy.errors import StateUnavailable
from tests.support.hooks import once_at
from tests.support.http_calls import commits, new_key, new_table, refused, written_file
from tests.support.lake import ALICE, BOB
from tests.support.postgres import PostgresServer
from tests.support.service import Service, open_service

PATIENCE_S = 30.0


@pytest.fixture(params=["one process", "two replicas", "two replicas on PostgreSQL"])
def replicas(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Service, Service]]:
    """Two addresses of one catalog."""
    overrides = {}
    if request.param.endswith("PostgreSQL"):
        postgres: PostgresServer = request.getfixturevalue("postgres")
        overrides["DATABASE__URL"] = postgres.create_database()
    with ExitStack() as stack:
        first = stack.enter_context(open_service(tmp_path, **overrides))
        if request.param == "one process":
            yield first, first
            return
        other = stack.enter_context(Services.open(first.lake.settings, first.lake.kms))
        yield first, Service(stack.enter_context(serving(other)), first.lake, {}, first._tokens)


def both(
    monkeypatch: pytest.MonkeyPatch, point: str, first: Callable[[], Any], second: Callable[[], Any]
) -> tuple[Any, Any]:
    """What two requests are answered, of which the second comes while the first stands at a point."""
    reached, go_on, seen_under_way = threading.Event(), threading.Event(), threading.Event()
    begin = IdempotencyKeys.begin

    def begun(keys: IdempotencyKeys, request: KeyedRequest) -> Attempt | Kept | None:
        found = begin(keys, request)
        if found is None:
            seen_under_way.set()
        return found

    def stand() -> None:
        reached.set()
        assert go_on.wait(PATIENCE_S)

    monkeypatch.setattr(IdempotencyKeys, "begin", begun)
    with crash_points.hooked(once_at(point, stand)), ThreadPoolExecutor(2) as pool:
        one = pool.submit(first)
        assert reached.wait(PATIENCE_S)
        two = pool.submit(second)
        assert seen_under_way.wait(PATIENCE_S)
        assert not two.done()
        go_on.set()
        return one.result(), two.result()


@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize("point", ["metadata-written", "prepared"])
def test_repetition_waits_for_the_first_request(
    replicas: tuple[Service, Service], monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    service, other = replicas
    service.lake.catalog().create_namespace("n")
    url, headers = f"{service.prefix}/namespaces/n/tables", new_key()
    body = {"name": "t", "schema": {"type": "struct", "fields": []}}
    with service.client() as one, other.client() as two:
        answers = both(
            monkeypatch,
            point,
            lambda: one.post(url, json=body, headers=headers),
            lambda: two.post(url, json=body, headers=headers),
        )
    assert [each.status_code for each in answers] == [200, 200]
    assert answers[0].json() == answers[1].json()
    assert commits(service, "n.t") == 1


@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize("point", ["write:committing", "write:built", "published"])
def test_commit_of_a_write_waits_for_the_same_commit(
    replicas: tuple[Service, Service], monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    service, other = replicas
    service.lake.catalog().create_namespace("n")
    with service.client() as one, other.client() as two:
        new_table(one, service.prefix, "n")
        begun = one.post("/engine/v1/tables/n/t/writes").json()
        url = f"/engine/v1/writes/{begun['write-id']}/commit"
        body = {"operation": "append", "added": [written_file(begun)]}
        answers = both(monkeypatch, point, lambda: one.post(url, json=body), lambda: two.post(url, json=body))
    assert [each.status_code for each in answers] == [200, 200]
    assert answers[0].json() == answers[1].json()
    assert len(answers[0].json()["metadata"]["snapshots"]) == 1
    assert commits(service, "n.t") == 2


def test_repetition_does_not_wait_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_idempotency, "WAIT_S", 0.1)
    with open_service(tmp_path) as service, service.client() as client:
        begun = KeyedRequest(ALICE, f"write/{uuid4()}", "0" * 64, None)
        assert isinstance(service.lake.services.idempotency.begin(begun), Attempt)
        monkeypatch.setattr(http_idempotency, "commit_of_write", lambda _: begun)
        monkeypatch.setattr("catalog.http.routing.commit_of_write", lambda _: begun)
        monkeypatch.setattr(Writes, "screen", lambda *_: None)
        answer = client.post(f"/engine/v1/writes/{uuid4()}/commit", json={"operation": "append"})
        refused(answer, 500, "CommitStateUnknown", "idempotency-key")


REQUEST = KeyedRequest(ALICE, "key", "0" * 64, 200)


@pytest.fixture
def keys(service: Service) -> IdempotencyKeys:
    """The keys of a catalog."""
    return service.lake.services.idempotency


def _set(service: Service, **values: object) -> None:
    with write(service.lake.services.engine) as connection:
        connection.execute(update(lw_idempotency).values(**values))


def _begun(keys: IdempotencyKeys, request: KeyedRequest = REQUEST) -> Attempt:
    attempt = keys.begin(request)
    assert isinstance(attempt, Attempt)
    return attempt


def test_attempt_that_was_taken_over_has_no_effect(service: Service, keys: IdempotencyKeys) -> None:
    first = _begun(keys)
    assert keys.begin(REQUEST) is None
    _set(service, lease_ms=0)
    second = _begun(keys)
    catalog = service.lake.catalog()
    with idempotency.attempting(first), pytest.raises(StateUnavailable, match="took over"):
        catalog.create_namespace("n")
    assert catalog.list_namespaces() == []
    keys.end(first, Kept(400, None, "RequestInvalid", "x"))
    with idempotency.attempting(second):
        catalog.create_namespace("n")
    assert keys.begin(REQUEST) == Kept(200)


def test_attempt_under_way_keeps_its_lease(service: Service, keys: IdempotencyKeys) -> None:
    attempt = _begun(keys)
    _set(service, lease_ms=0)
    keys.renew(attempt)
    assert keys.begin(REQUEST) is None


def test_outcome_expires(service: Service, keys: IdempotencyKeys) -> None:
    attempt = _begun(keys)
    keys.end(attempt, Kept(409, None, "CommitConflict", None))
    assert keys.begin(REQUEST) == Kept(409, None, "CommitConflict", None)
    _set(service, expires_ms=0)
    _begun(keys)


def test_expired_outcomes_are_deleted(service: Service, keys: IdempotencyKeys) -> None:
    keys.end(_begun(keys), Kept(409, None, "CommitConflict", None))
    _set(service, expires_ms=0, lease_ms=0)
    keys._pruned_ms = 0
    _begun(keys, KeyedRequest(BOB, "other", "0" * 64, 200))
    with read(service.lake.services.engine) as connection:
        assert connection.scalars(select(lw_idempotency.c.principal)).all() == [BOB]


def test_a_user_cannot_fill_the_database(
    service: Service, keys: IdempotencyKeys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(idempotency, "MAX_RECORDS", 2)
    for number in range(2):
        _begun(keys, KeyedRequest(ALICE, str(number), "0" * 64, 200))
    with pytest.raises(StateUnavailable, match="2 idempotency keys in use"):
        keys.begin(KeyedRequest(ALICE, "3", "0" * 64, 200))
    _begun(keys, KeyedRequest(BOB, "3", "0" * 64, 200))
