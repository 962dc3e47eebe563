"""Leftovers of a write are cleaned up once it expires, and never if it was committed, despite kills."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import select

from catalog.base import crash_points
from catalog.base.errors import CommitConflict
from catalog.base.identifiers import TableName
from catalog.db.engine import read
from catalog.db.schema import lw_write
from catalog.writes.new_files import FileCommit
from policy.errors import RequestInvalid
from tests.faults.conftest import Shared
from tests.faults.scenarios import WRITE
from tests.faults.writing import abort_write, clean_up, commit_write, one_file
from tests.support.crash import assert_sound, die_at
from tests.support.hooks import once_at
from tests.support.lake import Lake
from tests.support.outages import read_only
from tests.support.tables import Engine, append_files, expire_open_writes, make, name_of

pytestmark = pytest.mark.nightly

#: Taking back a write of a table that stays, step by step.
CLEARING = ("clear:marked", "clear:deleted", "clear:noted")


def _state(lake: Lake, write_id: str) -> str | None:
    with read(lake.services.engine) as connection:
        state: str | None = connection.scalar(select(lw_write.c.state).where(lw_write.c.id == write_id))
    return state


def _begin(lake: Lake) -> tuple[Engine, Path, FileCommit]:
    """A write that has written a file, and what it would commit."""
    engine = Engine.begin(lake, name_of(make(lake)))
    return engine, *one_file(engine)


def _snapshots(lake: Lake, name: TableName) -> int:
    return len(lake.services.loader.load_sealed(name).metadata.snapshots)


def begin_write(lake: Lake, name: TableName) -> None:
    """An engine that never comes back."""
    Engine.begin(lake, name)


def test_an_expired_write_is_cleaned_up_and_not_committed_any_more(shared: Shared) -> None:
    lake = shared.lake
    engine, path, files = _begin(lake)
    lake.services.writes.clean_up()
    assert path.exists()
    engine.expire()
    assert lake.services.writes.clean_up() == 1
    assert not path.exists()
    with pytest.raises(RequestInvalid):
        engine.commit(files)
    assert lake.services.writes.clean_up() == 0


def test_a_committed_write_is_never_cleaned_up(shared: Shared) -> None:
    lake = shared.lake
    engine, path, files = _begin(lake)
    engine.commit(files)
    engine.expire()
    assert lake.services.writes.clean_up() == 0
    assert path.exists()
    assert engine.commit(files).metadata.current_snapshot_id is not None


def test_an_aborted_write_is_gone_at_once(shared: Shared) -> None:
    """A second abort, of a client that lost the first answer, changes nothing."""
    lake = shared.lake
    engine, path, files = _begin(lake)
    for _ in range(2):
        abort_write(lake, engine.session.id)
        assert not path.exists()
        with pytest.raises(RequestInvalid):
            engine.commit(files)


@pytest.mark.parametrize("point", CLEARING)
def test_an_abort_that_comes_again_while_the_first_is_clearing_ends_as_the_first(
    shared: Shared, point: str
) -> None:
    lake = shared.lake
    engine, path, _ = _begin(lake)
    write_id, again = engine.session.id, list[bool]()

    def repeat() -> None:
        abort_write(lake, write_id)
        again.append(path.exists())

    with crash_points.hooked(once_at(point, repeat)):
        abort_write(lake, write_id)
    assert again == [False]
    assert _state(lake, write_id) == "aborted"


@pytest.mark.parametrize("point", WRITE)
def test_the_files_of_a_commit_that_was_cut_short(on_sqlite: Shared, point: str) -> None:
    """Cleaned up if the commit was not published, else kept, even after the snapshot expired."""
    lake = on_sqlite.lake
    engine, path, files = _begin(lake)
    name = engine.session.table.record.name
    published = WRITE.index(point) >= WRITE.index("published")
    die_at(lake, on_sqlite.overrides, commit_write, (engine.session.id, files), point)
    if published:
        append_files(lake, name)
        _forget_first_snapshot(lake, name)
    engine.expire()
    assert lake.services.writes.clean_up() == (0 if published else 1)
    assert path.exists() == published
    assert _state(lake, engine.session.id) in (("committed", "closed") if published else ("swept",))
    assert_sound(lake)


@pytest.mark.parametrize("point", WRITE)
def test_a_commit_that_was_cut_short_is_one_commit_after_its_snapshot_expired(
    on_sqlite: Shared, point: str
) -> None:
    lake = on_sqlite.lake
    engine, _, files = _begin(lake)
    name = engine.session.table.record.name
    published = WRITE.index(point) >= WRITE.index("published")
    die_at(lake, on_sqlite.overrides, commit_write, (engine.session.id, files), point)
    append_files(lake, name)
    if published:
        _forget_first_snapshot(lake, name)
    engine.commit(files)
    table = lake.catalog().load_table(str(name))
    paths = table.inspect.data_files()["file_path"].to_pylist()
    assert paths.count(files.added[0].path) == 1


def _forget_first_snapshot(lake: Lake, name: TableName) -> None:
    table = lake.catalog().load_table(str(name))
    first = min(table.metadata.snapshots, key=lambda each: each.sequence_number or 0)
    table.maintenance.expire_snapshots().by_id(first.snapshot_id).commit()


def test_a_commit_under_way_is_not_cleaned_up_as_soon_as_it_expires(on_sqlite: Shared) -> None:
    lake = on_sqlite.lake
    engine, path, files = _begin(lake)

    def hook(name: str) -> None:
        if name == "prepared":
            engine.expire(engine.session.expires_ms - lake.settings.write_ttl_s * 1000 - 1)
            assert lake.services.writes.clean_up() == 0

    with crash_points.hooked(hook):
        engine.commit(files)
    assert path.exists()
    assert _snapshots(lake, engine.session.table.record.name) == 1


def test_a_clean_up_that_overtakes_a_stuck_commit_wins_against_it(on_sqlite: Shared) -> None:
    """The commit is refused, and nothing refers to the deleted files."""
    lake = on_sqlite.lake
    engine, path, files = _begin(lake)
    die_at(lake, on_sqlite.overrides, commit_write, (engine.session.id, files), "write:built")
    engine.expire()
    assert lake.services.writes.clean_up() == 1
    with pytest.raises(RequestInvalid):
        engine.commit(files)
    assert not path.exists()
    assert _snapshots(lake, engine.session.table.record.name) == 0


@pytest.mark.parametrize("point", CLEARING)
def test_a_clean_up_that_is_killed_is_finished_by_the_next(on_sqlite: Shared, point: str) -> None:
    lake = on_sqlite.lake
    engine, path, files = _begin(lake)
    engine.expire()
    die_at(lake, on_sqlite.overrides, clean_up, None, point)
    with pytest.raises(RequestInvalid):
        engine.commit(files)
    lake.services.writes.clean_up()
    assert not path.exists()
    assert _state(lake, engine.session.id) == "swept"


@pytest.mark.parametrize("finish", ["clean_up", "abort"])
@pytest.mark.parametrize("point", CLEARING)
def test_an_abort_that_is_killed_is_finished_by_the_next_or_a_clean_up(
    on_sqlite: Shared, point: str, finish: str
) -> None:
    lake = on_sqlite.lake
    engine, path, files = _begin(lake)
    die_at(lake, on_sqlite.overrides, abort_write, engine.session.id, point)
    with pytest.raises(RequestInvalid):
        engine.commit(files)
    if finish == "clean_up":
        engine.expire()
        lake.services.writes.clean_up()
    abort_write(lake, engine.session.id)
    assert not path.exists()
    assert _state(lake, engine.session.id) in ("aborted", "swept")


def test_a_begin_that_is_killed_is_cleaned_up(on_sqlite: Shared) -> None:
    lake = on_sqlite.lake
    name = name_of(make(lake))
    die_at(lake, on_sqlite.overrides, begin_write, name, "write:begun")
    expire_open_writes(lake)
    assert lake.services.writes.clean_up() >= 1
    append_files(lake, name)


def test_what_cannot_be_deleted_is_left_to_the_next_clean_up(on_sqlite: Shared) -> None:
    lake = on_sqlite.lake
    (engine, path, _), (other, _, _) = _begin(lake), _begin(lake)
    for each in (engine, other):
        each.expire()
    with read_only(path.parent):
        assert lake.services.writes.clean_up() == 1
    assert path.exists()
    assert lake.services.writes.clean_up() == 1
    assert not path.exists()


def test_an_overwrite_whose_answer_was_lost_is_one_commit(on_sqlite: Shared) -> None:
    lake = on_sqlite.lake
    name = name_of(make(lake))
    (gone,) = append_files(lake, name)
    engine = Engine.begin(lake, name)
    base = engine.session.table.metadata.current_snapshot_id
    files = FileCommit("overwrite", (engine.file(),), (gone,), base)
    die_at(lake, on_sqlite.overrides, commit_write, (engine.session.id, files), "published")
    engine.commit(files)
    assert _snapshots(lake, name) == 2


def test_an_overwrite_whose_base_moved_is_refused_and_may_be_aborted(on_sqlite: Shared) -> None:
    lake = on_sqlite.lake
    name = name_of(make(lake))
    (gone,) = append_files(lake, name)
    engine = Engine.begin(lake, name)
    base = engine.session.table.metadata.current_snapshot_id
    files = FileCommit("overwrite", (engine.file(),), (gone,), base)
    append_files(lake, name)
    with pytest.raises(CommitConflict):
        engine.commit(files)
    abort_write(lake, engine.session.id)
    assert _snapshots(lake, name) == 2
