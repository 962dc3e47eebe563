"""Writes that replace their table: the old table or the new one, under the rules of altering it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField
from sqlalchemy import select

from catalog.base import crash_points
from catalog.base.errors import ConcurrentModification, NoSuchTable
from catalog.db.engine import read
from catalog.db.schema import lw_governed
from catalog.writes.new_files import FileCommit
from policy.errors import LakewardenError, LocationNotAllowed, NotAuthorized, RequestInvalid
from tests.support.lake import ALICE, BOB, CAROL, Lake, standard_policies
from tests.support.replacing import KEYED, REST, files, loaded, made, only, past_id, staged
from tests.support.tables import ENCRYPTED, SCHEMA, Engine, append_files, expire_open_writes, fresh

NIGHTLY = pytest.mark.nightly


@pytest.mark.nightly
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


@pytest.mark.nightly
@pytest.mark.parametrize("rows", [True, False], ids=["rows", "none"])
def test_committing_twice_is_one_commit(lake: Lake, rows: bool) -> None:
    name = made(lake)
    engine = staged(lake, name)
    commit = FileCommit("append", (engine.file(),)) if rows else REST
    first = engine.commit(commit)
    assert engine.commit(commit).metadata_location == first.metadata_location
    append_files(lake, name)
    assert engine.commit(commit).metadata_location == loaded(lake, name).metadata_location


@pytest.mark.nightly
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


@pytest.mark.rows_by_day(3)
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
        if reached == "published":
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


@pytest.mark.nightly
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


@pytest.mark.rows_by_day(3)
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


@pytest.mark.rows_by_day(3)
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
