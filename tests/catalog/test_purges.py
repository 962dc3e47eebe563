"""Purges that are cut short or overtaken: keys and files go together, and never those of a live table."""

from __future__ import annotations

from pathlib import Path

import pytest

from catalog.base import crash_points
from catalog.base.errors import CommitConflict, NoSuchTable
from catalog.base.identifiers import TableName
from catalog.db.engine import read
from catalog.state import table_state
from catalog.state.table_state import TableRecord, TableState
from policy.errors import RequestInvalid, StateUnavailable
from tests.support.clock import at_time
from tests.support.hooks import once_at
from tests.support.lake import ALICE, Lake
from tests.support.table_keys import encrypted, load, released
from tests.support.tables import fresh


@pytest.fixture(scope="module")
def lake(lake_on_each: Lake) -> Lake:
    """On a database of each kind."""
    return lake_on_each


def cut(lake: Lake, name: TableName, point: str) -> TableRecord:
    """A purge that dies at a point; its table before."""
    record = load(lake, name).record

    def die() -> None:
        raise StateUnavailable("gone")

    with crash_points.hooked(once_at(point, die)), pytest.raises(StateUnavailable):
        purge(lake, name)
    return record


def purge(lake: Lake, name: TableName) -> None:
    lake.services.lifecycle.purge(lake.caller(ALICE), name)


def keys_of(lake: Lake, record: TableRecord) -> list[str]:
    return [str(each.state) for each in lake.services.keyring.records(record)]


def now(lake: Lake, record: TableRecord) -> TableRecord:
    with read(lake.services.engine) as connection:
        found = table_state.table_by_id(connection, record.id)
    assert found is not None
    return found


def clean_up_later(lake: Lake) -> int:
    """Clean up when everything that is under way now has been cut short."""
    with at_time(lake.services.lifecycle, 2**62):
        return lake.services.lifecycle.clean_up()


def directory(record: TableRecord) -> Path:
    return Path(record.location.canonical.removeprefix("file://"))


def test_a_table_is_not_registered_again_while_it_is_purged(lake: Lake) -> None:
    """It would be a live table whose keys and files are about to go."""
    name, again = encrypted(lake, files=1), fresh()
    table = load(lake, name)

    def register() -> None:
        with pytest.raises(RequestInvalid) as refused:
            lake.services.registration.register(lake.caller(ALICE), again, table.metadata_location)
        assert refused.value.rule == "purged"

    with crash_points.hooked(once_at("drop:buried", register)):
        purge(lake, name)
    assert now(lake, table.record).state is TableState.PURGED
    with pytest.raises(NoSuchTable):
        load(lake, again)


@pytest.mark.nightly
def test_the_keys_go_with_the_name(lake: Lake) -> None:
    record = cut(lake, encrypted(lake, files=1), "drop:buried")
    assert (keys_of(lake, record), now(lake, record).purging) == (["destroyed"], True)


@pytest.mark.nightly
@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize("point", ["drop:buried", "purge:files-deleted"])
def test_a_purge_that_took_effect_is_finished_by_the_next_clean_up(lake: Lake, point: str) -> None:
    record = cut(lake, encrypted(lake, files=1), point)
    assert lake.services.lifecycle.clean_up() == 0, "it may still be under way"
    assert directory(record).exists()
    assert clean_up_later(lake) >= 1
    assert keys_of(lake, record) == ["destroyed"]
    assert now(lake, record).state is TableState.PURGED
    assert not directory(record).exists()


@pytest.mark.nightly
def test_a_purge_that_took_no_effect_is_taken_back_by_the_next_clean_up(lake: Lake) -> None:
    """A pointer that is lost one day is then not taken for the end of it."""
    name = encrypted(lake, files=1)
    record = cut(lake, name, "drop:intended")
    assert (now(lake, record).dropping, now(lake, record).purging) == (True, True)
    clean_up_later(lake)
    assert now(lake, record) == record
    assert len(released(lake, name)) == 1


@pytest.mark.nightly
def test_a_drop_after_a_purge_that_took_no_effect_keeps_the_keys(lake: Lake) -> None:
    name = encrypted(lake, files=1)
    location = load(lake, name).metadata_location
    record = cut(lake, name, "drop:intended")
    lake.services.lifecycle.drop(lake.caller(ALICE), name)
    assert keys_of(lake, record) == ["active"]
    lake.services.registration.register(lake.caller(ALICE), name, location)
    assert len(released(lake, name)) == 1


def test_a_purge_that_a_drop_overtakes_takes_neither_keys_nor_files(lake: Lake) -> None:
    name = encrypted(lake, files=1)
    table = load(lake, name)
    with (
        crash_points.hooked(once_at("drop:intended", lambda: drop_and_register(lake, name))),
        pytest.raises(CommitConflict),
    ):
        purge(lake, name)
    assert len(released(lake, name)) == 1
    assert now(lake, table.record).state is TableState.ACTIVE


def drop_and_register(lake: Lake, name: TableName) -> None:
    with read(lake.services.engine) as connection:
        record = table_state.bound(connection, lake.settings.catalog.name, name)
    assert record is not None
    location = newest_metadata(record)
    lake.services.lifecycle._bury(record, purge=False)
    lake.services.registration.register(lake.caller(ALICE), name, location)


def newest_metadata(record: TableRecord) -> str:
    files = (directory(record) / "metadata").glob("*.metadata.json")
    return f"file://{max(files, key=lambda path: path.name)}"
