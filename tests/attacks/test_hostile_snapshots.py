"""Snapshots, committed with UPDATE alone, that engines could not read, or nobody build on."""

from __future__ import annotations

from typing import Any

import pytest
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.table.update import RemoveSnapshotsUpdate, SetSnapshotRefUpdate

from catalog.commits.openable import check_commit
from policy.errors import RequestInvalid
from tests.attacks.test_snapshot_differences import head, plain, refused, users
from tests.support.attacker import Attacker, data_file, entry, updates

__all__ = ["plain", "users"]


def new_file(attacker: Attacker) -> Any:
    return entry(data_file(f"{attacker.location}/data/new.parquet"))


def of_id(attacker: Attacker, snapshot_id: int, **changes: Any) -> Any:
    """The updates of a snapshot that adds a file, under this id."""
    manifest = attacker.manifest([new_file(attacker)], snapshot_id)
    kept = attacker.manifests() if changes.get("parent_snapshot_id", snapshot_id) is not None else []
    return updates(attacker.snapshot([*kept, manifest], snapshot_id, **changes))


def test_the_id_that_says_that_a_table_has_no_snapshot(plain: Attacker) -> None:
    """Readers would take a table with rows for an empty one."""
    refused(plain, RequestInvalid, "snapshot", *of_id(plain, -1))


@pytest.mark.parametrize("name", ["total-records", "total-position-deletes", "added-data-files"])
@pytest.mark.parametrize("said", ["many", "-1", "9" * 19, "٣", ""])
def test_totals_that_the_next_commit_cannot_count_on_with(plain: Attacker, name: str, said: str) -> None:
    summary = Summary(Operation.APPEND, **{name: said})
    refused(plain, RequestInvalid, "snapshot", *plain.appending(new_file(plain), summary=summary))


def test_a_schema_that_the_table_does_not_have(plain: Attacker) -> None:
    refused(plain, RequestInvalid, "snapshot", *plain.appending(new_file(plain), schema_id=1 << 40))


def test_a_branch_that_keeps_more_snapshots_than_engines_read(plain: Attacker) -> None:
    ref = SetSnapshotRefUpdate(
        ref_name="main",
        type=SnapshotRefType.BRANCH,
        snapshot_id=head(plain).snapshot_id,
        min_snapshots_to_keep=1 << 31,
    )
    refused(plain, RequestInvalid, "snapshot-reference", ref)


def test_a_snapshot_from_the_future_under_an_id_that_was_used(plain: Attacker) -> None:
    """Every later snapshot would run backwards."""
    used = plain.metadata.snapshots[0].snapshot_id
    [add, _] = of_id(plain, used, timestamp_ms=9 * 10**15, parent_snapshot_id=None)
    refused(plain, RequestInvalid, "snapshot-timestamp", RemoveSnapshotsUpdate(snapshot_ids=[used]), add)


def test_parents_that_lead_back_to_a_snapshot(plain: Attacker) -> None:
    """Engines that expire snapshots leave the ids of their parents; a walk over a circle never ends."""
    one, two = plain.metadata.snapshots
    orphan = one.model_copy(update={"parent_snapshot_id": 99})
    base = plain.metadata.model_copy(update={"snapshots": [orphan, two]})
    circle = two.model_copy(update={"snapshot_id": 99, "parent_snapshot_id": two.snapshot_id})
    made = base.model_copy(update={"snapshots": [orphan, two, circle]})
    with pytest.raises(RequestInvalid) as refusal:
        check_commit(base, made, base.last_updated_ms, "db.t")
    assert refusal.value.rule == "snapshot"
