"""Databases for tests of the audit trail."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine

from catalog.db.engine import open_database
from tests.support.databases import upgrade


@pytest.fixture(params=["sqlite", "postgresql"])
def any_engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    """A database with this release's schema, of each kind in turn."""
    url = f"sqlite:///{tmp_path}/lakewarden.db"
    if request.param == "postgresql":
        url = request.getfixturevalue("postgres").create_database()
    engine = open_database(url)
    upgrade(engine)
    yield engine
    engine.dispose()
