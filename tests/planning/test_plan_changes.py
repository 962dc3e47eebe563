"""Plans of changes: which rows each snapshot added and removed, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyiceberg.expressions import AlwaysTrue, GreaterThan
from pyiceberg.table import Table
from pyiceberg.table.update import SetPropertiesUpdate

from catalog.writes.new_files import FileCommit
from policy.errors import LocationNotAllowed, NotAuthorized, RequestInvalid
from tests.support.delete_commits import EQUALITY, POSITIONS, DeleteCommit
from tests.support.lake import ALICE, BOB, Lake
from tests.support.plans import plan
from tests.support.tables import ENCRYPTED, Engine, append_files, make, name_of, rows

MERGING = {"commit.manifest-merge.enabled": "true", "commit.manifest.min-count-to-merge": "2"}
PATHS = "read.allowed.data.paths"
INSERT, DELETE = 0, 1


def ids(table: Table) -> list[int]:
    """The snapshots of a table, the oldest first."""
    return [each.snapshot_id for each in table.metadata.snapshots]


def changes(lake: Lake, table: Table, **request: Any) -> list[tuple[int, int, int]]:
    """The ordinal, type and row count of each planned data file."""
    made = plan(lake, table, changes=True, **request).files.to_pylist()
    found = [each for each in made if each["content"] == 0]
    return sorted((each["change_ordinal"], each["change_type"], each["record_count"]) for each in found)


@pytest.fixture(scope="module")
def history(lake: Lake) -> Table:
    """Appends of 1, 2 and 3 rows, a delete of the first file, an overwrite of a row of the second, an append.

    Every manifest is merged with those before it.
    """
    table = make(lake, properties=MERGING)
    for count in (1, 2, 3):
        table.append(rows(count * 10, count))
    table.delete("id = 10")
    table.delete("id = 20")
    table.append(rows(40, 4))
    return table


@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize(
    ("start", "end", "inclusive", "found"),
    [
        (None, None, False, [(0, 0, 1), (1, 0, 2), (2, 0, 3), (3, 1, 1), (4, 0, 1), (4, 1, 2), (5, 0, 4)]),
        (2, None, False, [(0, 1, 1), (1, 0, 1), (1, 1, 2), (2, 0, 4)]),
        (2, 3, True, [(0, 0, 3), (1, 1, 1)]),
        (None, 1, False, [(0, 0, 1), (1, 0, 2)]),
        (5, None, False, []),
    ],
)
def test_plan_has_the_files_that_snapshots_added_and_removed(
    lake: Lake,
    history: Table,
    start: int | None,
    end: int | None,
    inclusive: bool,
    found: list[tuple[int, int, int]],
) -> None:
    known = ids(history)
    asked = {
        "start_snapshot_id": None if start is None else known[start],
        "end_snapshot_id": None if end is None else known[end],
        "start_inclusive": inclusive,
    }
    assert changes(lake, history, **asked) == found
    made = plan(lake, history, changes=True, **asked)
    assert made.header.snapshot_id == known[-1 if end is None else end]
    first = 0 if start is None else start + (not inclusive)
    for each in made.files.to_pylist():
        snapshot = history.metadata.snapshot_by_id(known[first + each["change_ordinal"]])
        assert snapshot is not None
        said = (each["commit_snapshot_id"], each["commit_timestamp_ms"])
        assert said == (snapshot.snapshot_id, snapshot.timestamp_ms)


def test_changes_without_a_matching_row_are_left_out(lake: Lake, history: Table) -> None:
    assert changes(lake, history, filter=GreaterThan("id", 29)) == [(2, 0, 3), (5, 0, 4)]


@pytest.mark.parametrize(
    ("request_", "rule"),
    [
        ({"start_inclusive": True}, "increment"),
        ({"snapshot_id": 1}, "increment"),
        ({"ref": "main"}, "increment"),
        ({"files": frozenset()}, "increment"),
        ({"end_snapshot_id": -7}, "snapshot"),
        ({"start_snapshot_id": -7}, "start-snapshot"),
    ],
)
def test_unclear_range_is_refused(lake: Lake, history: Table, request_: dict[str, Any], rule: str) -> None:
    with pytest.raises(RequestInvalid) as refusal:
        plan(lake, history, changes=True, **request_)
    assert refusal.value.rule == rule


def test_table_without_rows_has_no_changes(lake: Lake) -> None:
    assert changes(lake, make(lake)) == []


class DeleteFiles:
    """A table with one data file, and commits of delete files for it."""

    def __init__(self, lake: Lake) -> None:
        self.lake = lake
        self.table = make(lake)
        append_files(lake, name_of(self.table))
        (made,) = plan(lake, self.table).files.to_pylist()
        self.data = made["file_path"]

    def add(self, content: Any = POSITIONS, *fields: int) -> str:
        """Commit a delete file that applies to the data file; its path."""
        engine = Engine.begin(self.lake, name_of(self.table))
        commit = DeleteCommit(self.lake.services, self.lake.caller(ALICE), engine.session)
        file = engine.file()
        commit.add(file, content, fields)
        commit.commit()
        return file.path

    def planned(self, **request: Any) -> list[tuple[Any, ...]]:
        """Of each data file: ordinal, type, path, and the delete files that leave out and choose rows."""
        made = plan(self.lake, self.table, changes=True, **request).files.to_pylist()

        def named(numbers: list[int] | None) -> set[str]:
            return {made[number]["file_path"] for number in numbers or []}

        used = {number for each in made for number in (each["deletes"] or []) + (each["deleted_by"] or [])}
        assert used == {number for number, each in enumerate(made) if each["content"] != 0}
        return [
            (
                each["change_ordinal"],
                each["change_type"],
                each["file_path"],
                named(each["deletes"]),
                named(each["deleted_by"]),
            )
            for each in made
            if each["content"] == 0
        ]


def test_new_delete_file_deletes_the_rows_that_no_older_one_deleted(lake: Lake) -> None:
    deletes = DeleteFiles(lake)
    first = deletes.add()
    second = deletes.add(EQUALITY, 1)
    assert deletes.planned() == [
        (0, INSERT, deletes.data, set(), set()),
        (1, DELETE, deletes.data, set(), {first}),
        (2, DELETE, deletes.data, {first}, {second}),
    ]


@pytest.mark.nightly
def test_removed_file_has_the_rows_that_were_left(lake: Lake) -> None:
    deletes = DeleteFiles(lake)
    first = deletes.add()
    remove = FileCommit("delete", (), delete_filter=AlwaysTrue())
    Engine.begin(lake, name_of(deletes.table)).commit(remove)
    assert deletes.planned()[-1] == (2, DELETE, deletes.data, {first}, set())


def test_removed_files_are_planned_with_their_keys(lake: Lake) -> None:
    table = make(lake, properties=ENCRYPTED)
    append_files(lake, name_of(table), count=2)
    Engine.begin(lake, name_of(table)).commit(FileCommit("delete", (), delete_filter=AlwaysTrue()))
    made = plan(lake, table, changes=True)
    assert changes(lake, table) == [(0, 0, 10), (0, 0, 10), (1, 1, 10), (1, 1, 10)]
    assert made.header.transport is not None
    assert all(len(each) == 1 for each in made.files["keys"].to_pylist())


def test_changes_need_the_privileges_of_every_plan(lake: Lake) -> None:
    table = make(lake)
    table.append(rows(1))
    table.delete("id = 1")
    with pytest.raises(NotAuthorized):
        plan(lake, table, user=BOB, changes=True)
    assert plan(lake, table, "id", changes=True).header.columns == ("id",)


def test_removed_file_outside_of_the_allowed_locations_is_refused(lake: Lake, tmp_path: Path) -> None:
    own, other = f"file://{tmp_path}/own", f"file://{tmp_path}/other"
    table = make(lake, properties={"write.data.path": other, PATHS: f"{own},{other}"}, location=own)
    table.append(rows(1))
    table.delete("id = 1")
    narrower = [SetPropertiesUpdate(updates={PATHS: own})]
    lake.services.committer.commit(lake.caller(ALICE), name_of(table), [], narrower, force=True)
    with pytest.raises(LocationNotAllowed):
        plan(lake, table, changes=True, start_snapshot_id=ids(table)[0])


def test_expired_parent_hides_what_was_removed(lake: Lake) -> None:
    table = make(lake)
    table.append(rows(1, 1))
    table.append(rows(2, 1))
    table.delete("id = 1")
    table.append(rows(3, 1))
    known = ids(table)
    table.maintenance.expire_snapshots().by_id(known[0]).commit()
    assert changes(lake, table) == [(0, 0, 1), (1, 1, 1), (2, 0, 1)]
    table.maintenance.expire_snapshots().by_id(known[1]).commit()
    with pytest.raises(RequestInvalid) as refusal:
        plan(lake, table, changes=True)
    assert refusal.value.rule == "expired-parent"
    assert changes(lake, table, start_snapshot_id=known[2]) == [(0, 0, 1)]
