"""What a list of updates asks for: parted, classified by right, applied without surprises."""

from __future__ import annotations

from typing import Any

import pytest
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.refs import SnapshotRef
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.sorting import SortOrder
from pyiceberg.table.update import (
    AddPartitionSpecUpdate,
    AddSchemaUpdate,
    AddSnapshotUpdate,
    AddSortOrderUpdate,
    AssignUUIDUpdate,
    RemovePropertiesUpdate,
    RemoveSnapshotRefUpdate,
    RemoveSnapshotsUpdate,
    SetCurrentSchemaUpdate,
    SetDefaultSpecUpdate,
    SetLocationUpdate,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
    TableUpdate,
    UpgradeFormatVersionUpdate,
)
from pyiceberg.types import LongType, NestedField

from catalog.rules import table_changes
from policy.errors import PropertyInvalid, RequestInvalid
from tests.support.vectors import each_row

SCHEMA = Schema(NestedField(1, "id", LongType()))
WIDER = Schema(NestedField(1, "id", LongType()), NestedField(2, "x", LongType()))
SNAPSHOT = Snapshot(
    snapshot_id=1,
    sequence_number=1,
    timestamp_ms=2_000_000_000_000,
    manifest_list="file:///l.avro",
    summary=Summary(Operation.APPEND),
    schema_id=0,
)
ADD = AddSnapshotUpdate(snapshot=SNAPSHOT)
MAIN = SetSnapshotRefUpdate(ref_name="main", type="branch", snapshot_id=1)
IN_FORCE = {
    "read.allowed.data.paths": "file:///t",
    "encryption.mechanism": "envelope",
    "encryption.master-key-id": "lakewarden",
    "encryption.pek-id": "p1",
}


def setting(**given: str) -> SetPropertiesUpdate:
    return SetPropertiesUpdate(updates={name.replace("__", "."): value for name, value in given.items()})


def part(*updates: TableUpdate, in_force: dict[str, str] = IN_FORCE) -> table_changes.Changes:
    return table_changes.part(updates, in_force, "db.t")


def base(**properties: str) -> TableMetadata:
    return new_table_metadata(SCHEMA, PartitionSpec(), SortOrder(), "file:///t", properties)


@each_row(
    ("update", "operations"),
    [
        (ADD, {"table.write"}),
        (MAIN, {"table.write"}),
        (RemoveSnapshotsUpdate(snapshot_ids=[1]), {"table.write"}),
        (RemoveSnapshotRefUpdate(ref_name="b"), {"table.write"}),
        (AddSchemaUpdate(schema=WIDER), {"table.alter"}),
        (SetCurrentSchemaUpdate(schema_id=0), {"table.alter"}),
        (AddPartitionSpecUpdate(spec=PartitionSpec()), {"table.alter"}),
        (SetDefaultSpecUpdate(spec_id=0), {"table.alter"}),
        (AddSortOrderUpdate(sort_order=SortOrder()), {"table.alter"}),
        (SetLocationUpdate(location="s3://b/x"), {"table.alter"}),
        (UpgradeFormatVersionUpdate(format_version=2), {"table.alter"}),
        (SetPropertiesUpdate(updates={"comment": "x"}), {"table.alter"}),
        (RemovePropertiesUpdate(removals=["comment"]), {"table.alter"}),
        (SetPropertiesUpdate(updates={"encryption.mechanism": "plaintext"}), {"table.alter"}),
        (RemovePropertiesUpdate(removals=["read.allowed.data.paths"]), {"table.alter"}),
        (AssignUUIDUpdate(uuid="00000000-0000-0000-0000-000000000001"), {"table.write"}),
    ],
)
def test_each_kind_of_update_needs_its_right(update: Any, operations: set[str]) -> None:
    assert part(update).operations == operations


def test_a_commit_of_data_and_structure_needs_both_rights() -> None:
    assert part(ADD, MAIN, AddSchemaUpdate(schema=WIDER)).operations == {"table.write", "table.alter"}


def test_a_commit_of_nothing_still_needs_a_right() -> None:
    assert part().operations == {"table.write"}
    assert part(SetPropertiesUpdate(updates={})).operations == {"table.write"}


def test_governed_properties_are_parted_from_those_of_the_file() -> None:
    found = part(
        setting(comment="x", encryption__algorithm="AES_GCM_V1"),
        RemovePropertiesUpdate(removals=["old", "read.allowed.data.paths"]),
    )
    assert found.governed_set == {"encryption.algorithm": "AES_GCM_V1"}
    assert found.governed_unset == {"read.allowed.data.paths"}
    assert list(found.updates) == [setting(comment="x"), RemovePropertiesUpdate(removals=["old"])]


def test_values_echoed_unchanged_are_no_change() -> None:
    echoed = part(SetPropertiesUpdate(updates={**IN_FORCE, "comment": "x"}), ADD)
    assert not echoed.governs
    table_changes.refuse_mixture(echoed, "db.t", governs=echoed.governs)
    assert echoed.updates[0] == setting(comment="x")


def test_the_key_id_in_force_may_be_echoed_and_nothing_else() -> None:
    assert not part(SetPropertiesUpdate(updates={"encryption.pek-id": "p1"})).governs
    for update in (
        SetPropertiesUpdate(updates={"encryption.pek-id": "p2"}),
        RemovePropertiesUpdate(removals=["encryption.pek-id"]),
    ):
        with pytest.raises(PropertyInvalid):
            part(update)


def test_an_alias_means_what_it_stands_for() -> None:
    assert part(SetPropertiesUpdate(updates={"encryption.key-id": "other"})).governed_set == {
        "encryption.master-key-id": "other"
    }
    assert part(RemovePropertiesUpdate(removals=["option.encryption.key-id"])).governed_unset == {
        "encryption.master-key-id"
    }


def test_spellings_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(PropertyInvalid, match="contradict"):
        part(SetPropertiesUpdate(updates={"encryption.key-id": "a", "encryption.master-key-id": "b"}))


def test_a_property_that_is_set_and_removed_at_once_is_refused() -> None:
    with pytest.raises(RequestInvalid) as refused:
        part(
            setting(encryption__mechanism="plaintext"),
            RemovePropertiesUpdate(removals=["encryption.mechanism"]),
        )
    assert refused.value.rule == "set-and-removed"


@pytest.mark.parametrize("name", ["Encryption.Mechanism", "encryption.mechanismus", "read.allowed.data.path"])
def test_a_name_that_looks_governed_is_refused(name: str) -> None:
    with pytest.raises(PropertyInvalid):
        part(SetPropertiesUpdate(updates={name: "envelope"}))


def test_properties_that_configure_readers_are_refused() -> None:
    with pytest.raises(PropertyInvalid):
        part(SetPropertiesUpdate(updates={"s3.endpoint": "http://elsewhere"}))


def test_locations_that_a_commit_brings_are_named() -> None:
    found = part(
        SetLocationUpdate(location="s3://b/x"),
        SetPropertiesUpdate(updates={"write.data.path": "s3://b/d", "comment": "s3://b/c"}),
    )
    assert sorted(found.locations) == ["s3://b/d", "s3://b/x"]


def test_governed_properties_and_a_snapshot_do_not_come_at_once() -> None:
    mixed = part(ADD, MAIN, setting(encryption__algorithm="AES_GCM_V1"))
    with pytest.raises(RequestInvalid) as refused:
        table_changes.refuse_mixture(mixed, "db.t", governs=mixed.governs)
    assert refused.value.rule == "mixed-commit"
    table_changes.refuse_mixture(part(ADD, MAIN, setting(comment="x")), "db.t", governs=False)


def test_updates_apply_to_the_metadata_handed_in_and_leave_it_alone() -> None:
    before = base(a="1")
    after = table_changes.apply(before, [setting(b="2"), ADD, MAIN], "file:///t/metadata/0.json", "db.t")
    assert (before.properties, after.properties) == ({"a": "1"}, {"a": "1", "b": "2"})
    assert after.current_snapshot_id == 1
    assert [entry.metadata_file for entry in after.metadata_log] == ["file:///t/metadata/0.json"]
    assert after.refs["main"] == SnapshotRef(snapshot_id=1, snapshot_ref_type="branch")


def test_nothing_asked_is_nothing_changed() -> None:
    before = base(a="1")
    assert table_changes.apply(before, [], "file:///t/metadata/0.json", "db.t") == before


def test_removing_a_property_that_is_not_there_is_fine() -> None:
    updates = [
        RemovePropertiesUpdate(removals=["absent", "a", "a"]),
        RemovePropertiesUpdate(removals=["a"]),
        setting(b="2"),
        RemovePropertiesUpdate(removals=["b"]),
    ]
    assert table_changes.apply(base(a="1"), updates, "file:///m.json", "db.t").properties == {}


@pytest.mark.parametrize(
    "update",
    [
        SetCurrentSchemaUpdate(schema_id=99),
        SetDefaultSpecUpdate(spec_id=99),
        SetSnapshotRefUpdate(ref_name="b", type="branch", snapshot_id=99),
        UpgradeFormatVersionUpdate(format_version=1),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_update_that_does_not_fit_is_one_typed_error(update: Any) -> None:
    with pytest.raises(RequestInvalid) as refused:
        table_changes.apply(base(), [update], "file:///m.json", "db.t")
    assert (refused.value.rule, refused.value.table) == ("updates", "db.t")
