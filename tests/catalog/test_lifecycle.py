"""Rename, drop, purge, register, adopt, reseal, restore: identity stays and nothing is inherited."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from sqlalchemy import update

from catalog.base.errors import NoSuchNamespace, NoSuchTable, TableExists
from catalog.base.identifiers import TableName
from catalog.db.engine import read, write
from catalog.db.schema import iceberg_tables
from catalog.state import table_state
from catalog.state.table_state import TableState
from policy.errors import (
    LakewardenError,
    LocationInvalid,
    LocationNotAllowed,
    MetadataInvalid,
    MetadataTampered,
    MetadataUnsealed,
    NotAuthorized,
    PropertyInvalid,
    RequestInvalid,
)
from tests.support.lake import ALICE, BOB, Lake, policy, standard_policies, tables
from tests.support.tables import ENCRYPTED, SCHEMA, append_files, fresh, make, name_of, named, rows


def register(lake: Lake, name: TableName, location: str, user: str = ALICE) -> object:
    return lake.services.registration.register(lake.caller(user), name, location)


def latest(lake: Lake, table: Table) -> str:
    return lake.catalog().load_table(table.name()).metadata_location


def point(lake: Lake, name: TableName, location: str) -> None:
    """Move a pointer behind the catalog's back."""
    columns = iceberg_tables.c
    mine = (columns.table_namespace == name.database, columns.table_name == name.name)
    with write(lake.services.engine) as connection:
        connection.execute(update(iceberg_tables).where(*mine).values(metadata_location=location))


def made_elsewhere(root: Path, **properties: str) -> tuple[str, Path]:
    """A table of standard pyiceberg; where its metadata lies."""
    theirs = SqlCatalog("theirs", uri=f"sqlite:///{root}/t.db", warehouse=f"file://{root}/theirs")
    theirs.create_namespace("db")
    theirs.create_table("db.x", SCHEMA, properties=properties).append(rows(1))
    location = theirs.load_table("db.x").metadata_location
    theirs.engine.dispose()
    return location, Path(location.removeprefix("file://"))


def test_a_rename_keeps_keys_governed_state_and_files(lake: Lake) -> None:
    source, target = make(lake, properties=ENCRYPTED), fresh("bobs")
    append_files(lake, name_of(source))
    before = lake.services.loader.load(name_of(source))
    lake.services.lifecycle.rename(lake.caller(ALICE), name_of(source), target)
    after = lake.services.loader.load(target)
    assert (after.record.id, after.governed, after.metadata) == (
        before.record.id,
        before.governed,
        before.metadata,
    )
    append_files(lake, target)
    assert len(lake.services.loader.load(target).metadata.snapshots) == 2


def test_a_name_that_was_renamed_away_is_a_new_table(lake: Lake) -> None:
    old = make(lake, properties=ENCRYPTED | {"read.allowed.data.paths": "s3://b/x"})
    lake.services.lifecycle.rename(lake.caller(ALICE), name_of(old), fresh())
    new = make(lake, name_of(old))
    assert new.properties["encryption.mechanism"] == "plaintext"
    assert new.properties["read.allowed.data.paths"] == new.location()


def test_a_refused_rename_leaves_the_table_where_it_is(lake: Lake) -> None:
    table, taken = make(lake), make(lake)
    for target, error in ((name_of(taken), TableExists), (named("t", "absent"), NoSuchNamespace)):
        with pytest.raises(error):
            lake.services.lifecycle.rename(lake.caller(ALICE), name_of(table), target)
    record = lake.services.loader.load(name_of(table)).record
    assert (record.name, record.pending_name) == (name_of(table), None)


@pytest.fixture
def strict(lake: Lake) -> Iterator[str]:
    """A namespace that forbids unsealed metadata; Dave has all rights in every one but `unprotect`."""
    name = f"strict_{uuid4().hex[:8]}"
    lake.catalog().create_namespace(name, {"lakewarden.unsealed": "forbid"})
    rights = ["select", "update", "alter", "create", "drop"]
    storage = policy("dave-storage", {"storage-type": ["*"], "storage-url": ["*"]}, {"dave": ["rwstorage"]})
    lake.set_policies([*standard_policies(), storage, policy("dave", tables("*"), {"dave": rights})])
    yield name
    lake.set_policies(standard_policies())


def test_a_rename_out_of_where_unsealed_metadata_is_forbidden_needs_unprotect(
    lake: Lake, strict: str
) -> None:
    """As allowing it there would: a user who writes to the pointer store could not yet harm the table."""
    table, within, out = make(lake, named("t", strict)), named("u", strict), fresh()
    lake.services.lifecycle.rename(lake.caller("dave"), name_of(table), within)
    with pytest.raises(NotAuthorized, match="unprotect"):
        lake.services.lifecycle.rename(lake.caller("dave"), within, out)
    lake.services.lifecycle.rename(lake.caller(ALICE), within, out)
    lake.services.lifecycle.rename(lake.caller("dave"), out, within)


def test_a_dropped_table_comes_back_where_unsealed_metadata_is_allowed_by_unprotect(
    lake: Lake, strict: str
) -> None:
    table = make(lake, named("t", strict))
    location = lake.services.loader.load(name_of(table)).metadata_location
    lake.services.lifecycle.drop(lake.caller(ALICE), name_of(table))
    with pytest.raises(NotAuthorized, match="unprotect"):
        lake.services.registration.register(lake.caller("dave"), fresh(), location)
    lake.services.registration.register(lake.caller("dave"), name_of(table), location)


def test_a_dropped_name_is_free_and_inherits_nothing(lake: Lake) -> None:
    old = make(lake, properties=ENCRYPTED)
    lake.catalog().drop_table(old.name())
    new = make(lake, name_of(old))
    assert new.metadata.table_uuid != old.metadata.table_uuid
    assert "encryption.pek-id" not in new.properties
    assert lake.services.keyring.records(lake.services.loader.load(name_of(new)).record) == []


def test_a_drop_works_whatever_state_the_metadata_is_in(lake: Lake) -> None:
    table = make(lake)
    Path(table.metadata_location.removeprefix("file://")).unlink()
    lake.catalog().drop_table(table.name())
    assert table.name() not in lake.catalog().list_tables("db")


def test_a_purged_table_is_over(lake: Lake) -> None:
    table = make(lake)
    table.append(rows(1))
    assert lake.services.lifecycle.purge(lake.caller(ALICE), name_of(table)) == 0
    assert not Path(table.location().removeprefix("file://")).exists()
    with read(lake.services.engine) as connection:
        record = table_state.table_by_uuid(connection, table.metadata.table_uuid)
    assert record is not None
    assert record.state is TableState.PURGED


def test_a_purge_needs_to_know_which_files_are_the_tables(lake: Lake) -> None:
    table = make(lake)
    table.append(rows(1))
    stored = Path(table.metadata_location.removeprefix("file://"))
    stored.write_bytes(stored.read_bytes() + b" ")
    with pytest.raises(MetadataTampered):
        lake.services.lifecycle.purge(lake.caller(ALICE), name_of(table))
    assert list(stored.parent.parent.rglob("*.parquet"))
    assert table.name() in lake.catalog().list_tables("db")


def test_a_dropped_table_comes_back_only_as_it_was(lake: Lake) -> None:
    table = make(lake)
    first = table.metadata_location
    table.append(rows(1))
    last = latest(lake, table)
    lake.catalog().drop_table(table.name())
    with pytest.raises(MetadataTampered) as refused:
        register(lake, name_of(table), first)
    assert refused.value.rule == "rollback"
    register(lake, name_of(table), last)
    assert lake.catalog().load_table(table.name()).scan().to_arrow().num_rows == 2


def test_the_uuid_of_a_dropped_table_needs_rights_on_it(lake: Lake) -> None:
    table = make(lake)
    location = latest(lake, table)
    lake.catalog().drop_table(table.name())
    with pytest.raises(NotAuthorized):
        register(lake, fresh("bobs"), location, BOB)


def test_the_uuid_of_a_live_table_is_not_registered_again(lake: Lake) -> None:
    table = make(lake)
    with pytest.raises(MetadataTampered):
        register(lake, fresh(), latest(lake, table))
    with pytest.raises(TableExists):
        register(lake, name_of(table), latest(lake, table))


def test_a_taken_name_is_not_registered_over(lake: Lake, tmp_path: Path) -> None:
    taken = make(lake)
    location, _ = made_elsewhere(tmp_path)
    with pytest.raises(TableExists):
        register(lake, name_of(taken), location)
    assert latest(lake, taken) == taken.metadata_location


@pytest.mark.parametrize(
    ("location", "error"),
    [
        ("file:///no/such/metadata.json", LakewardenError),
        ("file:///etc/passwd", MetadataInvalid),
        ("not a location", LocationInvalid),
        ("s3://b/../x", LocationInvalid),
    ],
)
def test_what_is_no_metadata_is_not_registered(
    lake: Lake, location: str, error: type[LakewardenError]
) -> None:
    name = fresh()
    with pytest.raises(error):
        register(lake, name, location)
    assert not lake.catalog().table_exists(str(name))


def test_files_outside_of_the_location_are_not_registered(lake: Lake, tmp_path: Path) -> None:
    location, stored = made_elsewhere(tmp_path)
    document = json.loads(stored.read_text())
    document["location"] = f"file://{tmp_path}/narrower"
    stored.write_text(json.dumps(document))
    with pytest.raises(LocationNotAllowed):
        register(lake, fresh(), location)


@pytest.mark.nightly
def test_reader_configuration_is_not_registered(lake: Lake, tmp_path: Path) -> None:
    location, _ = made_elsewhere(tmp_path, **{"s3.endpoint": "http://elsewhere"})
    with pytest.raises(PropertyInvalid):
        register(lake, fresh(), location)


def test_governed_copies_of_a_registered_table_count_for_nothing(lake: Lake, tmp_path: Path) -> None:
    location, _ = made_elsewhere(tmp_path, **{"read.allowed.data.paths": "s3://victim/x"})
    name = fresh()
    register(lake, name, location)
    shown = lake.catalog().load_table(str(name)).properties
    assert shown["read.allowed.data.paths"] == f"file://{tmp_path}/theirs/db/x"


@pytest.mark.nightly
def test_metadata_put_behind_the_catalogs_back_can_be_sealed_or_taken_back(lake: Lake) -> None:
    for accept in (True, False):
        table = make(lake)
        table.append(rows(1))
        sealed = latest(lake, table)
        behind = f"{table.location()}/metadata/99999-behind.metadata.json"
        document = json.loads(Path(sealed.removeprefix("file://")).read_text())
        document["properties"] = {"comment": "behind"}
        Path(behind.removeprefix("file://")).write_text(json.dumps(document))
        point(lake, name_of(table), behind)
        if accept:
            lake.services.registration.reseal(lake.caller(ALICE), name_of(table))
        else:
            lake.services.registration.restore(lake.caller(ALICE), name_of(table))
        now = lake.catalog().load_table(table.name())
        assert now.metadata_location == (behind if accept else sealed)
        now.append(rows(3))
        assert lake.catalog().load_table(table.name()).scan().to_arrow().num_rows == 4


def test_what_is_sealed_is_not_sealed_again(lake: Lake) -> None:
    table = make(lake)
    with pytest.raises(RequestInvalid):
        lake.services.registration.reseal(lake.caller(ALICE), name_of(table))
    restored = lake.services.registration.restore(lake.caller(ALICE), name_of(table))
    assert restored.metadata_location == table.metadata_location


def test_metadata_of_an_encrypted_table_is_not_sealed_from_behind(lake: Lake) -> None:
    table = make(lake, properties=ENCRYPTED)
    first = table.metadata_location
    append_files(lake, name_of(table))
    point(lake, name_of(table), first)
    with pytest.raises(MetadataUnsealed):
        lake.services.registration.reseal(lake.caller(ALICE), name_of(table))
    lake.services.registration.restore(lake.caller(ALICE), name_of(table))
    assert len(lake.catalog().load_table(table.name()).snapshots()) == 1


def test_a_pointer_that_was_removed_is_put_back(lake: Lake) -> None:
    table = make(lake)
    with write(lake.services.engine) as connection:
        connection.execute(iceberg_tables.delete().where(iceberg_tables.c.table_name == table.name()[-1]))
    with pytest.raises(NoSuchTable, match="pointer does not exist"):
        lake.catalog().load_table(table.name())
    lake.services.registration.restore(lake.caller(ALICE), name_of(table))
    assert lake.catalog().load_table(table.name()).metadata == table.metadata
