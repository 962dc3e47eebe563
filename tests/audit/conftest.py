"""Databases for tests of the audit trail."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine

from catalog.audit.checkpoints import Signer
from catalog.db.engine import open_database
from catalog.kms.root_key import KeyFile
from tests.support.databases import upgrade


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    """A SQLite database with this release's schema."""
    opened = open_database(f"sqlite:///{tmp_path}/lakewarden.db")
    upgrade(opened)
    yield opened
    opened.dispose()


@pytest.fixture
def signer(tmp_path: Path) -> Signer:
    """A new signing key."""
    KeyFile.create(tmp_path / "audit.key")
    return Signer(tmp_path / "audit.key")


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
