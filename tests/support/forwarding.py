"""What proxies of the tests do with a request that goes through."""

from __future__ import annotations

import http.client
from collections.abc import Iterable
from http.server import BaseHTTPRequestHandler
from typing import NamedTuple
from urllib.parse import urlsplit

#: Headers that belong to one connection.
_OWN = frozenset({"connection", "keep-alive", "transfer-encoding", "content-length"})


class Answer(NamedTuple):
    """What the service behind a proxy answered."""

    status: int
    headers: list[tuple[str, str]]
    content: bytes


def forwarded(asked: BaseHTTPRequestHandler, body: bytes, service: str, timeout_s: float) -> Answer:
    """The answer of a service to a request."""
    connection = http.client.HTTPConnection(urlsplit(service).netloc, timeout=timeout_s)
    try:
        connection.request(asked.command, asked.path, body, dict(_passing(asked.headers.items())))
        answer = connection.getresponse()
        content = answer.read()
    finally:
        connection.close()
    return Answer(answer.status, _passing(answer.getheaders()), content)


def body_of(asked: BaseHTTPRequestHandler) -> bytes:
    """The body of a request."""
    return asked.rfile.read(int(asked.headers.get("Content-Length", 0)))


def send(asked: BaseHTTPRequestHandler, answer: Answer, only: bytes | None = None) -> None:
    """Answer a request; with `only` a part of the body, whose whole length is told."""
    asked.send_response(answer.status)
    for name, value in answer.headers:
        asked.send_header(name, value)
    asked.send_header("Content-Length", str(len(answer.content)))
    asked.end_headers()
    asked.wfile.write(answer.content if only is None else only)


def _passing(headers: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    return [(name, value) for name, value in headers if name.lower() not in _OWN]
