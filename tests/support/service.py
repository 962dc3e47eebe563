"""The real service over a real catalog: uvicorn in a thread, on a free port of this machine."""

from __future__ import annotations

import ssl
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from pyiceberg.catalog.rest import RestCatalog

from catalog.client.engine_key import EngineKey
from catalog.http.server import served
from policy.principal import Principal
from tests.support.lake import ALICE, Lake, open_lake

if TYPE_CHECKING:
    from tests.support.moto_server import MotoS3

ENGINE = "spark"
#: A client of httpx without it reads all certificates of the system: 20 ms for each.
TLS = ssl.create_default_context()
_PATIENCE_S = 20.0


class EngineAuth(httpx.Auth):
    """Signs each request with an engine's key."""

    requires_request_body = True

    def __init__(self, key: EngineKey) -> None:
        self.key = key

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response]:
        """Sign a request as it is sent; one without a user's token is sent as it is."""
        if "Authorization" in request.headers:
            target = request.url.raw_path.decode("ascii")
            names = ("Authorization", "Idempotency-Key")
            covered = {name: request.headers[name] for name in names if name in request.headers}
            request.headers.update(self.key.signed(request.method, target, request.content, covered))
        yield request


@dataclass
class Service:
    """A running service.

    Attributes:
        url: its address.
        lake: the catalog behind it.
        client_properties: what a standard client needs to reach the warehouse.
    """

    url: str
    lake: Lake
    client_properties: Mapping[str, str] = field(default_factory=dict)
    _tokens: dict[tuple[str, str], str] = field(default_factory=dict, repr=False)
    _engines: dict[str, EngineAuth] = field(default_factory=dict, repr=False)

    @property
    def prefix(self) -> str:
        """Where the Iceberg operations of this catalog are."""
        return f"/v1/{self.lake.settings.catalog.name}"

    def token(self, name: str, kind: Any = "user") -> str:
        """A token of a user or engine; the same one each time."""
        if (name, kind) not in self._tokens:
            issued = self.lake.services.tokens.issue(Principal(name), kind, None)
            self._tokens[name, kind] = issued.text
        return self._tokens[name, kind]

    def engine_token(self, name: str = ENGINE, kind: Any = "engine") -> str:
        """A new token for one start of an engine, or a reusable one."""
        self._tokens[name, kind] = self.lake.services.tokens.issue(Principal(name), kind, None).text
        return self._tokens[name, kind]

    def engine_auth(self, name: str = ENGINE) -> EngineAuth:
        """What signs requests as an engine; the same key each time."""
        if name not in self._engines:
            key = Ed25519PrivateKey.generate()
            public = key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
            keys = self.lake.services.engine_keys
            registered = keys.register(keys.bootstrap(self.engine_token(name)), public)
            self._engines[name] = EngineAuth(EngineKey(registered.id, key))
        return self._engines[name]

    def client(self, user: str | None = ALICE, engine: str | None = None) -> httpx.Client:
        """An HTTP client of a user, or of nobody; with an engine, the engine's on behalf of the user."""
        headers = {} if user is None else {"Authorization": f"Bearer {self.token(user)}"}
        auth = None if engine is None else self.engine_auth(engine)
        return httpx.Client(base_url=self.url, headers=headers, auth=auth, timeout=60, verify=TLS)

    def iceberg(self, user: str = ALICE, **properties: str) -> RestCatalog:
        """A standard pyiceberg client of a user."""
        given = {"uri": self.url, "token": self.token(user), **self.client_properties, **properties}
        return RestCatalog("stock", **given)


@contextmanager
def running(lake: Lake, client_properties: Mapping[str, str] | None = None) -> Iterator[Service]:
    """Serve an open catalog."""
    with served(lake.services) as url:
        yield Service(url, lake, client_properties or {})


@contextmanager
def open_service(
    root: Path,
    *,
    policies: Sequence[Mapping[str, Any]] | None = None,
    s3: MotoS3 | None = None,
    **overrides: Any,
) -> Iterator[Service]:
    """Make a catalog in a directory and serve it.

    Args:
        root: an empty directory.
        policies: Ranger policies; by default those of `tests.support.lake`.
        s3: where the warehouse lies, in a bucket of its own; by default it is a local directory.
        overrides: settings as environment variables without the prefix, such as ``DATABASE__URL``.
    """
    properties: dict[str, str] = {}
    if s3 is not None:
        overrides = {**s3_settings(s3), **overrides}
        properties = s3.pyiceberg_properties()
    with open_lake(root, policies=policies, **overrides) as lake, running(lake, properties) as service:
        yield service


def s3_settings(s3: MotoS3) -> dict[str, str]:
    """The settings of a catalog whose warehouse lies in a new bucket."""
    given = s3.pyiceberg_properties()
    return {
        "WAREHOUSE": f"s3://{s3.new_bucket()}/warehouse",
        "S3__ENDPOINT": given["s3.endpoint"],
        "S3__REGION": given["s3.region"],
        "S3__ACCESS_KEY_ID": given["s3.access-key-id"],
        "S3__SECRET_ACCESS_KEY": given["s3.secret-access-key"],
    }
