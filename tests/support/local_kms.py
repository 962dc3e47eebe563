"""Fixtures: a local KMS, its key file, and a clock that is moved by hand."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest

from catalog.kms.interface import KeyContext
from catalog.kms.local import LocalKms
from catalog.kms.root_key import KeyFile
from tests.support.scripted_kms import Clock, Scripted

TABLE = UUID("6f1c1f2e-0a63-4f6e-9d0c-0d1a2b3c4d5e")


@pytest.fixture
def key_file(tmp_path: Path) -> KeyFile:
    return KeyFile.create(tmp_path / "root.key")


@pytest.fixture
def kms(tmp_path: Path, key_file: KeyFile) -> LocalKms:
    """A local KMS with the master keys `lake` and `pii`."""
    made = LocalKms.create(tmp_path / "keystore.json", key_file)
    made.create_master_key("lake")
    made.create_master_key("pii")
    return made


@pytest.fixture
def context() -> KeyContext:
    return KeyContext("prod", TABLE)


@pytest.fixture
def far() -> Scripted:
    return Scripted()


@pytest.fixture
def clock() -> Clock:
    return Clock()
