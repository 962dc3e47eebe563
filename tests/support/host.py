"""A catalog made by `lakewarden init` in a directory of its own, and the command line to operate it with."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.table import Table

from catalog.cli.main import app
from catalog.cli.session import calling, open_kms
from catalog.db.engine import open_database
from catalog.service.pyiceberg_catalog import GuardedCatalog
from catalog.service.services import Services
from catalog.settings.catalog import Settings
from tests.support.command_line import CliRunner, Result
from tests.support.databases import upgrade
from tests.support.lake import write_unchecked

ADMIN = "ann"
ROWS = pa.table({"id": pa.array([1, 2], pa.int64())})


@dataclass
class Host:
    """The host of a catalog."""

    root: Path

    @property
    def config(self) -> Path:
        """The settings file."""
        return self.root / "lakewarden.toml"

    @property
    def data(self) -> Path:
        """The data directory."""
        return self.root / "data"

    def run(self, *arguments: str | Path, code: int = 0) -> Result:
        """Run a command, which must end with this exit code."""
        words = ["--config", str(self.config), *map(str, arguments)]
        result = CliRunner().invoke(app, words)
        assert result.exit_code == code, (result.stdout, result.stderr, result.exception)
        return result

    def json(self, *arguments: str, code: int = 0) -> Any:
        """What a command prints with `--json`."""
        return json.loads(self.run(*arguments, "--json", code=code).stdout)

    def init(self) -> Result:
        """Make the catalog, or what is missing of it."""
        return self.run("init", "--admin", ADMIN, "--data-dir", self.data)

    def copy_database(self) -> None:
        """Put a database of the present schema there, so that `init` need not take every step."""
        self.data.mkdir(0o700)
        engine = open_database(f"sqlite:///{self.data / 'lakewarden.db'}")
        try:
            upgrade(engine)
        finally:
            engine.dispose()

    def settings(self) -> Settings:
        """The settings that commands read."""
        return Settings.load(self.config, {})

    def services(self) -> Services:
        """The catalog, open; close it."""
        settings = self.settings()
        return Services.open(settings, open_kms(settings.kms))

    def put_policies(self, *policies: Mapping[str, Any]) -> None:
        """Put a document of policies into force."""
        path = self.root / "more.json"
        path.write_text(json.dumps({"policies": policies}), "utf-8")
        self.run("policy", "put", "more", path)

    def break_policies(self) -> None:
        """Have policies that this release refuses."""
        with self.services() as services:
            write_unchecked(services.policy_documents, "newer", b"{")

    @contextmanager
    def catalog(self) -> Iterator[GuardedCatalog]:
        """The catalog as its administrator's own process sees it."""
        with self.services() as services:
            yield GuardedCatalog(services, calling(ADMIN))

    def make_table(self, name: str = "sales.orders", **properties: str) -> Table:
        """A table with one snapshot."""
        with self.catalog() as catalog:
            catalog.create_namespace_if_not_exists(name.rpartition(".")[0])
            table = catalog.create_table(name, ROWS.schema, properties=properties)
            if not properties:
                table.append(ROWS)
            return table
