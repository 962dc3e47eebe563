"""Epochs of streaming queries: each is committed once, whatever comes in between, and for its user alone."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pyiceberg.expressions import AlwaysTrue, EqualTo
from pyiceberg.table import Table

from catalog.base import crash_points
from catalog.state.stream_epochs import StreamEpoch
from catalog.writes.new_files import FileCommit
from policy.errors import NotAuthorized, RequestInvalid
from tests.support.hooks import once_at
from tests.support.lake import ALICE, BOB, Lake, policy, standard_policies, tables
from tests.support.plans import plan
from tests.support.tables import Engine, make, name_of

QUERY = str(uuid4())


def commit(
    lake: Lake, table: Table, number: int, query: str = QUERY, user: str = ALICE, **given: Any
) -> Engine:
    """Commit a file in a new write, as an epoch."""
    engine = Engine.begin(lake, name_of(table), user)
    engine.commit(of(engine, number, query, **given), user)
    return engine


def of(engine: Engine, number: int, query: str = QUERY, **given: Any) -> FileCommit:
    """An epoch with one new file."""
    return FileCommit(
        **{"operation": "append", "added": (engine.file(),), "epoch": StreamEpoch(query, number), **given}
    )


def files(lake: Lake, table: Table) -> int:
    """How many files the table has."""
    return plan(lake, table).files.num_rows


def left(engine: Engine) -> list[Path]:
    """What lies in the directory of a write."""
    return [*Path("/", *engine.session.prefix.segments).rglob("*.parquet")]


class Killed(BaseException):
    """Ends an attempt as a crash would: nothing in the catalog handles it."""


def kill() -> None:
    raise Killed


@pytest.fixture
def table(lake: Lake) -> Table:
    """An empty table."""
    return make(lake)


def test_epoch_that_is_committed_again_changes_nothing_and_leaves_no_files(lake: Lake, table: Table) -> None:
    commit(lake, table, 0)
    commit(lake, table, 1)
    for number in (1, 0):
        again = Engine.begin(lake, name_of(table))
        path = again.path()
        of_epoch = of(again, number, added=(again.file(path),))
        for _ in range(2):  # The answer of the first request can be lost.
            answered = again.commit(of_epoch)
            assert len(answered.metadata.snapshots) == 2
        assert left(again) == []
    commit(lake, table, 2)
    assert files(lake, table) == 3


def test_epoch_is_known_after_its_snapshot_expired_and_with_other_rows_in_between(
    lake: Lake, table: Table
) -> None:
    commit(lake, table, 0)
    replaced = commit(lake, table, 1, operation="overwrite", delete_filter=AlwaysTrue())
    remove = FileCommit("delete", (), delete_filter=AlwaysTrue())
    Engine.begin(lake, name_of(table)).commit(remove)
    loaded = lake.catalog().load_table(table.name())
    old = [each.snapshot_id for each in loaded.metadata.snapshots][:-1]
    loaded.maintenance.expire_snapshots().by_ids(old).commit()
    commit(lake, table, 1, operation="overwrite", delete_filter=AlwaysTrue())
    commit(lake, table, 0)
    assert files(lake, table) == 0
    assert left(replaced) != []


def test_epoch_of_another_user_table_or_query_suppresses_nothing(lake: Lake, table: Table) -> None:
    lake.set_policies([*standard_policies(), policy("bob-db", tables("db"), {BOB: ["all"]})])
    try:
        commit(lake, table, 7, user=BOB)
        commit(lake, make(lake), 7)
        commit(lake, table, 7, query=str(uuid4()))
        commit(lake, table, 7)
        assert files(lake, table) == 3
    finally:
        lake.set_policies(standard_policies())


@pytest.mark.parametrize("point", ["write:looked", "write:built", "checked", "metadata-written", "prepared"])
def test_of_two_writes_that_commit_an_epoch_at_the_same_time_one_does(
    lake: Lake, table: Table, point: str
) -> None:
    commit(lake, table, 0)
    late = Engine.begin(lake, name_of(table))
    with crash_points.hooked(once_at(point, lambda: commit(lake, table, 1))):
        late.commit(of(late, 1))
    assert files(lake, table) == 2
    assert left(late) == []


@pytest.mark.parametrize(("point", "published"), [("write:built", 0), ("prepared", 0), ("published", 1)])
def test_epoch_whose_commit_was_killed_is_committed_once(
    lake: Lake, table: Table, point: str, published: int
) -> None:
    killed = Engine.begin(lake, name_of(table))
    first = of(killed, 0)
    with crash_points.hooked(once_at(point, kill)), pytest.raises(Killed):
        killed.commit(first)
    assert files(lake, table) == published
    commit(lake, table, 0)
    commit(lake, table, 0)
    killed.commit(first)
    assert files(lake, table) == 1
    assert bool(left(killed)) is bool(published)


@pytest.mark.parametrize("point", ["write:looked", "checked", "prepared", "published"])
def test_write_that_is_given_up_during_another_attempt_is_not_published_without_its_files(
    lake: Lake, table: Table, point: str
) -> None:
    """Files are checked early in a commit. After that, an attempt with an old epoch deletes them."""
    commit(lake, table, 3)
    late = Engine.begin(lake, name_of(table))
    file = late.file()
    old = FileCommit("append", (file,), epoch=StreamEpoch(QUERY, 3))
    published = point == "published"
    refusal = nullcontext() if published else pytest.raises(RequestInvalid, match="no longer open")
    with crash_points.hooked(once_at(point, lambda: late.commit(old))), refusal:
        late.commit(FileCommit("append", (file,)))
    assert files(lake, table) == 1 + published
    assert len(left(late)) == published


def test_published_write_keeps_its_files_after_a_later_epoch(lake: Lake, table: Table) -> None:
    killed = Engine.begin(lake, name_of(table))
    first = of(killed, 0)
    with crash_points.hooked(once_at("published", kill)), pytest.raises(Killed):
        killed.commit(first)
    commit(lake, table, 1)
    killed.commit(first)
    assert files(lake, table) == 2
    assert left(killed) != []


def test_refused_epoch_can_be_committed_later(lake: Lake, table: Table) -> None:
    lake.set_policies([*standard_policies(), policy("bob-db", tables("db"), {BOB: ["all"]})])
    refused = Engine.begin(lake, name_of(table), BOB)
    lake.set_policies(standard_policies())
    with pytest.raises(NotAuthorized):
        refused.commit(of(refused, 0), BOB)
    commit(lake, table, 0)
    assert files(lake, table) == 1


@pytest.mark.parametrize(
    "given",
    [
        {"operation": "overwrite", "delete_filter": EqualTo("id", 1)},
        {"operation": "overwrite", "replace_partitions": True},
        {"operation": "overwrite"},
        {"operation": "delete", "added": (), "delete_filter": AlwaysTrue()},
        {"operation": "replace", "schema_id": 0},
    ],
    ids=str,
)
def test_epoch_of_another_kind_of_commit_is_refused(lake: Lake, table: Table, given: dict[str, Any]) -> None:
    with pytest.raises(RequestInvalid, match="epoch"):
        commit(lake, table, 0, **given)
