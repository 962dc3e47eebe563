"""Writes that replace their table: the old table or the new one, under the rules of altering it."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.refs import SnapshotRef, SnapshotRefType
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.table.update import (
    AddSchemaUpdate,
    RemoveSchemasUpdate,
    RemoveSnapshotRefUpdate,
    SetCurrentSchemaUpdate,
    SetSnapshotRefUpdate,
)
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.types import (
    DecimalType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
)
from sqlalchemy import select

from catalog.base import crash_points
from catalog.base.errors import ConcurrentModification, NoSuchTable
from catalog.db.engine import read
from catalog.db.schema import lw_governed
from catalog.maintenance.snapshot_moves import Pick
from catalog.planning.request import ScanRequest
from catalog.rules.required_columns import check_required_columns
from catalog.tables.drafts import NewTable
from catalog.tables.replacements import numbered
from catalog.tables.schema_changes import AddColumn, MakeOptional
from catalog.writes.new_files import FileCommit
from policy.errors import (
    EncryptionPolicyViolation,
    LakewardenError,
    LocationNotAllowed,
    NotAuthorized,
    RequestInvalid,
)
from tests.support.lake import ALICE, BOB, CAROL, Lake, policy, standard_policies, tables
from tests.support.tables import ENCRYPTED, SCHEMA, Engine, append_files, expire_open_writes, fresh

KEYED = ENCRYPTED | {"encryption.columns": "lakewarden:name"}
REST = FileCommit("none", ())
NIGHTLY = pytest.mark.nightly


def staged(lake: Lake, name: Any, user: str = ALICE, **options: Any) -> Engine:
    """Begin a write that replaces its table."""
    new = NewTable(name, **({"schema": SCHEMA} | options))
    return Engine(lake, lake.services.writes.begin_replacing(lake.caller(user), new))


def made(lake: Lake, **options: Any) -> Any:
    """The name of a table with one file."""
    name = fresh()
    first = Engine.stage(lake, name, **options)
    first.append(first.file())
    return name


def loaded(lake: Lake, name: Any) -> Any:
    return lake.services.loader.load_sealed(name)


def files(lake: Lake, name: Any, **request: Any) -> list[dict[str, Any]]:
    plan = lake.services.planner.plan(lake.caller(ALICE, "spark"), name, ScanRequest(**request))
    rows: list[dict[str, Any]] = plan.files.to_pylist()
    return rows


@pytest.mark.parametrize("properties", [pytest.param({}, marks=NIGHTLY), ENCRYPTED, KEYED])
def test_a_replaced_table_is_the_same_table_with_its_past(lake: Lake, properties: dict[str, str]) -> None:
    name = made(lake, properties={**properties, "owner.team": "sales", "write.parquet.page-row-limit": "7"})
    (before,) = files(lake, name)
    old = loaded(lake, name)
    engine = staged(lake, name, schema=SCHEMA, properties={"owner.team": "ops"})
    assert loaded(lake, name).metadata_location == old.metadata_location
    file = engine.file()
    new = engine.append(file)
    assert new.record == old.record
    assert [row["file_path"] for row in files(lake, name)] == [file.path]
    (past,) = files(lake, name, snapshot_id=old.metadata.current_snapshot_id)
    assert (past["file_path"], past["algorithm"]) == (before["file_path"], before["algorithm"])
    assert [bool(key["wrapped"]) for key in past["keys"] or []] == [True] * len(before["keys"] or [])
    assert new.governed.spec == old.governed.spec and new.governed.allowed == old.governed.allowed
    assert new.metadata.properties == {"owner.team": "ops", "write.parquet.page-row-limit": "7"}
    head = new.metadata.current_snapshot()
    assert head is not None and head.parent_snapshot_id is None and head.summary is not None
    assert (head.summary["total-data-files"], len(new.metadata.snapshots)) == ("1", 2)
    assert new.metadata.snapshot_log[0].snapshot_id == past_id(old)
    append_files(lake, name)
    assert len(files(lake, name)) == 2


def past_id(table: Any) -> int:
    number: int = table.metadata.current_snapshot_id
    return number


def test_a_table_replaced_without_rows_is_empty(lake: Lake) -> None:
    name = made(lake, properties=ENCRYPTED)
    old = loaded(lake, name)
    new = staged(lake, name).commit(REST)
    assert new.metadata.current_snapshot_id is None and files(lake, name) == []
    assert len(files(lake, name, snapshot_id=past_id(old))) == 1
    assert staged(lake, name, schema=Schema(NestedField(1, "x", LongType(), required=True))).commit(REST)
    append_files(lake, name)
    assert len(files(lake, name)) == 1


def test_a_table_that_is_not_there_is_not_replaced(lake: Lake) -> None:
    name = fresh()
    with pytest.raises(NoSuchTable):
        staged(lake, name)
    assert Engine.stage(lake, name).commit(REST).metadata.snapshots == []


def test_only_a_write_that_defines_its_table_has_no_snapshot(lake: Lake) -> None:
    name = made(lake)
    with pytest.raises(RequestInvalid):
        Engine.begin(lake, name).commit(REST)
    engine = staged(lake, name)
    for commit in (
        FileCommit("append", (), branch="other"),
        FileCommit("delete", ()),
        replace(REST, branch="b"),
    ):
        with pytest.raises(RequestInvalid):
            engine.commit(commit)
    engine.commit(REST)


@pytest.mark.parametrize("rows", [True, False], ids=["rows", "none"])
def test_committing_twice_is_one_commit(lake: Lake, rows: bool) -> None:
    name = made(lake)
    engine = staged(lake, name)
    commit = FileCommit("append", (engine.file(),)) if rows else REST
    first = engine.commit(commit)
    assert engine.commit(commit).metadata_location == first.metadata_location
    append_files(lake, name)
    assert engine.commit(commit).metadata_location == loaded(lake, name).metadata_location


@pytest.mark.parametrize("rows", [pytest.param(True, marks=NIGHTLY), False], ids=["rows", "none"])
@pytest.mark.parametrize("point", ["write:committing", "replace:built", "checked", "prepared"])
def test_two_that_commit_the_same_write_at_once_both_find_it(lake: Lake, point: str, rows: bool) -> None:
    name = made(lake, properties=ENCRYPTED)
    engine = staged(lake, name)
    commit = FileCommit("append", (engine.file(),)) if rows else REST
    left = [lambda: engine.commit(commit)]

    def hook(reached: str) -> None:
        if reached == point and left:
            left.pop()()

    with crash_points.hooked(hook):
        engine.commit(commit)
    assert len(files(lake, name)) == (1 if rows else 0)


@pytest.mark.parametrize("point", ["begun", "replace:built", "checked", "prepared"])
def test_a_commit_since_the_beginning_conflicts(lake: Lake, point: str) -> None:
    name = made(lake, properties=ENCRYPTED)
    engine = staged(lake, name)
    file = engine.file()
    other = list[str]()

    def hook(reached: str) -> None:
        if reached == point and not other:
            other.append("")
            other[:] = append_files(lake, name)

    if point == "begun":
        hook(point)
    with crash_points.hooked(hook), pytest.raises(ConcurrentModification) as raised:
        engine.append(file)
    assert raised.value.rule == "replaced-table"
    assert other[0] in {row["file_path"] for row in files(lake, name)} and len(files(lake, name)) == 2
    lake.services.writes.abort(lake.caller(ALICE), engine.session.id)
    assert len(files(lake, name)) == 2


class Killed(BaseException):
    """The end of a process."""


@pytest.mark.parametrize(
    "point", ["replace:begun", "write:committing", "replace:built", "checked", "metadata-written", "prepared"]
)
@pytest.mark.parametrize("properties", [pytest.param({}, marks=NIGHTLY), ENCRYPTED])
def test_a_killed_replacement_leaves_the_old_table(
    lake: Lake, point: str, properties: dict[str, str]
) -> None:
    name = made(lake)
    old, before = loaded(lake, name), files(lake, name)

    def kill(reached: str) -> None:
        if reached == point:
            raise Killed

    with crash_points.hooked(kill), pytest.raises(Killed):
        engine = staged(lake, name, schema=Schema(NestedField(1, "new", LongType())), properties=properties)
        engine.append(engine.file())
    lake.reopen()
    assert files(lake, name) == before
    assert loaded(lake, name).metadata_location == old.metadata_location
    append_files(lake, name)
    expire_open_writes(lake)
    lake.services.writes.clean_up()
    assert len(files(lake, name)) == 2
    again = staged(lake, name, properties=properties)
    again.append(again.file())
    assert len(files(lake, name)) == 1


def test_a_replacement_killed_after_the_pointer_moved_is_there(lake: Lake) -> None:
    name = made(lake)
    engine = staged(lake, name, properties=ENCRYPTED)
    file = engine.file()

    def kill(reached: str) -> None:
        if reached == "pointer-moved":
            raise Killed

    with crash_points.hooked(kill), pytest.raises(Killed):
        engine.append(file)
    lake.reopen()
    engine.lake = lake
    assert [row["algorithm"] for row in files(lake, name)] == ["AES_GCM_V1"]
    assert engine.append(file).metadata.snapshots == loaded(lake, name).metadata.snapshots


def test_an_abandoned_replacement_is_never_published(lake: Lake) -> None:
    name = made(lake)
    engine = staged(lake, name, properties=ENCRYPTED)
    file = engine.file()
    number = engine.session.table.governed.version
    lake.services.writes.abort(lake.caller(ALICE), engine.session.id)
    with pytest.raises(RequestInvalid):
        engine.append(file)
    states = select(lw_governed.c.version, lw_governed.c.state).where(
        lw_governed.c.table_id == engine.session.table.record.id
    )
    with read(lake.services.engine) as connection:
        assert dict(connection.execute(states).all())[number] == "abandoned"
    later = staged(lake, name, properties=ENCRYPTED)
    assert later.session.table.governed.version > number

    def give_up(reached: str) -> None:
        if reached == "checked":
            abandon(lake, later)

    with crash_points.hooked(give_up), pytest.raises(ConcurrentModification):
        later.append(later.file())
    assert len(files(lake, name)) == 1 and not loaded(lake, name).governed.ever_encrypted


def abandon(lake: Lake, engine: Engine) -> None:
    """Do what a clean-up does while the write is being committed."""
    row = lake.services.writes._find(lake.caller(ALICE), engine.session.id)
    lake.services.writes._kind(row).forget(row)


def only(*accesses: str) -> list[dict[str, Any]]:
    """The standard policies, and these privileges of Carol on every table."""
    mine = policy("carol-too", tables("*"), {CAROL: list(accesses)})
    return [*standard_policies(), mine, policy("carol-keys", {"key": ["*"]}, {CAROL: ["use", "release"]})]


@pytest.mark.parametrize(
    ("accesses", "allowed"),
    [(["alter"], False), (["update"], False), (["create", "alter"], False), (["alter", "update"], True)],
)
def test_replacing_takes_alter_and_update(lake: Lake, accesses: list[str], allowed: bool) -> None:
    name = made(lake)
    lake.set_policies(only(*accesses))
    if allowed:
        staged(lake, name, user=CAROL).commit(REST, user=CAROL)
        return
    with pytest.raises(NotAuthorized):
        staged(lake, name, user=CAROL)
    with pytest.raises(NotAuthorized):
        staged(lake, name, user=BOB)


def test_a_privilege_that_was_lost_since_counts_at_the_commit(lake: Lake) -> None:
    name = made(lake, properties=ENCRYPTED)
    lake.set_policies(only("alter", "update", "unprotect"))
    first = staged(lake, name, user=CAROL, properties={"encryption.mechanism": "plaintext"})
    second = staged(lake, name, user=CAROL)
    lake.set_policies(only("alter", "update"))
    with pytest.raises(NotAuthorized):
        first.commit(REST, user=CAROL)
    lake.set_policies(only("update"))
    with pytest.raises(NotAuthorized):
        second.commit(REST, user=CAROL)
    assert loaded(lake, name).governed.spec.encrypts and len(files(lake, name)) == 1


WEAKER = [
    (ENCRYPTED, {"encryption.mechanism": "plaintext"}, SCHEMA),
    (ENCRYPTED, {"encryption.columns": "lakewarden:name"}, SCHEMA),
    (ENCRYPTED, {"encryption.footer": "plaintext"}, SCHEMA),
    (ENCRYPTED, {"encryption.data-key-length": "16"}, SCHEMA),
    (KEYED, {"encryption.columns": "lakewarden:id"}, SCHEMA),
    (
        KEYED,
        {"encryption.columns": "lakewarden:id"},
        Schema(*SCHEMA.fields[:1], NestedField(2, "name", LongType())),
    ),
    (KEYED, {"encryption.mechanism": "plaintext"}, Schema(NestedField(1, "id", LongType()))),
    ({}, {"encryption.standard-clients": "load"}, SCHEMA),
]


@pytest.mark.parametrize(("before", "after", "schema"), WEAKER)
def test_less_protection_needs_unprotect(
    lake: Lake, before: dict[str, str], after: dict[str, str], schema: Schema
) -> None:
    name = made(lake, properties=before)
    lake.set_policies(only("alter", "update"))
    with pytest.raises(NotAuthorized) as raised:
        staged(lake, name, user=CAROL, properties=after, schema=schema)
    assert "unprotect" in str(raised.value)
    lake.set_policies(only("alter", "update", "unprotect"))
    staged(lake, name, user=CAROL, properties=after, schema=schema).commit(REST, user=CAROL)


def test_columns_that_stay_by_name_stay_under_their_keys(lake: Lake) -> None:
    """One that has another type now, and so another field id, too."""
    name = made(lake, properties=KEYED)
    lake.set_policies(only("alter", "update", "select"))
    schema = Schema(NestedField(1, "extra", StringType()), NestedField(2, "name", LongType()))
    engine = staged(lake, name, user=CAROL, schema=schema)
    new = engine.commit(FileCommit("append", (engine.file(),)), user=CAROL)
    assert new.shown_metadata.properties["encryption.columns"] == "lakewarden:name"
    assert {field.name: field.field_id for field in new.metadata.schema().fields} == {"extra": 3, "name": 4}
    (group,) = new.governed.epochs.current.columns
    assert group.field_ids == (4,)
    first = min(
        each.snapshot_id for each in new.metadata.snapshots if each is not new.metadata.current_snapshot()
    )
    old = next(each.snapshot_id for each in new.metadata.snapshots if each.sequence_number == 1)
    assert first and [len(row["keys"]) for row in files(lake, name, snapshot_id=old)] == [2]


def test_the_last_column_with_a_key_does_not_vanish_unsaid(lake: Lake) -> None:
    name = made(lake, properties=KEYED)
    with pytest.raises(EncryptionPolicyViolation) as raised:
        staged(lake, name, schema=Schema(NestedField(1, "id", LongType())))
    assert raised.value.rule == "last-column"


def test_locations_and_paths_are_checked_as_in_alter(lake: Lake) -> None:
    name = made(lake)
    elsewhere = f"file://{lake.warehouse}/elsewhere"
    with pytest.raises(LocationNotAllowed):
        staged(lake, name, location=elsewhere)
    with pytest.raises(LocationNotAllowed) as narrow:
        staged(lake, name, location=elsewhere, properties={"read.allowed.data.paths": elsewhere})
    assert narrow.value.rule == "narrowing"
    own = loaded(lake, name).metadata.location
    both = {"read.allowed.data.paths": f"{own},{elsewhere}"}
    lake.set_policies(only("alter", "update", "unprotect"))
    with pytest.raises(NotAuthorized):
        staged(lake, name, user=CAROL, location=elsewhere, properties=both)
    lake.set_policies(standard_policies())
    engine = staged(lake, name, location=elsewhere, properties=both)
    assert engine.append(engine.file()).metadata.location == elsewhere
    assert files(lake, name)[0]["file_path"].startswith(elsewhere)


@pytest.mark.parametrize(
    "given",
    [
        {"properties": {"encryption.pek-id": "x"}},
        {"properties": {"encryption.colums": "k:name"}},
        {"properties": {"format-version": "3"}},
        {"properties": {"s3.endpoint": "http://x"}},
        {"partition_spec": PartitionSpec(PartitionField(9, 1000, IdentityTransform(), "p"))},
        {"partition_spec": PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "id"))},
    ],
)
def test_what_no_table_can_be_no_table_becomes(lake: Lake, given: dict[str, Any]) -> None:
    name = made(lake)
    with pytest.raises(LakewardenError):
        staged(lake, name, **given)
    assert len(files(lake, name)) == 1


def test_encrypted_columns_do_not_partition_a_replaced_table(lake: Lake) -> None:
    name = made(lake, properties=ENCRYPTED)
    spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "id"))
    with pytest.raises(EncryptionPolicyViolation):
        staged(lake, name, partition_spec=spec)


def test_partition_fields_keep_their_ids(lake: Lake) -> None:
    by_id = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "id"))
    by_bucket = PartitionSpec(
        PartitionField(2, 1000, BucketTransform(4), "b"), PartitionField(1, 1001, IdentityTransform(), "id")
    )
    name = fresh()
    Engine.stage(lake, name, partition_spec=by_id).append()
    second = staged(lake, name, partition_spec=by_bucket).commit(REST).metadata
    assert [(each.name, each.field_id) for each in second.spec().fields] == [("b", 1001), ("id", 1000)]
    assert staged(lake, name).commit(REST).metadata.spec().is_unpartitioned()
    back = staged(lake, name, partition_spec=by_id).commit(REST).metadata
    assert (back.default_spec_id, len(back.partition_specs)) == (0, 3)


def test_an_old_partitioned_snapshot_stays_readable(lake: Lake) -> None:
    name = fresh()
    by_id = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "id"))
    first = Engine.stage(lake, name, partition_spec=by_id)
    old = first.append(first.file(partition={"id": 5})).metadata.current_snapshot_id
    engine = staged(lake, name, schema=Schema(NestedField(1, "other", StringType())))
    engine.append(engine.file(spec_id=engine.session.table.metadata.default_spec_id))
    assert len(files(lake, name)) == len(files(lake, name, snapshot_id=old)) == 1


def metadata_of(schema: Schema) -> TableMetadata:
    return new_table_metadata(schema, UNPARTITIONED_PARTITION_SPEC, UNSORTED_SORT_ORDER, "file:///t", {})


def struct(*fields: tuple[str, IcebergType]) -> StructType:
    return StructType(*(NestedField(100 + at, name, kind) for at, (name, kind) in enumerate(fields)))


@pytest.mark.parametrize(
    ("before", "after", "kept"),
    [
        (IntegerType(), IntegerType(), True),
        (IntegerType(), LongType(), True),
        (LongType(), IntegerType(), False),
        (DecimalType(5, 2), DecimalType(9, 2), True),
        (DecimalType(9, 2), DecimalType(5, 2), False),
        (StringType(), LongType(), False),
        (struct(("element", StringType())), ListType(50, StringType(), False), False),
        (ListType(50, IntegerType(), False), ListType(60, LongType(), True), True),
    ],
)
def test_a_column_keeps_its_id_where_its_type_can(
    before: IcebergType, after: IcebergType, kept: bool
) -> None:
    base = metadata_of(Schema(NestedField(1, "c", before), NestedField(2, "d", StringType())))
    schema, _ = numbered(Schema(NestedField(9, "c", after), NestedField(3, "e", StringType())), base)
    assert (schema.find_field("c").field_id == base.schema().find_field("c").field_id) is kept
    assert schema.find_field("e").field_id > base.last_column_id
    new = [each for each in schema.field_ids if each <= base.last_column_id]
    assert kept or not new


def test_nested_columns_keep_their_ids_by_full_name() -> None:
    person = struct(("ssn", StringType()), ("age", IntegerType()))
    tags = MapType(70, StringType(), 71, struct(("x", LongType())), False)
    base = metadata_of(Schema(NestedField(1, "person", person), NestedField(2, "tags", tags)))
    wanted = Schema(
        NestedField(1, "tags", tags),
        NestedField(2, "person", struct(("age", LongType()), ("new", StringType()))),
        NestedField(5, "ssn", StringType()),
    )
    schema, _ = numbered(wanted, base)
    for name in ("person", "person.age", "tags", "tags.key", "tags.value", "tags.value.x"):
        assert schema.find_field(name).field_id == base.schema().find_field(name).field_id
    assert {schema.find_field(name).field_id for name in ("ssn", "person.new")} == {
        base.last_column_id + 1,
        base.last_column_id + 2,
    }


def test_a_name_with_a_dot_is_not_the_id_of_a_nested_column(lake: Lake) -> None:
    """Its rows would be in plaintext under the id of a column that was encrypted."""
    before = Schema(
        NestedField(1, "id", LongType()),
        NestedField(2, "a", struct(("b", StringType()))),
        NestedField(3, "c.d", LongType()),
    )
    name = made(lake, schema=before, properties=ENCRYPTED | {"encryption.columns": "lakewarden:a,id"})
    nested = loaded(lake, name).metadata.schema().find_field("a.b").field_id
    lake.set_policies(only("alter", "update"))
    after = Schema(
        NestedField(1, "id", LongType()),
        NestedField(2, "a.b", StringType()),
        NestedField(3, "c", struct(("d", LongType()))),
    )
    new = staged(lake, name, user=CAROL, schema=after).commit(REST, user=CAROL).metadata
    had = set(loaded(lake, name).metadata.schemas[0].field_ids)
    assert nested in had and set(new.schema().field_ids) & had == {1}


def test_another_column_with_the_name_of_a_plaintext_one_is_encrypted(lake: Lake) -> None:
    """Otherwise all that is put into it would be in plaintext, without `unprotect`."""
    plaintext = {"encryption.plaintext-columns": "id,name"}
    secret = NestedField(9, "secret", StringType())
    name = made(lake, schema=Schema(*SCHEMA.fields, secret), properties=ENCRYPTED | plaintext)
    lake.set_policies(only("alter", "update"))
    everything = NestedField(1, "id", struct(("secret", StringType())))
    schema = Schema(everything, NestedField(2, "name", StringType()), secret)
    with pytest.raises(NotAuthorized) as raised:
        staged(lake, name, user=CAROL, schema=schema, properties=plaintext)
    assert "unprotect" in str(raised.value)
    new = staged(lake, name, user=CAROL, schema=schema).commit(REST, user=CAROL)
    assert new.governed.spec.plaintext_columns == ("name",)
    (group,) = new.governed.epochs.current.columns
    by_name = {field.name: field.field_id for field in new.metadata.schema().fields}
    assert set(group.field_ids) == set(new.metadata.schema().field_ids) - {by_name["name"]}


def test_a_name_that_is_forgotten_is_no_way_around_its_denial(lake: Lake) -> None:
    """After the schema that has it is removed, nothing would say that another name is a new one."""
    name = made(lake)
    granted = {"database": ["db"], "table": [name.name], "column": ["id", "other"]}
    altering = policy("altering", tables("db"), {CAROL: ["alter", "update"]})
    lake.set_policies([altering, policy("columns", granted, {CAROL: ["select"]})])
    staged(lake, name, user=CAROL, schema=Schema(SCHEMA.fields[0])).commit(REST, user=CAROL)

    def forget(user: str) -> None:
        lake.services.committer.commit(lake.caller(user), name, (), [RemoveSchemasUpdate(schema_ids=[0])])

    with pytest.raises(NotAuthorized) as raised:
        forget(CAROL)
    assert "select on column" in str(raised.value)
    lake.set_policies(standard_policies())
    forget(ALICE)
    assert [each.schema_id for each in loaded(lake, name).metadata.schemas] == [1]
    again = Schema(*SCHEMA.fields, NestedField(3, "shown", StringType()), schema_id=7)
    taken = Schema(SCHEMA.fields[0], NestedField(2, "shown", StringType()), schema_id=7)
    lake.set_policies([*standard_policies(), altering])
    for user in (CAROL, ALICE):
        with pytest.raises(RequestInvalid) as refused:
            lake.services.committer.commit(
                lake.caller(user),
                name,
                (),
                [AddSchemaUpdate(schema_=taken), SetCurrentSchemaUpdate(schema_id=-1)],
            )
        assert refused.value.rule == "field-id"
    with pytest.raises(RequestInvalid, match="name"):
        lake.services.committer.commit(lake.caller(ALICE), name, (), [AddSchemaUpdate(schema_=again)])
    lake.set_policies(standard_policies())


def test_a_branch_does_not_go_back_to_rows_without_a_required_column(lake: Lake) -> None:
    name = made(lake)
    (before,) = loaded(lake, name).metadata.snapshots
    required = Schema(SCHEMA.fields[0], NestedField(2, "other", LongType(), required=True))
    staged(lake, name, schema=required).commit(REST)

    def go_back(branch: str) -> None:
        ref = SetSnapshotRefUpdate(ref_name=branch, type="branch", snapshot_id=before.snapshot_id)
        lake.services.committer.commit(lake.caller(ALICE), name, (), [ref])

    for branch in ("main", "side"):
        with pytest.raises(RequestInvalid) as refused:
            go_back(branch)
        assert refused.value.rule == "required-column" and "other" in refused.value.message
    lake.services.alterer.alter(lake.caller(ALICE), name, [MakeOptional(("other",))])
    go_back("main")
    assert len(files(lake, name)) == 1


def test_rows_without_a_required_column_are_not_picked(lake: Lake) -> None:
    name = made(lake, properties={"write.wap.enabled": "true"})
    write = Engine.begin(lake, name)
    write.commit(FileCommit("append", (write.file(),), wap_id="later"))
    required = Schema(SCHEMA.fields[0], NestedField(2, "other", LongType(), required=True))
    staged(lake, name, schema=required).commit(REST)
    with pytest.raises(RequestInvalid) as refused:
        lake.services.snapshot_procedures.change(lake.caller(ALICE), name, Pick(wap_id="later"))
    assert refused.value.rule == "required-column" and "other" in refused.value.message
    assert files(lake, name) == []
    lake.services.alterer.alter(lake.caller(ALICE), name, [MakeOptional(("other",))])
    lake.services.snapshot_procedures.change(lake.caller(ALICE), name, Pick(wap_id="later"))
    assert len(files(lake, name)) == 1


def requiring(lake: Lake, name: Any) -> Engine:
    """Begin a replacement that requires the column `other`, which the table does not have."""
    return staged(
        lake, name, schema=Schema(SCHEMA.fields[0], NestedField(2, "other", LongType(), required=True))
    )


def test_rows_written_before_a_replacement_that_requires_a_column_are_refused(lake: Lake) -> None:
    """An append that began before, and one of an engine that does not say by which schema it wrote."""
    name = made(lake)
    begun = Engine.begin(lake, name)
    added = (begun.file(),)
    requiring(lake, name).commit(REST)
    kinds: list[dict[str, Any]] = [
        {"operation": "append", "schema_id": 0},
        {"operation": "append"},
        {"operation": "append", "schema_id": 77},
        {"operation": "overwrite", "schema_id": 0, "replace_partitions": True},
        {"operation": "overwrite", "schema_id": 0, "delete_filter": AlwaysTrue()},
    ]
    for kind in kinds:
        with pytest.raises(ConcurrentModification) as refused:
            begun.commit(FileCommit(added=added, **kind))
        assert refused.value.rule == "schema" and "requires the column other" in refused.value.message
        assert ("schema-id" in (refused.value.hint or "")) is ("schema_id" not in kind)
    assert files(lake, name) == []
    lake.services.alterer.alter(lake.caller(ALICE), name, [MakeOptional(("other",))])
    begun.commit(FileCommit("append", added, schema_id=0))
    assert len(files(lake, name)) == 1


def test_rows_written_before_a_column_was_added_are_committed(lake: Lake) -> None:
    name = made(lake)
    for operation, more in (("append", {}), ("overwrite", {"delete_filter": AlwaysTrue()})):
        begun = Engine.begin(lake, name)
        lake.services.alterer.alter(lake.caller(ALICE), name, [AddColumn((operation,), LongType())])
        schema_id = begun.session.table.metadata.current_schema_id
        begun.commit(FileCommit(operation, (begun.file(),), schema_id=schema_id, **more))  # type: ignore[arg-type]
    assert len(files(lake, name)) == 1


def test_a_replacement_does_not_require_what_rows_of_another_branch_do_not_have(lake: Lake) -> None:
    name = made(lake)
    side = SetSnapshotRefUpdate(ref_name="side", type="branch", snapshot_id=past_id(loaded(lake, name)))
    lake.services.committer.commit(lake.caller(ALICE), name, (), [side])
    with pytest.raises(RequestInvalid) as refused:
        requiring(lake, name)
    assert refused.value.rule == "required-column" and "other" in refused.value.message
    gone = RemoveSnapshotRefUpdate(ref_name="side")
    lake.services.committer.commit(lake.caller(ALICE), name, (), [gone])
    requiring(lake, name).commit(REST)
    assert files(lake, name) == []


@pytest.mark.parametrize("named", ["none", "removed", "other"])
def test_snapshots_that_hide_the_schema_of_their_rows_are_not_gone_back_to(lake: Lake, named: str) -> None:
    """Without `schema-id`, after the schema was removed, or by a snapshot that names a schema of later."""
    name = made(lake)
    (past,) = loaded(lake, name).metadata.snapshots
    requiring(lake, name).commit(REST)
    before = loaded(lake, name).metadata
    if named == "none":
        unnamed = past.model_copy(update={"schema_id": None})
        before = before.model_copy(update={"snapshots": [unnamed]})
    if named == "removed":
        before = before.model_copy(update={"schemas": [before.schema()]})
    back, added = past.snapshot_id, []
    if named == "other":
        back = 99
        later = {"snapshot_id": back, "parent_snapshot_id": past.snapshot_id, "schema_id": 1}
        added = [past.model_copy(update={**later, "timestamp_ms": before.last_updated_ms})]
    staged_only = before.model_copy(update={"snapshots": [*before.snapshots, *added]})
    ref = SnapshotRef(snapshot_id=back, snapshot_ref_type=SnapshotRefType.BRANCH)
    after = staged_only.model_copy(update={"refs": {"main": ref}})
    if added:
        with pytest.raises(RequestInvalid, match="required-column"):
            check_required_columns(before, staged_only, "db.t")
    with pytest.raises(RequestInvalid, match="required-column"):
        check_required_columns(before, after, "db.t")


@pytest.mark.parametrize("schema_id", [None, 7])
def test_a_table_is_altered_whose_head_names_no_schema_of_it(lake: Lake, schema_id: int | None) -> None:
    """Its rows have what was required before, whatever schemas the table had, or has no more."""
    metadata = loaded(lake, made(lake)).metadata
    (head,) = metadata.snapshots
    of = metadata.schema()
    required = Schema(of.fields[0].model_copy(update={"required": True}), *of.fields[1:], schema_id=1)
    given = {"snapshots": [head.model_copy(update={"schema_id": schema_id})], "current_schema_id": 1}
    before = metadata.model_copy(update={"schemas": [of, required], **given})
    more = NestedField(99, "more", LongType(), required=False)
    for last, is_refused in ((more, False), (more.model_copy(update={"required": True}), True)):
        wider = Schema(*required.fields, last, schema_id=2)
        after = before.model_copy(update={"schemas": [*before.schemas, wider], "current_schema_id": 2})
        with pytest.raises(RequestInvalid, match="more") if is_refused else nullcontext():
            check_required_columns(before, after, "db.t")


def test_a_struct_that_comes_back_has_the_required_columns_of_its_rows(lake: Lake) -> None:
    """The schema in between has neither the struct nor its column."""
    metadata = loaded(lake, made(lake)).metadata
    (head,) = metadata.snapshots
    within = [NestedField(12, "x", LongType()), NestedField(13, "must", LongType(), required=True)]
    first, back = (
        Schema(NestedField(11, "s", StructType(*within[:count])), schema_id=number)
        for count, number in ((1, 0), (2, 2))
    )
    without = Schema(NestedField(10, "other", LongType()), schema_id=1)
    given = {"snapshots": [head.model_copy(update={"schema_id": 0})], "schemas": [first, without, back]}
    before, after = (metadata.model_copy(update={**given, "current_schema_id": number}) for number in (1, 2))
    with pytest.raises(RequestInvalid, match=r"s\.must"):
        check_required_columns(before, after, "db.t")


def test_an_id_that_is_used_again_does_not_stand_for_the_rows_before(lake: Lake) -> None:
    before = loaded(lake, made(lake)).metadata
    (head,) = before.snapshots
    without = Schema(NestedField(10, "other", LongType()), schema_id=1)
    required = Schema(NestedField(1, "id", LongType(), required=True), schema_id=0)
    before = before.model_copy(update={"schemas": [required, without], "current_schema_id": 0})
    other = head.model_copy(update={"schema_id": 1, "timestamp_ms": head.timestamp_ms + 1})
    with pytest.raises(RequestInvalid, match="id"):
        check_required_columns(before, before.model_copy(update={"snapshots": [other]}), "db.t")
