"""Files outside of a table whose rows were copied into it: each is copied once."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table import Table

from catalog.base import crash_points
from catalog.state.copied_files import CopiedFiles
from catalog.writes.new_files import FileCommit
from policy.errors import RequestInvalid
from tests.support.hooks import once_at
from tests.support.lake import Lake
from tests.support.plans import plan
from tests.support.tables import Engine, make, name_of


def digests(*names: str) -> frozenset[str]:
    return frozenset(sha256(name.encode()).hexdigest() for name in names)


def of(engine: Engine, *names: str, once: bool = True, **given: Any) -> FileCommit:
    """A commit with one new file, with the rows of these files."""
    copied = CopiedFiles(digests(*names), once)
    return FileCommit(**{"operation": "append", "added": (engine.file(),), "copied": copied, **given})


def copy(lake: Lake, table: Table, *names: str, once: bool = True) -> None:
    engine = Engine.begin(lake, name_of(table))
    engine.commit(of(engine, *names, once=once))


def files(lake: Lake, table: Table) -> int:
    return plan(lake, table).files.num_rows


def test_a_file_is_copied_into_a_table_once(lake: Lake) -> None:
    table, other = make(lake), make(lake, "db.other")
    engine = Engine.begin(lake, name_of(table))
    commit = of(engine, "a", "b")
    for _ in range(2):  # The answer of the first request can be lost.
        engine.commit(commit)
    assert files(lake, table) == 1
    with pytest.raises(RequestInvalid, match="1 of 2 source files") as refused:
        copy(lake, table, "b", "c")
    assert refused.value.rule == "duplicate-files" and files(lake, table) == 1
    copy(lake, table, "c")
    copy(lake, other, "a")
    copy(lake, table, "b", "d", once=False)
    assert files(lake, table) == 3 and files(lake, other) == 1
    with pytest.raises(RequestInvalid, match="1 of 1 source files"):
        copy(lake, table, "d")
    copy(lake, table, *map(str, range(1200)))
    with pytest.raises(RequestInvalid, match="1200 of 1201 source files"):
        copy(lake, table, "new", *map(str, range(1200)))


def test_of_two_copies_at_the_same_time_one_is_committed(lake: Lake) -> None:
    table = make(lake)
    first, second = (Engine.begin(lake, name_of(table)) for _ in range(2))
    meanwhile = of(second, "a")
    with (
        crash_points.hooked(once_at("write:looked", lambda: second.commit(meanwhile))),
        pytest.raises(RequestInvalid),
    ):
        first.commit(of(first, "a", "b"))
    assert files(lake, table) == 1
    left = [*Path("/", *first.session.prefix.segments).rglob("*")]
    lake.services.writes.abort(lake.caller("alice"), first.session.id)
    assert left and not [each for each in left if each.is_file()]
    copy(lake, table, "b")


def test_a_copy_that_was_killed_is_recorded_if_it_was_committed(lake: Lake) -> None:
    class Killed(BaseException):
        pass

    def kill() -> None:
        raise Killed

    table = make(lake)
    for point, committed in (("write:looked", 0), ("write:landed", 1)):
        engine = Engine.begin(lake, name_of(table))
        with crash_points.hooked(once_at(point, kill)), pytest.raises(Killed):
            engine.commit(of(engine, "a"))
        lake.reopen()
        assert files(lake, table) == committed
    with pytest.raises(RequestInvalid):
        copy(lake, table, "a")


def test_other_commits_name_no_copied_files(lake: Lake) -> None:
    table = make(lake)
    engine = Engine.begin(lake, name_of(table))
    with pytest.raises(RequestInvalid, match="is not an append"):
        engine.commit(of(engine, "a", operation="overwrite", deleted_paths=("file:///x",)))
    staged = Engine.stage(lake, name_of(table).__class__(name_of(table).namespace, "staged"))
    with pytest.raises(RequestInvalid, match="must be an append to main without any other field"):
        staged.commit(of(staged, "a"))
