"""Expiring snapshots deletes the files that only they list, in the table's own location alone."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pyiceberg.table import Table

from catalog.base import crash_points
from catalog.maintenance import expiry
from catalog.maintenance.expiry import Deleted, ExpiryRequest
from catalog.writes.new_files import FileCommit
from policy.errors import NotAuthorized, RequestInvalid
from tests.faults.conftest import Shared
from tests.faults.garbage import aged, collected, directory, left_behind
from tests.faults.test_garbage import _statistics
from tests.support.hooks import once_at
from tests.support.lake import ALICE, BOB, Lake, policy, standard_policies, tables
from tests.support.snapshot_files import local
from tests.support.tables import ENCRYPTED, Engine, append_files, make, name_of, rows

_ALL = 2**62


def expire(lake: Lake, table: Table, user: str = ALICE, **options: Any) -> Counter[str]:
    """All requests of a call; the files that were deleted, by kind."""
    given = {"older_than_ms": _ALL} | options
    found, done = Counter[str](), Deleted(Counter(), -1)
    while done.next is not None:
        request = ExpiryRequest(**given, after=done.next)
        done = lake.services.expiry.expire(lake.caller(user), name_of(table), request)
        found += done.files
    return found


def files(table: Table) -> set[Path]:
    found = (each for each in directory(table).rglob("*") if each.is_file())
    return {each for each in found if ".metadata.json" not in each.name}


def _head(table: Table) -> int:
    head = table.refresh().current_snapshot()
    assert head is not None
    return head.snapshot_id


def listed(lake: Lake, table: Table) -> set[Path]:
    """The files that the table's snapshots list."""
    loaded = lake.services.loader.load_sealed(name_of(table))
    paths = lake.services.inspector.all_paths(loaded, removed=False)
    return {Path(each.removeprefix("file://")) for each in paths}


def test_files_of_expired_snapshots_are_deleted_and_no_others(shared: Shared) -> None:
    table = make(shared.lake)
    for number in range(3):
        table.append(rows(number))
    table.overwrite(rows(7))
    old = table.snapshots()[0].snapshot_id
    statistics = directory(table) / "metadata" / "s.puffin"
    statistics.write_bytes(b"x")
    with table.update_statistics() as update:
        update.set_statistics(_statistics(old, statistics))
    beside = left_behind(table)
    found = expire(shared.lake, table)
    assert found["data"] == 3 and found["statistics"] == 1 and found["manifest"] > 0
    assert found["manifest-list"] == 4
    assert files(table) == listed(shared.lake, table) | {beside}
    assert table.refresh().scan().to_arrow()["id"].to_pylist() == [7, 8]
    assert len(table.snapshots()) == 1 and table.metadata.statistics == []
    assert expire(shared.lake, table) == Counter()


@pytest.mark.nightly
def test_branches_tags_and_the_last_snapshots_keep_their_files(on_sqlite: Shared) -> None:
    table = make(on_sqlite.lake)
    for number in range(4):
        table.overwrite(rows(number))
    first, second, *_ = (each.snapshot_id for each in table.snapshots() if each.summary)
    table.manage_snapshots().create_tag(first, "kept").commit()
    expire(on_sqlite.lake, table, retain_last=2)
    table.refresh()
    assert table.snapshot_by_id(first) is not None and table.snapshot_by_id(second) is None
    assert files(table) == listed(on_sqlite.lake, table)
    assert table.scan(snapshot_id=first).to_arrow().num_rows == 2


def test_a_branch_that_comes_meanwhile_keeps_its_snapshot(on_sqlite: Shared) -> None:
    table = make(on_sqlite.lake)
    table.append(rows(1))
    old = table.current_snapshot()
    assert old is not None
    table.overwrite(rows(5))
    came: list[str] = []

    def hook(point: str) -> None:
        if point == "expiry:decided" and not came:
            came.append(point)
            stock = on_sqlite.lake.catalog().load_table(table.name())
            stock.manage_snapshots().create_tag(old.snapshot_id, "kept").commit()

    with crash_points.hooked(hook):
        expire(on_sqlite.lake, table)
    assert came and table.refresh().scan(snapshot_id=old.snapshot_id).to_arrow().num_rows == 2


@pytest.mark.nightly
@pytest.mark.parametrize("point", ["expiry:committed", "clean-up:locked", "expiry:deleted"])
def test_a_call_that_is_killed_is_continued_by_the_next(on_sqlite: Shared, point: str) -> None:
    table = make(on_sqlite.lake, properties=ENCRYPTED)
    engine_files = append_files(on_sqlite.lake, name_of(table), 3)
    Engine.begin(on_sqlite.lake, name_of(table)).commit(
        FileCommit("delete", (), tuple(engine_files), _head(table))
    )

    def hook(here: str) -> None:
        if here == point:
            raise KeyboardInterrupt

    with crash_points.hooked(hook), pytest.raises(KeyboardInterrupt):
        expire(on_sqlite.lake, table)
    expire(on_sqlite.lake, table)
    assert not any(Path(each.removeprefix("file://")).exists() for each in engine_files)
    assert files(table) == listed(on_sqlite.lake, table)


@pytest.mark.nightly
def test_long_calls_are_pages(on_sqlite: Shared, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expiry, "_PAGE", 1)
    table = make(on_sqlite.lake)
    for number in range(5):
        table.overwrite(rows(number))
    lake = on_sqlite.lake
    first = lake.services.expiry.expire(lake.caller(ALICE), name_of(table), ExpiryRequest(_ALL))
    assert first.next is not None and first.files["data"] == 1
    assert expire(lake, table)["data"] == 3
    assert files(table) == listed(lake, table)


def test_another_tables_files_are_never_deleted(on_sqlite: Shared) -> None:
    """A table that can read another one's location lists its files as its own."""
    lake = on_sqlite.lake
    victim = make(lake)
    victim.append(rows(1))
    theirs = files(victim)
    allowed = f"{victim.location()}, {{own}}"
    table = make(lake)
    with table.transaction() as change:
        change.set_properties({"read.allowed.data.paths": allowed.format(own=table.location())})
    stolen = [str(task.file.file_path) for task in victim.scan().plan_files()]
    table = lake.catalog().load_table(table.name())
    table.add_files(stolen)
    table.append(rows(9))
    table.delete()
    for each in theirs:
        aged(each)
    found = expire(lake, table)
    assert found["data"] == 1
    assert files(victim) == theirs
    assert collected(lake, table).removed == 0
    assert files(victim) == theirs and victim.refresh().scan().to_arrow().num_rows == 2


def test_nothing_is_deleted_where_another_table_can_read(on_sqlite: Shared) -> None:
    lake = on_sqlite.lake
    table = make(lake)
    table.append(rows(1))
    make(lake, properties={"read.allowed.data.paths": f"{table.location()}/data"})
    table.delete()
    before = files(table)
    done = lake.services.expiry.expire(lake.caller(ALICE), name_of(table), ExpiryRequest(_ALL))
    assert (done.files, done.next) == (Counter(), None)
    assert "can read from there" in str(done.kept)
    assert before <= files(table) and len(table.refresh().snapshots()) == 1


def test_nothing_more_is_deleted_once_another_table_can_read(on_sqlite: Shared) -> None:
    """It comes to read there while files are deleted."""
    lake = on_sqlite.lake
    table = make(lake)
    table.append(rows(1))
    table.overwrite(rows(5))
    before = {each for each in files(table) if each.parent.name == "metadata"}

    def share() -> None:
        make(lake, properties={"read.allowed.data.paths": f"{table.location()}/metadata"})

    with (
        crash_points.hooked(once_at("expiry:deleted", share)),
        pytest.raises(RequestInvalid, match="can belong to other tables"),
    ):
        expire(lake, table)
    assert before <= files(table)


def test_files_below_a_chosen_location_take_the_permission_on_it(on_sqlite: Shared) -> None:
    """Other files can be there: those who cannot write there by themselves delete none of the table's."""
    lake = on_sqlite.lake
    where = lake.root / f"chosen-{uuid4()}"
    table = make(lake, location=f"file://{where}")
    table.append(rows(1))
    (data,) = (local(task.file.file_path) for task in table.scan().plan_files())
    beside = left_behind(table)
    table.overwrite(rows(5))
    bob = policy("bob-maintains", tables("db"), {BOB: ["alter", "drop", "update"]})
    lake.set_policies([*standard_policies(), bob])
    try:
        done = lake.services.expiry.expire(lake.caller(BOB), name_of(table), ExpiryRequest(_ALL))
    finally:
        lake.set_policies(standard_policies())
    assert (done.files, done.next) == (Counter(), None) and "rwstorage" in str(done.kept)
    assert data.exists() and len(table.refresh().snapshots()) == 1
    assert expire(lake, table)["data"] == 1
    assert not data.exists() and beside.exists()
    assert files(table) == listed(lake, table) | {beside}
    assert table.refresh().scan().to_arrow()["id"].to_pylist() == [5, 6]


@pytest.mark.nightly
def test_files_outside_of_the_location_are_kept_and_told(on_sqlite: Shared) -> None:
    """Whatever an expired snapshot lists: here a directory that the table's files were written to."""
    lake = on_sqlite.lake
    where = lake.root / f"data-{uuid4()}"
    paths = {"write.data.path": f"file://{where}", "read.allowed.data.paths": f"{{own}}, file://{where}"}
    table = make(lake)
    with table.transaction() as change:
        change.set_properties({key: value.format(own=table.location()) for key, value in paths.items()})
    table = lake.catalog().load_table(table.name())
    table.append(rows(1))
    (data,) = (local(task.file.file_path) for task in table.scan().plan_files())
    assert where in data.parents
    table.overwrite(rows(5))
    done = lake.services.expiry.expire(lake.caller(ALICE), name_of(table), ExpiryRequest(_ALL))
    assert done.files["data"] == 0 and data.exists()
    assert str(done.kept).startswith("1 files outside of ")
    again = lake.services.expiry.expire(lake.caller(ALICE), name_of(table), ExpiryRequest(_ALL))
    assert again.kept == done.kept
    data.unlink()
    last = lake.services.expiry.expire(lake.caller(ALICE), name_of(table), ExpiryRequest(_ALL))
    assert last.kept is None and last.files["manifest-list"] > 0


def test_files_of_an_open_write_are_kept(on_sqlite: Shared) -> None:
    """Whatever a snapshot lists."""
    lake = on_sqlite.lake
    table = make(lake)
    engine = Engine.begin(lake, name_of(table))
    path = Path(engine.path().removeprefix("file://"))
    path.parent.mkdir(parents=True, exist_ok=True)
    left_behind(table).rename(path)
    table.add_files([f"file://{path}"])
    table.delete()
    expire(lake, table)
    assert path.exists()


def test_what_is_needed_and_what_is_refused(on_sqlite: Shared) -> None:
    table = make(on_sqlite.lake)
    table.append(rows(1))
    with pytest.raises(NotAuthorized):
        expire(on_sqlite.lake, table, BOB)
    head = table.current_snapshot()
    assert head is not None
    with pytest.raises(RequestInvalid):
        expire(on_sqlite.lake, table, snapshot_ids=[head.snapshot_id])
