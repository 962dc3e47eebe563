"""Every error has one answer, and what nobody foresaw tells nothing."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI
from pyiceberg import exceptions as iceberg

import catalog.kms.keystore
import catalog.storage.errors
from catalog.base.errors import CommitConflict, NoSuchTable, TableExists
from catalog.db.engine import open_database, write
from catalog.http import errors
from catalog.http.boundary import Boundary
from catalog.http.metrics import Metrics
from catalog.service import context as opening
from catalog.service.service_log import TextLines
from policy.errors import (
    CommitStateUnknown,
    LakewardenError,
    LocationNotAllowed,
    MetadataTampered,
    NotAuthenticated,
    PropertyInvalid,
    StateUnavailable,
)
from tests.support.http_calls import refused
from tests.support.service import Service, open_service
from tests.support.vectors import each_row

assert catalog.storage.errors and catalog.kms.keystore  # their errors belong to the tree


def _descendants(root: type[LakewardenError]) -> Iterator[type[LakewardenError]]:
    """What a service can raise; Spark's side has errors of its own."""
    for each in root.__subclasses__():
        if each.__module__.partition(".")[0] in {"catalog", "policy"}:
            yield each
        yield from _descendants(each)


def test_every_error_of_the_tree_has_a_status() -> None:
    tree = set(_descendants(LakewardenError))
    assert len(tree) > 25
    for error in tree:
        shape = errors.shape_of(error)
        assert shape is not None, f"{error.__name__} has no status"
        assert shape.status in {400, 401, 403, 404, 405, 408, 409, 413, 415, 422, 431, 500, 503}


def test_only_a_commit_in_doubt_is_a_server_error_without_retry() -> None:
    doubtful = {each for each in _descendants(LakewardenError) if errors.shape_of(each).status == 500}
    assert doubtful == {CommitStateUnknown}


@each_row(
    ("error", "status", "iceberg_type"),
    [
        (NoSuchTable("x"), 404, "NoSuchTableException"),
        (TableExists("x"), 409, "AlreadyExistsException"),
        (CommitConflict("x"), 409, "CommitFailedException"),
        (CommitStateUnknown("x"), 500, "CommitStateUnknownException"),
        (StateUnavailable("x"), 503, "ServiceUnavailableException"),
        (NotAuthenticated("x"), 401, "NotAuthorizedException"),
        (LocationNotAllowed("x"), 403, "LocationNotAllowed"),
        (MetadataTampered("x"), 403, "MetadataTampered"),
        (PropertyInvalid("x"), 400, "PropertyInvalid"),
    ],
)
def test_type_is_icebergs_where_clients_choose_by_it(
    error: LakewardenError, status: int, iceberg_type: str
) -> None:
    answer = errors.error_response(error)
    body = httpx.Response(answer.status_code, content=answer.body).json()["error"]
    assert (answer.status_code, body["code"], body["type"]) == (status, status, iceberg_type)
    assert body["lakewarden"] == type(error).__name__


def test_message_carries_rule_path_and_hint() -> None:
    error = LocationNotAllowed("No.", table="a.b", path="s3://x/y", rule="allowed-paths", hint="Do this.")
    body = httpx.Response(403, content=errors.error_response(error).body).json()["error"]
    assert body["message"] == "No. [table=a.b, path=s3://x/y, rule=allowed-paths] Do this."
    assert (body["rule"], body["hint"], body["table"]) == ("allowed-paths", "Do this.", "a.b")


def test_text_that_utf8_cannot_encode_is_still_an_answer() -> None:
    answer = errors.error_response(PropertyInvalid("half \ud800"))
    assert b"\\ud800" in answer.body


def test_not_authenticated_challenges() -> None:
    assert errors.error_response(NotAuthenticated("x")).headers["www-authenticate"].startswith("Bearer")


async def _call(app: FastAPI, path: str) -> httpx.Response:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://service") as client:
        return await client.get(path, headers={"X-Request-Id": "req-7"})


@pytest.mark.anyio
async def test_unforeseen_error_tells_the_request_id_and_nothing_else(
    caplog: pytest.LogCaptureFixture,
) -> None:
    app = FastAPI()
    app.add_middleware(Boundary, metrics=Metrics())

    @app.get("/boom")
    def boom() -> None:
        raise ZeroDivisionError("token lw_secret")

    with caplog.at_level(logging.DEBUG):
        answer = await _call(app, "/boom")
    error = refused(answer, 500, "InternalError")
    assert "req-7" in error["message"]
    logged = "\n".join(TextLines().format(record) for record in caplog.records)
    assert "lw_secret" not in answer.text + caplog.text + logged
    assert "ZeroDivisionError" in logged and "test_http_errors" in logged


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.mark.nightly
def test_locked_database_is_503_in_bounded_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Writers wait shorter than usual, so that the test does, too."""
    monkeypatch.setattr(opening, "open_database", partial(open_database, busy_timeout_s=1.0))
    with (
        open_service(tmp_path) as service,
        service.client() as client,
        write(service.lake.services.engine),
    ):
        answer = client.post(f"{service.prefix}/namespaces", json={"namespace": ["db"]})
    assert refused(answer, 503, "StateUnavailable")["type"] == "ServiceUnavailableException"
    assert answer.headers["retry-after"]


def test_standard_client_raises_its_own_exceptions(served: Service, namespace: str) -> None:
    stock = served.iceberg()
    with pytest.raises(iceberg.NoSuchTableError):
        stock.load_table((namespace, "missing"))
    with pytest.raises(iceberg.NamespaceAlreadyExistsError):
        stock.create_namespace(namespace)
    with pytest.raises(iceberg.NoSuchNamespaceError):
        stock.load_namespace_properties("missing")
    with pytest.raises(iceberg.ForbiddenError):
        served.iceberg("bob").load_table((namespace, "missing"))
