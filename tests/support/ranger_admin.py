"""A Ranger Admin on this machine: it answers downloads of plugins as Ranger does.

- The version that a plugin knows is answered with 304; any other one with everything, also an older one.
- Below `secure` it asks for HTTP basic authentication, and redirects to its sign-in page without it.
"""

from __future__ import annotations

import base64
import json
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

USER, PASSWORD = "lakewarden", "Wr9-of-ranger"

#: By path below `/service/`: what is downloaded, whether it needs a user, and the parameter of the version.
_PATHS = {
    "plugins/policies/download": ("policies", False, "lastKnownVersion"),
    "plugins/secure/policies/download": ("policies", True, "lastKnownVersion"),
    "roles/download": ("roles", False, "lastKnownRoleVersion"),
    "roles/secure/download": ("roles", True, "lastKnownRoleVersion"),
    "tags/download": ("tags", False, "lastKnownVersion"),
    "tags/secure/download": ("tags", True, "lastKnownVersion"),
    "xusers/download": ("users", False, "lastKnownUserStoreVersion"),
    "xusers/secure/download": ("users", True, "lastKnownUserStoreVersion"),
}
_VERSION = {
    "policies": "policyVersion",
    "roles": "roleVersion",
    "tags": "tagVersion",
    "users": "userStoreVersion",
}


@dataclass
class Asked:
    """One request: what was downloaded, of which service, with which parameters and authorization."""

    what: str
    service: str
    parameters: dict[str, str]
    authorization: str | None


@dataclass
class RangerAdmin:
    """A running Ranger Admin.

    Attributes:
        url: its address.
        documents: what it has, by service and part.
        fault: status, content type and bytes of every answer, in place of the right one.
        location: where it redirects to, with a fault of a status that does.
        hold: until it is set, nothing is answered.
        drip: whether it sends an endless answer, a byte now and then.
        chunked: whether that is the line before a chunk.
        asked: the requests so far.
        after: is called with what was asked, once its answer is made.
    """

    url: str
    documents: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    fault: tuple[int, str, bytes] | None = None
    location: str | None = None
    hold: threading.Event = field(default_factory=threading.Event)
    drip: bool = False
    chunked: bool = False
    asked: list[Asked] = field(default_factory=list)
    after: Callable[[Asked], None] = lambda _: None

    def __post_init__(self) -> None:
        self.hold.set()

    def put(self, service: str, version: int, policies: Sequence[Mapping[str, Any]], **more: Any) -> None:
        """Have these policies in a service from now on."""
        document = {"serviceName": service, "serviceId": 1, "policyVersion": version}
        self.documents[service, "policies"] = document | {"policies": list(policies)} | more

    def put_roles(self, service: str, version: int, roles: Sequence[Mapping[str, Any]]) -> None:
        """Have these roles from now on."""
        document = {"serviceName": service, "roleVersion": version, "rangerRoles": list(roles)}
        self.documents[service, "roles"] = document

    def answer(self, asked: Asked) -> tuple[int, str, bytes]:
        """Return status, content type and body."""
        if self.fault is not None:
            return self.fault
        document = self.documents.get((asked.service, asked.what))
        if document is None:
            return 404, "text/plain", b"Service not found"
        known = next(asked.parameters[name] for name in asked.parameters if name.startswith("lastKnown"))
        if int(known) == document[_VERSION[asked.what]]:
            return 304, "application/json", b""
        return 200, "application/json;charset=UTF-8", json.dumps(document).encode()


@contextmanager
def ranger_admin(tls: ssl.SSLContext | None = None) -> Iterator[RangerAdmin]:
    """A running Ranger Admin without services, over TLS if a context is given."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    scheme = "http" if tls is None else "https"
    ranger = RangerAdmin(f"{scheme}://127.0.0.1:{server.server_address[1]}")
    ended = threading.Event()
    expected = "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            path, _, service = parts.path.removeprefix("/service/").rpartition("/")
            what, is_secure, _ = _PATHS[path]
            parameters = {name: values[0] for name, values in parse_qs(parts.query).items()}
            authorization = self.headers.get("Authorization")
            asked = Asked(what, unquote(service), parameters, authorization)
            ranger.asked.append(asked)
            ranger.hold.wait(30)
            if is_secure and authorization is None:
                self._send(302, "text/html", b"", f"{ranger.url}/login.jsp")
            elif is_secure and authorization != expected:
                self._send(401, "text/html", b"<html>Authentication failed</html>")
            elif ranger.drip:
                self._drip()
            else:
                answer = ranger.answer(asked)
                ranger.after(asked)
                self._send(*answer, ranger.location)

        def _send(self, status: int, kind: str, body: bytes, location: str | None = None) -> None:
            self.send_response(status)
            if location is not None:
                self.send_header("Location", location)
            self.send_header("Content-Type", kind)
            if status != 304:
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def _drip(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            if ranger.chunked:
                self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            while not ended.wait(0.05):
                self.wfile.write(b"1" if ranger.chunked else b" ")

        def log_message(self, format: str, *args: object) -> None:
            pass

    server.RequestHandlerClass = Handler
    # A client that ends a connection is what many tests are about.
    server.handle_error = lambda *_: None  # type: ignore[method-assign]
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield ranger
    finally:
        ended.set()
        ranger.hold.set()
        server.shutdown()
        server.server_close()
        thread.join()
