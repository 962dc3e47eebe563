"""What one connection, one address and all of them together can take of the service is bounded.

Everything is sent over plain sockets. Deadlines are short where one is to pass, and long where it is not, so
that the outcome never depends on the speed of the machine.
"""

from __future__ import annotations

import asyncio
import errno
import gc
import logging
import resource
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from starlette.types import Receive, Send
from uvicorn.config import Config
from uvicorn.server import ServerState

from catalog.http.connections import MAX_LEAVING, BoundedProtocol, Connections
from catalog.http.metrics import Metrics
from catalog.http.metrics_text import rendered
from catalog.http.server import reserve_descriptors
from catalog.settings.sections import HttpSettings
from policy.errors import RequestInvalid
from tests.support.plain_http import (
    HEAD,
    LEAVING,
    LONG,
    PATIENCE_S,
    answer_to,
    connected,
    limited,
    rest_of,
    status_of,
    upload,
)
from tests.support.service import Service

SHORT = 0.3


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service without short deadlines."""
    with limited(tmp_path_factory.mktemp("lake"), max_head_bytes=16 * 1024) as service:
        yield service


def drip(connection: socket.socket) -> str:
    """What is answered while one byte after the other goes on being sent."""
    connection.settimeout(0.02)
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        try:
            connection.sendall(b"a")
            return connection.recv(65_536).decode()
        except TimeoutError:
            continue
        except OSError:
            return ""
    raise AssertionError("the service goes on reading")


def metric(service: Service, name: str) -> float:
    with service.client() as client:
        lines = client.get("/metrics").text.splitlines()
    return sum(float(each.rpartition(" ")[2]) for each in lines if each.startswith(name))


def refused_by(service: Service, rule: str) -> float:
    return metric(service, f'lakewarden_connections_refused_total{{rule="{rule}"}}')


def wait_until(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < until, "it does not come to pass"
        time.sleep(0.02)


def test_a_connection_without_a_request_is_closed(tmp_path: Path) -> None:
    with limited(tmp_path, head_timeout_s=SHORT) as service, connected(service) as idle:
        answer = rest_of(idle)
        assert answer.startswith("HTTP/1.1 408 ") and '"head-timeout"' in answer
        assert refused_by(service, "head-timeout") == 1


def test_a_head_that_drips_in_is_ended(tmp_path: Path) -> None:
    with limited(tmp_path, head_timeout_s=SHORT) as service, connected(service) as slow:
        slow.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Slow: ")
        assert drip(slow).startswith("HTTP/1.1 408 ")


def test_a_later_head_that_drips_in_is_ended(tmp_path: Path) -> None:
    with limited(tmp_path, head_timeout_s=SHORT) as service, connected(service) as slow:
        assert status_of(slow, HEAD) == 200
        slow.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Slow: ")
        assert drip(slow).startswith("HTTP/1.1 408 ")


def test_a_kept_connection_is_closed_when_it_is_idle(tmp_path: Path) -> None:
    with limited(tmp_path, idle_timeout_s=SHORT) as service, connected(service) as kept:
        kept.sendall(HEAD)
        assert rest_of(kept).count("HTTP/1.1 200 ") == 1


def test_a_body_that_drips_in_is_ended(tmp_path: Path) -> None:
    with limited(tmp_path, body_timeout_s=SHORT) as service, connected(service) as slow:
        slow.sendall(upload(service))
        answer = drip(slow)
        assert answer.startswith("HTTP/1.1 408 ") and '"body-timeout"' in answer
        with service.client() as others:
            assert others.get("/v1/config").status_code == 200


def test_the_deadline_of_a_body_ends_with_the_body(tmp_path: Path) -> None:
    with limited(tmp_path, body_timeout_s=SHORT) as service, connected(service) as kept:
        assert status_of(kept, HEAD) == 200
        time.sleep(2 * SHORT)
        assert status_of(kept, HEAD) == 200


def test_a_body_that_drips_in_after_its_answer_is_ended(tmp_path: Path) -> None:
    """Attack: a client that is refused keeps the connection by going on with the body."""
    head = b"POST /nowhere HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n"
    with limited(tmp_path, body_timeout_s=SHORT) as service, connected(service) as slow:
        assert status_of(slow, head) == 404
        until = time.monotonic() + PATIENCE_S
        with pytest.raises(OSError, match=r"reset|pipe"):
            while time.monotonic() < until:
                slow.sendall(b"a")
                time.sleep(0.02)


def test_the_answer_before_the_body_is_not_lost(served: Service) -> None:
    """A client that sends all before it reads gets the refusal."""
    with connected(served) as client:
        head = upload(served).replace(b"Length: 100000", b"Length: 20000000")
        client.sendall(head.replace(b"Bearer ", b"Bearer x") + b"a" * 20_000_000)
        answer = rest_of(client)
    assert answer.startswith("HTTP/1.1 401 ") and answer.endswith("}")


def test_the_answer_before_the_body_says_that_the_connection_ends(served: Service) -> None:
    """A client that is not told sends its next request on a connection that is ending."""
    with connected(served) as client:
        client.sendall(upload(served).replace(b"Bearer ", b"Bearer x"))
        head, _, _ = rest_of(client).partition("\r\n\r\n")
        assert head.startswith("HTTP/1.1 401 ")
        assert head.lower().split("\r\n").count("connection: close") == 1
    with connected(served) as client:
        assert status_of(client, HEAD) == 200
        assert status_of(client, HEAD) == 200


def test_a_request_behind_a_body_that_was_answered_early_is_not_carried_out() -> None:
    """Attack: the answer says that the connection ends, and the request behind the body takes effect.

    A server that says so must not process any further request (RFC 9112, section 9.6).
    """
    asked: list[str] = []

    async def early(scope: dict[str, Any], receive: Receive, send: Send) -> None:
        asked.append(scope["path"])
        await send({"type": "http.response.start", "status": 401, "headers": [(b"content-length", b"0")]})
        while (await receive()).get("more_body"):
            pass
        await send({"type": "http.response.body"})

    async def exchange() -> bytes:
        config, connections = Config(early, log_config=None), Connections(HttpSettings(), Metrics())
        config.load()
        server = await asyncio.get_running_loop().create_server(
            lambda: BoundedProtocol(config, ServerState(), {}, connections=connections), "127.0.0.1", 0
        )
        async with server:
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            writer.write(b"POST /first HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\n")
            answer = await reader.readuntil(b"\r\n\r\n")
            writer.write(b"a" + HEAD)
            answer += await asyncio.wait_for(reader.read(), PATIENCE_S)
            writer.close()
            return answer

    answer = asyncio.run(exchange()).lower()
    assert answer.count(b"http/1.1 ") == answer.count(b"\r\nconnection: close\r\n") == 1
    assert asked == ["/first"]


def test_a_client_that_does_not_read_is_ended(tmp_path: Path) -> None:
    with limited(tmp_path, answer_timeout_s=SHORT) as service, connected(service) as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        bearer = f"Authorization: Bearer {service.token('alice')}"
        request = f"GET /openapi.json HTTP/1.1\r\nHost: x\r\n{bearer}\r\n\r\n"
        deaf.sendall(request.encode() * 100)
        wait_until(lambda: refused_by(service, "answer-timeout") == 1)


def test_a_small_rest_that_is_not_read_is_ended(tmp_path: Path) -> None:
    """Closing waits for the last byte: an idle connection whose client left a little unread must not stay."""
    limits = {"idle_timeout_s": 4 * SHORT, "answer_timeout_s": SHORT}
    with limited(tmp_path, **limits) as service, socket.socket() as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
        address = urlsplit(service.url)
        deaf.connect((address.hostname, address.port))
        wait_until(lambda: bool(_protocols(deaf)))
        (served,) = _protocols(deaf)
        # What the kernel takes is more than what is left below.
        taken = served.transport.get_extra_info("socket")
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        deaf.sendall(HEAD)
        deaf.sendall(b"GET /none HTTP/1.1\r\nHost: x\r\n\r\n" * 60)
        wait_until(lambda: served.transport.is_closing() and not served.transport.get_write_buffer_size())
        assert refused_by(service, "answer-timeout") == 1


def _protocols(*clients: socket.socket) -> list[BoundedProtocol]:
    """The service's ends of connections; an earlier service can have had a client of the same port."""
    found = [each for each in gc.get_objects() if isinstance(each, BoundedProtocol)]
    addresses = {(each.getsockname()[:2], each.getpeername()[:2]) for each in clients}
    return [each for each in found if (each.client, each.server) in addresses]


def test_connections_are_limited(tmp_path: Path) -> None:
    with limited(tmp_path, max_connections=3) as service, ExitStack() as stack:
        kept = [stack.enter_context(connected(service)) for _ in range(3)]
        for each in kept:
            assert status_of(each, HEAD) == 200
        with connected(service) as late:
            answer = rest_of(late)
        assert answer.startswith("HTTP/1.1 503 ") and "retry-after: 1" in answer.lower()
        assert '"rule": "connections"' in answer
        assert status_of(kept[0], HEAD) == 200  # those that are open go on
        kept[1].close()
        wait_until(lambda: answer_to(service, LEAVING).startswith("HTTP/1.1 200 "))
        kept[0].close()
        wait_until(lambda: refused_by(service, "connections") >= 1)


def test_connections_of_one_address_are_limited_and_others_are_served(tmp_path: Path) -> None:
    with limited(tmp_path, max_connections_per_address=2) as service, ExitStack() as stack:
        for _ in range(2):
            each = stack.enter_context(connected(service))
            assert status_of(each, HEAD) == 200
        for _ in range(3):  # one that was refused makes room for none
            with connected(service) as late:
                assert '"rule": "connections-of-address"' in rest_of(late)
        elsewhere = httpx.HTTPTransport(local_address="127.0.0.2")
        with httpx.Client(transport=elsewhere, base_url=service.url) as other:
            assert other.get("/healthz").status_code == 200


def test_more_idle_connections_than_are_served_stop_nobody(tmp_path: Path) -> None:
    """Attack: hundreds of idle connections. Those beyond the limit are closed, and the log stays short."""
    needed = 400 * 2 + 500
    if resource.getrlimit(resource.RLIMIT_NOFILE)[0] < needed:
        pytest.skip(f"a process must be able to open {needed} files")
    with (
        limited(tmp_path, max_connections=100, max_connections_per_address=50) as service,
        ExitStack() as kept,
    ):
        for _ in range(400):
            kept.enter_context(connected(service))
        elsewhere = httpx.HTTPTransport(local_address="127.0.0.2")
        headers = {"Authorization": f"Bearer {service.token('alice')}"}
        with httpx.Client(transport=elsewhere, base_url=service.url, headers=headers) as other:
            assert other.get("/v1/config").status_code == 200
            refused = 'lakewarden_connections_refused_total{rule="connections-of-address"} 350'
            wait_until(lambda: refused in other.get("/metrics").text)
            wait_until(lambda: "lakewarden_connections_open 51\n" in other.get("/metrics").text)


def test_a_request_of_a_connection_that_was_refused_is_not_carried_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Attack: the answer says 503, and what was asked takes effect."""
    monkeypatch.setattr("catalog.http.connections._LEAVE_S", LONG)
    with limited(tmp_path, max_connections=1) as service, connected(service) as kept:
        assert status_of(kept, HEAD) == 200
        with connected(service) as late:
            late.sendall(HEAD)
            assert rest_of(late).startswith("HTTP/1.1 503 ")
            assert status_of(kept, HEAD) == 200  # by now, what the other sent has arrived
            assert [each.cycle for each in _protocols(late)] == [None]


def test_refused_connections_that_stay_open_are_few(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Attack: connections that are refused are kept by their client all the same."""
    monkeypatch.setattr("catalog.http.connections._LEAVE_S", LONG)
    with limited(tmp_path, max_connections=1) as service, connected(service) as kept:
        assert status_of(kept, HEAD) == 200
        for _ in range(2):
            with ExitStack() as stack:
                late = [stack.enter_context(connected(service)) for _ in range(MAX_LEAVING + 5)]
                assert all("503" in rest_of(each) for each in late)
                leaving = [each for each in _protocols(*late) if not each.transport.is_closing()]
                assert len(leaving) == MAX_LEAVING
            wait_until(lambda: all(each.transport.is_closing() for each in leaving))  # noqa: B023


def test_a_refused_connection_that_stays_open_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("catalog.http.connections._LEAVE_S", SHORT)
    with limited(tmp_path, max_connections=1) as service, connected(service) as kept:
        assert status_of(kept, HEAD) == 200
        with connected(service) as late:
            assert "503" in rest_of(late)
            wait_until(lambda: all(each.transport.is_closing() for each in _protocols(late)))


def test_nothing_is_kept_of_an_address_that_left() -> None:
    """Attack: a client with a network of addresses fills the memory with counters."""
    connections = Connections(HttpSettings(), Metrics())
    for address in ("a", "a", "b"):
        connections.enter(address)
    for address in ("a", "a", "b"):
        connections.leave(address)
    assert not connections._open._own


def test_refusals_are_one_line_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]
    connections = Connections(HttpSettings(max_connections=1), Metrics(), lambda: now[0])
    with caplog.at_level(logging.WARNING):
        for _ in range(1000):
            connections.refused("connections")
        assert len(caplog.records) == 1
        now[0] = 61.0
        connections.refused("head-timeout")
    assert [each.getMessage().rpartition("service ")[2] for each in caplog.records] == [
        "(connections: 1)",
        "(connections: 999, head-timeout: 1)",
    ]


def test_failures_to_accept_are_counted_and_not_logged_one_by_one(caplog: pytest.LogCaptureFixture) -> None:
    metrics = Metrics()
    connections = Connections(HttpSettings(), metrics, lambda: 0.0)
    loop = asyncio.new_event_loop()
    try:
        for _ in range(100):
            error = OSError(errno.EMFILE, "Too many open files")
            context = {"message": "socket.accept() out of system resource", "exception": error}
            connections.on_loop_error(loop, context)
    finally:
        loop.close()
    assert len(caplog.records) == 1
    assert 'lakewarden_connections_refused_total{rule="accept"} 100' in rendered(metrics.events())


@pytest.mark.parametrize("error", [OSError(errno.EIO, "lost"), ValueError("accept")])
def test_other_errors_of_the_event_loop_are_logged(
    caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    connections, loop = Connections(HttpSettings(), Metrics()), asyncio.new_event_loop()
    try:
        message = "accept failed" if isinstance(error, ValueError) else "a callback failed"
        connections.on_loop_error(loop, {"message": message, "exception": error})
    finally:
        loop.close()
    assert [each.name for each in caplog.records] == ["asyncio"]


def test_more_connections_than_files_are_refused_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    raised: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 4096))
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: raised.append(limits))
    reserve_descriptors(1000)
    assert raised == [(1000 + 64 + 128 + 256, 4096)]
    with pytest.raises(RequestInvalid, match="5000 connections") as refusal:
        reserve_descriptors(5000)
    assert refusal.value.rule == "open-files"
