"""Bodies and addresses that mean two things, or too much, are refused; nothing is half-created."""

from __future__ import annotations

import json
import select
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from fastapi.routing import iter_route_contexts

from catalog.http import routing
from catalog.http.app import create_app
from catalog.http.boundary import decoded_path
from catalog.http.routing import document_of
from catalog.http.screening import SMALL_BODY, SMALL_ELEMENTS, Bounds, bounds_of
from policy.errors import NotAuthorized, RequestInvalid
from tests.support.http_calls import SCHEMA, refused, tables_of
from tests.support.service import Service, open_service

JSON = {"Content-Type": "application/json"}
LIMIT = 20_000


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service that reads little."""
    root: Path = tmp_path_factory.mktemp("lake")
    with open_service(root, HTTP__MAX_BODY_BYTES=LIMIT) as running:
        yield running


def _deep(levels: int) -> str:
    return "[" * levels + "]" * levels


BROKEN = {
    "name twice": '{"namespace": ["a"], "namespace": ["b"]}',
    "name twice deep inside": '{"namespace": ["a"], "properties": {"x": "1", "x": "2"}}',
    "not a number": '{"namespace": ["a"], "x": NaN}',
    "infinity": '{"namespace": ["a"], "x": -Infinity}',
    "deep": '{"namespace": ["a"], "x": ' + _deep(100) + "}",
    "very deep": _deep(9_000),
    "truncated": '{"namespace": ["a"',
    "two documents": '{"namespace": ["a"]} {}',
    "not utf-8": b'{"namespace": ["\xff"]}',
    "utf-16": '{"namespace": ["a"]}'.encode("utf-16"),
    "half a surrogate pair": '{"namespace": ["a"], "properties": {"x": "\\ud800"}}',
    "half a surrogate pair as a name": '{"namespace": ["a"], "properties": {"\\udc00": "x"}}',
    "nul": '{"namespace": ["a"], "properties": {"x": "a\\u0000b"}}',
    "number of a thousand digits": '{"namespace": ["a"], "x": ' + "9" * 5_000 + "}",
}


@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize("body", BROKEN.values(), ids=BROKEN.keys())
def test_ambiguous_json_is_refused(served: Service, alice: httpx.Client, body: str | bytes) -> None:
    before = alice.get(f"{served.prefix}/namespaces").json()
    refused(
        alice.post(f"{served.prefix}/namespaces", content=body, headers=JSON), 400, "RequestInvalid", "json"
    )
    assert alice.get(f"{served.prefix}/namespaces").json() == before


@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize("body", ["null", "[]", '"x"', "7", "{}", '{"namespace": "a"}', '{"namespace": [1]}'])
def test_json_of_another_shape_is_refused(served: Service, alice: httpx.Client, body: str) -> None:
    answer = alice.post(f"{served.prefix}/namespaces", content=body, headers=JSON)
    refused(answer, 400, "RequestInvalid", "request")


def test_whole_surrogate_pair_is_a_character(served: Service, alice: httpx.Client, namespace: str) -> None:
    answer = alice.post(
        f"{served.prefix}/namespaces/{namespace}/properties",
        content='{"updates": {"owner": "\\ud83d\\ude00"}}',
        headers=JSON,
    )
    assert answer.status_code == 200
    assert alice.get(f"{served.prefix}/namespaces/{namespace}").json()["properties"] == {"owner": "😀"}


def test_declared_size_over_the_bound_is_refused_unread(served: Service) -> None:
    """The answer comes although the body never does."""
    address = urlsplit(served.url)
    head = (
        f"POST {served.prefix}/namespaces HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        f"Authorization: Bearer {served.token('alice')}\r\nContent-Length: {LIMIT + 1}\r\n\r\n"
    )
    with socket.create_connection((address.hostname, address.port), timeout=10) as connection:
        connection.sendall(head.encode())
        assert connection.recv(4096).startswith(b"HTTP/1.1 413 ")


def test_chunked_body_over_the_bound_is_refused(served: Service, alice: httpx.Client) -> None:
    def chunks() -> Iterator[bytes]:
        yield b'{"namespace": ["huge"], "properties": {"x": "'
        for _ in range(30):
            yield b"a" * 1_000

    answer = alice.post(f"{served.prefix}/namespaces", content=chunks(), headers=JSON)
    error = refused(answer, 413, "BodyTooLarge", "body-size")
    assert error["type"] == "BadRequestException"


def test_body_at_the_bound_is_read(served: Service, alice: httpx.Client, namespace: str) -> None:
    body = json.dumps({"updates": {"x": "y"}})
    answer = alice.post(
        f"{served.prefix}/namespaces/{namespace}/properties",
        content=body + " " * (LIMIT - len(body)),
        headers=JSON,
    )
    assert answer.status_code == 200


SMALL_BODIES = [
    ("POST", "{prefix}/namespaces"),
    ("POST", "{prefix}/namespaces/db/properties"),
    ("POST", "{prefix}/namespaces/db/register"),
    ("POST", "{prefix}/tables/rename"),
    ("PATCH", "/admin/v1/tables/db/t"),
    ("POST", "/admin/v1/tokens"),
]
SCREENED = [
    ("POST", "{prefix}/namespaces/db/tables"),
    ("POST", "{prefix}/namespaces/db/tables/t"),
    ("POST", "{prefix}/namespaces/db/tables/t/plan"),
    ("POST", "/engine/v1/namespaces/db/tables"),
    ("POST", "/engine/v1/namespaces/db/staged-writes"),
    ("POST", "/engine/v1/tables/db/t/plan"),
    ("POST", "/engine/v1/tables/db/t/inspect"),
    ("POST", "/engine/v1/tables/db/t/rewrites"),
    ("POST", "/engine/v1/tables/db/t/rewrites/position-deletes"),
    ("POST", "/engine/v1/tables/db/t/whole-files"),
    ("POST", "/engine/v1/tables/db/t/alter"),
    ("POST", "/engine/v1/tables/db/t/replace"),
    ("POST", "/engine/v1/views/db/v/tables/load"),
    ("POST", "/engine/v1/views/db/v/tables/plan"),
]


@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize(("method", "path"), SMALL_BODIES)
def test_large_body_of_a_small_operation_is_refused(service: Service, method: str, path: str) -> None:
    """Attack: a user with a token, and no permission at all, makes the service parse what it then refuses."""
    body = _of_size(SMALL_BODY + 1)
    with service.client("nobody") as nobody:
        answer = nobody.request(method, path.format(prefix=service.prefix), content=body, headers=JSON)
    refused(answer, 413, "BodyTooLarge", "body-size")


@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize(("method", "path"), SCREENED)
def test_a_caller_without_permissions_is_refused_before_the_body(
    service: Service, method: str, path: str
) -> None:
    """The answer comes although the body never does."""
    answer = _head_alone(service, "nobody", method, path.format(prefix=service.prefix))
    assert answer.startswith("HTTP/1.1 403 ") and '"NotAuthorized"' in answer


def test_a_write_of_another_user_is_refused_before_the_body(service: Service) -> None:
    answer = _head_alone(service, "nobody", "POST", "/engine/v1/writes/absent/commit")
    assert answer.startswith("HTTP/1.1 400 ") and '"rule": "write-id"' in answer


def test_large_policies_are_read_for_administrators_alone(service: Service) -> None:
    """A user to whom policies are delegated sends small documents."""
    answer = _head_alone(service, "nobody", "POST", "/admin/v1/policies/changes")
    assert answer.startswith("HTTP/1.1 413 ")


def test_no_operation_reads_a_large_body_of_a_caller_without_permissions(service: Service) -> None:
    services, nobody = service.lake.services, service.lake.caller("nobody")
    small = Bounds.small(services.settings.http)
    assert small == Bounds(SMALL_BODY, SMALL_ELEMENTS)
    parts = {"namespace": "db", "table": "t", "view": "v", "write_id": "absent"}
    refusals = 0
    for route in iter_route_contexts(create_app(services).routes):
        try:
            assert bounds_of(route.endpoint, services, nobody, parts) == small
        except (NotAuthorized, RequestInvalid):
            refusals += 1
    assert refusals == len(SCREENED) + 1


def test_large_body_of_a_commit_is_read(service: Service) -> None:
    with service.client() as alice:
        path = f"{service.prefix}/namespaces/db/tables"
        answer = alice.post(path, content=_of_size(SMALL_BODY + 1), headers=JSON)
    refused(answer, 400, "RequestInvalid", "request")


@pytest.mark.parametrize("operation", ["plan", "rewrites", "whole-files"])
def test_large_filter_is_refused(service: Service, operation: str) -> None:
    """Attack: a user who can read makes the service parse bodies of the size of a commit."""
    answer = _head_alone(service, "alice", "POST", f"/engine/v1/tables/db/t/{operation}")
    assert answer.startswith("HTTP/1.1 413 ")


def test_elements_of_a_small_body_are_bounded(service: Service) -> None:
    body = {"namespace": ["many"], "properties": {str(each): "" for each in range(SMALL_ELEMENTS // 2)}}
    with service.client("nobody") as nobody:
        answer = nobody.post(f"{service.prefix}/namespaces", json=body)
    refused(answer, 400, "RequestInvalid", "json-elements")


def test_bodies_share_a_bound(tmp_path: Path) -> None:
    """Attack: many large bodies at a time take the memory of the service."""
    with open_service(tmp_path, HTTP__MAX_BODIES_BYTES=1000) as service, service.client() as alice:
        path = f"{service.prefix}/namespaces"
        answer = alice.post(path, content=_of_size(1001), headers=JSON)
        refused(answer, 503, "TooManyBodies", "bodies-size")
        assert answer.headers["retry-after"] == "1"
        for _ in range(3):
            assert alice.post(path, content=_of_size(900), headers=JSON).status_code == 400


def test_bodies_of_one_user_leave_room_for_others(tmp_path: Path) -> None:
    """Attack: many bodies of a user without permissions, each without its last byte, keep everybody out."""
    limits = {"HTTP__MAX_BODIES_BYTES": 4000, "HTTP__MAX_BODY_BYTES": 1000}
    with open_service(tmp_path, **limits) as service, ExitStack() as stack:
        alice = stack.enter_context(service.client())
        head = (
            f"POST {service.prefix}/namespaces HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            f"Authorization: Bearer {service.token('nobody')}\r\nContent-Length: 1000\r\n\r\n"
        )
        held = [stack.enter_context(_sent(service, head.encode() + b" " * 999)) for _ in range(4)]
        # Two have no room, and are told so; the two others are waited for.
        deadline = time.monotonic() + 20
        while len(select.select(held, [], [], 1)[0]) < 2:
            assert time.monotonic() < deadline, "no body was refused"
        answer = alice.post(f"{service.prefix}/namespaces", content=_of_size(900), headers=JSON)
        assert answer.status_code == 400, answer.text


def _sent(service: Service, data: bytes) -> socket.socket:
    address = urlsplit(service.url)
    connection = socket.create_connection((address.hostname, address.port), timeout=20)
    connection.sendall(data)
    return connection


def _head_alone(service: Service, user: str, method: str, path: str) -> str:
    """The answer to a request whose large body is declared and never sent."""
    address = urlsplit(service.url)
    head = (
        f"{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        f"Authorization: Bearer {service.token(user)}\r\nContent-Length: {SMALL_BODY + 1}\r\n\r\n"
    )
    with socket.create_connection((address.hostname, address.port), timeout=20) as connection:
        connection.sendall(head.encode())
        return connection.makefile("rb").read().decode()


def test_a_text_is_parsed_while_the_event_loop_goes_on(
    served: Service, alice: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Attack: a text that is slow to parse, so that nobody else is answered."""
    parsing, health = threading.Event(), threading.Event()

    def slow(body: bytes, max_elements: int) -> object:
        parsing.set()
        assert health.wait(20)
        return document_of(body, max_elements)

    monkeypatch.setattr(routing, "document_of", slow)
    long = {"namespace": ["slow"], "properties": {"a": "a" * 600, "b": "b" * 600}}
    with ThreadPoolExecutor(1) as attacker:
        attack = attacker.submit(alice.post, f"{served.prefix}/namespaces", json=long)
        assert parsing.wait(20)
        assert httpx.get(f"{served.url}/healthz", timeout=10).status_code == 200
        health.set()
        assert attack.result(20).status_code == 200


def _of_size(size: int) -> bytes:
    return b'{"x": "' + b"a" * (size - 9) + b'"}'


@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Content-Type": "text/plain"},
        {"Content-Type": "application/x-www-form-urlencoded"},
        {"Content-Type": "multipart/form-data; boundary=x"},
        {"Content-Type": "application/json; charset=utf-16"},
        {"Content-Type": "application/vnd.api+json"},
        {"Content-Type": "application/json", "Content-Encoding": "br"},
    ],
)
def test_other_content_types_are_refused(
    served: Service, alice: httpx.Client, headers: dict[str, str]
) -> None:
    answer = alice.post(f"{served.prefix}/namespaces", content=b'{"namespace": ["typed"]}', headers=headers)
    refused(answer, 415, "ContentTypeRefused")


def test_two_content_types_are_refused(served: Service, alice: httpx.Client) -> None:
    headers = [("Content-Type", "application/json"), ("Content-Type", "text/plain")]
    answer = alice.post(f"{served.prefix}/namespaces", content=b'{"namespace": ["a"]}', headers=headers)
    refused(answer, 415, "ContentTypeRefused")


def test_body_where_none_is_taken_is_refused(served: Service, alice: httpx.Client) -> None:
    refused(alice.post("/admin/v1/policies/reload", json={}), 400, "RequestInvalid", "body")


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/engine/v1/tables/a/b/plan", {"colunms": ["x"]}),
        ("/admin/v1/tables/a/b", {"set": {}, "unset": [], "froce": True}),
        ("/admin/v1/tokens", {"principal": "x", "ttl": 5}),
        ("/admin/v1/policies/check", {"user": "x", "resource": {"databse": "d"}, "access": "select"}),
    ],
)
def test_unknown_fields_of_our_own_bodies_are_refused(
    alice: httpx.Client, path: str, body: dict[str, object]
) -> None:
    method = "PATCH" if path == "/admin/v1/tables/a/b" else "POST"
    refused(alice.request(method, path, json=body), 400, "RequestInvalid", "request")


def test_unknown_fields_of_iceberg_bodies_pass(served: Service, alice: httpx.Client) -> None:
    body = {"namespace": ["future"], "properties": {}, "from-a-later-version": 1}
    assert alice.post(f"{served.prefix}/namespaces", json=body).status_code == 200


BAD_ADDRESSES = {
    "encoded slash": "/namespaces/a%2Ftables%2Fb",
    "encoded slash, small": "/namespaces/a%2ftables%2fb",
    "encoded backslash": "/namespaces/a%5Cb",
    "nul": "/namespaces/a%00",
    "not utf-8": "/namespaces/a%FF",
    "overlong utf-8": "/namespaces/%C0%AE",
    "broken escape": "/namespaces/a%2",
    "broken escape in letters": "/namespaces/a%zz",
    "nul in the query": "/namespaces?parent=a%00",
    "query not utf-8": "/namespaces?parent=%FF",
}


@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize("tail", BAD_ADDRESSES.values(), ids=BAD_ADDRESSES.keys())
def test_ambiguous_address_is_refused(served: Service, tail: str) -> None:
    """Over a plain socket, since HTTP clients mend addresses."""
    answer = _raw(served, "GET", served.prefix + tail)
    assert answer.startswith("HTTP/1.1 400 ") and '"rule": "address"' in answer


def test_encoded_slash_never_reaches_another_operation(
    served: Service, alice: httpx.Client, namespace: str
) -> None:
    body = {"name": "t", "schema": SCHEMA}
    assert alice.post(f"{served.prefix}/namespaces/{namespace}/tables", json=body).status_code == 200
    answer = _raw(served, "DELETE", f"{served.prefix}/namespaces/{namespace}%2Ftables%2Ft")
    assert answer.startswith("HTTP/1.1 400 ")
    assert tables_of(alice, served.prefix, namespace) == ["t"]


def test_names_are_decoded_exactly_once(served: Service, alice: httpx.Client) -> None:
    made = alice.post(f"{served.prefix}/namespaces", json={"namespace": ["a%20b"]})
    assert made.status_code == 200
    assert _raw(served, "GET", f"{served.prefix}/namespaces/a%2520b").startswith("HTTP/1.1 200 ")
    assert _raw(served, "GET", f"{served.prefix}/namespaces/a%20b").startswith("HTTP/1.1 404 ")


def test_path_is_decoded_from_its_bytes() -> None:
    assert decoded_path(b"/a%1Fb/%C3%A9%2525") == "/a\x1fb/é%25"
    with pytest.raises(RequestInvalid):
        decoded_path(b"/a%2F..")


@pytest.mark.parametrize("given", ["abc-1:2.3_X", "x" * 64])
def test_request_id_of_the_client_is_returned(alice: httpx.Client, given: str) -> None:
    assert alice.get("/v1/config", headers={"X-Request-Id": given}).headers["x-request-id"] == given


@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize("given", ["", "x" * 65, "a b", 'a"b', "{}"])
def test_malformed_request_id_is_replaced(alice: httpx.Client, given: str) -> None:
    shown = alice.get("/nowhere", headers={"X-Request-Id": given}).headers["x-request-id"]
    assert shown != given and len(shown) == 36


def test_request_id_stands_in_the_audit_trail(served: Service, alice: httpx.Client) -> None:
    alice.get(f"{served.prefix}/namespaces", headers={"X-Request-Id": "traced-1"})
    records = alice.get("/admin/v1/audit").json()["records"]
    assert [each["action"] for each in records if each["request-id"] == "traced-1"] == ["namespace.list"]


def test_unknown_path_and_method_are_in_the_error_model(alice: httpx.Client) -> None:
    refused(alice.get("/v2/config"), 404, "NoSuchEndpoint")
    refused(alice.get("/docs"), 404, "NoSuchEndpoint")
    refused(alice.put("/v1/config"), 405, "MethodRefused")


def _raw(served: Service, method: str, target: str) -> str:
    address = urlsplit(served.url)
    head = (
        f"{method} {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
        f"Authorization: Bearer {served.token('alice')}\r\n\r\n"
    )
    with socket.create_connection((address.hostname, address.port), timeout=10) as connection:
        connection.sendall(head.encode())
        return b"".join(iter(lambda: connection.recv(65_536), b"")).decode()
