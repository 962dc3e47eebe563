"""Commits that are accepted, or refused without an effect."""

from __future__ import annotations

import pytest
from pyiceberg.table import Table
from pyiceberg.table.update import TableRequirement, TableUpdate

from policy.errors import LakewardenError, RequestInvalid
from tests.support.lake import Lake


def commit(lake: Lake, table: Table, *updates: TableUpdate, on: tuple[TableRequirement, ...] = ()) -> Table:
    lake.catalog().commit_table(table, on, updates)
    return lake.catalog().load_table(table.name())


def refused(
    lake: Lake,
    table: Table,
    *updates: TableUpdate,
    kind: type[LakewardenError] = RequestInvalid,
    on: tuple[TableRequirement, ...] = (),
) -> str | None:
    """The rule by which a commit is refused; it changed nothing."""
    before = lake.catalog().load_table(table.name()).metadata_location
    with pytest.raises(kind) as refusal:
        commit(lake, table, *updates, on=on)
    assert type(refusal.value) is kind
    assert lake.catalog().load_table(table.name()).metadata_location == before
    return refusal.value.rule
