"""The metadata log has the length that the table's properties state, and a commit deletes what leaves it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyiceberg.table import Table
from sqlalchemy import update

from catalog.db.engine import write
from catalog.db.schema import iceberg_tables
from catalog.reading.loading import TableLoader
from catalog.storage.errors import MetadataMissing
from policy.errors import PropertyInvalid
from policy.location.location import Location
from tests.support.lake import ALICE, Lake
from tests.support.tables import make, name_of

MOST = "write.metadata.previous-versions-max"
DELETE = "write.metadata.delete-after-commit.enabled"


def change(table: Table, times: int = 1, **properties: str) -> None:
    for number in range(times):
        with table.transaction() as transaction:
            transaction.set_properties({"step": str(number)} | properties)


def logged(table: Table) -> list[str]:
    return [entry.metadata_file for entry in table.refresh().metadata.metadata_log]


def stored(table: Table) -> set[str]:
    directory = Path(table.location().removeprefix("file://"), "metadata")
    return {f"file://{each}" for each in directory.glob("*.metadata.json")}


def test_the_log_is_as_long_as_the_table_says(lake: Lake) -> None:
    table = make(lake)
    change(table, 5)
    before = logged(table)
    change(table, **{MOST: "2"})
    assert logged(table)[:-1] == before[-1:]
    assert {*before, table.metadata_location} < stored(table)
    change(table, 3)
    assert len(logged(table)) == 2


def test_a_commit_deletes_what_leaves_the_log(lake: Lake) -> None:
    table = make(lake)
    change(table, 5)
    change(table, **{MOST: "2", DELETE: "True"})
    assert stored(table) == {*logged(table), table.metadata_location}
    change(table, 3)
    assert stored(table) == {*logged(table), table.metadata_location}
    assert len(stored(table)) == 3


def test_only_files_that_were_sealed_for_the_table_are_deleted(lake: Lake) -> None:
    """The log of metadata that was written elsewhere can name any file, here one of another table."""
    victim = make(lake)
    change(victim, 2)
    allowed = f"{lake.settings.warehouse}/db"
    table = make(lake, properties={"read.allowed.data.paths": allowed})
    change(table, 2, **{MOST: "1", DELETE: "true"})
    document = json.loads(Path(table.metadata_location.removeprefix("file://")).read_text())
    document["metadata-log"][0]["metadata-file"] = logged(victim)[0]
    behind = f"{table.location()}/metadata/99999-behind.metadata.json"
    Path(behind.removeprefix("file://")).write_text(json.dumps(document))
    with write(lake.services.engine) as connection:
        mine = iceberg_tables.c.table_name == table.name()[1]
        connection.execute(update(iceberg_tables).where(mine).values(metadata_location=behind))
    lake.services.registration.reseal(lake.caller(ALICE), name_of(table))
    change(table)
    assert logged(victim)[0] in stored(victim)
    assert logged(table) == [behind]
    change(table)
    assert behind not in stored(table)


def test_a_load_finds_the_table_whose_metadata_later_commits_delete(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the pointer and its metadata.json, others commit and delete that file."""
    table = make(lake)
    change(table, 2, **{MOST: "1", DELETE: "true"})
    before, read = table.metadata_location, TableLoader._read

    def overtaken(loader: TableLoader, location: Location) -> bytes:
        monkeypatch.setattr(TableLoader, "_read", read)
        change(table, 2)
        assert before not in stored(table)
        return read(loader, location)

    monkeypatch.setattr(TableLoader, "_read", overtaken)
    assert lake.catalog().load_table(table.name()).metadata == table.refresh().metadata
    Path(table.metadata_location.removeprefix("file://")).unlink()
    with pytest.raises(MetadataMissing):
        lake.catalog().load_table(table.name())


@pytest.mark.parametrize(("name", "value"), [(MOST, "0"), (MOST, "many"), (DELETE, "maybe")])
def test_a_length_that_no_log_has_is_refused(lake: Lake, name: str, value: str) -> None:
    table = make(lake)
    with pytest.raises(PropertyInvalid):
        change(table, **{name: value})
