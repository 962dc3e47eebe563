"""The embedded catalog of the demonstration, in its own directory, without mocks.

The settings are written to `lakewarden.toml` there, so that the command line can look into it afterwards.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.request import Request, urlopen

from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.table import Table

from catalog.audit.reading import read as read_audit
from catalog.audit.records import AuditRecord
from catalog.authorization.tokens import TokenKind
from catalog.db import migrate
from catalog.db.engine import open_database
from catalog.http.server import served
from catalog.kms.local import LocalKms
from catalog.kms.root_key import KeyFile
from catalog.service.services import Services
from catalog.settings.catalog import Settings
from catalog.settings.kms import local_kms_options
from policy.principal import Principal
from spark_ext.demo.people import MASTER_KEY, PEOPLE, policies

#: Seconds within which a disabled master key takes effect; 60 by default.
PEK_TTL_S: Final = 2
SETTINGS_FILE: Final = "lakewarden.toml"

_MOST_RECORDS: Final = 10_000
_PATIENCE_S: Final = 20.0
_SETTINGS: Final = """\
# The settings of the demonstration's catalog.
data_dir = {data_dir}
warehouse = {warehouse}
policies = [{policies}]

[kms]
default_master_key_id = "{master_key}"
# Short, so that a revoked key takes effect while the user watches.
pek_ttl_s = {ttl}
"""


@dataclass(frozen=True)
class Lake:
    """The catalog while it is served.

    Attributes:
        directory: where everything lies.
        settings: its settings.
        services: the catalog itself.
        url: its address.
        tokens: the people's tokens.
    """

    directory: Path
    settings: Settings
    services: Services
    url: str
    tokens: dict[str, str]

    @property
    def database_url(self) -> str:
        """The pointer store, as a standard client opens it."""
        return self.settings.database.url.get_secret_value()

    def token(self, name: str, kind: TokenKind) -> str:
        """A new token."""
        return self.services.tokens.issue(Principal(name), kind, None).text

    def standard_client(self, who: str) -> RestCatalog:
        """pyiceberg, as a standard client of the service."""
        return RestCatalog("lake", uri=self.url, token=self.tokens[who])

    def table(self, who: str, name: str) -> Table:
        """A table as a standard client loads it from the service."""
        table: Table = self.standard_client(who).load_table(name)
        return table

    def administer(self, who: str, path: str, body: dict[str, str] | None = None) -> None:
        """Ask the administration interface for something.

        Args:
            who: with whose token.
            path: what for, below `/admin/v1`.
            body: the request's body, where it takes one.
        """
        request = Request(
            f"{self.url}/admin/v1/{path}",
            data=None if body is None else json.dumps(body).encode(),
            headers={"Authorization": f"Bearer {self.tokens[who]}", "Content-Type": "application/json"},
            method="POST",
        )
        with urlopen(request):
            pass

    def audit(self) -> list[AuditRecord]:
        """The audit log, oldest first."""
        found = read_audit(self.services.engine, limit=_MOST_RECORDS)
        return [each.record for each in reversed(found)]


@contextmanager
def open_lake(directory: Path) -> Iterator[Lake]:
    """Make a catalog in a directory, and serve it on this machine for as long as the block lasts.

    Args:
        directory: where to; it is made.
    """
    directory.mkdir(mode=0o700)
    settings = _settings(directory)
    _write_policies(settings)
    kms = _new_kms(settings)
    _new_database(settings)
    with Services.open(settings, kms) as services, served(services) as url:
        issue = services.tokens.issue
        tokens = {who: issue(Principal(who), "user", None).text for who in PEOPLE}
        yield Lake(directory, settings, services, url, tokens)


def _settings(directory: Path) -> Settings:
    # A JSON string is a TOML string as long as it has no surrogate pairs.
    text = _SETTINGS.format(
        data_dir=json.dumps(str(directory), ensure_ascii=False),
        warehouse=json.dumps(f"file://{directory}/warehouse", ensure_ascii=False),
        policies=json.dumps(str(directory / "policies.json"), ensure_ascii=False),
        master_key=MASTER_KEY,
        ttl=PEK_TTL_S,
    )
    file = directory / SETTINGS_FILE
    file.write_text(text, "utf-8")
    return Settings.load(file, {})


def _write_policies(settings: Settings) -> None:
    document = policies(settings.catalog.name, settings.warehouse)
    settings.policies[0].write_text(json.dumps(document, indent=2) + "\n", "utf-8")


def _new_kms(settings: Settings) -> LocalKms:
    options = local_kms_options(settings.kms)
    assert options.key_file is not None
    kms = LocalKms.create(options.keystore, KeyFile.create(options.key_file))
    kms.create_master_key(MASTER_KEY)
    return kms


def _new_database(settings: Settings) -> None:
    engine = open_database(settings.database.url)
    try:
        migrate.upgrade(engine)
    finally:
        engine.dispose()
