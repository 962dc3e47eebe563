"""What writes that create their table leave: nothing that is seen, and in the end nothing at all."""

from __future__ import annotations

import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sqlalchemy import func, select, update

from catalog.base import crash_points
from catalog.base.errors import NoSuchTable
from catalog.base.identifiers import TableName
from catalog.db.engine import read, write
from catalog.db.schema import lw_pek, lw_table, lw_write
from catalog.writes.new_files import FileCommit
from policy.errors import RequestInvalid
from tests.faults.conftest import Shared
from tests.faults.scenarios import CLEARING, WRITE, Subject
from tests.faults.writing import abort_write, clean_up, commit_write, one_file
from tests.support.crash import assert_sound, die_at, seen
from tests.support.hooks import once_at
from tests.support.lake import Lake
from tests.support.tables import ENCRYPTED, Engine, expire_open_writes, fresh, make

pytestmark = pytest.mark.nightly


def _begin(lake: Lake, location: str | None = None) -> tuple[Engine, Path, FileCommit]:
    """A write that has written a file, and what it would commit."""
    engine = Engine.stage(lake, fresh(), properties=ENCRYPTED, location=location)
    return engine, *one_file(engine)


def _name(engine: Engine) -> TableName:
    return engine.session.table.record.name


def _assert_gone(lake: Lake, engine: Engine, path: Path) -> None:
    """No file, no key, no claim: name and location are free for every user with permission."""
    table_id = engine.session.table.record.id
    with read(lake.services.engine) as connection:
        assert connection.scalar(select(lw_table.c.state).where(lw_table.c.id == table_id)) == "purged"
        assert connection.scalar(select(func.count()).where(lw_pek.c.table_id == table_id)) == 0
    assert not path.exists()
    assert seen(lake, _name(engine)) is None
    make(lake, _name(engine), location=engine.session.table.metadata.location)
    assert_sound(lake)


def begin_write(lake: Lake, subject: Subject) -> None:
    """An engine that never comes back."""
    Engine.stage(lake, subject.name, properties=ENCRYPTED)


def test_an_expired_write_leaves_nothing(shared: Shared) -> None:
    lake = shared.lake
    engine, path, files = _begin(lake)
    lake.services.writes.clean_up()
    assert path.exists()
    engine.expire()
    assert lake.services.writes.clean_up() == 1
    with pytest.raises(RequestInvalid):
        engine.commit(files)
    assert not Path(engine.session.table.metadata.location.removeprefix("file://")).exists()
    _assert_gone(lake, engine, path)
    assert lake.services.writes.clean_up() == 0


def test_an_aborted_write_leaves_nothing(shared: Shared) -> None:
    lake = shared.lake
    engine, path, files = _begin(lake)
    abort_write(lake, engine.session.id)
    with pytest.raises(RequestInvalid):
        engine.commit(files)
    _assert_gone(lake, engine, path)


def test_a_created_table_is_never_cleaned_up(shared: Shared) -> None:
    lake = shared.lake
    engine, path, files = _begin(lake)
    engine.commit(files)
    engine.expire()
    assert lake.services.writes.clean_up() == 0
    with pytest.raises(RequestInvalid):
        abort_write(lake, engine.session.id)
    assert path.exists()
    assert seen(lake, _name(engine)) is not None


@pytest.mark.parametrize("point", WRITE)
def test_the_files_of_a_commit_that_was_cut_short(on_sqlite: Shared, point: str) -> None:
    """Cleaned up if the table was not created, kept if it was, whichever caller looks first."""
    lake = on_sqlite.lake
    engine, path, files = _begin(lake)
    die_at(lake, on_sqlite.overrides, commit_write, (engine.session.id, files), point)
    engine.expire()
    published = WRITE.index(point) >= WRITE.index("published")
    assert lake.services.writes.clean_up() == (0 if published else 1)
    assert path.exists() == published
    if published:
        assert seen(lake, _name(engine)) is not None
        assert_sound(lake)
    else:
        _assert_gone(lake, engine, path)


def test_a_table_that_was_dropped_since_is_no_unfinished_write(on_sqlite: Shared) -> None:
    lake = on_sqlite.lake
    engine, path, files = _begin(lake)
    die_at(lake, on_sqlite.overrides, commit_write, (engine.session.id, files), "published")
    lake.catalog().drop_table(str(_name(engine)))
    engine.expire()
    assert lake.services.writes.clean_up() == 0
    assert path.exists()
    with pytest.raises(NoSuchTable):
        engine.commit(files)


@pytest.mark.parametrize("point", CLEARING)
def test_a_clean_up_that_is_killed_is_finished_by_the_next(on_sqlite: Shared, point: str) -> None:
    lake = on_sqlite.lake
    engine, path, files = _begin(lake)
    engine.expire()
    die_at(lake, on_sqlite.overrides, clean_up, None, point)
    with pytest.raises(RequestInvalid):
        engine.commit(files)
    lake.services.writes.clean_up()
    _assert_gone(lake, engine, path)


@pytest.mark.parametrize("point", CLEARING)
def test_an_abort_that_is_killed_is_finished_by_a_clean_up(on_sqlite: Shared, point: str) -> None:
    lake = on_sqlite.lake
    engine, path, files = _begin(lake)
    die_at(lake, on_sqlite.overrides, abort_write, engine.session.id, point)
    with pytest.raises(RequestInvalid):
        engine.commit(files)
    engine.expire()
    lake.services.writes.clean_up()
    _assert_gone(lake, engine, path)


def test_a_begin_that_is_killed_is_cleaned_up(on_sqlite: Shared) -> None:
    lake, subject = on_sqlite.lake, Subject(fresh())
    die_at(lake, on_sqlite.overrides, begin_write, subject, "stage:begun")
    assert seen(lake, subject.name) is None
    expire_open_writes(lake)
    assert lake.services.writes.clean_up() >= 1
    with read(lake.services.engine) as connection:
        left = select(lw_table.c.state).where(lw_table.c.name == subject.name.name)
        assert connection.scalars(left).all() == ["purged"]


def test_a_place_that_the_user_named_keeps_what_was_there(on_sqlite: Shared) -> None:
    lake = on_sqlite.lake
    place = lake.root / "place"
    place.mkdir(exist_ok=True)
    (place / "notes.txt").write_text("mine")
    engine, path, _ = _begin(lake, f"file://{place}")
    abort_write(lake, engine.session.id)
    assert not path.exists()
    assert (place / "notes.txt").read_text() == "mine"


def test_another_table_inside_of_the_default_location_keeps_its_files(on_sqlite: Shared) -> None:
    lake = on_sqlite.lake
    engine, path, _ = _begin(lake)
    inner = make(lake, location=f"{engine.session.table.metadata.location}/inner")
    abort_write(lake, engine.session.id)
    assert not path.exists()
    assert seen(lake, _name_of(inner.name())) is not None


@pytest.mark.parametrize("point", ["checked", "prepared", "published"])
def test_a_write_that_is_aborted_while_it_is_published_is_one_of_both(shared: Shared, point: str) -> None:
    """Another attempt failed and opened the write again; so it can be given up under the first one's feet."""
    lake = shared.lake
    engine, path, files = _begin(lake)
    published = point == "published"
    tried = []

    def give_up() -> None:
        with pytest.raises(RequestInvalid) if published else contextlib.nullcontext():
            _reopen_and_abort(lake, engine)
        tried.append(point)

    with crash_points.hooked(once_at(point, give_up)), contextlib.ExitStack() as ends:
        if not published:
            ends.enter_context(pytest.raises(RequestInvalid, match="no longer open"))
        created = engine.commit(files)
    assert tried == [point]
    if published:
        assert path.exists()
        assert seen(lake, _name(engine)) is not None
        assert engine.commit(files).metadata_location == created.metadata_location
        with pytest.raises(RequestInvalid):
            abort_write(lake, engine.session.id)
        assert path.exists()
    else:
        _assert_gone(lake, engine, path)


def test_a_write_whose_abort_has_begun_is_not_published(shared: Shared) -> None:
    """The commit was about to move the pointer. The abort has marked the write and done no more."""
    lake = shared.lake
    engine, path, files = _begin(lake)
    prepared, move, ended = (threading.Event() for _ in range(3))

    def commit() -> None:
        with pytest.raises(RequestInvalid, match="no longer open"):
            engine.commit(files)
        ended.set()

    def hook(reached: str) -> None:
        if reached == "prepared":
            prepared.set()
            assert move.wait(30)
        if reached == "clear:marked":
            move.set()
            assert ended.wait(30)

    with crash_points.hooked(hook), ThreadPoolExecutor(1) as pool:
        committing = pool.submit(commit)
        assert prepared.wait(30)
        _reopen_and_abort(lake, engine)
        committing.result(30)
    _assert_gone(lake, engine, path)
    assert_sound(lake)


def _reopen_and_abort(lake: Lake, engine: Engine) -> None:
    with write(lake.services.engine) as connection:
        mine = lw_write.c.id == engine.session.id
        connection.execute(update(lw_write).where(mine).values(state="open"))
    abort_write(lake, engine.session.id)


def _name_of(identifier: tuple[str, ...]) -> TableName:
    *namespace, name = identifier
    return TableName(tuple(namespace), name)
