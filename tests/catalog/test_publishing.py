"""Publishing moves the pointer and promotes the seal in one transaction: both or neither."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.table import Table
from sqlalchemy import event, select

from catalog.base import crash_points
from catalog.base.errors import CommitConflict
from catalog.db.engine import read, write
from catalog.db.schema import lw_seal, lw_write
from catalog.state import seals, table_state
from tests.support.hooks import once_at
from tests.support.lake import Lake
from tests.support.tables import Engine, fresh, make, name_of, rows


def states(lake: Lake) -> dict[str, str]:
    with read(lake.services.engine) as connection:
        found = connection.execute(select(lw_seal.c.metadata_location, lw_seal.c.state))
        return {row.metadata_location: row.state for row in found}


def give_up(lake: Lake) -> None:
    """Abandon what is prepared: every seal, and the tables that were being created."""
    with write(lake.services.engine) as connection:
        for row in connection.execute(select(lw_seal).where(lw_seal.c.state == "prepared")).all():
            seals.abandon(connection, seals.seal_of(row))
            if row.base_location is None:
                table_state.forget_creation(connection, row.table_id)


def files(table: Table) -> set[Path]:
    return set(Path(table.location().removeprefix("file://"), "metadata").glob("*.metadata.json"))


def test_a_pointer_that_moved_is_on_a_current_seal(lake: Lake) -> None:
    table = make(lake)
    before, seen = table.metadata_location, list[dict[str, str]]()
    with crash_points.hooked(once_at("published", lambda: seen.append(states(lake)))):
        table.append(rows(1))
    assert seen[0][before] == "superseded"
    assert seen[0][table.metadata_location] == "current"


def test_a_creation_whose_pointer_is_made_is_bound(lake: Lake) -> None:
    name, seen = fresh(), list[dict[str, str]]()
    with crash_points.hooked(once_at("published", lambda: seen.append(states(lake)))):
        table = make(lake, name)
    assert seen[0][table.metadata_location] == "current"


def test_a_commit_whose_seal_was_given_up_moves_no_pointer(lake: Lake) -> None:
    table = make(lake)
    pointer, stored = lake.services.pointers.load(name_of(table)), files(table)
    hook = once_at("prepared", lambda: give_up(lake))
    with crash_points.hooked(hook), pytest.raises(CommitConflict), table.transaction() as transaction:
        transaction.set_properties({"commit.retry.num-retries": "0"})
    assert lake.services.pointers.load(name_of(table)) == pointer
    assert states(lake)[str(pointer)] == "current"
    assert files(table) == stored


def test_a_creation_that_was_given_up_makes_no_pointer(lake: Lake) -> None:
    name = fresh()
    with crash_points.hooked(once_at("prepared", lambda: give_up(lake))), pytest.raises(CommitConflict):
        make(lake, name)
    assert lake.services.pointers.load(name) is None
    assert make(lake, name).metadata.snapshots == []


def test_a_write_is_closed_with_its_snapshot_as_the_pointer_moves(lake: Lake) -> None:
    engine, found = Engine.begin(lake, name_of(make(lake))), list[tuple[str, int]]()

    def look() -> None:
        mine = select(lw_write.c.state, lw_write.c.snapshot_id).where(lw_write.c.id == engine.session.id)
        with read(lake.services.engine) as connection:
            found.append(tuple(connection.execute(mine).one()))

    with crash_points.hooked(once_at("published", look)):
        table = engine.append(engine.file())
    assert found == [("committed", table.metadata.current_snapshot_id)]


def test_the_commit_of_a_write_takes_five_transactions(lake: Lake) -> None:
    """Grant of the write, its mark, grant of the commit, prepare, publish."""
    engine, taken = Engine.begin(lake, name_of(make(lake))), list[str]()
    event.listen(lake.services.engine, "commit", lambda _: taken.append("commit"))
    engine.append(engine.file())
    assert len(taken) <= 5


def test_a_commit_takes_four_transactions(lake: Lake) -> None:
    """Grant, prepare, publish, outcome; see decision 62."""
    table = make(lake)
    taken = list[str]()
    event.listen(lake.services.engine, "commit", lambda _: taken.append("commit"))
    with table.transaction() as transaction:
        transaction.set_properties({"comment": "x"})
    assert len(taken) <= 4
