"""Which snapshots of a branch a migration compares."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from pyiceberg.table.refs import SnapshotRef, SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot, Summary

from spark_ext.pipelines.migrate.lineage import Line, line_of, on_branches

KINDS = {"r": Operation.REPLACE, "w": Operation.APPEND}


def metadata(history: str, first: int = 1, *, parent: int | None = None) -> Any:
    """A branch whose snapshots are numbered from `first`: `r` replaces files, `w` writes rows."""
    snapshots = [
        Snapshot(
            snapshot_id=first + at,
            parent_snapshot_id=parent if at == 0 else first + at - 1,
            sequence_number=first + at,
            timestamp_ms=at,
            manifest_list="file:///x",
            summary=Summary(KINDS[kind]),
        )
        for at, kind in enumerate(history)
    ]
    head = SnapshotRef(snapshot_id=snapshots[-1].snapshot_id, snapshot_ref_type=SnapshotRefType.BRANCH)
    return SimpleNamespace(refs={"main": head}, snapshots=snapshots)


@pytest.mark.parametrize(
    ("table", "known", "line"),
    [
        # Nothing came; only writers; only rewrites; both.
        (metadata("ww"), {1, 2}, Line("main", 2, 2, False, False, False)),
        (metadata("www"), {1, 2}, Line("main", 3, 2, False, True, False)),
        (metadata("wwrr"), {1, 2}, Line("main", 4, 2, True, False, False)),
        (metadata("wrwr"), {1}, Line("main", 4, 1, True, True, False)),
        # The branch was rolled back, and written again.
        (metadata("wr"), {1, 7, 8}, Line("main", 2, 1, True, False, False)),
        # The first snapshot has expired, and is known; or others have, after it.
        (metadata("rr", 3, parent=2), {1, 2}, Line("main", 4, 2, True, False, False)),
        (metadata("wr", 5, parent=4), {1, 2}, Line("main", 6, 5, True, False, True)),
        (metadata("wr", 5), {1, 2}, Line("main", 6, 5, True, False, True)),
        # The table was empty.
        (metadata("wr"), set(), Line("main", 2, 1, True, False, False)),
    ],
)
def test_a_branch_is_followed_back_to_what_it_was(table: Any, known: set[int], line: Line) -> None:
    assert line_of(table, "main", known) == line


def test_snapshots_that_no_branch_has_in_its_history_are_told_apart() -> None:
    table = metadata("wrw")
    table.snapshots.append(table.snapshots[0].model_copy(update={"snapshot_id": 9}))
    assert on_branches(table) == {1, 2, 3}
