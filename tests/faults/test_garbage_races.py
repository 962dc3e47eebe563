"""Garbage collection beside commits, drops and kills: no commit loses a file that it names."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table

from catalog.base import crash_points
from catalog.base.errors import CommitConflict
from catalog.base.identifiers import TableName
from catalog.storage.local import LocalStorage
from policy.errors import StorageUnavailable
from policy.location.location import Location
from tests.faults.conftest import Shared
from tests.faults.garbage import (
    SHARING,
    age_all,
    aged,
    check_refused,
    collected,
    left_behind,
    paths,
    touched,
    written,
)
from tests.faults.scenarios import CLEANING, Subject, append
from tests.support.crash import assert_sound, die_at
from tests.support.hooks import once_at
from tests.support.lake import Lake
from tests.support.tables import ENCRYPTED, Engine, fresh, make, name_of, rows

#: As many files as are removed in two batches.
_TWO_BATCHES = 51


def test_a_commit_between_listing_and_removal_keeps_the_files_that_it_names(shared: Shared) -> None:
    lake = shared.lake
    table = make(lake)
    taken, left = left_behind(table), left_behind(table)

    def add() -> None:
        lake.catalog().load_table(table.name()).add_files([f"file://{taken}"])

    with crash_points.hooked(once_at("clean-up:listed", add)):
        garbage = collected(lake, table)
    assert paths(garbage) == {taken, left} and garbage.removed == 1
    assert taken.exists() and not left.exists()
    assert table.refresh().scan().to_arrow().num_rows == 2


def test_a_commit_that_was_checked_before_a_removal_is_made_again(shared: Shared) -> None:
    """It named a file that was there when it was checked. Nothing dangles."""
    lake = shared.lake
    table = make(lake, properties={"commit.retry.num-retries": "0"})
    left = left_behind(table)
    with (
        crash_points.hooked(once_at("checked", lambda: collected(lake, table))),
        pytest.raises((CommitConflict, CommitFailedException)),
    ):
        table.add_files([f"file://{left}"])
    assert not left.exists()
    assert table.refresh().current_snapshot() is None


def test_a_commit_that_was_checked_before_a_removal_broke_off_is_made_again(
    on_sqlite: Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was removed before storage failed is gone, although its transaction is."""
    lake = on_sqlite.lake
    table = make(lake, properties={"commit.retry.num-retries": "0"})
    left, delete = left_behind(table), LocalStorage.delete

    def breaking(storage: LocalStorage, location: Location) -> None:
        delete(storage, location)
        raise StorageUnavailable("gone")

    def collect() -> None:
        with monkeypatch.context() as broken, pytest.raises(StorageUnavailable):
            broken.setattr(LocalStorage, "delete", breaking)
            collected(lake, table)

    with (
        crash_points.hooked(once_at("checked", collect)),
        pytest.raises((CommitConflict, CommitFailedException)),
    ):
        table.add_files([f"file://{left}"])
    assert not left.exists()


def test_a_commit_that_was_loaded_while_a_batch_began_is_made_again(on_sqlite: Shared) -> None:
    """It was loaded after the batch was announced, and checked before the files went."""
    lake = on_sqlite.lake
    table = make(lake, properties={"commit.retry.num-retries": "0"})
    left = left_behind(table)
    checked, removed, ended = threading.Event(), threading.Event(), []

    def pause() -> None:
        checked.set()
        assert removed.wait(60)

    def add() -> None:
        try:
            lake.catalog().load_table(table.name()).add_files([f"file://{left}"])
        except (CommitConflict, CommitFailedException) as conflict:
            ended.append(conflict)

    commit = threading.Thread(target=add)
    with ExitStack() as hooks:

        def overtaken() -> None:
            hooks.enter_context(crash_points.hooked(once_at("checked", pause)))
            commit.start()
            assert checked.wait(60)

        hooks.enter_context(
            crash_points.hooked(once_at("clean-up:listed", lambda: append(lake, Subject(name_of(table)))))
        )
        hooks.enter_context(crash_points.hooked(once_at("clean-up:overtaken", overtaken)))
        try:
            assert collected(lake, table).removed == 1
        finally:
            removed.set()
            commit.join(60)
    assert len(ended) == 1 and not left.exists()


def test_nothing_is_removed_while_a_commit_is_about_to_be_published(shared: Shared) -> None:
    lake = shared.lake
    table = make(lake)
    left, refused = left_behind(table), []

    def collect() -> None:
        with pytest.raises(CommitConflict) as caught:
            collected(lake, table)
        refused.append(caught.value.rule)

    with crash_points.hooked(once_at("prepared", collect)):
        table.add_files([f"file://{left}"])
    assert refused == ["clean-up"] and left.exists()
    assert table.refresh().scan().to_arrow().num_rows == 2


@pytest.mark.nightly
@pytest.mark.parametrize("point", CLEANING)
def test_a_removal_that_is_killed_is_finished_by_the_next(shared: Shared, point: str) -> None:
    lake = shared.lake
    table = make(lake)
    table.append(rows(1))
    kept = age_all(table)
    left = {_write_aged(table, f"data/{number}.parquet") for number in range(_TWO_BATCHES)}
    die_at(lake, shared.overrides, collect_beside_a_commit, name_of(table), point)
    lake.reopen()
    remaining = {each for each in left if each.exists()}
    assert len(remaining) == (1 if point == "clean-up:overtaken" else _TWO_BATCHES)
    assert all(each.exists() for each in kept)
    published = [100, 101] if point == "clean-up:overtaken" else []
    assert sorted(_ids(lake, table)) == [1, 2, *published]
    garbage = collected(lake, table)
    assert paths(garbage) == remaining and garbage.removed == len(remaining)
    assert sorted(_ids(lake, table)) == [1, 2, *published]
    lake.catalog().load_table(table.name()).append(rows(200))
    assert sorted(_ids(lake, table)) == [1, 2, *published, 200, 201]
    assert_sound(lake)


def collect_beside_a_commit(lake: Lake, name: TableName) -> None:
    """A removal in two batches, with a commit of another user in between."""

    def progress(what: str, done: int, total: int | None) -> None:
        if total is not None and done < total:
            append(lake, Subject(name))

    lake.services.garbage.collect(lake.caller("alice"), name, remove=True, progress=progress)


def _write_aged(table: Table, name: str) -> Path:
    return aged(written(table, name))


def _ids(lake: Lake, table: Table) -> list[int]:
    found: list[int] = lake.catalog().load_table(table.name()).scan().to_arrow()["id"].to_pylist()
    return found


def test_a_removal_that_storage_breaks_off_leaves_the_table_whole(
    on_sqlite: Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = on_sqlite.lake
    table = make(lake)
    table.append(rows(1))
    left = [left_behind(table) for _ in range(3)]
    delete = LocalStorage.delete
    calls = iter((True, False))

    def breaking(storage: LocalStorage, location: object) -> None:
        if not next(calls):
            raise StorageUnavailable("gone")
        delete(storage, location)  # type: ignore[arg-type]

    with monkeypatch.context() as broken:
        broken.setattr(LocalStorage, "delete", breaking)
        with pytest.raises(StorageUnavailable):
            collected(lake, table)
    assert sum(each.exists() for each in left) == 2
    assert collected(lake, table).removed == 2
    assert table.refresh().scan().to_arrow().num_rows == 2


def test_another_table_that_gets_the_name_meanwhile_is_not_touched(on_sqlite: Shared) -> None:
    lake = on_sqlite.lake
    name = fresh()
    table = make(lake, name)
    left = left_behind(table)

    def replace() -> None:
        lake.catalog().drop_table(str(name))
        make(lake, name)

    with crash_points.hooked(once_at("clean-up:listed", replace)), pytest.raises(CommitConflict):
        collected(lake, table)
    assert left.exists()


def test_a_table_that_takes_the_name_of_a_changed_one_is_not_touched(on_sqlite: Shared) -> None:
    lake = on_sqlite.lake
    name, other = fresh(), fresh()
    table = make(lake, name)
    left = left_behind(table)

    def exchange() -> None:
        append(lake, Subject(name))
        lake.catalog().rename_table(str(name), str(other))
        make(lake, name)

    with crash_points.hooked(once_at("clean-up:listed", exchange)), pytest.raises(CommitConflict) as refusal:
        collected(lake, table)
    assert refusal.value.rule == "clean-up" and left.exists()


def test_a_table_that_is_dropped_meanwhile_keeps_its_files(on_sqlite: Shared) -> None:
    """It can come back, and its directory may be removed by a purge alone."""
    table = make(on_sqlite.lake)
    left = left_behind(table)
    drop = once_at("clean-up:listed", lambda: on_sqlite.lake.catalog().drop_table(table.name()))
    with crash_points.hooked(drop), pytest.raises(CommitConflict) as refusal:
        collected(on_sqlite.lake, table)
    assert refusal.value.rule == "clean-up" and left.exists()


@pytest.mark.nightly
@pytest.mark.parametrize("sharing", SHARING.values(), ids=SHARING)
def test_a_table_that_comes_after_the_listing_keeps_what_it_reads(
    lake: Lake, sharing: Callable[[str], dict[str, Any]]
) -> None:
    lake.catalog().create_namespace("db")
    table = make(lake)
    left = left_behind(table)
    with crash_points.hooked(once_at("clean-up:listed", lambda: make(lake, **sharing(table.location())))):
        check_refused(lake, table, left)


def test_files_of_a_write_that_begins_meanwhile_are_kept(
    on_sqlite: Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They can be older than the write: moved there from elsewhere."""
    table = make(on_sqlite.lake, properties=ENCRYPTED)
    moved = []
    list_prefix = LocalStorage.list_prefix

    def after_a_beginning(storage: LocalStorage, location: Location) -> Any:
        path = Path(Engine.begin(on_sqlite.lake, name_of(table)).path().removeprefix("file://"))
        path.parent.mkdir(parents=True)
        moved.append(aged(touched(path)))
        return list_prefix(storage, location)

    monkeypatch.setattr(LocalStorage, "list_prefix", after_a_beginning)
    assert collected(on_sqlite.lake, table).removed == 0
    assert [each.exists() for each in moved] == [True]
