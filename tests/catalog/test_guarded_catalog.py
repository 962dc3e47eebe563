"""`GuardedCatalog` behaves as pyiceberg's `Catalog` interface promises, and keeps the catalog's rules."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NamespaceNotEmptyError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.expressions import EqualTo
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import IntegerType, LongType, NestedField, StringType

from policy.errors import LakewardenError, NotSupportedYet, RequestInvalid
from tests.support.lake import Lake
from tests.support.tables import SCHEMA, fresh, make, rows

BY_NAME = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "name"))


def ids(table: Table) -> list[int]:
    return sorted(table.scan().to_arrow()["id"].to_pylist())


def files_below(lake: Lake) -> set[str]:
    return {str(path) for path in lake.warehouse.rglob("*") if path.is_file()}


def test_a_created_table_is_there_with_what_was_asked_for(lake: Lake) -> None:
    name = fresh()
    made = make(lake, name, partition_spec=BY_NAME, properties={"comment": "mine"})
    loaded = lake.catalog().load_table(str(name))
    assert loaded.metadata == made.metadata
    assert loaded.schema().as_struct() == SCHEMA.as_struct()
    assert [field.name for field in loaded.spec().fields] == ["name"]
    assert loaded.properties["comment"] == "mine"
    assert loaded.format_version == 2
    assert loaded.current_snapshot() is None


def test_the_default_location_ends_in_the_tables_uuid(lake: Lake) -> None:
    name = fresh()
    table = make(lake, name)
    expected = f"file://{lake.warehouse}/db/{name.name}-{table.metadata.table_uuid}"
    assert table.location() == expected
    assert table.properties["read.allowed.data.paths"] == expected


def test_a_name_used_again_inherits_neither_identity_nor_directory(lake: Lake) -> None:
    name = fresh()
    first = make(lake, name)
    lake.catalog().drop_table(str(name))
    second = make(lake, name)
    assert first.metadata.table_uuid != second.metadata.table_uuid
    assert first.location() != second.location()


def test_a_nested_namespace_and_odd_names_make_plain_directories(lake: Lake) -> None:
    catalog = lake.catalog()
    catalog.create_namespace(("db", "inner level"))
    table = catalog.create_table(("db", "inner level", "my %2e*table"), SCHEMA)
    assert re.fullmatch(r"file://.*/warehouse/db/inner_level/my__2e_table-[0-9a-f-]{36}", table.location())
    table.append(rows(1))
    assert ids(catalog.load_table(("db", "inner level", "my %2e*table"))) == [1, 2]


def test_a_pyarrow_schema_is_taken(lake: Lake) -> None:
    name = fresh()
    table = lake.catalog().create_table(str(name), pa.schema([("a", pa.int32()), ("b", pa.string())]))
    assert [field.name for field in table.schema().fields] == ["a", "b"]


def test_a_table_is_created_once(lake: Lake) -> None:
    name = fresh()
    made = make(lake, name)
    before = files_below(lake)
    with pytest.raises(TableAlreadyExistsError):
        make(lake, name)
    assert lake.catalog().create_table_if_not_exists(str(name), SCHEMA).metadata == made.metadata
    assert files_below(lake) == before


def test_a_table_needs_a_namespace_that_exists(lake: Lake) -> None:
    with pytest.raises(NoSuchNamespaceError):
        lake.catalog().create_table("absent.t", SCHEMA)
    with pytest.raises(NoSuchTableError):
        lake.catalog().load_table("no_namespace")
    assert not lake.catalog().namespace_exists("absent")


def test_tables_are_listed_and_exist_until_dropped(lake: Lake) -> None:
    catalog, name = lake.catalog(), fresh()
    assert not catalog.table_exists(str(name))
    make(lake, name)
    assert catalog.table_exists(str(name))
    assert ("db", name.name) in catalog.list_tables("db")
    catalog.drop_table(str(name))
    assert not catalog.table_exists(str(name))
    assert ("db", name.name) not in catalog.list_tables("db")
    for gone in (catalog.load_table, catalog.drop_table, catalog.purge_table):
        with pytest.raises(NoSuchTableError):
            gone(str(name))


def test_a_renamed_table_is_the_same_table(lake: Lake) -> None:
    catalog, source, target = lake.catalog(), fresh(), fresh("bobs")
    before = make(lake, source)
    before.append(rows(1))
    after = catalog.rename_table(str(source), str(target))
    assert after.name() == ("bobs", target.name)
    assert after.metadata.table_uuid == before.metadata.table_uuid
    assert after.location() == before.location()
    assert ids(after) == [1, 2]
    after.append(rows(3))
    assert ids(catalog.load_table(str(target))) == [1, 2, 3, 4]
    with pytest.raises(NoSuchTableError):
        catalog.load_table(str(source))
    make(lake, source)


def test_a_rename_takes_no_name_and_needs_both_ends(lake: Lake) -> None:
    catalog, source, taken = lake.catalog(), fresh(), fresh()
    make(lake, source), make(lake, taken)
    with pytest.raises(TableAlreadyExistsError):
        catalog.rename_table(str(source), str(taken))
    with pytest.raises(NoSuchNamespaceError):
        catalog.rename_table(str(source), "absent.t")
    with pytest.raises(NoSuchTableError):
        catalog.rename_table(str(fresh()), str(fresh()))
    assert catalog.table_exists(str(source))
    assert catalog.table_exists(str(taken))


@pytest.mark.nightly
def test_a_dropped_table_keeps_its_files_and_a_purged_one_does_not(lake: Lake) -> None:
    catalog = lake.catalog()
    for end, remains in ((catalog.drop_table, True), (catalog.purge_table, False)):
        name = fresh()
        table = make(lake, name)
        table.append(rows(1))
        table.append(rows(3))
        directory = Path(table.location().removeprefix("file://"))
        assert any(directory.rglob("*.parquet"))
        end(str(name))
        assert any(directory.rglob("*.parquet")) is remains
        assert any(directory.rglob("*.metadata.json")) is remains


def test_a_purge_deletes_nothing_that_lies_elsewhere(lake: Lake, tmp_path: Path) -> None:
    name = fresh()
    elsewhere = f"file://{tmp_path}/elsewhere"
    own = f"file://{tmp_path}/own"
    table = make(
        lake,
        name,
        location=own,
        properties={"write.data.path": elsewhere, "read.allowed.data.paths": f"{own},{elsewhere}"},
    )
    table.append(rows(1))
    left = lake.services.lifecycle.purge(lake.caller("alice"), name)
    assert left == 1
    assert len(list((tmp_path / "elsewhere").rglob("*.parquet"))) == 1
    assert not list((tmp_path / "own").rglob("*.avro"))


def test_a_dropped_table_is_registered_again_as_it_was(lake: Lake) -> None:
    catalog, name, again = lake.catalog(), fresh(), fresh()
    table = make(lake, name, properties={"encryption.mechanism": "envelope"})
    before = catalog.load_table(str(name))
    catalog.drop_table(str(name))
    revived = catalog.register_table(str(again), table.metadata_location)
    assert revived.metadata.table_uuid == before.metadata.table_uuid
    assert revived.properties == before.properties


def test_a_table_made_elsewhere_is_registered(lake: Lake, tmp_path: Path) -> None:
    from pyiceberg.catalog.sql import SqlCatalog

    theirs = SqlCatalog("theirs", uri=f"sqlite:///{tmp_path}/t.db", warehouse=f"file://{tmp_path}/theirs")
    theirs.create_namespace("db")
    source = theirs.create_table("db.x", SCHEMA)
    source.append(rows(1))
    name = fresh()
    registered = lake.catalog().register_table(str(name), theirs.load_table("db.x").metadata_location)
    theirs.engine.dispose()
    assert ids(registered) == [1, 2]
    assert registered.properties["read.allowed.data.paths"] == source.location()
    registered.append(rows(3))
    assert ids(lake.catalog().load_table(str(name))) == [1, 2, 3, 4]
    with pytest.raises(LakewardenError):
        lake.catalog().register_table(str(fresh()), registered.metadata_location)
    with pytest.raises(NotSupportedYet):
        lake.catalog().register_table(str(name), registered.metadata_location, overwrite=True)


def test_namespaces_are_made_listed_and_dropped(lake: Lake) -> None:
    catalog = lake.catalog()
    catalog.create_namespace(("outer", "inner"), {"comment": "c"})
    assert catalog.namespace_exists(("outer", "inner"))
    assert ("outer",) in catalog.list_namespaces()
    assert catalog.list_namespaces("outer") == [("outer", "inner")]
    assert catalog.load_namespace_properties("outer.inner") == {"comment": "c"}
    with pytest.raises(NamespaceAlreadyExistsError):
        catalog.create_namespace("outer.inner")
    catalog.create_namespace_if_not_exists("outer.inner")
    with pytest.raises(NamespaceNotEmptyError):
        catalog.drop_namespace("outer")
    catalog.drop_namespace("outer.inner")
    assert not catalog.namespace_exists("outer.inner")
    for gone in (catalog.drop_namespace, catalog.list_tables, catalog.load_namespace_properties):
        with pytest.raises(NoSuchNamespaceError):
            gone("outer.inner")


def test_namespace_properties_are_set_and_removed(lake: Lake) -> None:
    catalog = lake.catalog()
    catalog.create_namespace("props", {"a": "1", "b": "2"})
    summary = catalog.update_namespace_properties("props", {"a", "absent"}, {"b": "3", "c": "4"})
    assert (summary.removed, summary.updated, summary.missing) == (["a"], ["b", "c"], ["absent"])
    assert catalog.load_namespace_properties("props") == {"b": "3", "c": "4"}
    with pytest.raises(RequestInvalid):
        catalog.update_namespace_properties("props", {"b"}, {"b": "5"})


@pytest.mark.nightly
def test_rows_are_appended_overwritten_and_deleted(lake: Lake) -> None:
    table = make(lake)
    table.append(rows(1, 4))
    table.append(rows(5, 2))
    table.delete(EqualTo("id", 2))
    assert ids(table) == [1, 3, 4, 5, 6]
    table.overwrite(rows(10), overwrite_filter="id < 4")
    assert ids(table) == [4, 5, 6, 10, 11]
    table.delete("id >= 5")
    assert ids(table) == [4]
    table.overwrite(rows(20))
    assert ids(lake.catalog().load_table(table.name())) == [20, 21]


def test_partitioned_tables_are_written_and_overwritten_by_partition(lake: Lake) -> None:
    table = make(lake, partition_spec=BY_NAME)
    table.append(pa.table({"id": [1, 2, 3], "name": ["a", "b", "a"]}))
    table.dynamic_partition_overwrite(pa.table({"id": [9], "name": ["a"]}))
    assert ids(table) == [2, 9]
    assert table.scan("name = 'b'").to_arrow()["id"].to_pylist() == [2]


def test_the_schema_evolves_and_old_rows_stay_readable(lake: Lake) -> None:
    table = make(lake)
    table.append(rows(1))
    with table.update_schema() as update:
        update.add_column("x", IntegerType())
        update.rename_column("name", "label")
    table.append(pa.table({"id": [9], "label": ["z"], "x": pa.array([7], pa.int32())}))
    found = lake.catalog().load_table(table.name()).scan().to_arrow().sort_by("id").to_pydict()
    assert found == {"id": [1, 2, 9], "label": ["n1", "n2", "z"], "x": [None, None, 7]}
    with table.update_schema() as update:
        update.delete_column("x")
    assert table.scan().to_arrow().column_names == ["id", "label"]


def test_the_partition_spec_evolves(lake: Lake) -> None:
    table = make(lake)
    table.append(rows(1))
    with table.update_spec() as update:
        update.add_identity("name")
    table.append(rows(5))
    assert ids(lake.catalog().load_table(table.name())) == [1, 2, 5, 6]
    assert len(table.specs()) == 2


def test_branches_and_tags_name_snapshots(lake: Lake) -> None:
    table = make(lake)
    table.append(rows(1))
    first = table.current_snapshot()
    assert first is not None
    table.manage_snapshots().create_tag(first.snapshot_id, "v1").create_branch(
        first.snapshot_id, "dev"
    ).commit()
    table.append(rows(3), branch="dev")
    table.append(rows(5))
    loaded = lake.catalog().load_table(table.name())
    assert sorted(loaded.scan().use_ref("v1").to_arrow()["id"].to_pylist()) == [1, 2]
    assert sorted(loaded.scan().use_ref("dev").to_arrow()["id"].to_pylist()) == [1, 2, 3, 4]
    assert ids(loaded) == [1, 2, 5, 6]
    loaded.manage_snapshots().remove_branch("dev").remove_tag("v1").commit()
    assert set(loaded.refs()) == {"main"}


def test_old_snapshots_expire(lake: Lake) -> None:
    table = make(lake)
    table.append(rows(1))
    first = table.current_snapshot()
    assert first is not None
    table.append(rows(3))
    table.maintenance.expire_snapshots().by_id(first.snapshot_id).commit()
    loaded = lake.catalog().load_table(table.name())
    assert [each.snapshot_id for each in loaded.snapshots()] == [loaded.metadata.current_snapshot_id]
    assert ids(loaded) == [1, 2, 3, 4]


def test_several_changes_in_one_transaction_are_one_commit(lake: Lake) -> None:
    table = make(lake)
    with table.transaction() as transaction:
        with transaction.update_schema() as update:
            update.add_column("x", LongType())
        transaction.set_properties({"comment": "c"})
        transaction.append(pa.table({"id": [1], "name": ["a"], "x": [2]}))
    loaded = lake.catalog().load_table(table.name())
    assert loaded.scan().to_arrow().to_pydict() == {"id": [1], "name": ["a"], "x": [2]}
    assert len(loaded.metadata.metadata_log) == 1


def test_of_two_commits_on_one_base_the_second_is_told(lake: Lake) -> None:
    table = make(lake)
    stale = lake.catalog().load_table(table.name())
    with table.update_schema() as update:
        update.add_column("x", LongType())
    with pytest.raises(CommitFailedException), stale.update_schema() as update:
        update.add_column("y", LongType())
    assert lake.catalog().load_table(table.name()).schema().column_names == ["id", "name", "x"]


def test_an_append_on_an_old_base_is_based_again(lake: Lake) -> None:
    table = make(lake)
    stale = lake.catalog().load_table(table.name())
    table.append(rows(1))
    stale.append(rows(3))
    assert ids(lake.catalog().load_table(table.name())) == [1, 2, 3, 4]


def test_a_staged_table_is_nowhere_until_it_is_committed(lake: Lake) -> None:
    catalog, name = lake.catalog(), fresh()
    transaction = catalog.create_table_transaction(str(name), SCHEMA, properties={"comment": "c"})
    assert not catalog.table_exists(str(name))
    assert ("db", name.name) not in catalog.list_tables("db")
    with transaction:
        transaction.append(rows(1, 3))
    table = catalog.load_table(str(name))
    assert ids(table) == [1, 2, 3]
    assert table.properties["comment"] == "c"
    assert table.location().endswith(str(table.metadata.table_uuid))


def test_a_staged_table_that_is_given_up_leaves_the_name_free(lake: Lake) -> None:
    catalog, name = lake.catalog(), fresh()
    transaction = catalog.create_table_transaction(str(name), SCHEMA)
    make(lake, name)
    with pytest.raises(TableAlreadyExistsError):
        transaction.commit_transaction()
    assert catalog.load_table(str(name)).scan().to_arrow().num_rows == 0


def test_a_staged_table_may_bring_governed_properties_and_rows(lake: Lake, tmp_path: Path) -> None:
    catalog, name = lake.catalog(), fresh()
    own = f"file://{tmp_path}/own"
    transaction = catalog.create_table_transaction(
        str(name), SCHEMA, location=own, properties={"read.allowed.data.paths": f"{own},s3://b/x"}
    )
    with transaction:
        transaction.append(rows(1))
    assert catalog.load_table(str(name)).properties["read.allowed.data.paths"] == f"{own},s3://b/x"


def test_what_is_read_is_checked_against_the_seal(lake: Lake) -> None:
    table = make(lake)
    table.append(rows(1))
    table.append(rows(3))
    manifest = table.current_snapshot().manifests(table.io)[0].manifest_path  # type: ignore[union-attr]
    path = Path(manifest.removeprefix("file://"))
    os.chmod(path, 0o600)
    path.write_bytes(path.read_bytes() + b" ")
    with pytest.raises(LakewardenError, match="does not match its seal"):
        lake.catalog().load_table(table.name()).scan().to_arrow()


def test_governed_properties_never_stand_in_the_file(lake: Lake) -> None:
    table = make(lake, properties={"encryption.mechanism": "envelope", "comment": "c"})
    stored = json.loads(Path(table.metadata_location.removeprefix("file://")).read_text())
    assert stored["properties"] == {"comment": "c"}


def test_views_are_not_supported(lake: Lake) -> None:
    catalog: Any = lake.catalog()
    assert catalog.list_views("db") == []
    assert not catalog.view_exists("db.v")
    for ask in (catalog.load_view, catalog.drop_view, catalog.create_view):
        with pytest.raises(NotSupportedYet):
            ask("db.v")
    with pytest.raises(NotSupportedYet):
        catalog.register_view("db.v", "file:///v.json")


def test_another_process_sees_the_same_tables(lake: Lake) -> None:
    name = fresh()
    make(lake, name, Schema(NestedField(1, "a", StringType())))
    lake.reopen()
    assert lake.catalog().load_table(str(name)).schema().column_names == ["a"]


@pytest.mark.parametrize("name", [("db", "a.b"), ("db", ".."), ("db", "a/b"), ("db", ""), ("d/b", "t")])
def test_names_that_could_be_read_in_two_ways_make_nothing(lake: Lake, name: tuple[str, str]) -> None:
    before = files_below(lake)
    with pytest.raises(RequestInvalid):
        lake.catalog().create_table(name, SCHEMA)
    assert files_below(lake) == before
