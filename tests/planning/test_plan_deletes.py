"""Delete files in plans: attached as the specification says, or refused."""

from __future__ import annotations

import pytest
from pyiceberg.manifest import DataFileContent

from policy.errors import NotSupportedYet
from tests.support.delete_files import add_deletes
from tests.support.lake import Lake
from tests.support.plans import plan
from tests.support.tables import (
    append_files,
    make,
    name_of,
)


def test_position_deletes_are_attached_as_pyiceberg_does(lake: Lake) -> None:
    table = make(lake)
    (first,) = append_files(lake, name_of(table))
    (second,) = append_files(lake, name_of(table))
    for_all = add_deletes(lake, table, DataFileContent.POSITION_DELETES)
    for_first = add_deletes(lake, table, DataFileContent.POSITION_DELETES, applies_to=[first])
    (third,) = append_files(lake, name_of(table))
    made = plan(lake, table).files.to_pylist()
    found = {
        row["file_path"]: {made[number]["file_path"] for number in row["deletes"] or []}
        for row in made
        if row["content"] == 0
    }
    assert found == {first: {for_all, for_first}, second: {for_all}, third: set()}
    assert {row["file_path"] for row in made if row["content"] == 1} == {for_all, for_first}
    theirs = {
        task.file.file_path: {each.file_path for each in task.delete_files}
        for task in lake.catalog().load_table(table.name()).scan().plan_files()
    }
    assert found == theirs


def test_equality_deletes_are_refused(lake: Lake) -> None:
    table = make(lake)
    append_files(lake, name_of(table))
    add_deletes(lake, table, DataFileContent.EQUALITY_DELETES)
    with pytest.raises(NotSupportedYet) as refused:
        plan(lake, table)
    assert refused.value.rule == "deletes"
