"""The real service over a real catalog: uvicorn in a thread, on a free port of this machine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
from pyiceberg.catalog.rest import RestCatalog

from catalog.http.server import served
from policy.principal import Principal
from tests.support.lake import ALICE, Lake, open_lake

if TYPE_CHECKING:
    from tests.support.moto_server import MotoS3

ENGINE = "spark"
_PATIENCE_S = 20.0


@dataclass
class Service:
    """A running service.

    Attributes:
        url: its address.
        lake: the catalog behind it.
        client_properties: what a stock client needs to reach the warehouse.
    """

    url: str
    lake: Lake
    client_properties: Mapping[str, str] = field(default_factory=dict)
    _tokens: dict[tuple[str, str], str] = field(default_factory=dict, repr=False)

    @property
    def prefix(self) -> str:
        """Where the Iceberg operations of this catalog are."""
        return f"/v1/{self.lake.settings.catalog.name}"

    def token(self, name: str, kind: Any = "user") -> str:
        """A token of a user or engine; the same one each time."""
        if (name, kind) not in self._tokens:
            issued = self.lake.warden.tokens.issue(Principal(name), kind, None)
            self._tokens[name, kind] = issued.text
        return self._tokens[name, kind]

    def client(self, user: str | None = ALICE, engine: str | None = None) -> httpx.Client:
        """An HTTP client of a user, or of nobody; with an engine, the engine's on behalf of the user."""
        headers = {} if user is None else {"Authorization": f"Bearer {self.token(user)}"}
        if engine is not None:
            headers["Lakewarden-Engine-Token"] = self.token(engine, "engine")
        return httpx.Client(base_url=self.url, headers=headers, timeout=60)

    def iceberg(self, user: str = ALICE, **properties: str) -> RestCatalog:
        """A stock pyiceberg client of a user."""
        given = {"uri": self.url, "token": self.token(user), **self.client_properties, **properties}
        return RestCatalog("stock", **given)


@contextmanager
def running(lake: Lake, client_properties: Mapping[str, str] | None = None) -> Iterator[Service]:
    """Serve an open catalog."""
    with served(lake.warden) as url:
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
        overrides = {**_s3_settings(s3), **overrides}
        properties = s3.pyiceberg_properties()
    with open_lake(root, policies=policies, **overrides) as lake, running(lake, properties) as service:
        yield service


def _s3_settings(s3: MotoS3) -> dict[str, str]:
    given = s3.pyiceberg_properties()
    return {
        "WAREHOUSE": f"s3://{s3.new_bucket()}/warehouse",
        "S3__ENDPOINT": given["s3.endpoint"],
        "S3__REGION": given["s3.region"],
        "S3__ACCESS_KEY_ID": given["s3.access-key-id"],
        "S3__SECRET_ACCESS_KEY": given["s3.secret-access-key"],
    }
