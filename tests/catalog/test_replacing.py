"""Replacing files by others with the same rows, while others commit."""

from __future__ import annotations

from typing import Literal

import pytest
from pyiceberg.manifest import DataFileContent
from pyiceberg.table.update import SetCurrentSchemaUpdate

from catalog.base import crash_points
from catalog.base.errors import CommitConflict, ConcurrentModification
from catalog.maintenance.rewrites import RewriteGroup
from catalog.writes.new_files import FileCommit
from policy.errors import KeyNotUsable, RequestInvalid
from tests.support.delete_files import add_deletes
from tests.support.lake import ALICE, Lake
from tests.support.rewrites import ask, encrypt, make_keys, migrating, paths, rewrite
from tests.support.table_keys import load
from tests.support.tables import ENCRYPTED, Engine, append_files, make, name_of

#: Changes that a file shows.
CHANGES = [
    {"encryption.algorithm": "AES_GCM_CTR_V1"},
    {"encryption.footer": "plaintext"},
    {"encryption.data-key-length": "16"},
    {"encryption.columns": "other:name"},
    {"encryption.stock-readers": "true"},
    {"encryption.verify-digest": "always"},
    {"write.format.default": "orc"},
]


@pytest.mark.nightly
def test_a_rewrite_goes_on_top_of_what_came_meanwhile(lake: Lake) -> None:
    table = migrating(lake)
    (group,) = ask(lake, table).groups
    others = append_files(lake, name_of(table), 2)
    new = rewrite(lake, table, group)
    assert paths(lake, table) == {new, *others}
    head = load(lake, name_of(table)).metadata.current_snapshot()
    assert head is not None and head.summary is not None
    assert head.summary.operation.value == "replace"
    assert ask(lake, table).files == 0


@pytest.mark.nightly
def test_a_commit_that_comes_at_the_last_moment_is_built_upon(lake: Lake) -> None:
    table = migrating(lake)
    (group,) = ask(lake, table).groups
    came: list[str] = []

    def hook(point: str) -> None:
        if point == "write:built" and not came:
            came.append("")
            came[:] = append_files(lake, name_of(table))

    with crash_points.hooked(hook):
        new = rewrite(lake, table, group)
    assert paths(lake, table) == {new, *came}


def test_two_rewrites_of_one_group_double_no_row(lake: Lake) -> None:
    table = migrating(lake)
    (group,) = ask(lake, table).groups
    new = rewrite(lake, table, group)
    with pytest.raises(CommitConflict):
        rewrite(lake, table, group)
    assert paths(lake, table) == {new}


@pytest.mark.nightly
def test_groups_are_committed_one_by_one(lake: Lake) -> None:
    table = migrating(lake, files=3)
    for left in (2, 1, 0):
        (group, *_) = ask(lake, table, max_bytes=1).groups
        rewrite(lake, table, group)
        assert ask(lake, table).files == left


def test_files_without_rows_are_replaced_by_none(lake: Lake) -> None:
    table = make(lake)
    (kept,) = append_files(lake, name_of(table))
    (empty,) = append_files(lake, name_of(table), record_count=0)
    base = load(lake, name_of(table)).metadata.current_snapshot_id
    Engine.begin(lake, name_of(table)).commit(FileCommit("replace", (), (empty,), base))
    assert paths(lake, table) == {kept}


@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize("change", CHANGES, ids=str)
@pytest.mark.parametrize("operation", ["append", "replace"])
def test_files_that_were_written_before_a_change_of_encryption_are_refused(
    lake: Lake, change: dict[str, str], operation: Literal["append", "replace"]
) -> None:
    """What the catalog would write into their key metadata would not be what they are."""
    make_keys(lake, "other")
    table = make(lake, properties=ENCRYPTED)
    old = append_files(lake, name_of(table))
    base = load(lake, name_of(table)).metadata.current_snapshot_id
    engine = Engine.begin(lake, name_of(table))
    files = (engine.file(),)
    with lake.catalog().load_table(table.name()).transaction() as transaction:
        transaction.set_properties(change)
    commit = (
        FileCommit("append", files) if operation == "append" else FileCommit("replace", files, (*old,), base)
    )
    with pytest.raises(KeyNotUsable) as refused:
        engine.commit(commit)
    assert refused.value.rule == "write-key"
    assert paths(lake, table) == set(old)


def test_a_write_goes_on_over_a_rotation_a_rename_and_other_changes(lake: Lake) -> None:
    make_keys(lake, "other")
    table = make(lake, properties={"encryption.columns": "other:name"})
    engine = Engine.begin(lake, name_of(table))
    lake.services.key_rotation.rotate(lake.caller(ALICE), name_of(table))
    with lake.catalog().load_table(table.name()).update_schema() as update:
        update.rename_column("name", "called")
    with lake.catalog().load_table(table.name()).transaction() as transaction:
        transaction.set_properties({"comment": "x"})
    file = engine.file()
    engine.append(file)
    assert paths(lake, table) == {file.path}


@pytest.mark.parametrize("records", [0, 19, 21])
def test_a_replace_neither_loses_nor_adds_rows(lake: Lake, records: int) -> None:
    table = migrating(lake)
    (group,) = ask(lake, table).groups
    with pytest.raises(RequestInvalid) as refused:
        rewrite(lake, table, group, records=records)
    assert refused.value.rule == "replaced-rows"


def test_a_replace_is_refused_where_its_rows_were_read_by_another_schema(lake: Lake) -> None:
    """A column that is back since then would be lost with the files that go."""
    table = make(lake)
    (old,) = append_files(lake, name_of(table))
    first = load(lake, name_of(table)).metadata.current_schema_id
    with lake.catalog().load_table(table.name()).update_schema(allow_incompatible_changes=True) as schema:
        schema.delete_column("name")
    encrypt(lake, table)
    (group,) = ask(lake, table).groups
    engine = Engine.begin(lake, name_of(table))
    file = engine.file(record_count=group.records)
    back = SetCurrentSchemaUpdate(schema_id=first)
    stock = lake.catalog()
    stock.commit_table(stock.load_table(table.name()), (), (back,))
    with pytest.raises(CommitConflict) as refused:
        engine.commit(FileCommit("replace", (file,), group.paths, group.snapshot_id))
    assert refused.value.rule == "schema"
    assert paths(lake, table) == {old}


@pytest.mark.nightly
def test_a_path_that_was_added_again_since_is_another_file(lake: Lake) -> None:
    table = migrating(lake, files=1)
    old = paths(lake, table)
    snapshot = load(lake, name_of(table)).metadata.current_snapshot_id
    append_files(lake, name_of(table))
    (newer,) = paths(lake, table) - old
    engine = Engine.begin(lake, name_of(table))
    for base, rule in ((snapshot, "removed-files"), (None, "removed-files"), (12345, "base-snapshot")):
        commit = FileCommit("replace", (engine.file(),), (newer,), base)
        with pytest.raises(ConcurrentModification) as refused:
            engine.commit(commit)
        assert refused.value.rule == rule


def test_rows_that_are_deleted_meanwhile_do_not_come_back(lake: Lake) -> None:
    table = make(lake)
    (path,) = append_files(lake, name_of(table))
    base = load(lake, name_of(table)).metadata.current_snapshot_id
    assert base is not None
    add_deletes(lake, table, DataFileContent.POSITION_DELETES)
    with pytest.raises(CommitConflict) as refused:
        rewrite(lake, table, RewriteGroup("main", base, (path,), (1000,), 10, 1, 1000))
    assert refused.value.rule == "new-deletes"


def test_deletes_of_other_files_do_not_hinder(lake: Lake) -> None:
    table = make(lake)
    path, other = append_files(lake, name_of(table), 2)
    base = load(lake, name_of(table)).metadata.current_snapshot_id
    assert base is not None
    add_deletes(lake, table, DataFileContent.POSITION_DELETES, applies_to=[other])
    new = rewrite(lake, table, RewriteGroup("main", base, (path,), (1000,), 10, 1, 1000))
    assert new in paths(lake, table)
