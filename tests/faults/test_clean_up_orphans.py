"""What killed tasks leave below a write that was committed: cleaned up, and nothing else with it."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import select, update

from catalog.base.identifiers import TableName
from catalog.db.engine import read, write
from catalog.db.schema import lw_write
from catalog.writes.new_files import FileCommit
from tests.faults.conftest import Shared
from tests.faults.scenarios import TIDYING
from tests.faults.writing import clean_up
from tests.support.crash import die_at
from tests.support.lake import Lake
from tests.support.tables import ENCRYPTED, Engine, fresh, make, name_of

pytestmark = pytest.mark.nightly


def _write(path: str) -> Path:
    where = Path(path.removeprefix("file://"))
    where.parent.mkdir(parents=True, exist_ok=True)
    where.write_bytes(b"PAR1")
    return where


def _committed(engine: Engine, count: int = 2) -> list[Path]:
    """A commit of some files; where they lie."""
    files = [engine.file() for _ in range(count)]
    engine.append(*files)
    return [_write(file.path) for file in files]


def _state(lake: Lake, engine: Engine) -> str | None:
    with read(lake.services.engine) as connection:
        state: str | None = connection.scalar(
            select(lw_write.c.state).where(lw_write.c.id == engine.session.id)
        )
    return state


def _name(engine: Engine) -> TableName:
    return engine.session.table.record.name


@pytest.mark.parametrize("staged", [False, True], ids=["insert", "ctas"])
def test_what_a_killed_task_left_is_cleaned_up_after_the_write_expires(shared: Shared, staged: bool) -> None:
    lake = shared.lake
    name = fresh()
    if not staged:
        make(lake, name, properties=ENCRYPTED)
    engine = Engine.stage(lake, name, properties=ENCRYPTED) if staged else Engine.begin(lake, name)
    kept = _committed(engine)
    orphans = [_write(engine.path()), _write(f"{engine.session.prefix.canonical}/p=1/.half.parquet.tmp")]
    assert lake.services.writes.clean_up() == 0
    assert all(path.exists() for path in orphans)
    engine.expire()
    assert lake.services.writes.clean_up() == 1
    assert not any(path.exists() for path in orphans)
    assert all(path.exists() for path in kept)
    assert _state(lake, engine) == "closed"
    assert lake.services.writes.clean_up() == 0


def test_a_closed_write_answers_as_before(on_sqlite: Shared) -> None:
    lake = on_sqlite.lake
    engine = Engine.begin(lake, name_of(make(lake)))
    file = engine.file()
    first = engine.append(file)
    engine.expire()
    assert lake.services.writes.clean_up() == 0
    assert engine.append(file).metadata_location == first.metadata_location


def test_a_file_that_another_commit_took_up_is_no_orphan(on_sqlite: Shared) -> None:
    """A standard client may refer to any file in its table's own directory."""
    lake = on_sqlite.lake
    table = make(lake)
    engine = Engine.begin(lake, name_of(table))
    _committed(engine)
    other = Engine.begin(lake, name_of(table))
    adopted = engine.path()
    where = _write(adopted)
    with write(lake.services.engine) as connection:
        mine = lw_write.c.id == other.session.id
        connection.execute(update(lw_write).where(mine).values(prefix=engine.session.prefix.canonical))
    other.commit(FileCommit("append", (other.file(adopted, file_size_in_bytes=where.stat().st_size),)))
    engine.expire()
    lake.services.writes.clean_up()
    assert where.exists()


def test_files_of_a_snapshot_that_was_replaced_stay(on_sqlite: Shared) -> None:
    """An older snapshot still names them; and once it has expired, nothing is known of them any more."""
    lake = on_sqlite.lake
    table = make(lake)
    engine = Engine.begin(lake, name_of(table))
    (kept,) = _committed(engine, 1)
    base = lake.catalog().load_table(table.name()).metadata.current_snapshot_id
    later = Engine.begin(lake, name_of(table))
    later.commit(FileCommit("overwrite", (later.file(),), (f"file://{kept}",), base))
    if base is not None:
        lake.catalog().load_table(table.name()).maintenance.expire_snapshots().by_id(base).commit()
    engine.expire()
    assert lake.services.writes.clean_up() == 0
    assert kept.exists()


def test_a_dropped_table_keeps_what_is_there(on_sqlite: Shared) -> None:
    lake = on_sqlite.lake
    engine = Engine.begin(lake, name_of(make(lake)))
    kept = _committed(engine)
    lake.catalog().drop_table(str(_name(engine)))
    engine.expire()
    assert lake.services.writes.clean_up() == 0
    assert all(path.exists() for path in kept)


def test_a_table_that_cannot_be_read_is_left_to_the_next_clean_up(on_sqlite: Shared) -> None:
    lake = on_sqlite.lake
    engine = Engine.begin(lake, name_of(make(lake)))
    _committed(engine)
    orphan = _write(engine.path())
    engine.expire()
    table = lake.catalog().load_table(str(_name(engine)))
    metadata = Path(table.metadata_location.removeprefix("file://"))
    data = metadata.read_bytes()
    metadata.write_bytes(data + b" ")
    assert lake.services.writes.clean_up() == 0
    assert orphan.exists()
    metadata.write_bytes(data)
    assert lake.services.writes.clean_up() == 1
    assert not orphan.exists()


@pytest.mark.parametrize("point", TIDYING)
def test_a_clean_up_that_is_killed_is_finished_by_the_next(on_sqlite: Shared, point: str) -> None:
    lake = on_sqlite.lake
    engine = Engine.begin(lake, name_of(make(lake)))
    kept, orphan = _committed(engine), _write(engine.path())
    engine.expire()
    die_at(lake, on_sqlite.overrides, clean_up, None, point)
    lake.services.writes.clean_up()
    assert not orphan.exists()
    assert all(path.exists() for path in kept)
    assert _state(lake, engine) == "closed"
