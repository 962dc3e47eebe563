"""Builds the parts of answers that have storage credentials.

Clients read `config`, or the entry of `storage-credentials` whose prefix fits; both have the same credential.
There is one entry: Iceberg's Java client refuses to renew several.

Source: Iceberg REST catalog specification, `X-Iceberg-Access-Delegation`, `StorageCredential` and
`LoadTableResult`; Iceberg documentation, "AWS integrations".
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated, Final
from urllib.parse import quote

from fastapi import Header

from catalog.base.identifiers import TableName
from catalog.http.bodies import LEVEL_SEPARATOR
from catalog.settings.catalog import Settings
from catalog.storage_access.vending import Issued

VENDED: Final = "vended-credentials"
"""The mechanism, among those that a client can ask for."""

AccessDelegationOf = Annotated[str | None, Header(alias="X-Iceberg-Access-Delegation")]


@dataclass(frozen=True, slots=True)
class StorageAnswer:
    """The storage credential of an answer.

    Attributes:
        issued: the credential.
        settings: where the store is.
        name: the table, whose credentials can be renewed; None as long as it is staged.
    """

    issued: Issued
    settings: Settings
    name: TableName | None

    @property
    def config(self) -> dict[str, str]:
        """The properties that clients read."""
        credential, s3 = self.issued.credential, self.settings.s3
        found = {
            "s3.access-key-id": credential.access_key_id,
            "s3.secret-access-key": credential.secret_access_key.get_secret_value(),
            "s3.session-token": credential.session_token.get_secret_value(),
            "s3.session-token-expires-at-ms": str(credential.expires_ms),
        }
        if s3.region is not None:
            # Iceberg's Java client reads the first, Polars the second, PyIceberg both.
            found |= {"client.region": s3.region, "s3.region": s3.region}
        if s3.endpoint is not None:
            found |= {"s3.endpoint": s3.endpoint, "s3.path-style-access": "true"}
        if self.name is not None:
            found["client.refresh-credentials-endpoint"] = self._endpoint(self.name)
        return found

    @property
    def entries(self) -> str:
        """`storage-credentials`, as JSON."""
        return json.dumps([{"prefix": self.issued.table_location, "config": self.config}])

    def _endpoint(self, name: TableName) -> str:
        """Where the credential is renewed, relative to the catalog's address."""
        catalog, levels = self.settings.catalog.name, LEVEL_SEPARATOR.join(name.namespace)
        parts = ("v1", catalog, "namespaces", levels, "tables", name.name, "credentials")
        return "/".join(quote(each, safe="") for each in parts)


def asks_for_credentials(mechanisms: str | None) -> bool:
    """Whether a client asks for credentials, as one of several mechanisms with commas between them."""
    return VENDED in {each.strip() for each in (mechanisms or "").split(",")}
