"""Commits of write sessions, and what they leave of a table."""

from __future__ import annotations

from typing import Any

import pytest
from pyiceberg.table import Table

from policy.errors import LakewardenError
from tests.support.lake import Lake


def now(lake: Lake, table: Table) -> Table:
    """The table as it is now."""
    return lake.catalog().load_table(table.name())


def refused(lake: Lake, table: Table, error: type[LakewardenError], commit: Any) -> LakewardenError:
    """The error of a commit that changes nothing."""
    before = now(lake, table).metadata_location
    with pytest.raises(error) as raised:
        commit()
    assert now(lake, table).metadata_location == before
    return raised.value
