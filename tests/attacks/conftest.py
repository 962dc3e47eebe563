"""A victim, an attacker, and traps around what is the victim's."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.attacks.traps import OpenWatch
from tests.support.attacker import Siege, lay_siege, local
from tests.support.lake import Lake


@pytest.fixture
def siege(lake: Lake) -> Siege:
    """The victim's table and the attacker's."""
    return lay_siege(lake)


@pytest.fixture
def watch(siege: Siege) -> Iterator[OpenWatch]:
    """Sees every file of the victim's table that is opened."""
    with OpenWatch(local(siege.victim.location)) as watching:
        yield watching
