"""The way to the catalog: refusals arrive as what they were, and whatever else answers is not believed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

import lakewarden
from catalog.base import errors as catalog_errors
from catalog.base.errors import NoSuchTable
from catalog.client import plan
from catalog.client.errors import CatalogUnavailable, refusal
from catalog.http.errors import error_response, unforeseen_response
from policy import errors as policy_errors
from policy.errors import (
    CommitStateUnknown,
    LakewardenError,
    NotSupportedYet,
    PropertyInvalid,
    Refused,
    RequestInvalid,
    Unavailable,
)
from tests.support.canned_server import Canned, canned_server
from tests.support.certificates import certificate
from tests.support.lake import ALICE
from tests.support.lossy_proxy import LossyProxy, lossy_proxy
from tests.support.service import Service, open_service
from tests.support.vectors import each_row

Make = Callable[..., str]
TOKEN = "lw_not_told"
SCHEMA = Schema(NestedField(1, "id", LongType()))
ROWS = pa.table({"id": [1]})
CLASSES = sorted(
    {
        each
        for module in (policy_errors, catalog_errors)
        for each in vars(module).values()
        if isinstance(each, type) and issubclass(each, LakewardenError) and each is not LakewardenError
    },
    key=lambda each: each.__name__,
)
ABOUT = [
    {},
    {"rule": "r", "hint": "Do it."},
    {"table": "db.t", "snapshot": 7, "path": "s3://b/a [x], rule=y]", "rule": "r", "hint": "Do it."},
    {"path": "file:///a"},
    {"table": "db.t"},
]


@each_row("about", ABOUT)
@each_row("kind", CLASSES, ids=lambda each: each.__name__)
def test_every_refusal_comes_back_as_what_it_was(kind: type[LakewardenError], about: dict) -> None:
    raised = kind("It is so [or so].", **about)
    answer = error_response(raised)
    found = refusal(answer.status_code, json.loads(answer.body))
    assert type(found) is kind
    assert str(found) == str(raised)
    assert vars(found) == vars(raised)


@pytest.mark.parametrize(
    ("status", "nearest"),
    [(400, RequestInvalid), (403, Refused), (409, catalog_errors.CommitConflict), (503, Unavailable)],
)
def test_a_refusal_of_a_later_release_is_the_nearest_known_one(
    status: int, nearest: type[LakewardenError]
) -> None:
    found = refusal(status, {"error": {"message": "so", "lakewarden": "OfTheFuture", "rule": "new"}})
    assert (type(found), found.message, found.rule) == (nearest, "so", "new")


def test_a_fault_of_the_service_is_no_refusal() -> None:
    answer = unforeseen_response("request-1")
    found = refusal(answer.status_code, json.loads(answer.body))
    assert isinstance(found, CommitStateUnknown)
    assert "request-1" in found.message


@pytest.fixture
def other() -> Iterator[Canned]:
    with canned_server() as running:
        yield running


@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize("status", [200, 204, 302, 401, 403, 404, 500, 502])
@pytest.mark.parametrize("body", ["", "<html>", "{}", '{"error": {"message": "no"}}', "ARROW1"])
def test_what_is_not_the_catalog_is_not_believed(other: Canned, status: int, body: str) -> None:
    other.says(status, body)
    with pytest.raises(CatalogUnavailable) as caught:
        lakewarden.connect(other.url, TOKEN).table("db.t").scan().to_arrow()
    assert TOKEN not in str(caught.value)


def test_no_redirect_is_followed(other: Canned) -> None:
    with canned_server() as elsewhere:
        other.says(307, "", Location=elsewhere.url)
        with pytest.raises(CatalogUnavailable):
            lakewarden.connect(other.url, TOKEN).table("db.t").scan().to_arrow()
        assert elsewhere.asked == []


def test_no_proxy_of_the_environment_is_taken(other: Canned, monkeypatch: pytest.MonkeyPatch) -> None:
    with canned_server() as proxy:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url)
        with pytest.raises(CatalogUnavailable):
            lakewarden.connect(other.url, TOKEN).table("db.t").scan().to_arrow()
        assert proxy.asked == [] and other.asked


def test_tokens_go_in_headers_alone(other: Canned) -> None:
    with pytest.raises(CatalogUnavailable):
        lakewarden.connect(other.url, TOKEN).table("a.b.t").scan().to_arrow()
    (asked,) = other.asked
    assert asked.path == "/engine/v1/tables/a%1Fb/t/plan"
    assert asked.headers["authorization"] == f"Bearer {TOKEN}"
    assert TOKEN not in asked.path and TOKEN.encode() not in asked.body


def test_an_engines_token_registers_a_key_and_goes_nowhere_else(other: Canned) -> None:
    key_id = "00000000-0000-4000-8000-000000000000"
    other.says(200, f'{{"key-id": "{key_id}"}}')
    with pytest.raises(CatalogUnavailable):
        lakewarden.connect(other.url, TOKEN, engine_token="lw_engine").table("a.b.t").scan().to_arrow()
    registered, *asked = other.asked
    assert (registered.path, registered.headers["authorization"]) == ("/engine/v1/keys", "Bearer lw_engine")
    assert [each.headers["authorization"] for each in asked] == [f"Bearer {TOKEN}"]
    assert all(f'keyid="{key_id}"' in each.headers["signature-input"] for each in asked)
    assert not any("lw_engine" in repr(each) for each in asked)


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "127.0.0.1:8181",
        "ftp://host",
        "file:///x",
        "http://",
        "http://user:pass@host",
        "http://h?q=1",
        "http://[::1",
    ],
)
def test_an_address_that_is_none_is_refused_and_its_password_not_repeated(uri: str) -> None:
    with pytest.raises(RequestInvalid) as caught:
        lakewarden.connect(uri, TOKEN)
    assert "pass" not in str(caught.value)


@pytest.mark.parametrize("host", ["lake.example", "10.0.0.1", "127.0.0.1.example", "[::2]"])
def test_another_host_is_asked_over_tls_alone(host: str) -> None:
    """Attack: someone on the network takes the token."""
    with pytest.raises(RequestInvalid, match="not https"):
        lakewarden.connect(f"http://{host}:8181", TOKEN)
    lakewarden.connect(f"https://{host}", TOKEN)


@pytest.mark.parametrize("named", ["argument", "variable"])
def test_a_catalog_is_believed_by_its_authority_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    own, other = certificate(tmp_path), certificate(tmp_path)
    own.chmod(0o600)
    tls = {"HTTP__TLS__CERTIFICATE_FILE": own, "HTTP__TLS__KEY_FILE": own}
    with open_service(tmp_path, **tls) as service:
        for trusted in (own, other, None):
            given = trusted if named == "argument" else None
            monkeypatch.setenv("LAKEWARDEN_CA_FILE", str(trusted or "") if named == "variable" else "")
            connection = lakewarden.connect(service.url, service.token("alice"), ca_file=given)
            expected = (NoSuchTable, "none") if trusted == own else (CatalogUnavailable, "not trusted")
            with pytest.raises(expected[0], match=expected[1]):
                connection.table("db.none").scan().to_arrow()


def test_authorities_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    for file in (tmp_path / "none", tmp_path / "empty"):
        with pytest.raises(RequestInvalid, match="cannot be read"):
            lakewarden.connect("https://lake.example", TOKEN, ca_file=file)


def test_settings_of_s3_that_are_not_understood_are_not_repeated() -> None:
    with pytest.raises(PropertyInvalid) as caught:
        lakewarden.connect("http://127.0.0.1:1", TOKEN, s3={"secret_access_key": "needle", "nope": "needle"})
    assert "nope" in str(caught.value) and "needle" not in str(caught.value)
    assert caught.value.__cause__ is None and caught.value.__suppress_context__


@pytest.mark.parametrize("name", ["", "t", "db.", ".t", "db..t", "db/t.x"])
def test_a_name_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(RequestInvalid):
        lakewarden.connect("http://127.0.0.1:1", TOKEN).table(name)


@pytest.fixture
def lossy(served: Service) -> Iterator[LossyProxy]:
    with lossy_proxy(served.url) as proxy:
        yield proxy


@pytest.mark.nightly
@pytest.mark.parametrize("operation", ["/load", "/plan", "/writes", "/commit"])
def test_one_lost_answer_is_made_good(make: Make, served: Service, lossy: LossyProxy, operation: str) -> None:
    table = lakewarden.connect(lossy.url, served.token(ALICE)).table(make(SCHEMA))
    lossy.lose_answers(operation, 1)
    assert table.append(ROWS) is not None
    assert table.scan().to_arrow().equals(ROWS)
    assert lossy.lost_all(operation)


def test_a_commit_whose_answer_is_lost_for_good_is_unknown_and_stands(
    make: Make, served: Service, lossy: LossyProxy
) -> None:
    table = lakewarden.connect(lossy.url, served.token(ALICE)).table(make(SCHEMA))
    lossy.lose_answers("/commit", 2)
    with pytest.raises(CommitStateUnknown, match="Check whether it has before you try again"):
        table.append(ROWS)
    assert table.scan().to_arrow().equals(ROWS)


def test_a_plan_whose_answer_is_lost_for_good_is_unavailable(
    make: Make, served: Service, lossy: LossyProxy
) -> None:
    table = lakewarden.connect(lossy.url, served.token(ALICE)).table(make(SCHEMA))
    lossy.lose_answers("/plan", 2)
    with pytest.raises(CatalogUnavailable):
        table.scan().to_arrow()


def test_a_catalog_that_is_away_is_said_to_be(make: Make, served: Service, lossy: LossyProxy) -> None:
    table = lakewarden.connect(lossy.url, served.token(ALICE)).table(make(SCHEMA))
    with lossy.cut(), pytest.raises(CatalogUnavailable, match="cannot be reached"):
        table.append(ROWS)
    assert table.append(ROWS) is not None


def test_a_plan_that_asks_for_what_is_unknown_here_is_refused(
    make: Make, alice: lakewarden.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = alice.table(make(SCHEMA))
    table.append(ROWS)
    known = plan._COLUMNS
    monkeypatch.setattr("catalog.client.plan._COLUMNS", known - {"record_count"})
    with pytest.raises(NotSupportedYet, match="record_count"):
        table.scan().to_arrow()
