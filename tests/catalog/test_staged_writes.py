"""Writes that create their table: the whole table or nothing, under the rules of creating and of writing."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.update import AddSchemaUpdate, AssertCreate, AssignUUIDUpdate, SetLocationUpdate
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import IntegerType, ListType, NestedField, StringType
from sqlalchemy import select, update

from catalog.base import crash_points
from catalog.base.errors import CommitConflict, NoSuchNamespace, NoSuchTable, TableExists
from catalog.db.engine import read, write
from catalog.db.schema import lw_pek, lw_table, lw_write
from catalog.planning.request import ScanRequest
from catalog.tables.drafts import NewTable
from catalog.writes.new_files import FileCommit
from policy.errors import (
    DecryptionRefused,
    EncryptionPolicyViolation,
    LakewardenError,
    LocationNotAllowed,
    NotAuthorized,
    NotSupportedYet,
    RequestInvalid,
)
from tests.support.lake import ALICE, BOB, Lake, policy, standard_policies, tables
from tests.support.tables import ENCRYPTED, SCHEMA, Engine, append_files, fresh, make, name_of, named, records

PATHS = "read.allowed.data.paths"


def invisible(lake: Lake, engine: Engine) -> None:
    """There is no such table, by whatever way one asks."""
    name = engine.session.table.record.name
    with pytest.raises(NoSuchTable):
        lake.catalog().load_table(str(name))
    assert not lake.catalog().table_exists(str(name))
    assert (*name.namespace, name.name) not in lake.catalog().list_tables(name.namespace)


def refused(lake: Lake, engine: Engine, error: type[LakewardenError], commit: Any) -> LakewardenError:
    """The error of a commit after which there is no table, and the write may still be committed."""
    with pytest.raises(error) as raised:
        commit()
    invisible(lake, engine)
    return raised.value


def planned(lake: Lake, engine: Engine) -> list[dict[str, Any]]:
    name = engine.session.table.record.name
    plan = lake.services.planner.plan(lake.caller(ALICE, "spark"), name, ScanRequest())
    rows: list[dict[str, Any]] = plan.files.to_pylist()
    return rows


def test_nothing_is_visible_before_the_commit_and_all_of_it_after(lake: Lake) -> None:
    engine = Engine.stage(lake, fresh(), properties={**ENCRYPTED, "owner.team": "sales"})
    invisible(lake, engine)
    file = engine.file()
    published = engine.append(file)
    (row,) = planned(lake, engine)
    assert (row["file_path"], row["algorithm"]) == (file.path, "AES_GCM_V1")
    assert published.shown_metadata.properties == engine.session.table.shown_metadata.properties
    assert published.record == engine.session.table.record
    summary = published.metadata.current_snapshot().summary
    assert (summary["lakewarden.write-id"], summary["added-records"]) == (engine.session.id, "10")
    assert summary["encryption.pek-id"] == published.shown_metadata.properties["encryption.pek-id"]
    loaded = lake.catalog().load_table(str(published.record.name))
    assert loaded.metadata.table_uuid == engine.session.table.record.table_uuid
    append_files(lake, published.record.name)
    assert len(planned(lake, engine)) == 2


def test_what_was_promised_is_what_the_table_has(lake: Lake) -> None:
    """Engines write files by the ids that the beginning answered."""
    schema = Schema(
        NestedField(7, "tags", ListType(9, StringType(), True)), NestedField(3, "day", IntegerType())
    )
    spec = PartitionSpec(PartitionField(3, 4000, IdentityTransform(), "day"))
    engine = Engine.stage(lake, fresh(), schema=schema, partition_spec=spec)
    promised = engine.session.table.metadata
    published = engine.append(engine.file(partition={"day": 5})).metadata
    assert published.schema() == promised.schema() and published.spec() == promised.spec()
    assert {field.name: field.field_id for field in published.schema().fields} == {"tags": 1, "day": 2}
    assert published.last_column_id == promised.last_column_id == 3


@pytest.mark.nightly
@pytest.mark.parametrize("properties", [{}, ENCRYPTED], ids=["plain", "encrypted"])
def test_a_write_of_no_file_creates_an_empty_table(lake: Lake, properties: dict[str, str]) -> None:
    engine = Engine.stage(lake, fresh(), properties=properties)
    engine.append()
    assert planned(lake, engine) == []
    append_files(lake, engine.session.table.record.name)
    assert len(planned(lake, engine)) == 1


def test_committing_twice_is_one_commit(lake: Lake) -> None:
    engine = Engine.stage(lake, fresh())
    file = engine.file()
    first = engine.append(file)
    assert engine.append(file).metadata_location == first.metadata_location
    moved = fresh()
    lake.catalog().rename_table(str(first.record.name), str(moved))
    assert engine.append(file).record.name == moved


@pytest.mark.nightly
@pytest.mark.parametrize("point", ["write:committing", "checked", "prepared"])
def test_two_that_commit_the_same_write_at_once_both_find_it(lake: Lake, point: str) -> None:
    engine = Engine.stage(lake, fresh(), properties=ENCRYPTED)
    file = engine.file()
    left = [lambda: engine.append(file)]

    def hook(reached: str) -> None:
        if reached == point and left:
            left.pop()()

    with crash_points.hooked(hook):
        published = engine.append(file)
    assert len(published.metadata.snapshots) == len(planned(lake, engine)) == 1


def test_a_table_that_came_first_keeps_the_name(lake: Lake) -> None:
    name = fresh()
    with pytest.raises(TableExists):
        Engine.stage(lake, name_of(make(lake)))
    first, second = Engine.stage(lake, name), Engine.stage(lake, name)
    published = first.append(first.file())
    with pytest.raises(TableExists):
        second.append(second.file())
    assert lake.catalog().load_table(str(name)).metadata.table_uuid == published.metadata.table_uuid
    lake.services.writes.abort(lake.caller(ALICE), second.session.id)
    assert len(planned(lake, first)) == 1
    lake.catalog().drop_table(str(name))
    with pytest.raises(RequestInvalid):
        second.append()


def test_a_namespace_that_is_gone(lake: Lake) -> None:
    lake.catalog().create_namespace("passing")
    engine = Engine.stage(lake, named("t", "passing"))
    lake.catalog().drop_namespace("passing")
    with pytest.raises(NoSuchNamespace):
        engine.append()
    with pytest.raises(NoSuchNamespace):
        Engine.stage(lake, named("t", "passing"))


@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize(
    "files",
    [
        FileCommit("overwrite", ()),
        FileCommit("replace", ()),
        FileCommit("append", (), deleted_paths=("file:///x",)),
        FileCommit("append", (), base_snapshot_id=1),
        FileCommit("append", (), branch="dev"),
        FileCommit("append", (), summary={"lakewarden.write-id": "x"}),
    ],
)
def test_a_new_table_has_nothing_to_replace(lake: Lake, files: FileCommit) -> None:
    engine = Engine.stage(lake, fresh())
    refused(lake, engine, RequestInvalid, lambda: engine.commit(files))
    engine.append()


def test_files_are_checked_against_the_rules_of_the_table(lake: Lake) -> None:
    engine = Engine.stage(lake, fresh(), properties=ENCRYPTED)
    path = engine.path()
    foreign = f"file://{lake.root}/elsewhere/{path.rsplit('/', 1)[1]}"
    for error, file in [
        (EncryptionPolicyViolation, engine.file(keys=())),
        (DecryptionRefused, engine.file(keys=(engine.key(path),))),
        (LocationNotAllowed, engine.file(foreign)),
        (RequestInvalid, engine.file(partition={"x": 1})),
    ]:
        refused(lake, engine, error, lambda file=file: engine.append(file))
    plain = Engine.stage(lake, fresh())
    keyed = plain.file(keys=(engine.key(plain.path()),))
    refused(lake, plain, EncryptionPolicyViolation, lambda: plain.append(keyed))
    engine.append(engine.file())


def test_it_takes_what_creating_takes_in_one_request(lake: Lake) -> None:
    elsewhere = f"file://{lake.root}/bobs-place"
    for options in (
        {"location": elsewhere},
        {"properties": {"write.data.path": elsewhere, PATHS: f"{elsewhere}"}},
        {"properties": {PATHS: elsewhere}},
        {"properties": ENCRYPTED},
    ):
        caller = lake.caller(BOB, "spark")
        with pytest.raises(NotAuthorized):
            lake.services.writes.begin_staged(caller, NewTable(fresh("bobs"), SCHEMA, **options))
        assert [(each.action, each.allowed) for each in records(lake, caller)] == [("table.stage", False)]
    Engine.stage(lake, fresh("bobs"), BOB)


def test_a_users_own_process_needs_release_for_the_keys(lake: Lake) -> None:
    uses = policy("bob-uses", {"key": ["*"]}, {BOB: ["use"]})
    lake.set_policies([*standard_policies(), uses])
    try:
        new = NewTable(fresh("bobs"), SCHEMA, properties=ENCRYPTED)
        with pytest.raises(NotAuthorized, match="release"):
            lake.services.writes.begin_staged(lake.caller(BOB), new)
        session = lake.services.writes.begin_staged(lake.caller(BOB, "spark"), new)
        assert session.transport is not None
        lake.services.writes.commit(lake.caller(BOB, "spark"), session.id, FileCommit("append", ()))
    finally:
        lake.set_policies(standard_policies())


@pytest.mark.parametrize(
    ("lost", "kept"),
    [("tables", {}), ("storage", {"location": "elsewhere"}), ("keys", {"properties": ENCRYPTED})],
)
def test_a_right_that_was_lost_since_counts_at_the_commit(
    lake: Lake, lost: str, kept: dict[str, Any]
) -> None:
    options = dict(kept)
    if "location" in options:
        options["location"] = f"file://{lake.root}/{fresh().name}"
    engine = Engine.stage(lake, fresh(), **options)
    lake.set_policies([each for each in standard_policies() if each["name"] != f"alice-{lost}"])
    try:
        with pytest.raises(NotAuthorized):
            engine.append(engine.file())
    finally:
        lake.set_policies(standard_policies())
    invisible(lake, engine)
    engine.append(engine.file())


def test_directories_that_could_not_be_read_are_refused_at_once(lake: Lake) -> None:
    elsewhere = f"file://{lake.root}/{fresh().name}"
    for name in (PATHS, "write.metadata.path", "write.data.path"):
        with pytest.raises(LocationNotAllowed):
            Engine.stage(lake, fresh(), properties={name: elsewhere})


def test_what_is_encrypted_does_not_partition(lake: Lake) -> None:
    spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "id"))
    with pytest.raises(EncryptionPolicyViolation):
        Engine.stage(lake, fresh(), partition_spec=spec, properties=ENCRYPTED)
    with pytest.raises(NotSupportedYet):
        Engine.stage(lake, fresh(), properties={**ENCRYPTED, "orc.key.provider": "hadoop"})


def test_a_place_is_claimed_as_long_as_the_write_may_be_committed(lake: Lake) -> None:
    """Also when it takes longer than a creation; nobody without ALTER on the staged table gets into it."""
    place = f"file://{lake.root}/{fresh().name}"
    storage = policy("bob-storage", {"storage-type": ["*"], "storage-url": ["*"]}, {BOB: ["rwstorage"]})
    engine = Engine.stage(lake, fresh(), location=place)
    _age(lake, engine)
    lake.set_policies([*standard_policies(), storage])
    try:
        for where in (place, f"{place}/inner", place.rsplit("/", 1)[0]):
            with pytest.raises(NotAuthorized):
                Engine.stage(lake, fresh("bobs"), BOB, location=where)
        lake.services.writes.abort(lake.caller(ALICE), engine.session.id)
        Engine.stage(lake, fresh("bobs"), BOB, location=place)
    finally:
        lake.set_policies(standard_policies())


def _age(lake: Lake, engine: Engine) -> None:
    """The write was begun hours ago."""
    with write(lake.services.engine) as connection:
        mine = lw_table.c.id == engine.session.table.record.id
        connection.execute(update(lw_table).where(mine).values(created_ms=1))


def test_an_expired_write_claims_no_place(lake: Lake) -> None:
    place = f"file://{lake.root}/{fresh().name}"
    storage = policy("bob-storage", {"storage-type": ["*"], "storage-url": ["*"]}, {BOB: ["rwstorage"]})
    protected = policy(
        "not-alice", tables("bobs"), {}, denyPolicyItems=[{"users": [ALICE], "accesses": [{"type": "alter"}]}]
    )
    lake.set_policies([*standard_policies(), storage, protected])
    try:
        engine = Engine.stage(lake, fresh("bobs"), BOB, location=place)
        _age(lake, engine)
        with pytest.raises(NotAuthorized, match="overlaps"):
            lake.catalog().create_table(str(fresh()), SCHEMA, location=place)
        engine.expire()
        lake.catalog().create_table(str(fresh()), SCHEMA, location=place)
        with pytest.raises(NotAuthorized, match="overlaps"):
            engine.commit(FileCommit("append", (engine.file(),)), user=BOB)
    finally:
        lake.set_policies(standard_policies())
    invisible(lake, engine)


def test_the_identity_is_good_for_nothing_but_its_write(lake: Lake) -> None:
    """Neither a standard client's staged creation nor REGISTER takes it up, for the user or for others."""
    engine = Engine.stage(lake, fresh(), properties=ENCRYPTED)
    table = engine.session.table
    name, metadata = table.record.name, table.metadata
    updates = (
        AssignUUIDUpdate(uuid=metadata.table_uuid),
        SetLocationUpdate(location=metadata.location),
        AddSchemaUpdate(schema=metadata.schema()),
    )
    with pytest.raises(LakewardenError):
        lake.services.creator.commit_staged(lake.caller(ALICE), name, [AssertCreate()], updates)
    path = lake.root / f"{name.name}.metadata.json"
    path.write_text(metadata.model_dump_json())
    with pytest.raises(CommitConflict):
        lake.services.registration.register(lake.caller(ALICE), name, f"file://{path}")
    invisible(lake, engine)
    engine.append(engine.file())


def test_a_write_is_its_users_alone(lake: Lake) -> None:
    engine = Engine.stage(lake, fresh("bobs"), BOB)
    with pytest.raises(RequestInvalid):
        engine.append(engine.file())
    with pytest.raises(RequestInvalid):
        lake.services.writes.abort(lake.caller(ALICE), engine.session.id)
    engine.commit(FileCommit("append", (engine.file(),)), user=BOB)
    assert len(planned(lake, engine)) == 1


def test_keys_are_kept_wrapped_and_the_transport_key_sealed(lake: Lake) -> None:
    engine = Engine.stage(lake, fresh(), properties=ENCRYPTED)
    assert engine.session.transport is not None
    secret = engine.session.transport.key.reveal()
    with read(lake.services.engine) as connection:
        stored = connection.execute(select(lw_write).where(lw_write.c.id == engine.session.id)).one()
        peks = connection.execute(
            select(lw_pek).where(lw_pek.c.table_id == engine.session.table.record.id)
        ).all()
    assert secret not in stored.wrapped_transport_key and len(peks) == 1
    assert secret.hex() not in repr(engine.session) + json.dumps(stored.staged_metadata)


def test_the_creation_is_on_record_as_one(lake: Lake) -> None:
    caller = lake.caller(ALICE, "spark")
    session = lake.services.writes.begin_staged(caller, NewTable(fresh(), SCHEMA, properties=ENCRYPTED))
    (staged,) = records(lake, caller)
    assert (staged.action, staged.engine, staged.allowed) == ("table.stage", "spark", True)
    commit = lake.caller(ALICE, "spark")
    lake.services.writes.commit(commit, session.id, FileCommit("append", ()))
    assert [(each.action, each.allowed) for each in records(lake, commit)] == [("table.create", True)]
    assert {each.resource for each in records(lake, commit)} == {str(session.table.record.name)}
