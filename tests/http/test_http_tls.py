"""TLS in the service: who is served, what a connection that never agrees on it can take, renewal."""

from __future__ import annotations

import os
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from catalog.http.server import listen
from catalog.http.tls import Certificate
from catalog.settings.sections import HttpSettings, TlsSettings
from policy.errors import RequestInvalid
from tests.support.certificates import authority, certificate
from tests.support.plain_http import HEAD, PATIENCE_S, connected, limited, rest_of, status_of, upload
from tests.support.service import Service

SHORT = 0.3


@contextmanager
def secured(root: Path, pem: Path, **limits: float) -> Iterator[Service]:
    files = {"tls__certificate_file": pem, "tls__key_file": pem}
    with limited(root, **limits, **files) as service:  # type: ignore[arg-type]
        yield service


@pytest.fixture
def pem(tmp_path: Path) -> Path:
    found = certificate(tmp_path)
    found.chmod(0o640)
    return found


def agreed(service: Service, trusted: Path) -> ssl.SSLSocket:
    context = ssl.create_default_context(cafile=trusted)
    return context.wrap_socket(connected(service), server_hostname="127.0.0.1")


def test_requests_are_served_over_tls(tmp_path: Path, pem: Path) -> None:
    with secured(tmp_path, pem) as service:
        assert service.url.startswith("https://127.0.0.1:")
        trusted = ssl.create_default_context(cafile=pem)
        with httpx.Client(base_url=service.url, verify=trusted) as client:
            token = {"Authorization": f"Bearer {service.token('alice')}"}
            for _ in range(3):
                assert client.get("/v1/config", headers=token).status_code == 200


def test_a_client_that_trusts_another_certificate_is_not_answered(tmp_path: Path, pem: Path) -> None:
    other = certificate(tmp_path)
    with secured(tmp_path, pem) as service, pytest.raises(ssl.SSLCertVerificationError):
        agreed(service, other)


def test_plain_http_is_not_answered(tmp_path: Path, pem: Path) -> None:
    with secured(tmp_path, pem) as service, connected(service) as plain:
        plain.sendall(HEAD)
        assert "HTTP/" not in rest_of(plain)
        with agreed(service, pem) as others:
            assert status_of(others, HEAD) == 200


@pytest.mark.nightly
def test_a_request_in_one_piece_with_the_handshake_is_answered(tmp_path: Path, pem: Path) -> None:
    """What arrives before the protocol of requests took over is not lost."""
    with secured(tmp_path, pem) as service:
        for _ in range(30):
            with agreed(service, pem) as connection:
                connection.sendall(HEAD)
                assert connection.recv(65_536).startswith(b"HTTP/1.1 ")


def test_a_handshake_that_never_ends_is_ended(tmp_path: Path, pem: Path) -> None:
    with secured(tmp_path, pem, head_timeout_s=SHORT) as service, connected(service) as idle:
        assert rest_of(idle) == ""


def test_handshakes_count_for_the_limit_of_connections(tmp_path: Path, pem: Path) -> None:
    """Attack: connections that never agree on TLS, so that no request is ever counted."""
    with secured(tmp_path, pem, max_connections=2) as service:
        silent = [connected(service) for _ in range(2)]
        with connected(service) as refused:
            assert rest_of(refused) == ""
        for each in silent:
            each.close()
        until = time.monotonic() + PATIENCE_S
        while True:
            try:
                with agreed(service, pem) as connection:
                    assert status_of(connection, HEAD) == 200
                    return
            except OSError:
                assert time.monotonic() < until, "connections that are gone still count"
                time.sleep(0.02)


def test_a_body_that_drips_in_over_tls_is_ended(tmp_path: Path, pem: Path) -> None:
    with (
        secured(tmp_path, pem, body_timeout_s=SHORT) as service,
        agreed(service, pem) as slow,
    ):
        slow.sendall(upload(service))
        assert rest_of(slow).startswith("HTTP/1.1 408 ")


def described(service: Service) -> bytes:
    """A request with a large answer."""
    bearer = f"Authorization: Bearer {service.token('alice')}"
    return f"GET /openapi.json HTTP/1.1\r\nHost: x\r\n{bearer}\r\n\r\n".encode()


@pytest.mark.nightly
def test_large_answers_over_tls_reach_a_client_that_reads(tmp_path: Path, pem: Path) -> None:
    with secured(tmp_path, pem, answer_timeout_s=PATIENCE_S) as service, agreed(service, pem) as reader:
        for _ in range(5):
            assert status_of(reader, described(service)) == 200


@pytest.mark.nightly
def test_a_client_that_does_not_read_over_tls_is_ended(tmp_path: Path, pem: Path) -> None:
    with secured(tmp_path, pem, answer_timeout_s=SHORT) as service, agreed(service, pem) as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.sendall(described(service) * 100)
        until = time.monotonic() + PATIENCE_S
        with pytest.raises(OSError, match=r"reset|pipe|EOF"):
            while time.monotonic() < until:
                deaf.sendall(described(service))
                time.sleep(0.02)


def test_a_renewed_certificate_is_shown_and_a_broken_one_is_not(tmp_path: Path, pem: Path) -> None:
    renewed = certificate(tmp_path)
    renewed.chmod(0o640)
    with secured(tmp_path, pem) as service:
        before = tmp_path / "before.pem"
        before.write_bytes(pem.read_bytes())
        pem.write_text("no certificate")
        with agreed(service, before) as connection:
            assert status_of(connection, HEAD) == 200
        os.replace(renewed, pem)
        with agreed(service, pem) as connection:
            assert status_of(connection, HEAD) == 200


def test_connections_without_a_certificate_to_renew_write_one_line(
    tmp_path: Path, pem: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Attack: a flood of connections fills the log while the files are away."""
    used = Certificate(TlsSettings(certificate_file=pem, key_file=pem))
    before = used.context()
    away = pem.rename(tmp_path / "away")
    for _ in range(3):
        assert used.context() is before
    assert [each.levelname for each in caplog.records] == ["ERROR"]
    away.rename(pem)
    assert used.context() is not before


@pytest.mark.parametrize("broken", ["missing", "open to others", "of another key", "a pipe", "a directory"])
def test_a_service_whose_certificate_cannot_be_used_does_not_start(
    tmp_path: Path, pem: Path, broken: str
) -> None:
    key = certificate(tmp_path)
    key.chmod(0o604 if broken == "open to others" else 0o600)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe, 0o600)
    names = {"missing": tmp_path / "none", "open to others": key, "a pipe": pipe, "a directory": tmp_path}
    shown = names.get(broken, pem)
    tls = TlsSettings(certificate_file=shown, key_file=key)
    if broken == "of another key":
        tls = TlsSettings(certificate_file=authority(pem), key_file=key)
    with pytest.raises(RequestInvalid) as refused:
        listen(HttpSettings(port=0, tls=tls))
    assert refused.value.rule == "tls"
