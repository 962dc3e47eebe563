"""An identity provider on this machine: a discovery document, public keys that rotate, and signed tokens."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from joserfc import jwt
from joserfc.jwk import ECKey, Key, OctKey, RSAKey

AUDIENCE = "lake"
LOGOUT_AUDIENCE = "lake-client"
_DISCOVERY = "/.well-known/openid-configuration"
_AUTHORIZE = "/authorize"


@cache
def rsa_key(key_id: str, bits: int = 2048) -> RSAKey:
    """A private key, made once in a process: that takes a tenth of a second."""
    return RSAKey.generate_key(bits, {"kid": key_id, "use": "sig"})


def public(key: Key) -> dict[str, Any]:
    """What a provider publishes of a key."""
    return dict(key.as_dict(private=False))


@dataclass
class IdentityProvider:
    """A running provider.

    Attributes:
        url: its address, and its issuer; it gives tokens at any path.
        documents: what it answers, by path; bytes are sent as they are, whatever else as JSON.
        hold: until it is set, nothing is answered.
        status: the status of its answers.
        moved: where it redirects to, by path.
        asked: the paths it was asked for.
        tokens: the bearer tokens it was shown.
        key: the key that it signs with.
        user: who logs in at its authorization endpoint, without a question.
        codes: the codes that were not exchanged yet, each with the parameters of its login.
        exchanged: the Authorization and the fields of each request that exchanged a code.
    """

    url: str
    documents: dict[str, object] = field(default_factory=dict)
    hold: threading.Event = field(default_factory=threading.Event)
    status: int = 200
    moved: dict[str, str] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    tokens: list[str | None] = field(default_factory=list)
    key: Key = field(default_factory=lambda: rsa_key("first"))
    user: str = "ann"
    codes: dict[str, dict[str, str]] = field(default_factory=dict)
    exchanged: list[tuple[str | None, dict[str, str]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.hold.set()
        self.documents[_DISCOVERY] = {
            "issuer": self.url,
            "jwks_uri": f"{self.url}/keys",
            "authorization_endpoint": f"{self.url}{_AUTHORIZE}",
            "token_endpoint": f"{self.url}/token",
        }
        self.publish(self.key)

    def publish(self, *keys: Key) -> None:
        """Publish these keys from now on."""
        self.documents["/keys"] = {"keys": [public(each) for each in keys]}

    def rotate(self, key: Key) -> None:
        """Sign with another key from now on, and publish no other one."""
        self.key = key
        self.publish(key)

    def claims(self, user: str = "ann", **claims: object) -> dict[str, object]:
        """The claims of a good token; those that are given replace others, and None removes one."""
        now = time.time()
        whole: dict[str, object] = {
            "iss": self.url,
            "aud": AUDIENCE,
            "sub": user,
            "iat": int(now),
            "exp": int(now) + 600,
            **claims,
        }
        return {name: value for name, value in whole.items() if value is not None}

    def token(self, user: str = "ann", **claims: object) -> str:
        """A good token."""
        return self.signed(self.claims(user, **claims))

    def sent_back(self, query: str) -> str:
        """Log `user` in for an authorization request, and return the address to send the browser back to."""
        asked = {name: values[0] for name, values in parse_qs(query).items()}
        code = uuid.uuid4().hex
        self.codes[code] = {**asked, "user": self.user}
        back = {"code": code, "state": asked["state"], "iss": self.url}
        return f"{asked['redirect_uri']}?{urlencode(back)}"

    def tokens_for(self, fields: Mapping[str, str]) -> dict[str, object] | None:
        """Exchange a code, once, by the verifier of its login; None if it cannot be exchanged."""
        login = self.codes.pop(fields.get("code", ""), None)
        verifier = hashlib.sha256(fields.get("code_verifier", "").encode()).digest()
        challenge = base64.urlsafe_b64encode(verifier).rstrip(b"=").decode()
        if login is None or (challenge, fields["redirect_uri"]) != (
            login["code_challenge"],
            login["redirect_uri"],
        ):
            return None
        user = login["user"]
        id_token = self.token(user, aud=login["client_id"], nonce=login["nonce"])
        return {"access_token": self.token(user), "id_token": id_token, "token_type": "Bearer"}

    def logout_token(self, **claims: object) -> str:
        """A good logout token, which is about no login yet: give it `sid`, `sub` or both."""
        now = int(time.time())
        whole: dict[str, object] = {
            "iss": self.url,
            "aud": LOGOUT_AUDIENCE,
            "iat": now,
            "exp": now + 120,
            "jti": str(uuid.uuid4()),
            "events": {"http://schemas.openid.net/event/backchannel-logout": {}},
            **claims,
        }
        return self.signed({name: value for name, value in whole.items() if value is not None})

    def signed(
        self, claims: Mapping[str, object], header: Mapping[str, object] | None = None, key: Key | None = None
    ) -> str:
        """Sign claims with any header and key."""
        key = self.key if key is None else key
        whole = {"alg": _algorithm(key), "kid": key.kid, **(header or {})}
        whole = {name: value for name, value in whole.items() if value is not None}
        return jwt.encode(whole, dict(claims), key, algorithms=[str(whole["alg"])])


def _algorithm(key: Key) -> str:
    if isinstance(key, ECKey):
        return {"P-256": "ES256", "P-384": "ES384", "P-521": "ES512"}[key.curve_name]
    return "HS256" if isinstance(key, OctKey) else "RS256" if isinstance(key, RSAKey) else "EdDSA"


@contextmanager
def identity_provider() -> Iterator[IdentityProvider]:
    """A running provider, with a key `first`."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    provider = IdentityProvider(f"http://127.0.0.1:{server.server_address[1]}")

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            provider.asked.append(self.path)
            provider.tokens.append(self.headers.get("Authorization"))
            provider.hold.wait(30)
            parts = urlsplit(self.path)
            if parts.path == _AUTHORIZE:
                self.send_response(302)
                self.send_header("Location", provider.sent_back(parts.query))
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            document = provider.documents.get(self.path)
            data = document if isinstance(document, bytes) else json.dumps(document).encode()
            moved = provider.moved.get(self.path)
            self.send_response(302 if moved else 404 if document is None else provider.status)
            if moved:
                self.send_header("Location", moved)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def do_POST(self) -> None:
            asked = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
            provider.asked.append(self.path)
            answer: dict[str, object] | None
            if asked.get("grant_type") == ["authorization_code"]:
                fields = {name: values[0] for name, values in asked.items()}
                provider.exchanged.append((self.headers.get("Authorization"), fields))
                answer = provider.tokens_for(fields)
            else:
                # The client credentials grant (RFC 6749, section 4.4): the client's id is the user.
                answer = {"access_token": provider.token(asked["client_id"][0]), "token_type": "bearer"}
            data = json.dumps({"error": "invalid_grant"} if answer is None else answer).encode()
            self.send_response(400 if answer is None else provider.status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server.RequestHandlerClass = Handler
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield provider
    finally:
        provider.hold.set()
        server.shutdown()
        server.server_close()
        thread.join()
