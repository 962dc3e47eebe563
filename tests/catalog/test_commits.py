"""Commits: governed properties through pyiceberg's interface, ETags, no-ops, conflicts, narrowing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table import Table
from pyiceberg.table.update import (
    AssertRefSnapshotId,
    AssertTableUUID,
    AssignUUIDUpdate,
    RemovePropertiesUpdate,
    SetLocationUpdate,
    SetPropertiesUpdate,
    TableUpdate,
    UpgradeFormatVersionUpdate,
)

from catalog.base.errors import CommitConflict
from catalog.reading.loading import LoadedTable
from policy.errors import (
    EncryptionPolicyViolation,
    InvalidInput,
    LakewardenError,
    LocationNotAllowed,
    MetadataTampered,
    NotSupportedYet,
    PropertyInvalid,
    RequestInvalid,
)
from tests.support.lake import ALICE, Lake
from tests.support.tables import ENCRYPTED, append_files, make, name_of, rows

PATHS = "read.allowed.data.paths"
OTHER_UUID = "00000000-0000-4000-8000-000000000000"


def load(lake: Lake, table: Table) -> LoadedTable:
    return lake.services.access.load(lake.caller(ALICE), name_of(table))


def commit(lake: Lake, table: Table, *updates: TableUpdate, **options: Any) -> LoadedTable:
    return lake.services.committer.commit(lake.caller(ALICE), name_of(table), [], updates, **options)


def setting(**given: str) -> SetPropertiesUpdate:
    return SetPropertiesUpdate(
        updates={name.replace("__", ".").replace("_", "-"): value for name, value in given.items()}
    )


def refused(lake: Lake, table: Table, error: type[LakewardenError], *updates: TableUpdate) -> LakewardenError:
    """The error of a commit that changes neither the table nor its files."""
    before, files = load(lake, table), {*lake.warehouse.rglob("*")}
    with pytest.raises(error) as raised:
        commit(lake, table, *updates)
    after = load(lake, table)
    assert (after.etag, after.governed, after.metadata) == (before.etag, before.governed, before.metadata)
    assert {*lake.warehouse.rglob("*")} == files
    return raised.value


def test_governed_properties_are_set_and_shown(lake: Lake) -> None:
    table = make(lake)
    with table.transaction() as transaction:
        transaction.set_properties({PATHS: f"{table.location()},s3://b/x", "comment": "c"})
    shown = lake.catalog().load_table(table.name()).properties
    assert shown[PATHS] == f"{table.location()},s3://b/x"
    assert shown["comment"] == "c"
    stored = json.loads(Path(load(lake, table).metadata_location.removeprefix("file://")).read_text())
    assert stored["properties"] == {"comment": "c"}


def test_an_unset_list_goes_back_to_the_location(lake: Lake) -> None:
    table = make(lake, properties={PATHS: "s3://b/x"})
    with table.transaction() as transaction:
        transaction.remove_properties(PATHS)
    assert lake.catalog().load_table(table.name()).properties[PATHS] == table.location()


def test_a_client_that_echoes_what_it_was_shown_changes_nothing_governed(lake: Lake) -> None:
    table = make(lake, properties=ENCRYPTED)
    before = load(lake, table)
    echoed = SetPropertiesUpdate(updates=before.shown_metadata.properties | {"comment": "c"})
    after = commit(lake, table, echoed)
    assert after.governed == before.governed
    assert after.metadata.properties == {"comment": "c"}


def test_a_commit_of_nothing_writes_nothing(lake: Lake) -> None:
    table = make(lake, properties={"comment": "c"})
    before, files = load(lake, table), {*lake.warehouse.rglob("*")}
    for updates in (
        (),
        (RemovePropertiesUpdate(removals=["absent"]),),
        (SetPropertiesUpdate(updates=before.governed.to_properties()),),
    ):
        assert commit(lake, table, *updates).metadata_location == before.metadata_location
    assert {*lake.warehouse.rglob("*")} == files


def test_an_alias_is_the_property_that_it_stands_for(lake: Lake) -> None:
    table = make(lake)
    commit(lake, table, SetPropertiesUpdate(updates={"encryption.key-id": "lakewarden"}))
    shown = load(lake, table).shown_metadata.properties
    assert shown["encryption.master-key-id"] == "lakewarden"
    assert "encryption.key-id" not in shown


@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"encryption.mechanism": "rot13"}, PropertyInvalid),
        ({"encryption.key-id": "a", "encryption.master-key-id": "b"}, PropertyInvalid),
        ({"encryption.mechanism": "plaintext", "encryption.pek-id": "x"}, PropertyInvalid),
        ({"Encryption.mechanism": "envelope"}, PropertyInvalid),
        ({PATHS: "s3://b/x,,s3://b/y"}, InvalidInput),
        ({"encryption.columns": "lakewarden:absent"}, PropertyInvalid),
        ({"encryption.masks": "sha256:id"}, PropertyInvalid),
        ({"orc.key.provider": "hadoop"}, NotSupportedYet),
        ({"hadoop.security.key.provider.path": "kms://http@h:1/kms"}, NotSupportedYet),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_governed_properties_that_cannot_hold_are_refused_at_alter(
    lake: Lake, given: dict[str, str], error: type[LakewardenError]
) -> None:
    refused(lake, make(lake), error, SetPropertiesUpdate(updates=given))


def test_the_etag_changes_with_data_properties_and_governed_properties(lake: Lake) -> None:
    table = make(lake)
    etags = [load(lake, table).etag]
    assert load(lake, table).etag == etags[0]
    for change in (
        lambda: table.append(rows(1)),
        lambda: commit(lake, table, setting(comment="c")),
        lambda: commit(lake, table, SetPropertiesUpdate(updates={PATHS: f"{table.location()},s3://b/x"})),
        lambda: commit(lake, table, setting(encryption__mechanism="envelope")),
        lambda: commit(lake, table, setting(encryption__mechanism="plaintext")),
    ):
        change()
        etags.append(load(lake, table).etag)
    assert len(set(etags)) == len(etags)


def test_encryption_begins_with_the_next_file_and_old_ones_stay_readable(lake: Lake) -> None:
    table = make(lake)
    table.append(rows(1))
    commit(lake, table, setting(encryption__mechanism="envelope"))
    epochs = load(lake, table).governed.epochs.entries
    assert [(each.from_sequence_number, each.spec.encrypts) for each in epochs] == [(0, False), (2, True)]
    append_files(lake, name_of(table))
    with pytest.raises(EncryptionPolicyViolation):
        lake.catalog().load_table(table.name()).append(rows(3))
    assert len(load(lake, table).metadata.snapshots) == 2


def test_the_key_of_a_table_stays_when_encryption_comes_back(lake: Lake) -> None:
    table = make(lake, properties=ENCRYPTED)
    first = load(lake, table).governed.to_properties()["encryption.pek-id"]
    commit(lake, table, setting(encryption__mechanism="plaintext"))
    assert "encryption.pek-id" not in load(lake, table).shown_metadata.properties
    commit(lake, table, setting(encryption__mechanism="envelope"))
    assert load(lake, table).governed.to_properties()["encryption.pek-id"] == first


def test_an_encrypted_table_is_not_partitioned_later(lake: Lake) -> None:
    table = make(lake, properties=ENCRYPTED)
    with pytest.raises(EncryptionPolicyViolation), table.update_spec() as update:
        update.add_identity("name")
    partitioned = make(lake)
    with partitioned.update_spec() as update:
        update.add_identity("name")
    refused(lake, partitioned, EncryptionPolicyViolation, setting(encryption__mechanism="envelope"))


def test_governed_properties_and_rows_do_not_come_in_one_commit(lake: Lake) -> None:
    table = make(lake)
    before = load(lake, table)
    with pytest.raises(RequestInvalid, match="cannot both change"), table.transaction() as transaction:
        transaction.set_properties({PATHS: f"{table.location()},s3://b/x"})
        transaction.append(rows(1))
    assert load(lake, table).etag == before.etag


def test_narrowing_names_the_snapshots_that_it_breaks_and_needs_force(lake: Lake) -> None:
    table = make(lake)
    table.append(rows(1))
    first = load(lake, table).metadata.current_snapshot_id
    narrower = SetPropertiesUpdate(updates={PATHS: f"{table.location()}/metadata"})
    error = refused(lake, table, LocationNotAllowed, narrower)
    assert (error.rule, error.snapshot) == ("narrowing", first)
    assert str(first) in error.message
    assert commit(lake, table, narrower, force=True).governed.allowed.to_property().endswith("/metadata")


def test_narrowing_that_breaks_nothing_needs_no_force(lake: Lake) -> None:
    table = make(lake, properties={PATHS: ""})
    commit(lake, table, SetPropertiesUpdate(updates={PATHS: f"{table.location()},s3://b/x"}))
    commit(lake, table, RemovePropertiesUpdate(removals=[PATHS]))


def test_requirements_that_do_not_hold_are_conflicts(lake: Lake) -> None:
    table = make(lake)
    for requirement in (AssertTableUUID(uuid=OTHER_UUID), AssertRefSnapshotId(ref="main", snapshot_id=7)):
        with pytest.raises(CommitConflict) as raised:
            lake.services.committer.commit(
                lake.caller(ALICE), name_of(table), [requirement], [setting(a="b")]
            )
        assert raised.value.rule == requirement.type
    assert "a" not in load(lake, table).metadata.properties


def test_a_branch_that_must_not_exist_does_not_in_a_table_without_snapshots(lake: Lake) -> None:
    table = make(lake)
    absent = AssertRefSnapshotId(ref="audit", snapshot_id=None)
    lake.services.committer.commit(lake.caller(ALICE), name_of(table), [absent], [setting(a="b")])
    assert load(lake, table).metadata.properties["a"] == "b"


def test_identity_version_and_reader_configuration_do_not_change(lake: Lake) -> None:
    table = make(lake)
    refused(lake, table, LakewardenError, AssignUUIDUpdate(uuid=OTHER_UUID))
    refused(lake, table, LakewardenError, UpgradeFormatVersionUpdate(format_version=3))
    refused(lake, table, InvalidInput, UpgradeFormatVersionUpdate(format_version=1))
    refused(lake, table, PropertyInvalid, SetPropertiesUpdate(updates={"s3.endpoint": "http://x"}))
    commit(lake, table, AssignUUIDUpdate(uuid=table.metadata.table_uuid))


def test_a_table_moves_only_where_it_can_be_read(lake: Lake, tmp_path: Path) -> None:
    table = make(lake)
    table.append(rows(1))
    where = f"file://{tmp_path}/new"
    commit(lake, table, SetPropertiesUpdate(updates={PATHS: f"{table.location()},{where}"}))
    commit(lake, table, SetLocationUpdate(location=where))
    moved = lake.catalog().load_table(table.name())
    assert moved.location() == where
    moved.append(rows(3))
    assert moved.scan().to_arrow().num_rows == 4
    assert load(lake, table).record.default_location is False


def test_a_uuid_of_another_table_is_tampering(lake: Lake) -> None:
    table, other = make(lake), make(lake)
    with pytest.raises((MetadataTampered, RequestInvalid)):
        commit(lake, table, AssignUUIDUpdate(uuid=other.metadata.table_uuid))
