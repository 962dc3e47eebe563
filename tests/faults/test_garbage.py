"""Garbage collection removes what nothing names after three days, and nothing else, in any race."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow.parquet as pq
import pytest
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table
from pyiceberg.table.statistics import StatisticsFile

from catalog.base import crash_points
from catalog.base.errors import CommitConflict
from catalog.base.identifiers import TableName
from catalog.maintenance.garbage import MIN_AGE, Garbage
from catalog.storage.local import LocalStorage
from policy.errors import NotAuthorized, RequestInvalid, StorageUnavailable
from policy.location.location import Location
from tests.faults.conftest import Shared
from tests.faults.scenarios import CLEANING, Subject, append
from tests.support.clock import at_time
from tests.support.crash import assert_sound, die_at
from tests.support.hooks import once_at
from tests.support.lake import BOB, Lake, open_lake, policy, standard_policies, tables
from tests.support.moto_server import MotoS3
from tests.support.service import _s3_settings
from tests.support.tables import ENCRYPTED, Engine, fresh, make, name_of, rows

_MARGIN_S = 3600
#: As many files as are removed in two batches.
_TWO_BATCHES = 51


def _aged(path: Path, *, seconds: float | None = None) -> Path:
    """A file as it looks when it was last modified so long ago; by default long enough."""
    then = time.time() - (MIN_AGE.total_seconds() + _MARGIN_S if seconds is None else seconds)
    os.utime(path, (then, then))
    return path


def _directory(table: Table) -> Path:
    return Path(table.location().removeprefix("file://"))


def _left(table: Table, name: str = "") -> Path:
    """A Parquet file of a client whose commit was refused, as old as garbage."""
    path = _directory(table) / "data" / (name or f"{uuid4()}.parquet")
    path.parent.mkdir(exist_ok=True)
    pq.write_table(rows(1), path)
    return _aged(path)


def _age_all(table: Table) -> set[Path]:
    return {_aged(each) for each in _directory(table).rglob("*") if each.is_file()}


def _collect(lake: Lake, table: Table, *, remove: bool = True) -> Garbage:
    return lake.services.garbage.collect(lake.caller("alice"), name_of(table), remove=remove)


def _paths(garbage: Garbage) -> set[Path]:
    return {Path(each.location.canonical.removeprefix("file://")) for each in garbage.files}


def test_what_nothing_names_is_listed_and_then_removed(shared: Shared) -> None:
    table = make(shared.lake)
    table.append(rows(1))
    table.append(rows(3))
    kept = _age_all(table)
    left = {_left(table), _left(table, "part=a"), _aged(_write(table, "metadata/lost.metadata.json"))}
    listed = _collect(shared.lake, table, remove=False)
    assert _paths(listed) == left and listed.removed == 0
    assert listed.bytes == sum(each.stat().st_size for each in left)
    assert all(each.exists() for each in left)
    assert _collect(shared.lake, table).removed == 3
    assert not any(each.exists() for each in left) and all(each.exists() for each in kept)
    assert table.refresh().scan().to_arrow().num_rows == 4
    assert _collect(shared.lake, table) == Garbage((), 0)


def _write(table: Table, name: str) -> Path:
    path = _directory(table) / name
    path.write_bytes(b"x")
    return path


def test_a_young_file_is_no_garbage(on_sqlite: Shared) -> None:
    table = make(on_sqlite.lake)
    young, old = _left(table), _left(table)
    _aged(young, seconds=MIN_AGE.total_seconds() - _MARGIN_S)
    assert _paths(_collect(on_sqlite.lake, table)) == {old}
    assert young.exists()


def test_everything_that_a_retained_snapshot_or_statistics_file_names_is_kept(on_sqlite: Shared) -> None:
    table = make(on_sqlite.lake)
    table.append(rows(1))
    first = table.current_snapshot()
    assert first is not None
    table.overwrite(rows(5))
    statistics = _write(table, "metadata/s.puffin")
    with table.update_statistics() as update:
        update.set_statistics(_statistics(first.snapshot_id, statistics))
    with table.manage_snapshots() as change:
        change.create_tag(first.snapshot_id, "kept")
    kept = _age_all(table)
    assert _collect(on_sqlite.lake, table).files == ()
    assert all(each.exists() for each in kept)
    assert table.scan(snapshot_id=first.snapshot_id).to_arrow().num_rows == 2


def _statistics(snapshot_id: int, path: Path) -> StatisticsFile:
    return StatisticsFile(
        **{
            "snapshot-id": snapshot_id,
            "statistics-path": f"file://{path}",
            "file-size-in-bytes": 1,
            "file-footer-size-in-bytes": 1,
            "blob-metadata": [],
        }
    )


def test_files_of_an_expired_snapshot_become_garbage(on_sqlite: Shared) -> None:
    table = make(on_sqlite.lake)
    table.append(rows(1))
    first = table.current_snapshot()
    assert first is not None
    table.overwrite(rows(5))
    table.maintenance.expire_snapshots().by_id(first.snapshot_id).commit()
    _age_all(table)
    assert Path(first.manifest_list.removeprefix("file://")) in _paths(_collect(on_sqlite.lake, table))
    assert table.refresh().scan().to_arrow()["id"].to_pylist() == [5, 6]


def test_files_of_a_write_that_is_open_are_kept(shared: Shared) -> None:
    table = make(shared.lake, properties=ENCRYPTED)
    engine = Engine.begin(shared.lake, name_of(table))
    path = Path(engine.path().removeprefix("file://"))
    path.parent.mkdir(parents=True)
    path.write_bytes(b"PAR1")
    _aged(path)
    assert _collect(shared.lake, table).files == ()
    assert path.exists()
    shared.lake.services.writes.abort(shared.lake.caller("alice"), engine.session.id)
    assert not path.exists()


def test_a_commit_between_listing_and_removal_keeps_the_files_that_it_names(shared: Shared) -> None:
    lake = shared.lake
    table = make(lake)
    taken, left = _left(table), _left(table)

    def add() -> None:
        lake.catalog().load_table(table.name()).add_files([f"file://{taken}"])

    with crash_points.hooked(once_at("clean-up:listed", add)):
        garbage = _collect(lake, table)
    assert _paths(garbage) == {taken, left} and garbage.removed == 1
    assert taken.exists() and not left.exists()
    assert table.refresh().scan().to_arrow().num_rows == 2


def test_a_commit_that_was_checked_before_a_removal_is_made_again(shared: Shared) -> None:
    """It named a file that was there when it was checked. Nothing dangles."""
    lake = shared.lake
    table = make(lake, properties={"commit.retry.num-retries": "0"})
    left = _left(table)
    with (
        crash_points.hooked(once_at("checked", lambda: _collect(lake, table))),
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
    left, delete = _left(table), LocalStorage.delete

    def breaking(storage: LocalStorage, location: Location) -> None:
        delete(storage, location)
        raise StorageUnavailable("gone")

    def collect() -> None:
        with monkeypatch.context() as broken, pytest.raises(StorageUnavailable):
            broken.setattr(LocalStorage, "delete", breaking)
            _collect(lake, table)

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
    left = _left(table)
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
            assert _collect(lake, table).removed == 1
        finally:
            removed.set()
            commit.join(60)
    assert len(ended) == 1 and not left.exists()


def test_nothing_is_removed_while_a_commit_is_about_to_land(shared: Shared) -> None:
    lake = shared.lake
    table = make(lake)
    left, refused = _left(table), []

    def collect() -> None:
        with pytest.raises(CommitConflict) as caught:
            _collect(lake, table)
        refused.append(caught.value.rule)

    with crash_points.hooked(once_at("prepared", collect)):
        table.add_files([f"file://{left}"])
    assert refused == ["clean-up"] and left.exists()
    assert table.refresh().scan().to_arrow().num_rows == 2


@pytest.mark.parametrize("point", CLEANING)
def test_a_removal_that_is_killed_is_finished_by_the_next(shared: Shared, point: str) -> None:
    lake = shared.lake
    table = make(lake)
    table.append(rows(1))
    kept = _age_all(table)
    left = {_write_aged(table, f"data/{number}.parquet") for number in range(_TWO_BATCHES)}
    die_at(lake, shared.overrides, collect_beside_a_commit, name_of(table), point)
    lake.reopen()
    remaining = {each for each in left if each.exists()}
    assert len(remaining) == (1 if point == "clean-up:overtaken" else _TWO_BATCHES)
    assert all(each.exists() for each in kept)
    published = [100, 101] if point == "clean-up:overtaken" else []
    assert sorted(_ids(lake, table)) == [1, 2, *published]
    garbage = _collect(lake, table)
    assert _paths(garbage) == remaining and garbage.removed == len(remaining)
    assert sorted(_ids(lake, table)) == [1, 2, *published]
    lake.catalog().load_table(table.name()).append(rows(200))
    assert sorted(_ids(lake, table)) == [1, 2, *published, 200, 201]
    assert_sound(lake)


def collect_beside_a_commit(lake: Lake, name: TableName) -> None:
    """A removal in two batches, with a commit of somebody else's in between."""

    def progress(what: str, done: int, total: int | None) -> None:
        if total is not None and done < total:
            append(lake, Subject(name))

    lake.services.garbage.collect(lake.caller("alice"), name, remove=True, progress=progress)


def _write_aged(table: Table, name: str) -> Path:
    return _aged(_write(table, name))


def _ids(lake: Lake, table: Table) -> list[int]:
    found: list[int] = lake.catalog().load_table(table.name()).scan().to_arrow()["id"].to_pylist()
    return found


def test_a_removal_that_storage_breaks_off_leaves_the_table_whole(
    on_sqlite: Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = on_sqlite.lake
    table = make(lake)
    table.append(rows(1))
    left = [_left(table) for _ in range(3)]
    delete = LocalStorage.delete
    calls = iter((True, False))

    def breaking(storage: LocalStorage, location: object) -> None:
        if not next(calls):
            raise StorageUnavailable("gone")
        delete(storage, location)  # type: ignore[arg-type]

    with monkeypatch.context() as broken:
        broken.setattr(LocalStorage, "delete", breaking)
        with pytest.raises(StorageUnavailable):
            _collect(lake, table)
    assert sum(each.exists() for each in left) == 2
    assert _collect(lake, table).removed == 2
    assert table.refresh().scan().to_arrow().num_rows == 2


def test_a_location_that_the_catalog_did_not_choose_is_left_alone(on_sqlite: Shared) -> None:
    table = make(on_sqlite.lake, location=f"file://{on_sqlite.lake.root}/chosen-{uuid4()}")
    _directory(table).mkdir(exist_ok=True)
    left = _left(table)
    _refused(on_sqlite.lake, table, left)
    _not_listed(on_sqlite.lake, table)


SHARING: dict[str, Callable[[str], dict[str, Any]]] = {
    "lies inside": lambda location: {"location": f"{location}/inside"},
    "lies inside and reads elsewhere": lambda location: {
        "location": f"{location}/inside",
        "properties": {"read.allowed.data.paths": f"{location}-elsewhere"},
    },
    "reads a part": lambda location: {"properties": {"read.allowed.data.paths": f"{location}/data"}},
    "reads all": lambda location: {"properties": {"read.allowed.data.paths": location.rpartition("/")[0]}},
}


@pytest.mark.parametrize("sharing", SHARING.values(), ids=SHARING)
def test_a_location_where_another_table_lies_or_reads_is_left_alone(
    tmp_path: Path, sharing: Callable[[str], dict[str, Any]]
) -> None:
    with open_lake(tmp_path) as lake:
        lake.catalog().create_namespace("db")
        table = make(lake)
        left = _left(table)
        make(lake, **sharing(table.location()))
        _refused(lake, table, left)
        _not_listed(lake, table)


@pytest.mark.parametrize("sharing", SHARING.values(), ids=SHARING)
def test_a_purge_leaves_what_another_table_can_read(
    tmp_path: Path, sharing: Callable[[str], dict[str, Any]]
) -> None:
    """It takes the files that its own table names, and no others there."""
    with open_lake(tmp_path) as lake:
        lake.catalog().create_namespace("db")
        table = make(lake)
        table.append(rows(1))
        mine = {Path(each.removeprefix("file://")) for each in table.inspect.files()["file_path"].to_pylist()}
        left = _left(table)
        make(lake, **sharing(table.location()))
        lake.catalog().purge_table(table.name())
        assert left.exists() and not any(each.exists() for each in mine)


def _refused(lake: Lake, table: Table, left: Path) -> None:
    """The removal is refused."""
    with pytest.raises(RequestInvalid) as caught:
        _collect(lake, table)
    assert caught.value.rule == "shared-location"
    assert left.exists()


def _not_listed(lake: Lake, table: Table) -> None:
    """What others have there is not shown either."""
    with pytest.raises(RequestInvalid, match="shared-location"):
        _collect(lake, table, remove=False)


def test_a_link_is_neither_followed_nor_removed(on_sqlite: Shared) -> None:
    table = make(on_sqlite.lake)
    _left(table)
    elsewhere = on_sqlite.lake.root / f"elsewhere-{uuid4()}"
    elsewhere.mkdir()
    victim = _aged(_touched(elsewhere / "victim"))
    (_directory(table) / "data" / "link").symlink_to(elsewhere)
    assert _collect(on_sqlite.lake, table).removed == 1
    assert victim.exists()


def _touched(path: Path) -> Path:
    path.touch()
    return path


@pytest.mark.parametrize("remove", [False, True])
@pytest.mark.parametrize("right", ["alter", "drop"])
def test_alter_and_drop_are_both_needed(tmp_path: Path, right: str, remove: bool) -> None:
    policies = [*standard_policies(), policy("one", tables("db"), {"one": [right, "select", "update"]})]
    with open_lake(tmp_path, policies=policies) as lake:
        lake.catalog().create_namespace("db")
        table = make(lake)
        left = _left(table)
        for user in ("one", BOB):
            with pytest.raises(NotAuthorized):
                lake.services.garbage.collect(lake.caller(user), name_of(table), remove=remove)
        assert left.exists()


def test_garbage_in_an_object_store(tmp_path: Path, moto: MotoS3) -> None:
    with open_lake(tmp_path, **_s3_settings(moto)) as lake:
        lake.catalog().create_namespace("db")
        table = make(lake)
        table.append(rows(1))
        storage = lake.services.storage
        left = Location.parse(f"{table.location()}/data/left.parquet")
        storage.create(left, b"PAR1")
        assert _collect(lake, table).files == ()
        later = int((time.time() + MIN_AGE.total_seconds() + _MARGIN_S) * 1000)
        with at_time(lake.services.garbage, later):
            garbage = _collect(lake, table)
        assert [each.location for each in garbage.files] == [left] and garbage.removed == 1
        assert not storage.exists(left)
        assert table.refresh().scan().to_arrow().num_rows == 2


def test_another_table_that_gets_the_name_meanwhile_is_not_touched(on_sqlite: Shared) -> None:
    lake = on_sqlite.lake
    name = fresh()
    table = make(lake, name)
    left = _left(table)

    def replace() -> None:
        lake.catalog().drop_table(str(name))
        make(lake, name)

    with crash_points.hooked(once_at("clean-up:listed", replace)), pytest.raises(CommitConflict):
        _collect(lake, table)
    assert left.exists()


def test_a_table_that_takes_the_name_of_a_changed_one_is_not_touched(on_sqlite: Shared) -> None:
    lake = on_sqlite.lake
    name, other = fresh(), fresh()
    table = make(lake, name)
    left = _left(table)

    def exchange() -> None:
        append(lake, Subject(name))
        lake.catalog().rename_table(str(name), str(other))
        make(lake, name)

    with crash_points.hooked(once_at("clean-up:listed", exchange)), pytest.raises(CommitConflict) as refusal:
        _collect(lake, table)
    assert refusal.value.rule == "clean-up" and left.exists()


def test_a_table_that_is_dropped_meanwhile_keeps_its_files(on_sqlite: Shared) -> None:
    """It can come back, and its directory may be removed by a purge alone."""
    table = make(on_sqlite.lake)
    left = _left(table)
    drop = once_at("clean-up:listed", lambda: on_sqlite.lake.catalog().drop_table(table.name()))
    with crash_points.hooked(drop), pytest.raises(CommitConflict) as refusal:
        _collect(on_sqlite.lake, table)
    assert refusal.value.rule == "clean-up" and left.exists()


@pytest.mark.parametrize("sharing", SHARING.values(), ids=SHARING)
def test_a_table_that_comes_after_the_listing_keeps_what_it_reads(
    tmp_path: Path, sharing: Callable[[str], dict[str, Any]]
) -> None:
    with open_lake(tmp_path) as lake:
        lake.catalog().create_namespace("db")
        table = make(lake)
        left = _left(table)
        with crash_points.hooked(once_at("clean-up:listed", lambda: make(lake, **sharing(table.location())))):
            _refused(lake, table, left)


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
        moved.append(_aged(_touched(path)))
        return list_prefix(storage, location)

    monkeypatch.setattr(LocalStorage, "list_prefix", after_a_beginning)
    assert _collect(on_sqlite.lake, table).removed == 0
    assert [each.exists() for each in moved] == [True]
