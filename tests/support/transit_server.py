"""A server of Vault's Transit engine, as far as the catalog uses it: real HTTP, real AES-GCM, in memory.

The behaviour suite runs on it and, where a real server is at hand, on that; so it answers like the real one:
statuses, the words of errors, where fields stand.

Sources: Vault API documentation, "Transit secrets engine", "AppRole", "Tokens"; HTTP status codes of the API.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
import secrets
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

_ROUTE = re.compile(r"/v1/(?P<path>[^?#]*)")
_NAME = r"(?P<name>\w(?:[\w.-]*\w)?)"


class Refused(Exception):
    """An answer other than 200."""

    def __init__(self, status: int, *errors: str) -> None:
        super().__init__(status)
        self.status = status
        self.errors = errors


@dataclass
class TransitKey:
    """A named key: its versions from 1 on, and what it may be used for."""

    derived: bool
    versions: list[bytes] = field(default_factory=lambda: [secrets.token_bytes(32)])
    min_decryption_version: int = 1

    def cipher(self, version: int, context: bytes) -> AESGCM:
        key = self.versions[version - 1]
        if not self.derived:
            return AESGCM(key)
        if not context:
            raise Refused(
                400, "missing 'context' for key derivation; the key was created using a derived key"
            )
        return AESGCM(HKDF(SHA256(), 32, None, context).derive(key))

    def encrypt(self, plaintext: bytes, context: bytes) -> str:
        nonce = secrets.token_bytes(12)
        sealed = nonce + self.cipher(len(self.versions), context).encrypt(nonce, plaintext, None)
        return f"vault:v{len(self.versions)}:{base64.b64encode(sealed).decode()}"

    def decrypt(self, text: str, context: bytes) -> bytes:
        match = re.fullmatch(r"vault:v([0-9]+):(.*)", text, re.DOTALL)
        if match is None:
            raise Refused(400, "invalid ciphertext: no prefix")
        version = int(match[1])
        if version > len(self.versions):
            raise Refused(400, "invalid ciphertext: version is too new")
        if version < self.min_decryption_version:
            raise Refused(400, "ciphertext or signature version is disallowed by policy (too old)")
        try:
            sealed = base64.b64decode(match[2], validate=True)
        except binascii.Error:
            raise Refused(400, "invalid ciphertext: could not decode base64") from None
        if len(sealed) < 12:
            raise Refused(400, "invalid ciphertext length")
        try:
            return self.cipher(version, context).decrypt(sealed[:12], sealed[12:], None)
        except InvalidTag:
            raise Refused(400, "cipher: message authentication failed") from None


@dataclass
class TransitServer:
    """What the server knows, and who may use it.

    Attributes:
        url: its address.
        mount: where the engine is.
        namespace: the one that requests must name, if any.
        keys: Transit keys by name.
        tokens: the tokens that are valid.
        denied: names of keys that their policy denies to all of them.
        roles: AppRoles as role id and secret id.
        looked_up: whether tokens may look themselves up.
        sealed: whether it answers nothing but 503.
        requests: method and path of what was asked.
        lease_s: how long the token of a login is good.
    """

    mount: str = "transit"
    namespace: str | None = None
    keys: dict[str, TransitKey] = field(default_factory=dict)
    tokens: set[str] = field(default_factory=set)
    denied: set[str] = field(default_factory=set)
    roles: dict[str, str] = field(default_factory=dict)
    looked_up: bool = True
    sealed: bool = False
    requests: list[str] = field(default_factory=list)
    lease_s: int = 3600
    url: str = ""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def token(self) -> str:
        """A new token."""
        token = f"hvs.{secrets.token_hex(16)}"
        self.tokens.add(token)
        return token

    def role(self) -> tuple[str, str]:
        """A new AppRole: role id and secret id."""
        role, secret = secrets.token_hex(8), secrets.token_hex(16)
        self.roles[role] = secret
        return role, secret

    def answer(self, method: str, path: str, headers: Any, body: dict[str, Any]) -> dict[str, Any]:
        """The JSON of one answer.

        Raises:
            Refused: another status than 200.
        """
        with self._lock:
            self.requests.append(f"{method} {path}")
            if self.sealed:
                raise Refused(503, "Vault is sealed")
            if self.namespace is not None and headers.get("X-Vault-Namespace") != self.namespace:
                raise Refused(403, "permission denied")
            if path == "auth/approle/login" and method == "POST":
                return self._login(body)
            token = headers.get("X-Vault-Token", "")
            if token not in self.tokens:
                raise Refused(403, "permission denied")
            if path == "auth/token/lookup-self" and method == "GET":
                if not self.looked_up:
                    raise Refused(403, "permission denied")
                return {"data": {"ttl": self.lease_s}}
            return {"data": self._transit(method, path, body)}

    def _login(self, body: dict[str, Any]) -> dict[str, Any]:
        if self.roles.get(body.get("role_id", ""), object()) != body.get("secret_id"):
            raise Refused(400, "invalid role or secret ID")
        return {"data": None, "auth": {"client_token": self.token(), "lease_duration": self.lease_s}}

    def _transit(self, method: str, path: str, body: dict[str, Any]) -> dict[str, Any]:
        match = re.fullmatch(
            rf"{re.escape(self.mount)}/(?P<what>keys|datakey/plaintext|encrypt|decrypt|rewrap)/{_NAME}", path
        )
        if match is None:
            raise Refused(404, f'no handler for route "{path}". route entry not found.')
        what, name = match["what"], match["name"]
        if name in self.denied:
            raise Refused(403, "1 error occurred:\n\t* permission denied\n\n")
        key = self.keys.get(name)
        if what == "keys" and method == "GET":
            if key is None:
                raise Refused(404)
            return {
                "name": name,
                "type": "aes256-gcm96",
                "derived": key.derived,
                "latest_version": len(key.versions),
            }
        if method != "POST":
            raise Refused(405, "unsupported operation")
        if key is None:
            raise Refused(400, "encryption key not found")
        return getattr(self, "_" + what.partition("/")[0])(key, body)  # type: ignore[no-any-return]

    def _datakey(self, key: TransitKey, body: dict[str, Any]) -> dict[str, Any]:
        plaintext = secrets.token_bytes({128: 16, 256: 32, 512: 64}[body.get("bits", 256)])
        return {
            "ciphertext": key.encrypt(plaintext, _decoded(body.get("context", ""))),
            "key_version": len(key.versions),
            "plaintext": base64.b64encode(plaintext).decode(),
        }

    def _encrypt(self, key: TransitKey, body: dict[str, Any]) -> dict[str, Any]:
        plaintext = _decoded(body.get("plaintext", ""))
        ciphertext = key.encrypt(plaintext, _decoded(body.get("context", "")))
        return {"ciphertext": ciphertext, "key_version": len(key.versions)}

    def _decrypt(self, key: TransitKey, body: dict[str, Any]) -> dict[str, Any]:
        plaintext = key.decrypt(body.get("ciphertext", ""), _decoded(body.get("context", "")))
        return {"plaintext": base64.b64encode(plaintext).decode()}

    def _rewrap(self, key: TransitKey, body: dict[str, Any]) -> dict[str, Any]:
        return {"batch_results": [self._rewrapped(key, item) for item in body["batch_input"]]}

    def _rewrapped(self, key: TransitKey, item: dict[str, Any]) -> dict[str, Any]:
        context = _decoded(item.get("context", ""))
        try:
            ciphertext = key.encrypt(key.decrypt(item["ciphertext"], context), context)
        except Refused as refusal:
            return {"error": refusal.errors[0]}
        return {"ciphertext": ciphertext, "key_version": len(key.versions)}


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise Refused(400, "failed to base64-decode context") from None


def _handler(server: TransitServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_any(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length) or b"{}")
            match = _ROUTE.fullmatch(self.path)
            try:
                if match is None:
                    raise Refused(404)
                self._send(200, server.answer(self.command, match["path"], self.headers, body))
            except Refused as refusal:
                self._send(refusal.status, {"errors": list(refusal.errors)})

        do_GET = do_POST = do_PUT = do_any

        def _send(self, status: int, answer: dict[str, Any]) -> None:
            data = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    return Handler


class _Listener(ThreadingHTTPServer):
    """One that closes its connections when it ends, as a process that ends does."""

    daemon_threads = True

    def __init__(self, *args: Any) -> None:
        self._open: set[Any] = set()
        super().__init__(*args)

    def process_request(self, request: Any, client_address: Any) -> None:
        self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def end(self) -> None:
        self.shutdown()
        self.server_close()
        for request in list(self._open):
            self.shutdown_request(request)


@contextmanager
def transit_server(tls: ssl.SSLContext | None = None, **settings: Any) -> Iterator[tuple[TransitServer, Any]]:
    """A running server, and what ends it; over TLS if it is given a certificate."""
    server = TransitServer(**settings)
    listener = _Listener(("127.0.0.1", 0), _handler(server))
    if tls is not None:
        listener.socket = tls.wrap_socket(listener.socket, server_side=True)
    server.url = f"http{'s' if tls else ''}://127.0.0.1:{listener.server_address[1]}"
    thread = threading.Thread(target=listener.serve_forever, args=(0.01,), daemon=True)
    thread.start()

    def stop() -> None:
        if thread.is_alive():
            listener.end()
            thread.join()

    try:
        yield server, stop
    finally:
        stop()
