"""Loading: what is shown, what is ignored and reported, and what of other format versions is read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from pyiceberg.table.update import SetPropertiesUpdate
from sqlalchemy import update

from catalog.base.identifiers import TableName
from catalog.db.engine import write
from catalog.db.schema import iceberg_tables
from catalog.iceberg.metadata import dump_metadata
from catalog.planning.request import ScanRequest
from policy.errors import MetadataUnsealed, NotAuthorized, Refused, UnsupportedFormatVersion
from tests.support.lake import ALICE, BOB, CAROL, Lake, policy, standard_policies
from tests.support.tables import ENCRYPTED, SCHEMA, fresh, make, name_of, records, rows


def rewritten(lake: Lake, name: TableName, **changes: Any) -> str:
    """Put other metadata behind the catalog's back, and point at it."""
    table = lake.services.loader.load(name)
    document = json.loads(dump_metadata(table.metadata)) | changes
    location = f"{table.metadata.location}/metadata/99999-behind.metadata.json"
    Path(location.removeprefix("file://")).write_text(json.dumps(document))
    point(lake, name, location)
    return location


def point(lake: Lake, name: TableName, location: str) -> None:
    columns = iceberg_tables.c
    mine = (columns.table_namespace == name.database, columns.table_name == name.name)
    with write(lake.services.engine) as connection:
        connection.execute(update(iceberg_tables).where(*mine).values(metadata_location=location))


def test_governed_copies_in_the_file_count_for_nothing_and_are_reported(lake: Lake) -> None:
    table = make(lake)
    copies = {"read.allowed.data.paths": "s3://victim/x", "encryption.mechanism": "envelope", "comment": "c"}
    rewritten(lake, name_of(table), properties=copies)
    caller = lake.caller(ALICE)
    loaded = lake.services.access.load(caller, name_of(table))
    shown = loaded.shown_metadata.properties
    assert shown["read.allowed.data.paths"] == table.location()
    assert shown["encryption.mechanism"] == "plaintext"
    assert shown["comment"] == "c"
    assert loaded.governed_copies == ["encryption.mechanism", "read.allowed.data.paths"]
    assert [each.action for each in records(lake, caller)] == [
        "table.load",
        "table.unsealed",
        "table.governed-copy",
    ]


def test_unsealed_metadata_is_read_reported_and_not_committed_to(lake: Lake) -> None:
    table = make(lake)
    sealed = lake.services.access.load(lake.caller(CAROL), name_of(table))
    location = rewritten(lake, name_of(table), properties={"comment": "behind"})
    caller = lake.caller(CAROL)
    loaded = lake.services.access.load(caller, name_of(table))
    assert (loaded.seal, loaded.metadata_location) == (None, location)
    assert loaded.etag != sealed.etag
    assert "table.unsealed" in [each.action for each in records(lake, caller)]
    with pytest.raises(MetadataUnsealed):
        lake.catalog().load_table(table.name()).append(rows(1))
    lake.services.registration.restore(lake.caller(ALICE), name_of(table))
    assert lake.services.access.load(caller, name_of(table)).metadata_location == sealed.metadata_location


def test_a_namespace_may_forbid_unsealed_metadata(lake: Lake) -> None:
    lake.catalog().create_namespace("strict", {"lakewarden.unsealed": "forbid"})
    table = make(lake, fresh("strict"))
    rewritten(lake, name_of(table))
    with pytest.raises(MetadataUnsealed):
        lake.catalog().load_table(table.name())
    lake.catalog().update_namespace_properties("strict", updates={"lakewarden.unsealed": "allow"})
    assert lake.catalog().load_table(table.name()).name() == table.name()


def test_unsealed_metadata_of_an_encrypted_table_is_not_planned(lake: Lake) -> None:
    table = make(lake, properties=ENCRYPTED)
    rewritten(lake, name_of(table))
    with pytest.raises(MetadataUnsealed):
        lake.services.planner.plan(lake.caller(ALICE, "spark"), name_of(table), ScanRequest())


def adopted(lake: Lake, root: Path, version: str) -> TableName:
    """A table of another format version, made by standard pyiceberg and registered."""
    theirs = SqlCatalog("theirs", uri=f"sqlite:///{root}/t.db", warehouse=f"file://{root}/theirs")
    theirs.create_namespace("db")
    table = theirs.create_table("db.x", SCHEMA, properties={"format-version": version})
    table.append(rows(1))
    name = fresh()
    lake.catalog().register_table(str(name), theirs.load_table("db.x").metadata_location)
    theirs.engine.dispose()
    return name


@pytest.mark.nightly
def test_a_version_one_table_is_read_written_and_upgraded(lake: Lake, tmp_path: Path) -> None:
    name = adopted(lake, tmp_path, "1")
    table = lake.catalog().load_table(str(name))
    assert table.format_version == 1
    assert table.scan().to_arrow()["id"].to_pylist() == [1, 2]
    assert lake.services.planner.plan(lake.caller(ALICE), name, ScanRequest()).files.num_rows == 1
    table.append(rows(3))
    with table.transaction() as transaction:
        transaction.upgrade_table_version(2)
    table.append(rows(5))
    found = lake.catalog().load_table(str(name)).scan().to_arrow()
    assert sorted(found["id"].to_pylist()) == [1, 2, 3, 4, 5, 6]


def test_a_version_three_table_is_read_and_not_written(lake: Lake) -> None:
    table = make(lake)
    table.append(rows(1))
    rewritten(lake, name_of(table), **{"format-version": 3, "next-row-id": 0})
    loaded = lake.catalog().load_table(table.name())
    assert loaded.format_version == 3
    assert lake.services.planner.plan(lake.caller(ALICE), name_of(table), ScanRequest()).files.num_rows == 1
    lake.services.registration.reseal(lake.caller(ALICE), name_of(table))
    comment = SetPropertiesUpdate(updates={"comment": "c"})
    with pytest.raises(UnsupportedFormatVersion):
        lake.services.committer.commit(lake.caller(ALICE), name_of(table), [], [comment])


def test_a_version_that_nobody_knows_is_refused(lake: Lake) -> None:
    table = make(lake)
    rewritten(lake, name_of(table), **{"format-version": 4})
    with pytest.raises(UnsupportedFormatVersion):
        lake.catalog().load_table(table.name())


def test_a_right_on_one_column_loads_the_table_and_reads_that_column_alone(lake: Lake) -> None:
    table = make(lake, "db.by_column")
    lake.set_policies([*standard_policies(), policy("one", columns_of(table, "id"), {BOB: ["select"]})])
    assert lake.services.access.load(lake.caller(BOB), name_of(table)).name == "db.by_column"
    bob = lake.caller(BOB, engine="spark")
    lake.services.planner.plan(bob, name_of(table), ScanRequest(columns=("id",)))
    for columns in (("name",), None):
        with pytest.raises(NotAuthorized):
            lake.services.planner.plan(bob, name_of(table), ScanRequest(columns=columns))


def test_a_right_on_a_column_that_is_not_there_loads_nothing(lake: Lake) -> None:
    table = make(lake, "db.by_no_column")
    lake.set_policies([*standard_policies(), policy("one", columns_of(table, "gone"), {BOB: ["select"]})])
    with pytest.raises(NotAuthorized) as there:
        lake.services.access.load(lake.caller(BOB), name_of(table))
    lake.catalog().drop_table("db.by_no_column")
    with pytest.raises(NotAuthorized) as gone:
        lake.services.access.load(lake.caller(BOB), name_of(table))
    assert str(there.value) == str(gone.value)


def test_whoever_may_create_a_table_learns_whether_there_is_one(lake: Lake) -> None:
    table = make(lake, "db.there")
    resources = {"database": ["db"], "table": ["there", "free"], "column": ["*"]}
    lake.set_policies([*standard_policies(), policy("creates", resources, {BOB: ["create"]})])
    bob = lake.catalog(BOB)
    assert bob.table_exists("db.there") and not bob.table_exists("db.free")
    with pytest.raises(NotAuthorized):
        bob.table_exists("db.other")
    with pytest.raises(NotAuthorized):
        lake.services.access.load(lake.caller(BOB), name_of(table))


def columns_of(table: Table, *columns: str) -> dict[str, list[str]]:
    database, name = table.name()
    return {"database": [database], "table": [name], "column": list(columns)}


def test_what_is_refused_while_columns_are_looked_up_is_recorded_and_names_no_path(lake: Lake) -> None:
    table = make(lake, "db.edited")
    resources = {"database": ["db"], "table": ["edited"], "column": ["*"]}
    lake.set_policies([*standard_policies(), policy("drops", resources, {BOB: ["drop"]})])
    location = Path(table.metadata_location.removeprefix("file://"))
    location.write_bytes(location.read_bytes().replace(b'"current-schema-id"', b'"current-Schema-id"'))
    bob = lake.caller(BOB)
    with pytest.raises(Refused) as refused:
        lake.services.access.load(bob, name_of(table))
    assert refused.value.path is None
    assert [(each.action, each.allowed) for each in records(lake, bob)] == [("table.load", False)]
