"""Lakes that a module's tests share, on a database of each kind."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.support.lake import Lake, open_lake
from tests.support.postgres import PostgresServer


@dataclass
class Shared:
    """A lake, and what another process needs to open it too."""

    lake: Lake
    overrides: dict[str, Any] = field(default_factory=dict)


def _shared(tmp_path_factory: pytest.TempPathFactory, overrides: dict[str, Any]) -> Iterator[Shared]:
    with open_lake(tmp_path_factory.mktemp("lake"), **overrides) as lake:
        lake.catalog().create_namespace("db")
        yield Shared(lake, overrides)


@pytest.fixture(scope="module")
def on_sqlite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    """A lake on SQLite."""
    yield from _shared(tmp_path_factory, {})


@pytest.fixture(scope="module")
def on_postgres(
    tmp_path_factory: pytest.TempPathFactory, postgres_server: PostgresServer | str
) -> Iterator[Shared]:
    """A lake on PostgreSQL; tests are skipped where none can be started."""
    if isinstance(postgres_server, str):
        pytest.skip(postgres_server)
    yield from _shared(tmp_path_factory, {"DATABASE__URL": postgres_server.create_database()})


@pytest.fixture(params=["sqlite", "postgres"])
def shared(request: pytest.FixtureRequest) -> Shared:
    """A lake on a database of each kind in turn."""
    found: Shared = request.getfixturevalue(f"on_{request.param}")
    return found
