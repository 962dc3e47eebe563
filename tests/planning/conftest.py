"""What the tests of planning share."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _shared(every_refusal_has_a_record: None) -> None:
    """Tests of a module share a lake."""
