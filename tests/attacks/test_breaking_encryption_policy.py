"""Ways around the encryption rules, for a user who can do everything to their tables but `unprotect` them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.refs import SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from pyiceberg.table.update import (
    AddSchemaUpdate,
    AddSnapshotUpdate,
    RemoveSchemasUpdate,
    SetCurrentSchemaUpdate,
    SetPropertiesUpdate,
    SetSnapshotRefUpdate,
    TableUpdate,
)
from pyiceberg.types import IntegerType, ListType, LongType, MapType, NestedField, StringType, StructType
from sqlalchemy import update as sql_update

from catalog.base.identifiers import TableName
from catalog.db.engine import write
from catalog.db.schema import iceberg_tables
from catalog.iceberg.metadata import dump_metadata
from catalog.tables.alter import Change
from catalog.tables.schema_changes import AddColumn, DropColumn, RenameColumn, UpdateType
from policy.errors import EncryptionPolicyViolation, LakewardenError, NotAuthorized, Refused
from tests.support.lake import ALICE, ALLOWS_UNSEALED, Lake, open_lake, policy, standard_policies, tables
from tests.support.rules import put_rules, rule, tag
from tests.support.tables import ENCRYPTED, append_files, fresh, name_of

MALLORY = "mallory"
RIGHTS = ["select", "update", "create", "drop", "alter"]
HARMLESS = Schema(NestedField(1, "id", LongType()), NestedField(2, "note", StringType()))
PERSONAL = Schema(NestedField(1, "id", LongType()), NestedField(2, "ssn", StringType()))


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    """A catalog in which Mallory has every right on tables but `unprotect`, and storage as she likes."""
    mallory = [
        policy("mallory", tables("*"), {MALLORY: RIGHTS}),
        policy("storage", {"storage-type": ["*"], "storage-url": ["*"]}, {MALLORY: ["rwstorage"]}),
        policy("keys", {"key": ["*"]}, {MALLORY: ["use", "release"]}),
    ]
    with open_lake(tmp_path_factory.mktemp("lake"), policies=[*standard_policies(), *mallory]) as opened:
        for namespace in ("db", "bobs"):
            opened.catalog().create_namespace(namespace, ALLOWS_UNSEALED)
        yield opened


@pytest.fixture(autouse=True)
def rules(lake: Lake) -> Iterator[None]:
    """Social security numbers are encrypted in `db`, and nowhere else."""
    put_rules(lake, rule("personal", databases=["db"], columns=["ssn"], minDataKeyLength=24))
    yield
    put_rules(lake)


def make(lake: Lake, schema: Schema = HARMLESS, **properties: str) -> Table:
    """A table of Mallory's in `db`."""
    name = fresh()
    return lake.catalog(MALLORY).create_table(str(name), schema, properties=properties)


def alter(lake: Lake, table: Table, *changes: Change) -> None:
    lake.services.alterer.alter(lake.caller(MALLORY), name_of(table), changes)


def commit(lake: Lake, table: Table, *updates: TableUpdate, user: str = MALLORY) -> None:
    catalog = lake.catalog(user)
    catalog.commit_table(catalog.load_table(table.name()), (), updates)


#: Breaks the rule; and weakens a table, so that the rule is met by those alone who may unprotect it.
SHORTER = SetPropertiesUpdate(updates={"encryption.data-key-length": "16"})


def governed(lake: Lake, table: Table) -> Any:
    return lake.services.loader.load(name_of(table)).governed


def with_schema(*fields: NestedField, number: int = 7) -> AddSchemaUpdate:
    return AddSchemaUpdate(schema_=Schema(*fields, schema_id=number))


# -- names


@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize(
    "name",
    ["ssn", "SSN", "Ssn", "ѕsn", "ss\u200bn", "\u202essn", "ｓｓｎ", " ssn", "ssń", "s\u00a0s\u00a0n", "ⓢⓢⓝ"],
    ids=ascii,
)
def test_a_column_under_a_name_that_reads_the_same(lake: Lake, name: str) -> None:
    table = make(lake)
    for change in (AddColumn((name,), StringType()), RenameColumn(("note",), name)):
        with pytest.raises(LakewardenError):
            alter(lake, table, change)
    added = with_schema(*HARMLESS.fields, NestedField(3, name, StringType()))
    with pytest.raises(LakewardenError):
        commit(lake, table, added, SetCurrentSchemaUpdate(schema_id=-1))
    with pytest.raises(LakewardenError):
        make(lake, Schema(NestedField(1, name, StringType())))
    assert [field.name for field in table.refresh().schema().fields] == ["id", "note"]


_INSIDE = StructType(NestedField(11, "ssn", StringType()))
NESTED = {
    "struct": _INSIDE,
    "list": ListType(12, _INSIDE),
    "key of a map": MapType(13, _INSIDE, 14, StringType()),
    "value of a map": MapType(13, StringType(), 14, _INSIDE),
    "deep": StructType(NestedField(15, "a", ListType(16, MapType(17, LongType(), 18, _INSIDE)))),
    "field of a column of that name": StructType(NestedField(19, "number", StringType())),
}


@pytest.mark.parametrize("way", NESTED)
def test_a_column_inside_of_another_one(lake: Lake, way: str) -> None:
    name = "ssn" if way.startswith("field") else "who"
    table = make(lake)
    with pytest.raises(EncryptionPolicyViolation):
        alter(lake, table, AddColumn((name,), NESTED[way]))
    with pytest.raises(EncryptionPolicyViolation):
        make(lake, Schema(NestedField(1, name, NESTED[way])))
    alter(lake, table, AddColumn(("other",), StructType(NestedField(11, "x", StringType()))))
    with pytest.raises(EncryptionPolicyViolation):
        alter(lake, table, AddColumn(("other", "ssn"), StringType()))


def test_a_column_with_a_dot_in_its_name(lake: Lake) -> None:
    with pytest.raises(LakewardenError):
        make(lake, Schema(NestedField(1, "who.ssn", StringType())))


# -- a protected column under another name


def test_rename_to_something_harmless_then_drop_the_protection(lake: Lake) -> None:
    """The column keeps its field id, and with it the values and the rule."""
    table = make(lake, PERSONAL, **ENCRYPTED)
    alter(lake, table, RenameColumn(("ssn",), "note"))
    with pytest.raises(NotAuthorized, match="unprotect"):
        commit(lake, table, SHORTER)
    with pytest.raises(EncryptionPolicyViolation, match="are shorter than 24 bytes"):
        commit(lake, table, SHORTER, user=ALICE)
    plain = SetPropertiesUpdate(updates={"encryption.mechanism": "plaintext"})
    with pytest.raises(NotAuthorized):
        commit(lake, table, plain)
    alice = lake.catalog(ALICE)
    with pytest.raises(EncryptionPolicyViolation, match="'note', formerly 'ssn',"):
        alice.commit_table(alice.load_table(table.name()), (), (plain,))


def test_rename_in_a_plain_commit(lake: Lake) -> None:
    table = make(lake, PERSONAL, **ENCRYPTED)
    renamed = with_schema(PERSONAL.fields[0], NestedField(2, "note", StringType()))
    commit(lake, table, renamed, SetCurrentSchemaUpdate(schema_id=-1))
    with pytest.raises(EncryptionPolicyViolation):
        commit(lake, table, SHORTER, user=ALICE)


def test_rename_of_the_struct_around_it(lake: Lake) -> None:
    """What is added to the struct later lies under the rule on the struct."""
    put_rules(lake, rule("person", databases=["db"], columns=["person"]))
    struct = StructType(NestedField(2, "name", StringType()))
    table = make(lake, Schema(NestedField(1, "person", struct)), **ENCRYPTED)
    alter(lake, table, RenameColumn(("person",), "thing"), AddColumn(("thing", "value"), StringType()))
    alter(lake, table, DropColumn(("thing", "name")))
    alice = lake.catalog(ALICE)
    plain = SetPropertiesUpdate(updates={"encryption.mechanism": "plaintext"})
    with pytest.raises(EncryptionPolicyViolation, match=r"'thing\.value', formerly 'person\.value',"):
        alice.commit_table(alice.load_table(table.name()), (), (plain,))


def test_forgetting_the_schema_that_has_the_old_name(lake: Lake) -> None:
    """On a table that was never encrypted schemas may go, but not to leave a rule."""
    put_rules(lake)
    table = make(lake, PERSONAL)
    alter(lake, table, RenameColumn(("ssn",), "note"))
    put_rules(lake, rule("personal", databases=["db"], columns=["ssn"]))
    with pytest.raises(NotAuthorized, match="unprotect"):
        commit(lake, table, RemoveSchemasUpdate(schema_ids=[0]))
    alice = lake.catalog(ALICE)
    alice.commit_table(alice.load_table(table.name()), (), (RemoveSchemasUpdate(schema_ids=[0]),))
    alter(lake, table, AddColumn(("free",), StringType()))


def test_forgetting_the_schemas_of_an_encrypted_table(lake: Lake) -> None:
    table = make(lake, PERSONAL, **ENCRYPTED)
    alter(lake, table, RenameColumn(("ssn",), "note"))
    with pytest.raises(LakewardenError):
        commit(lake, table, RemoveSchemasUpdate(schema_ids=[0]))


def test_drop_and_add_again(lake: Lake) -> None:
    put_rules(lake)
    table = make(lake, PERSONAL)
    put_rules(lake, rule("personal", databases=["db"], columns=["ssn"]))
    alter(lake, table, DropColumn(("ssn",)))
    with pytest.raises(EncryptionPolicyViolation):
        alter(lake, table, AddColumn(("ssn",), StringType()))
    with pytest.raises(EncryptionPolicyViolation):
        commit(lake, table, SetCurrentSchemaUpdate(schema_id=0))


def test_another_type_is_the_same_column(lake: Lake) -> None:
    number = Schema(NestedField(1, "ssn", IntegerType()))
    table = make(lake, number, **ENCRYPTED)
    alter(lake, table, UpdateType(("ssn",), LongType()), RenameColumn(("ssn",), "number"))
    with pytest.raises(EncryptionPolicyViolation):
        commit(lake, table, SHORTER, user=ALICE)


# -- schemas


def test_a_schema_that_comes_first_and_becomes_current_later(lake: Lake) -> None:
    table = make(lake)
    commit(lake, table, with_schema(*HARMLESS.fields, NestedField(3, "ssn", StringType()), number=1))
    with pytest.raises(EncryptionPolicyViolation):
        commit(lake, table, SetCurrentSchemaUpdate(schema_id=1))


def test_two_schemas_of_one_number(lake: Lake) -> None:
    """Whichever of them a reader takes for the current one."""
    table = make(lake)
    twin = with_schema(*HARMLESS.fields, NestedField(3, "ssn", StringType()), number=0)
    with pytest.raises(LakewardenError):
        commit(lake, table, twin)


@pytest.mark.parametrize("branch", ["main", "side"])
def test_a_snapshot_with_a_schema_of_its_own(lake: Lake, branch: str) -> None:
    """On a branch, or as the past of the table: readers take the snapshot's schema."""
    table = make(lake)
    append_files(lake, name_of(table))
    commit(lake, table, with_schema(*HARMLESS.fields, NestedField(3, "ssn", StringType()), number=1))
    metadata = lake.services.loader.load(name_of(table)).metadata
    last = metadata.current_snapshot()
    assert last is not None
    forged = Snapshot(
        snapshot_id=77,
        parent_snapshot_id=last.snapshot_id,
        sequence_number=metadata.last_sequence_number + 1,
        timestamp_ms=metadata.last_updated_ms + 1,
        manifest_list=last.manifest_list,
        summary=Summary(Operation.APPEND),
        schema_id=1,
    )
    reference = SetSnapshotRefUpdate(ref_name=branch, type=SnapshotRefType.BRANCH, snapshot_id=77)
    with pytest.raises(EncryptionPolicyViolation, match="of a snapshot's schema"):
        commit(lake, table, AddSnapshotUpdate(snapshot=forged), reference)


def test_a_replaced_table(lake: Lake) -> None:
    """What a client's REPLACE sends: another schema, other properties, in one commit."""
    table = make(lake, PERSONAL, **ENCRYPTED)
    replaced = with_schema(NestedField(1, "id", LongType()), NestedField(9, "ssn", StringType()))
    with pytest.raises(Refused):
        commit(
            lake,
            table,
            replaced,
            SetCurrentSchemaUpdate(schema_id=-1),
            SetPropertiesUpdate(updates={"encryption.mechanism": "plaintext"}),
        )
    with pytest.raises(EncryptionPolicyViolation):
        commit(
            lake,
            table,
            replaced,
            SetCurrentSchemaUpdate(schema_id=-1),
            SHORTER,
            user=ALICE,
        )


def test_a_staged_table_that_is_another_one_when_it_is_committed(lake: Lake) -> None:
    name, catalog = fresh(), lake.catalog(MALLORY)
    staged = catalog.create_table_transaction(str(name), HARMLESS)
    with staged.update_schema() as update:
        update.add_column("ssn", StringType())
    with pytest.raises(EncryptionPolicyViolation):
        staged.commit_transaction()
    assert not catalog.table_exists(str(name))


# -- tables


def test_make_it_elsewhere_and_move_it_in(lake: Lake) -> None:
    catalog, target = lake.catalog(MALLORY), fresh()
    outside = catalog.create_table(str(fresh("bobs")), PERSONAL)
    with pytest.raises(EncryptionPolicyViolation):
        lake.services.lifecycle.rename(lake.caller(MALLORY), name_of(outside), target)
    location = outside.metadata_location
    catalog.drop_table(outside.name())
    with pytest.raises(EncryptionPolicyViolation):
        lake.services.registration.register(lake.caller(MALLORY), target, location)
    assert not lake.catalog().table_exists(str(target))


def test_move_it_out_and_weaken_it_there(lake: Lake) -> None:
    table, target = make(lake, PERSONAL, **ENCRYPTED), fresh("bobs")
    with pytest.raises(NotAuthorized, match="unprotect"):
        lake.services.lifecycle.rename(lake.caller(MALLORY), name_of(table), target)
    location = table.refresh().metadata_location
    lake.catalog(MALLORY).drop_table(table.name())
    with pytest.raises(NotAuthorized, match="unprotect"):
        lake.services.registration.register(lake.caller(MALLORY), target, location)
    lake.services.registration.register(lake.caller(MALLORY), name_of(table), location)
    assert governed(lake, table).spec.encrypts


@pytest.mark.parametrize("database", ["DB", "d\u200bb", "ԁb"], ids=ascii)
def test_a_database_that_reads_like_the_one_under_the_rule(lake: Lake, database: str) -> None:
    try:
        lake.catalog().create_namespace(database)
    except LakewardenError:
        return
    with pytest.raises(EncryptionPolicyViolation):
        lake.catalog(MALLORY).create_table((database, "t"), PERSONAL)


def test_a_namespace_below_is_a_database_of_its_own(lake: Lake) -> None:
    """As in the access policies: `db` is not `db.eu`, and `db*` is both."""
    lake.catalog().create_namespace("db.eu")
    lake.catalog(MALLORY).create_table(("db", "eu", f"t{fresh().name}"), PERSONAL)
    put_rules(lake, rule("personal", databases=["db*"], columns=["ssn"]))
    with pytest.raises(EncryptionPolicyViolation):
        lake.catalog(MALLORY).create_table(("db", "eu", f"u{fresh().name}"), PERSONAL)


def test_tags_in_a_tables_own_properties_say_nothing(lake: Lake) -> None:
    pii = tag("pii", "email", databases=["db"])
    put_rules(lake, rule("pii", databases=["db"], tags=["pii"]), tags=(pii,))
    schema = Schema(NestedField(1, "email", StringType()))
    for properties in ({}, {"tags": "none"}, {"pii": "false"}, {"lakewarden-tags": ""}):
        with pytest.raises(LakewardenError):
            make(lake, schema, **properties)
    documented = Schema(NestedField(1, "email", StringType(), doc="tag: public"))
    with pytest.raises(EncryptionPolicyViolation):
        make(lake, documented)


# -- behind the catalog's back


def _point(lake: Lake, name: TableName, location: str) -> None:
    columns = iceberg_tables.c
    mine = (columns.table_namespace == name.database, columns.table_name == name.name)
    with write(lake.services.engine) as connection:
        connection.execute(sql_update(iceberg_tables).where(*mine).values(metadata_location=location))


@pytest.mark.parametrize("base", ["there", "gone"])
def test_a_column_that_came_by_unsealed_metadata(lake: Lake, base: str) -> None:
    """A user who reseals it answers for it as for a commit, whether what was sealed can be read or not."""
    table = make(lake)
    loaded = lake.services.loader.load(name_of(table))
    schema = Schema(*HARMLESS.fields, NestedField(3, "ssn", StringType()), schema_id=1)
    changed = loaded.metadata.model_copy(
        update={"schemas": [*loaded.metadata.schemas, schema], "current_schema_id": 1, "last_column_id": 3}
    )
    sealed = Path(loaded.metadata_location.removeprefix("file://"))
    forged = sealed.with_name("00009-forged.metadata.json")
    forged.write_bytes(dump_metadata(changed))
    _point(lake, name_of(table), f"file://{forged}")
    if base == "gone":
        sealed.unlink()
    with pytest.raises(EncryptionPolicyViolation):
        lake.services.registration.reseal(lake.caller(MALLORY), name_of(table))
    put_rules(lake)
    lake.services.registration.reseal(lake.caller(MALLORY), name_of(table))


def test_a_column_that_was_there_before_the_rule_does_not_keep_a_table_unsealed(lake: Lake) -> None:
    put_rules(lake)
    table = make(lake, PERSONAL)
    put_rules(lake, rule("personal", databases=["db"], columns=["ssn"]))
    loaded = lake.services.loader.load(name_of(table))
    sealed = Path(loaded.metadata_location.removeprefix("file://"))
    moved = sealed.with_name("00009-moved.metadata.json")
    moved.write_bytes(dump_metadata(loaded.metadata))
    _point(lake, name_of(table), f"file://{moved}")
    lake.services.registration.reseal(lake.caller(MALLORY), name_of(table))
