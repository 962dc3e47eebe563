"""Which snapshots, branches and tags expire, decided without a table."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadataV2
from pyiceberg.table.refs import SnapshotRef
from pyiceberg.table.snapshots import Snapshot

from catalog.maintenance.retention import Expired, expired
from policy.errors import PropertyInvalid, RequestInvalid

_DAY = 24 * 3600 * 1000
_NOW = 100 * _DAY

#: Each snapshot with its parent; the number is its age in days. 2 and 30 are staged.
_PARENTS = {9: None, 8: 9, 7: 8, 3: 7, 1: 3, 2: 7, 30: 9}


def metadata(properties: Mapping[str, str] | None = None, **refs: dict[str, object]) -> TableMetadataV2:
    snapshots = [
        Snapshot(
            snapshot_id=age,
            parent_snapshot_id=parent,
            manifest_list=f"file:///{age}",
            timestamp_ms=_NOW - age * _DAY,
        )
        for age, parent in _PARENTS.items()
    ]
    given = {"main": {"snapshot-id": 1}} | refs
    return TableMetadataV2(
        location="file:///t",
        last_column_id=0,
        schemas=[Schema()],
        current_schema_id=0,
        partition_specs=[UNPARTITIONED_PARTITION_SPEC],
        sort_orders=[],
        properties=dict(properties or {}),
        current_snapshot_id=1,
        snapshots=snapshots,
        refs={name: SnapshotRef(**{"type": "branch", **more}) for name, more in given.items()},
    )


def gone(given: TableMetadataV2, **options: object) -> set[int]:
    return set(expired(given, "db.t", _NOW, **options).snapshots)  # type: ignore[arg-type]


def test_by_age_and_number() -> None:
    assert gone(metadata()) == {9, 8, 7, 30}
    assert gone(metadata(), older_than_ms=_NOW - 8 * _DAY) == {9, 30}
    assert gone(metadata(), older_than_ms=_NOW) == {9, 8, 7, 3, 30, 2}
    assert gone(metadata(), older_than_ms=_NOW, retain_last=3) == {9, 8, 30, 2}
    assert gone(metadata({"history.expire.max-snapshot-age-ms": str(2 * _DAY)})) == {9, 8, 7, 3, 30}
    assert gone(metadata({"history.expire.min-snapshots-to-keep": "4"})) == {9, 30}
    assert gone(metadata(), older_than_ms=0) == set()


def test_branches_and_tags_keep_theirs() -> None:
    tag = {"snapshot-id": 9, "type": "tag"}
    assert gone(metadata(old=tag)) == {8, 7, 30}
    branch = {"snapshot-id": 2, "min-snapshots-to-keep": 3}
    assert gone(metadata(b=branch), older_than_ms=_NOW) == {9, 3, 30}
    aged = {"snapshot-id": 2, "max-snapshot-age-ms": 8 * _DAY}
    assert gone(metadata(b=aged), older_than_ms=_NOW) == {9, 3, 30}
    found = expired(metadata(old=tag | {"max-ref-age-ms": 8 * _DAY}, b={"snapshot-id": 2}), "db.t", _NOW)
    assert found == Expired(frozenset({9, 8, 7, 30}), frozenset({"old"}))
    by_property = metadata({"history.expire.max-ref-age-ms": "1"}, old=tag)
    assert expired(by_property, "db.t", _NOW).refs == {"old"}


def test_snapshots_that_are_named() -> None:
    assert gone(metadata(), snapshot_ids=[3, 12345], older_than_ms=0) == {3}
    for refs in ({}, {"t": {"snapshot-id": 3, "type": "tag"}}):
        with pytest.raises(RequestInvalid) as refused:
            gone(metadata(**refs), snapshot_ids=[1, 3] if not refs else [3])
        assert refused.value.rule == "snapshot-reference"


def test_tables_that_forbid_it() -> None:
    with pytest.raises(RequestInvalid):
        gone(metadata({"gc.enabled": "false"}))
    with pytest.raises(PropertyInvalid):
        gone(metadata({"history.expire.min-snapshots-to-keep": "0"}))
