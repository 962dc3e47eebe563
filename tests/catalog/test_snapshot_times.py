"""New snapshots go forwards: their times fit the clock, the logs and each other."""

from __future__ import annotations

import shutil
import time
from typing import Any

import pytest
from pyiceberg.table import Table
from pyiceberg.table.update import SetSnapshotRefUpdate, TableUpdate

from catalog.base.errors import CommitConflict
from catalog.rules.openable import check_commit
from policy.errors import RequestInvalid
from tests.catalog.checked_commits import commit, refused
from tests.support.attacker import local
from tests.support.attacker import updates as moving
from tests.support.lake import Lake
from tests.support.tables import Engine, make, name_of, rows

MINUTE_MS = 60_000


def replanted(table: Table, **changes: Any) -> list[TableUpdate]:
    """The head's files as another snapshot on top of it."""
    head = table.metadata.current_snapshot()
    assert head is not None and head.manifest_list is not None
    listed = head.manifest_list.replace("snap-", "snap-again-")
    shutil.copy(local(head.manifest_list), local(listed))
    known: dict[str, Any] = {
        "snapshot_id": head.snapshot_id + 1,
        "parent_snapshot_id": head.snapshot_id,
        "sequence_number": table.metadata.last_sequence_number + 1,
        "manifest_list": listed,
    }
    return moving(head.model_copy(update=known | changes))


@pytest.mark.parametrize("off", [-2 * MINUTE_MS, 2 * MINUTE_MS])
def test_snapshots_whose_clock_is_off_are_refused(lake: Lake, off: int) -> None:
    table = make(lake)
    table.append(rows(1))
    at = (table.metadata.last_updated_ms if off < 0 else time.time_ns() // 1_000_000) + off
    assert refused(lake, table, *replanted(table, timestamp_ms=at)) == "snapshot-timestamp"


def test_snapshots_of_one_commit_do_not_run_backwards(lake: Lake) -> None:
    table = make(lake)
    table.append(rows(1))
    last = table.metadata.last_updated_ms
    first = replanted(table, timestamp_ms=last + 50_000)
    head = table.metadata.snapshots[-1].snapshot_id
    second = replanted(
        table,
        snapshot_id=head + 2,
        parent_snapshot_id=head + 1,
        sequence_number=table.metadata.last_sequence_number + 2,
        timestamp_ms=last - 50_000,
    )
    assert refused(lake, table, first[0], *second) == "snapshot-timestamp"


def test_a_clock_that_was_set_back_does_not_unsort_the_logs(lake: Lake) -> None:
    table = make(lake)
    table.append(rows(1))
    first = table.metadata.current_snapshot_id
    table.append(rows(3))
    ahead = time.time_ns() // 1_000_000 + MINUTE_MS // 2
    table = commit(lake, table, *replanted(table, timestamp_ms=ahead))
    before = table.metadata.snapshot_log
    back = SetSnapshotRefUpdate(ref_name="main", type="branch", snapshot_id=first)
    table = commit(lake, table, back)
    assert table.metadata.snapshot_log[:-1] == before
    assert table.metadata.snapshot_log[-1].timestamp_ms == table.metadata.last_updated_ms == ahead
    engine = Engine.begin(lake, name_of(table))
    engine.append(engine.file())
    table = lake.catalog().load_table(table.name())
    assert [entry.timestamp_ms for entry in table.metadata.snapshot_log][-3:] == [ahead] * 3
    assert table.metadata.last_updated_ms == ahead


def test_a_new_snapshot_keeps_its_time_in_the_log_and_those_after_it_follow(lake: Lake) -> None:
    table = make(lake)
    table.append(rows(1))
    first = table.metadata.current_snapshot_id
    behind = table.metadata.last_updated_ms - MINUTE_MS // 2
    table = commit(lake, table, *replanted(table, timestamp_ms=behind))
    assert table.metadata.snapshot_log[-1].timestamp_ms == behind
    ahead = time.time_ns() // 1_000_000 + MINUTE_MS // 2
    back = SetSnapshotRefUpdate(ref_name="main", type="branch", snapshot_id=first)
    table = commit(lake, table, *replanted(table, timestamp_ms=ahead), back)
    assert [each.timestamp_ms for each in table.metadata.snapshot_log[-2:]] == [ahead, ahead]


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("now", "times", "accepted"),
    [
        (10 * MINUTE_MS, [10 * MINUTE_MS], True),  # a table that was left alone
        (10 * MINUTE_MS, [12 * MINUTE_MS], False),
        (-MINUTE_MS // 2, [MINUTE_MS], True),  # one whose last client was early
        (MINUTE_MS, [MINUTE_MS, 30_000, -1], False),  # each is near the one before it
        (MINUTE_MS, [MINUTE_MS, 30_000, 1], True),
    ],
)
def test_times_are_compared_with_the_latest_and_with_the_clock(
    lake: Lake, now: int, times: list[int], accepted: bool
) -> None:
    """All of them relative to the last update of the table."""
    table = make(lake)
    table.append(rows(1))
    base, last = table.metadata, table.metadata.last_updated_ms
    head = base.snapshots[-1]
    new = [
        head.model_copy(update={"snapshot_id": head.snapshot_id + number, "timestamp_ms": last + at})
        for number, at in enumerate(times, 1)
    ]
    made = base.model_copy(update={"snapshots": [*base.snapshots, *new]})
    if accepted:
        check_commit(base, made, last + now, "db.t")
    else:
        with pytest.raises(RequestInvalid, match="snapshot-timestamp"):
            check_commit(base, made, last + now, "db.t")


def test_a_stale_sequence_number_is_a_conflict(lake: Lake) -> None:
    table = make(lake)
    table.append(rows(1))
    stale = replanted(table, sequence_number=table.metadata.last_sequence_number)
    assert refused(lake, table, *stale, kind=CommitConflict) == "sequence-number"
