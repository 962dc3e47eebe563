"""Incremental plans: which files were appended between two snapshots, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyiceberg.expressions import AlwaysTrue, GreaterThan
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update import SetPropertiesUpdate

from catalog.writes.new_files import FileCommit
from policy.errors import LocationNotAllowed, NotAuthorized, RequestInvalid
from tests.support.lake import ALICE, BOB, Lake
from tests.support.plans import plan
from tests.support.tables import ENCRYPTED, Engine, append_files, make, name_of, rows

PATHS = "read.allowed.data.paths"
MERGING = {"commit.manifest-merge.enabled": "true", "commit.manifest.min-count-to-merge": "2"}


@pytest.fixture(scope="module")
def history(lake: Lake) -> tuple[Table, list[int]]:
    """A table with appends of 1, 2, 3 and 4 rows, and a delete after the third that removes the first file.

    Every manifest is merged with those before it.
    """
    table = make(lake, properties=MERGING)
    for count in (1, 2, 3):
        table.append(rows(count * 10, count))
    table.delete("id = 10")
    table.append(rows(40, 4))
    operations = [each.summary.operation for each in table.metadata.snapshots if each.summary]
    assert operations == [*[Operation.APPEND] * 3, Operation.DELETE, Operation.APPEND]
    return table, [each.snapshot_id for each in table.metadata.snapshots]


def counts(lake: Lake, table: Table, **request: Any) -> list[int]:
    """The rows of each file of an incremental plan, the oldest file first."""
    found = plan(lake, table, **request).files.to_pylist()
    return [each["record_count"] for each in sorted(found, key=lambda each: each["file_sequence_number"])]


@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize(
    ("start", "end", "inclusive", "found"),
    [
        (0, None, False, [2, 3, 4]),
        (0, None, True, [1, 2, 3, 4]),
        (0, 2, False, [2, 3]),
        (1, 3, False, [3]),
        (2, 3, False, []),
        (3, 4, True, [4]),
        (4, None, False, []),
        (1, 1, True, [2]),
    ],
)
def test_plan_has_the_files_of_appends_between_two_snapshots(
    lake: Lake,
    history: tuple[Table, list[int]],
    start: int,
    end: int | None,
    inclusive: bool,
    found: list[int],
) -> None:
    table, ids = history
    last = None if end is None else ids[end]
    asked = {"start_snapshot_id": ids[start], "end_snapshot_id": last, "start_inclusive": inclusive}
    assert counts(lake, table, **asked) == found
    assert plan(lake, table, **asked).header.snapshot_id == ids[-1 if end is None else end]
    filtered = counts(lake, table, filter=GreaterThan("id", 29), **asked)
    assert filtered == [each for each in found if each > 2]


@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize(
    ("asked", "rule"),
    [
        ({"end_snapshot_id": 0}, "increment"),
        ({"start_inclusive": True}, "increment"),
        ({"start_snapshot_id": 0, "snapshot_id": 1}, "increment"),
        ({"start_snapshot_id": 0, "ref": "main"}, "increment"),
        ({"start_snapshot_id": 0, "as_of_ms": 1}, "increment"),
        ({"start_snapshot_id": 0, "files": frozenset()}, "increment"),
        ({"start_snapshot_id": 0, "end_snapshot_id": -7}, "snapshot"),
        ({"start_snapshot_id": -7}, "start-snapshot"),
        ({"start_snapshot_id": 3, "end_snapshot_id": 1}, "start-snapshot"),
    ],
    ids=str,
)
def test_increment_that_the_table_does_not_have_is_refused(
    lake: Lake, history: tuple[Table, list[int]], asked: dict[str, Any], rule: str
) -> None:
    table, ids = history
    of = {name: ids[value] if name.endswith("_id") and value >= 0 else value for name, value in asked.items()}
    with pytest.raises(RequestInvalid) as refused:
        plan(lake, table, **of)
    assert (refused.value.rule, refused.value.table) == (rule, ".".join(table.name()))


def test_start_of_a_table_without_snapshots_is_refused(lake: Lake) -> None:
    with pytest.raises(RequestInvalid, match="no snapshot") as refused:
        plan(lake, make(lake), start_snapshot_id=7)
    assert refused.value.rule == "start-snapshot"


def test_start_on_another_branch_is_refused(lake: Lake) -> None:
    table = make(lake)
    table.append(rows(1))
    head = table.metadata.current_snapshot_id
    assert head is not None
    table.manage_snapshots().create_branch(head, "side").commit()
    table.append(rows(2), branch="side")
    side = table.metadata.refs["side"].snapshot_id
    table.append(rows(3))
    with pytest.raises(RequestInvalid, match="not an ancestor"):
        plan(lake, table, start_snapshot_id=side)
    assert counts(lake, table, start_snapshot_id=head, end_snapshot_id=side) == [2]


def test_expired_start_is_refused(lake: Lake) -> None:
    table = make(lake)
    for first in (1, 2, 3):
        table.append(rows(first, first))
    ids = [each.snapshot_id for each in table.metadata.snapshots]
    table.maintenance.expire_snapshots().by_id(ids[0]).commit()
    with pytest.raises(RequestInvalid, match="is expired"):
        plan(lake, table, start_snapshot_id=ids[0])
    assert counts(lake, table, start_snapshot_id=ids[1]) == [3]


@pytest.mark.nightly
def test_rows_that_were_deleted_since_are_read_with_their_keys(lake: Lake) -> None:
    table = make(lake, properties=ENCRYPTED)
    name = name_of(table)
    append_files(lake, name)
    start = lake.services.loader.load(name).metadata.current_snapshot_id
    append_files(lake, name, count=2)
    appended = lake.services.loader.load(name).metadata.current_snapshot_id
    remove = FileCommit("delete", (), delete_filter=AlwaysTrue())
    Engine.begin(lake, name).commit(remove)
    assert plan(lake, table).files.num_rows == 0
    made = plan(lake, table, start_snapshot_id=start, end_snapshot_id=appended)
    assert made.files.num_rows == 2
    assert plan(lake, table, start_snapshot_id=start).files.num_rows == 2
    assert made.header.transport is not None
    assert all(len(each) == 1 for each in made.files["keys"].to_pylist())


def test_increment_needs_the_privileges_of_every_plan(lake: Lake) -> None:
    table = make(lake)
    table.append(rows(1))
    start = table.metadata.current_snapshot_id
    table.append(rows(2))
    with pytest.raises(NotAuthorized):
        plan(lake, table, user=BOB, start_snapshot_id=start)
    table.append(rows(3))
    assert plan(lake, table, "id", start_snapshot_id=start).header.columns == ("id",)


def test_earlier_snapshot_is_read_by_the_current_schema_on_request(lake: Lake) -> None:
    table = make(lake)
    table.append(rows(1))
    start = table.metadata.current_snapshot_id
    with table.update_schema() as update:
        update.rename_column("name", "label")
    for asked in (
        {"snapshot_id": start, "use_snapshot_schema": False},
        {"start_snapshot_id": start, "start_inclusive": True},
    ):
        made = plan(lake, table, **asked)
        assert (made.header.columns, made.files.num_rows) == (("id", "label"), 1)


def test_path_outside_the_allowed_locations_is_refused(lake: Lake, tmp_path: Path) -> None:
    own, other = f"file://{tmp_path}/own", f"file://{tmp_path}/other"
    table = make(lake, properties={"write.data.path": other, PATHS: f"{own},{other}"}, location=own)
    table.append(rows(1))
    start = table.metadata.current_snapshot_id
    table.append(rows(2))
    narrower = [SetPropertiesUpdate(updates={PATHS: own})]
    lake.services.committer.commit(lake.caller(ALICE), name_of(table), [], narrower, force=True)
    with pytest.raises(LocationNotAllowed):
        plan(lake, table, start_snapshot_id=start)
