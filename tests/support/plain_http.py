"""HTTP over plain sockets, byte by byte, to a service whose deadlines pass only where a test wants it."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPResponse
from pathlib import Path
from urllib.parse import urlsplit

from tests.support.service import Service, open_service

LONG = 600.0
PATIENCE_S = 30.0
HEAD = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
LEAVING = b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


@contextmanager
def limited(root: Path, **limits: float) -> Iterator[Service]:
    """A service whose other deadlines do not pass."""
    patient = {f"{each}_timeout_s": LONG for each in ("head", "body", "idle", "answer")}
    overrides = {f"HTTP__{name.upper()}": value for name, value in {**patient, **limits}.items()}
    with open_service(root, **overrides) as service:
        yield service


def connected(service: Service) -> socket.socket:
    address = urlsplit(service.url)
    return socket.create_connection((address.hostname, address.port), timeout=PATIENCE_S)


def answer_to(service: Service, sent: bytes) -> str:
    """Everything that is answered until the service closes the connection."""
    with connected(service) as connection:
        connection.sendall(sent)
        return rest_of(connection)


def rest_of(connection: socket.socket) -> str:
    received = bytearray()
    try:
        while piece := connection.recv(65_536):
            received += piece
    except ConnectionResetError:
        pass
    return received.decode(errors="replace")


def status_of(connection: socket.socket, sent: bytes) -> int:
    """The status of one answer, read to its end; the connection stays open."""
    connection.sendall(sent)
    answer = HTTPResponse(connection)
    answer.begin()
    answer.read()
    return answer.status


def upload(service: Service, user: str = "alice") -> bytes:
    return (
        f"POST {service.prefix}/namespaces HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        f"Authorization: Bearer {service.token(user)}\r\nContent-Length: 100000\r\n\r\n"
    ).encode()
