"""A sort order whose id was taken gets another id, and no file states the id of another order."""

from __future__ import annotations

import pytest
from pyiceberg.io.pyarrow import _dataframe_to_data_files
from pyiceberg.table import Table
from pyiceberg.table.sorting import SortField, SortOrder
from pyiceberg.table.update import (
    AddSortOrderUpdate,
    AssertLastAssignedFieldId,
    SetDefaultSortOrderUpdate,
    TableUpdate,
)
from pyiceberg.transforms import IdentityTransform

from catalog.base.errors import CommitConflict
from tests.catalog.checked_commits import commit, refused
from tests.support.lake import Lake
from tests.support.tables import make, rows

LAST_ADDED = -1
#: Where pyiceberg's data file keeps it.
_SORT_ORDER_ID = 15


def order(source: int, number: int = 1) -> SortOrder:
    return SortOrder(SortField(source, IdentityTransform()), order_id=number)


@pytest.fixture
def table(lake: Lake) -> Table:
    """A table that another commit has sorted by `id`."""
    made = make(lake)
    commit(lake, made, AddSortOrderUpdate(sort_order=order(1)), SetDefaultSortOrderUpdate(sort_order_id=1))
    return made


def appended(table: Table, sort_order_id: int | None) -> list[TableUpdate]:
    """The updates that add a file."""
    change = table.refresh().transaction()
    with change.update_snapshot().fast_append() as append:
        for file in _dataframe_to_data_files(table.metadata, rows(1), table.io):
            file._data[_SORT_ORDER_ID] = sort_order_id
            append.append_data_file(file)
    return list(change._updates)


@pytest.mark.parametrize("said", [LAST_ADDED, 1])
def test_a_sort_order_whose_id_was_taken_gets_another(lake: Lake, table: Table, said: int) -> None:
    added = AddSortOrderUpdate(sort_order=order(2))
    commit(lake, table, added, SetDefaultSortOrderUpdate(sort_order_id=said), *appended(table, None))
    assert table.refresh().sort_order() == order(2, 2)
    assert table.sort_orders()[1] == order(1)
    commit(lake, table, added, SetDefaultSortOrderUpdate(sort_order_id=said))
    assert table.refresh().sort_order() == order(2, 2)


def test_a_file_that_states_the_taken_id_is_a_conflict(lake: Lake, table: Table) -> None:
    updates = [AddSortOrderUpdate(sort_order=order(2)), *appended(table, 1)]
    assert refused(lake, table, *updates, kind=CommitConflict) == "sort-order-id"
    commit(lake, table, AddSortOrderUpdate(sort_order=order(1)), *appended(table, 1))


def test_a_client_that_states_what_it_knows_makes_its_change_again(lake: Lake, table: Table) -> None:
    knows = (AssertLastAssignedFieldId(last_assigned_field_id=2),)
    added = AddSortOrderUpdate(sort_order=order(2))
    assert refused(lake, table, added, kind=CommitConflict, on=knows) == "sort-order-id"
