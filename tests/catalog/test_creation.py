"""CREATE: identity and location from the catalog, governed properties in force from the first instant."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.update import AssertCreate, AssertTableUUID, AssignUUIDUpdate, SetLocationUpdate
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField
from sqlalchemy import func, select

from catalog.base.errors import CommitConflict
from catalog.db.engine import read
from catalog.db.schema import iceberg_tables, lw_binding, lw_governed, lw_pek, lw_seal, lw_staged, lw_table
from catalog.tables.drafts import NewTable
from policy.errors import (
    EncryptionPolicyViolation,
    InvalidInput,
    KeyNotUsable,
    LakewardenError,
    LocationInvalid,
    LocationNotAllowed,
    NotAuthorized,
    NotSupportedYet,
    PropertyInvalid,
    RequestInvalid,
    UnsupportedFormatVersion,
)
from tests.support.lake import ALICE, BOB, Lake, policy
from tests.support.tables import ENCRYPTED, SCHEMA, fresh, make, rows

BY_ID = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "id"))
STATE = (iceberg_tables, lw_table, lw_binding, lw_governed, lw_seal, lw_pek, lw_staged)
PATHS = "read.allowed.data.paths"


def everything(lake: Lake) -> tuple[dict[str, int], set[Path]]:
    """How much there is in the database, and every file of the warehouse."""
    with read(lake.services.engine) as connection:
        counts = {
            table.name: connection.execute(select(func.count()).select_from(table)).scalar_one()
            for table in STATE
        }
    return counts, {path for path in lake.warehouse.rglob("*") if path.is_file()}


def refused(
    lake: Lake, error: type[LakewardenError], user: str = ALICE, database: str = "db", **options: object
) -> LakewardenError:
    """The error of a CREATE, at once and staged, that leaves nothing behind."""
    before = everything(lake)
    for create in (lake.catalog(user).create_table, lake.catalog(user).create_table_transaction):
        with pytest.raises(error) as raised:
            create(str(fresh(database)), SCHEMA, **options)  # type: ignore[arg-type]
        assert everything(lake) == before
    return raised.value


@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize(
    ("properties", "error"),
    [
        ({"encryption.mechanism": "rot13"}, PropertyInvalid),
        ({"encryption.mechanism": "Envelope"}, PropertyInvalid),
        ({"encryption.mechanism": ""}, PropertyInvalid),
        ({"encryption.unknown": "x"}, PropertyInvalid),
        ({"Encryption.mechanism": "envelope"}, PropertyInvalid),
        ({"encryption.mechan\u0456sm": "envelope"}, PropertyInvalid),
        ({"encryption.mechanism": "plaintext", "encryption.data-key-length": "16"}, PropertyInvalid),
        ({"encryption.key-id": "a", "encryption.master-key-id": "b"}, PropertyInvalid),
        ({"option.encryption.mechanism": "plaintext", "encryption.mechanism": "envelope"}, PropertyInvalid),
        ({"encryption.data-key-length": "31"}, PropertyInvalid),
        ({"encryption.pek-id": "p"}, PropertyInvalid),
        ({PATHS: "not a location"}, LocationInvalid),
        ({PATHS: "s3://b/x,"}, InvalidInput),
        ({PATHS: "s3://b/x/../y"}, LocationInvalid),
        ({PATHS: '["s3://b/x", "s3://b/x", 3]'}, InvalidInput),
        ({"write.data.path": "elsewhere"}, LocationInvalid),
        ({"s3.endpoint": "http://elsewhere"}, PropertyInvalid),
        ({"py-io-impl": "evil.IO"}, PropertyInvalid),
    ],
    ids=lambda value: str(value)[:60] if isinstance(value, Mapping) else "",
)
def test_malformed_properties_create_nothing(
    lake: Lake, properties: dict[str, str], error: type[LakewardenError]
) -> None:
    raised = refused(lake, error, properties=properties)
    assert raised.hint or raised.message


@pytest.mark.parametrize(
    "properties",
    [
        {"orc.key.provider": "hadoop"},
        {"hadoop.security.key.provider.path": "kms://http@h:1/kms"},
    ],
    ids=lambda value: next(iter(value)),
)
def test_what_has_no_effect_yet_is_refused_at_create(lake: Lake, properties: dict[str, str]) -> None:
    assert "no effect" in refused(lake, NotSupportedYet, properties=properties).message


@pytest.mark.parametrize("version", ["0", "3", "4", "two", "", "01"])
def test_only_format_versions_one_and_two_are_created(lake: Lake, version: str) -> None:
    raised = refused(lake, UnsupportedFormatVersion, properties={"format-version": version})
    assert raised.rule == "format-version"


def test_format_version_two_may_be_asked_for(lake: Lake) -> None:
    assert make(lake, properties={"format-version": "2"}).format_version == 2


def test_an_encrypted_column_partitions_no_table(lake: Lake) -> None:
    before = everything(lake)
    with pytest.raises(EncryptionPolicyViolation) as raised:
        lake.catalog().create_table(str(fresh()), SCHEMA, properties=ENCRYPTED, partition_spec=BY_ID)
    assert everything(lake) == before
    assert raised.value.rule == "encrypted-source"


def test_an_unknown_master_key_creates_nothing(lake: Lake) -> None:
    before = everything(lake)
    with pytest.raises(KeyNotUsable):
        make(lake, properties={"encryption.master-key-id": "no-such-key"})
    assert everything(lake) == before


def test_a_schema_and_a_spec_that_do_not_fit_create_nothing(lake: Lake) -> None:
    foreign = PartitionSpec(PartitionField(99, 1000, IdentityTransform(), "nowhere"))
    assert refused(lake, RequestInvalid, partition_spec=foreign).rule == "schema"


def test_an_encrypted_table_has_its_key_from_the_start(lake: Lake) -> None:
    table = make(lake, properties=ENCRYPTED)
    shown = table.properties
    assert shown["encryption.master-key-id"] == "lakewarden"
    assert shown["encryption.algorithm"] == "AES_GCM_V1"
    assert shown["encryption.data-key-length"] == "32"
    assert len(shown["encryption.pek-id"]) == 36
    assert make(lake, properties=ENCRYPTED).properties["encryption.pek-id"] != shown["encryption.pek-id"]


@pytest.mark.parametrize(
    "alias", ["encryption.key-id", "parquet.encryption.uniform.key", "option.encryption.key-id"]
)
def test_names_that_people_already_use_mean_the_same(lake: Lake, alias: str) -> None:
    shown = make(lake, properties={alias: "lakewarden"}).properties
    assert (shown["encryption.mechanism"], shown["encryption.master-key-id"]) == ("envelope", "lakewarden")
    assert alias == "encryption.master-key-id" or alias not in shown


def test_options_that_come_twice_and_agree_are_one(lake: Lake) -> None:
    given = {"encryption.mechanism": "envelope", "option.encryption.mechanism": "envelope"}
    assert make(lake, properties=given).properties["encryption.mechanism"] == "envelope"


def test_a_custom_location_is_used_and_inherited(lake: Lake, tmp_path: Path) -> None:
    where = f"file://{tmp_path}/mine"
    table = make(lake, location=where + "/")
    assert table.location() == where
    assert table.properties[PATHS] == where
    table.append(rows(1))
    assert table.scan().to_arrow().num_rows == 2


@pytest.mark.parametrize(
    "options",
    [
        {"location": "file:///somewhere/mine"},
        {"properties": {PATHS: "file:///somewhere/else"}},
        {"properties": {"write.data.path": "file:///somewhere/else"}},
        {"properties": {"write.metadata.path": "file:///somewhere/else"}},
        {"properties": {"write.object-storage.path": "file:///somewhere/else"}},
        {"properties": {"write.folder-storage.path": "file:///somewhere/else"}},
        {"properties": ENCRYPTED},
    ],
    ids=["location", "paths", "data", "metadata", "object", "folder", "key"],
)
def test_every_path_and_key_is_authorized_with_the_table_or_nothing_is_created(
    lake: Lake, options: dict[str, object]
) -> None:
    raised = refused(lake, NotAuthorized, BOB, "bobs", **options)
    assert raised.table is not None


def test_the_default_location_needs_no_right_on_storage(lake: Lake) -> None:
    table = lake.catalog(BOB).create_table(str(fresh("bobs")), SCHEMA)
    table.append(rows(1))
    assert table.scan().to_arrow().num_rows == 2


def test_only_the_warehouse_counts_as_default(lake: Lake) -> None:
    """A namespace's location moves nothing, and paths below the warehouse are not one's own."""
    theirs = make(lake)
    lake.catalog().create_namespace("located", {"location": "file:///somewhere/located"})
    assert make(lake, fresh("located")).location().startswith(f"file://{lake.warehouse}/located/")
    refused(lake, NotAuthorized, BOB, "bobs", properties={PATHS: f"{theirs.location()}/data"})
    refused(lake, NotAuthorized, BOB, "bobs", location=f"file://{lake.warehouse}/bobs/mine")


def test_a_location_may_not_overlap_another_tables_without_rights_on_it(lake: Lake) -> None:
    theirs = make(lake)
    dropped = make(lake)
    lake.catalog().drop_table(dropped.name())
    everywhere = [
        *json.loads((lake.root / "policies" / "lake.json").read_text())["policies"],
        {
            "name": "bob-storage",
            "service": "lake",
            "resources": {"storage-type": {"values": ["*"]}, "storage-url": {"values": ["*"]}},
            "policyItems": [{"users": [BOB], "accesses": [{"type": "rwstorage", "isAllowed": True}]}],
        },
    ]
    lake.set_policies(everywhere)
    try:
        for location in (
            theirs.location(),
            f"{theirs.location()}/x",
            f"file://{lake.warehouse}",
            dropped.location(),
        ):
            refused(lake, NotAuthorized, BOB, "bobs", location=location)
        sibling = lake.catalog(BOB).create_table(
            str(fresh("bobs")), SCHEMA, location=f"{theirs.location()}-sibling"
        )
        assert sibling.location() == f"{theirs.location()}-sibling"
    finally:
        lake.set_policies(everywhere[:-1])


def test_a_denial_of_what_is_its_owners_stops_tables_there(lake: Lake) -> None:
    """The owner of a new table is the user who creates it. A change by another user keeps the owner."""
    before = json.loads((lake.root / "policies" / "lake.json").read_text())["policies"]
    denied = policy("homes", {"storage-type": ["*"], "storage-url": ["file:///homes/{OWNER}*"]}, {})
    denied["denyPolicyItems"] = [{"groups": ["public"], "accesses": [{"type": "rwstorage"}]}]
    theirs = lake.catalog(BOB).create_table(str(fresh("bobs")), SCHEMA)
    lake.set_policies([*before, denied])
    try:
        refused(lake, NotAuthorized, ALICE, "db", location=f"file:///homes/{ALICE}/t")
        make(lake, properties={PATHS: f"file:///homes/{BOB}/t"})
        table = lake.catalog(ALICE).load_table(theirs.name())
        with pytest.raises(NotAuthorized, match="'homes' denies"):
            table.transaction().set_properties({PATHS: f"file:///homes/{BOB}/t"}).commit_transaction()
        table.transaction().set_properties({PATHS: f"file:///homes/{ALICE}/t"}).commit_transaction()
    finally:
        lake.set_policies(before)


def staged(lake: Lake, database: str = "db") -> tuple[NewTable, list[object]]:
    """A table that Alice staged, and the updates that complete it without anything else."""
    new = NewTable(fresh(database), SCHEMA)
    metadata = lake.services.creator.stage(lake.caller(ALICE), new).metadata
    return new, [AssignUUIDUpdate(uuid=metadata.table_uuid), SetLocationUpdate(location=metadata.location)]


def test_a_staged_identity_is_for_its_own_principal_and_name(lake: Lake) -> None:
    new, updates = staged(lake, "bobs")
    with pytest.raises(RequestInvalid) as raised:
        lake.services.creator.commit_staged(lake.caller(BOB), new.name, [AssertCreate()], updates)  # type: ignore[arg-type]
    assert raised.value.rule == "staged"


def test_nobody_makes_up_an_identity(lake: Lake) -> None:
    new, (_, at) = staged(lake)
    made_up = AssignUUIDUpdate(uuid="00000000-0000-4000-8000-000000000000")
    for updates in ([made_up, at], [at], [made_up], [made_up, made_up, at], []):
        before = everything(lake)
        with pytest.raises(RequestInvalid) as raised:
            lake.services.creator.commit_staged(lake.caller(ALICE), new.name, [AssertCreate()], updates)  # type: ignore[arg-type]
        assert raised.value.rule == "staged"
        assert everything(lake) == before


def test_a_staged_table_stays_where_it_was_staged(lake: Lake) -> None:
    new, (uuid, _) = staged(lake)
    elsewhere = SetLocationUpdate(location=f"file://{lake.warehouse}/db/elsewhere")
    with pytest.raises(RequestInvalid):
        lake.services.creator.commit_staged(lake.caller(ALICE), new.name, [AssertCreate()], [uuid, elsewhere])  # type: ignore[list-item]
    with pytest.raises(RequestInvalid):
        lake.services.creator.commit_staged(lake.caller(ALICE), fresh(), [AssertCreate()], [uuid, elsewhere])  # type: ignore[list-item]


def test_a_staged_creation_without_a_schema_is_one_typed_error(lake: Lake) -> None:
    new, updates = staged(lake)
    before = everything(lake)
    with pytest.raises(InvalidInput):
        lake.services.creator.commit_staged(lake.caller(ALICE), new.name, [AssertCreate()], updates)  # type: ignore[arg-type]
    assert everything(lake) == before


def test_requirements_of_an_existing_table_do_not_hold_of_a_new_one(lake: Lake) -> None:
    new, updates = staged(lake)
    uuid = AssertTableUUID(uuid="00000000-0000-4000-8000-000000000000")
    with pytest.raises(CommitConflict):
        lake.services.creator.commit_staged(lake.caller(ALICE), new.name, [AssertCreate(), uuid], updates)  # type: ignore[arg-type]


def test_governed_properties_take_force_with_the_commit_of_a_staged_table(lake: Lake) -> None:
    name = fresh()
    with lake.catalog().create_table_transaction(str(name), SCHEMA, properties=ENCRYPTED):
        pass
    assert lake.catalog().load_table(str(name)).properties["encryption.mechanism"] == "envelope"


def test_a_staged_tables_first_files_are_checked_against_its_rules(lake: Lake) -> None:
    name = fresh()
    before = lake.catalog().list_tables("db")
    stage = lake.catalog().create_table_transaction
    with (
        pytest.raises(EncryptionPolicyViolation),
        stage(str(name), SCHEMA, properties=ENCRYPTED) as transaction,
    ):
        transaction.append(rows(1))
    elsewhere = {PATHS: "file:///somewhere/else"}
    with (
        pytest.raises(LocationNotAllowed),
        stage(str(name), SCHEMA, properties=elsewhere) as transaction,
    ):
        transaction.append(rows(1))
    assert lake.catalog().list_tables("db") == before


def test_a_table_without_columns_and_one_with_many(lake: Lake) -> None:
    many = Schema(*(NestedField(number, f"c{number}", LongType()) for number in range(1, 400)))
    assert len(make(lake, schema=many).schema().fields) == 399
    assert make(lake, schema=Schema()).schema().fields == ()
