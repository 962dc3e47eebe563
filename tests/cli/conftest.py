"""Fixtures: a host with and without a catalog."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.host import Host


@pytest.fixture
def bare(tmp_path: Path) -> Host:
    """A directory without a catalog."""
    return Host(tmp_path)


@pytest.fixture
def host(bare: Host) -> Host:
    """A catalog as `lakewarden init` makes it, with a database that was brought to its schema before."""
    bare.copy_database()
    bare.init()
    return bare
