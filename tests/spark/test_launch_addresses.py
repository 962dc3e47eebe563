"""What answers at the launch address is the catalog, or nothing is believed."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx
import pytest

from spark_ext.configuration import CATALOG_CLASS
from tests.support.lake import ALICE
from tests.support.service import Service, open_service
from tests.support.spark_process import spark_process

pytestmark = pytest.mark.nightly

SCRIPT = """
def outcome(statement):
    try:
        return [list(row) for row in spark.sql(statement).collect()]
    except Exception as error:
        return [error.getCondition(), str(error)]


asked = told()
for name in asked["catalogs"]:
    spark.conf.set(f"lakewarden.catalog.{name}.token", given["tokens"]["alice"])
found = {name: outcome(f"SHOW NAMESPACES IN {name}") for name in asked["catalogs"]}
answer(found | {statement: outcome(statement) for statement in asked["statements"]})
"""
CLOSED = "http://127.0.0.1:1"

#: In order; the connection breaks before the first answer of each operation, at `lost` before every answer.
CREATE_NAMESPACE = "CREATE NAMESPACE broken.db"
CREATE_TABLE = "CREATE TABLE broken.db.t (id INT)"
READ = "SELECT count(*) FROM broken.db.t"
NEVER_ANSWERED = "CREATE NAMESPACE lost.unanswered"


_HANDED_ON = ("Authorization", "Content-Type", "Idempotency-Key")


class _Impostor(BaseHTTPRequestHandler):
    """Answers as the first part of the path says, and keeps what it was sent."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        server: Any = self.server
        server.seen.append((self.path, self.headers.get("Authorization")))
        status, headers, body = server.answers[self.path.split("/")[1]]
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)
        self.close_connection = "Content-Length" in headers

    def do_POST(self) -> None:
        """Hand the request on, and lose the first answer to each operation, or every answer."""
        server: Any = self.server
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        headers = {name: value for name, value in self.headers.items() if name in _HANDED_ON}
        catalog, _, path = self.path.removeprefix("/").partition("/")
        answer = httpx.post(f"{server.service.url}/{path}", content=body, headers=headers, timeout=60)
        operation = (catalog, path.rpartition("/")[2])
        keys = server.posted.setdefault(operation, [])
        keys.append(headers.get("Idempotency-Key"))
        if catalog == "lost" or len(keys) == 1:
            self.connection.shutdown(socket.SHUT_RDWR)
            self.close_connection = True
            return
        self.send_response(answer.status_code)
        self.send_header("Content-Length", str(len(answer.content)))
        self.end_headers()
        self.wfile.write(answer.content)

    def log_message(self, *_: object) -> None:
        """Nothing on standard error."""


@contextmanager
def _impostor(service: Service) -> Iterator[Any]:
    server: Any = ThreadingHTTPServer(("127.0.0.1", 0), _Impostor)
    html = {"Content-Type": "text/html"}
    server.service = service
    server.seen, server.posted = [], {}
    server.answers = {
        "redirects": (307, {"Location": f"{service.url}/v1/config"}, b""),
        "html": (200, html, b"<html>Please log in</html>"),
        "proxy": (502, html, b"<html>Bad gateway</html>"),
        "breaks": (200, {"Content-Length": "1000"}, b'{"overrides": {'),
        "empty": (200, {}, b""),
        "other": (404, {}, b'{"error": "no such page"}'),
        "broken": (200, {}, b'{"overrides": {"prefix": "lakewarden"}, "namespaces": []}'),
        "lost": (200, {}, b'{"overrides": {"prefix": "lakewarden"}, "namespaces": []}'),
    }
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _launch(catalogs: Mapping[str, str]) -> dict[str, str]:
    settings = {f"spark.sql.catalog.{name}": CATALOG_CLASS for name in catalogs}
    return settings | {f"spark.sql.catalog.{name}.uri": uri for name, uri in catalogs.items()}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """What each of many catalogs answered, and what the impostor was sent."""
    with open_service(tmp_path_factory.mktemp("addresses")) as service, _impostor(service) as impostor:
        at = f"http://127.0.0.1:{impostor.server_port}"
        catalogs = {
            **{name: f"{at}/{name}" for name in impostor.answers},
            "good": service.url,
            "slash": f"{service.url}/",
            "closed": CLOSED,
            "user": service.url.replace("http://", "http://alice:hunter2@"),
            "query": f"{service.url}?x=hunter2",
            "ftp": "ftp://127.0.0.1/",
            "nothost": "http:///v1",
            "option": service.url,
            "elsewhere": "http://lake.example",
        }
        settings = {**_launch(catalogs), "spark.sql.catalog.option.insecure": "true"}
        with spark_process(service, SCRIPT, settings=settings, engine=None) as process:
            statements = [CREATE_NAMESPACE, CREATE_TABLE, READ, NEVER_ANSWERED]
            process.tell({"catalogs": list(catalogs), "statements": statements})
            answers = process.answer()
            log = process.log.read_text()
        yield {
            "answers": answers,
            "seen": impostor.seen,
            "posted": impostor.posted,
            "token": service.token(ALICE),
            "log": log,
        }


def test_good_address(found: dict[str, Any]) -> None:
    assert found["answers"]["good"] == []
    assert found["answers"]["slash"] == []


@pytest.mark.parametrize("name", ["redirects", "html", "proxy", "breaks", "empty", "other", "closed"])
def test_what_is_not_the_catalog_is_not_believed(found: dict[str, Any], name: str) -> None:
    condition, message = found["answers"][name]
    assert condition == "LAKEWARDEN.CATALOG_UNAVAILABLE", message


def test_redirect_is_not_followed(found: dict[str, Any]) -> None:
    assert [path for path, _ in found["seen"] if path.startswith("/redirects")] == ["/redirects/v1/config"]


@pytest.mark.parametrize("name", ["user", "query", "ftp", "nothost", "option", "elsewhere"])
def test_address_with_more_than_an_address(found: dict[str, Any], name: str) -> None:
    condition, message = found["answers"][name]
    assert condition == "LAKEWARDEN.CATALOG_NOT_TRUSTED", message
    assert "hunter2" not in message


def test_request_that_changes_something_is_sent_again_under_its_key(found: dict[str, Any]) -> None:
    """The catalog carries it out once: nobody is told that the namespace or the table exists already."""
    for statement, operation in ((CREATE_NAMESPACE, "namespaces"), (CREATE_TABLE, "tables")):
        assert found["answers"][statement] == []
        first, second = found["posted"]["broken", operation]
        assert first is not None and first == second


def test_request_that_changes_something_and_is_never_answered(found: dict[str, Any]) -> None:
    condition, message = found["answers"][NEVER_ANSWERED]
    assert condition == "LAKEWARDEN.COMMIT_STATE_UNKNOWN", message
    first, *others = found["posted"]["lost", "namespaces"]
    assert first is not None and others == [first, first]


def test_request_that_only_reads_is_sent_again(found: dict[str, Any]) -> None:
    """The table is there: the catalog had done what it could not answer."""
    assert found["answers"][READ] == [[0]]
    assert len(found["posted"]["broken", "load"]) >= 2
    assert len(found["posted"]["broken", "plan"]) == 2


def test_token_is_in_no_message_and_no_log(found: dict[str, Any]) -> None:
    assert found["token"] not in json.dumps(found["answers"])
    assert found["token"] not in found["log"]
    assert {authorization for _, authorization in found["seen"]} == {f"Bearer {found['token']}"}
