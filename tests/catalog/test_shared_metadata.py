"""The catalog remembers metadata that it wrote exactly as it would parse the stored bytes."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil
from pyiceberg.types import LongType, NestedField

from tests.support.lake import Lake
from tests.support.tables import append_files, fresh, make, name_of, rows

OPTIONS = {
    "version 2": {},
    "version 1": {"format-version": "1"},
    "gzip": {"write.metadata.compression-codec": "gzip"},
    "short log": {"write.metadata.previous-versions-max": "2"},
}


def loaded(lake: Lake, table: Table) -> TableMetadata:
    return lake.services.loader.load_sealed(name_of(table)).metadata


def stored(lake: Lake, table: Table) -> TableMetadata:
    """What another process would parse."""
    location = lake.services.loader.load_sealed(name_of(table)).metadata_location
    data = Path(location.removeprefix("file://")).read_bytes()
    plain = gzip.decompress(data) if ".gz." in location else data
    return TableMetadataUtil.parse_raw(plain.decode())


def property_set(table: Table) -> None:
    with table.transaction() as transaction:
        transaction.set_properties({"comment": "é\u2028"})


def column_added(table: Table) -> None:
    with table.update_schema() as update:
        update.add_column("more", LongType())


def tagged(table: Table) -> None:
    snapshot = table.current_snapshot()
    assert snapshot is not None
    table.manage_snapshots().create_tag(snapshot.snapshot_id, "kept").commit()


def rolled_back(table: Table) -> None:
    head = table.current_snapshot()
    assert head is not None and head.parent_snapshot_id is not None
    table.manage_snapshots().rollback_to_snapshot(head.parent_snapshot_id).commit()


def expired(table: Table) -> None:
    table.maintenance.expire_snapshots().by_id(table.history()[0].snapshot_id).commit()


@pytest.mark.nightly
@pytest.mark.parametrize("options", OPTIONS.values(), ids=list(OPTIONS))
def test_remembered_metadata_is_what_the_stored_bytes_say(lake: Lake, options: dict[str, str]) -> None:
    table = make(lake, schema=Schema(NestedField(1, "id", LongType())), properties=options)
    one = rows(1).select(["id"])
    for change in (
        Table.append,
        Table.append,
        property_set,
        Table.append,
        tagged,
        column_added,
        rolled_back,
        expired,
    ):
        change(table, one) if change is Table.append else change(table)
        assert loaded(lake, table) == stored(lake, table)
        assert loaded(lake, table).model_dump_json() == stored(lake, table).model_dump_json()


def test_a_commit_shares_the_snapshots_that_it_does_not_change(lake: Lake) -> None:
    table = make(lake)
    append_files(lake, name_of(table), 1)
    before = loaded(lake, table)
    text = before.model_dump_json()
    append_files(lake, name_of(table), 1)
    after = loaded(lake, table)
    assert after.snapshots[0] is before.snapshots[0]
    assert len(after.snapshots) == 2
    assert before.model_dump_json() == text


def test_a_new_table_is_parsed_from_its_bytes(lake: Lake) -> None:
    table = make(lake, fresh(), properties={"write.metadata.compression-codec": "gzip"})
    assert loaded(lake, table) == stored(lake, table)
