"""Operations on one table that get between the steps of one another."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import suppress
from functools import partial

import pytest
from pyiceberg.types import StringType

from catalog.base import crash_points
from catalog.base.errors import CommitConflict, NoSuchTable, TableExists
from catalog.base.identifiers import TableName, table_name
from catalog.writes.new_files import FileCommit
from policy.errors import LakewardenError, NotAuthorized, RequestInvalid
from tests.faults.conftest import Shared
from tests.support.attacker import OWN_ROWS
from tests.support.hooks import once_at
from tests.support.lake import ALICE, Lake, policy, standard_policies

A, B, C = (table_name(["db"], each) for each in "abc")


@pytest.fixture
def stocked(lake: Lake) -> Lake:
    """A table `db.a` with rows."""
    catalog = lake.catalog(ALICE)
    catalog.create_namespace("db")
    catalog.create_table("db.a", OWN_ROWS.schema).append(OWN_ROWS)
    return lake


def renamed_and_created_again(lake: Lake, to: TableName) -> Callable[[], None]:
    def do() -> None:
        lake.services.lifecycle.rename(lake.caller(ALICE), A, to)
        lake.catalog(ALICE).create_table("db.a", OWN_ROWS.schema)

    return do


def rows(lake: Lake, name: TableName) -> int:
    return int(lake.catalog(ALICE).load_table(str(name)).scan().to_arrow().num_rows)


def test_a_drop_that_a_rename_overtakes_drops_nothing_else(stocked: Lake) -> None:
    with (
        crash_points.hooked(once_at("drop:intended", renamed_and_created_again(stocked, B))),
        suppress(CommitConflict),
    ):
        stocked.services.lifecycle.drop(stocked.caller(ALICE), A)
    assert (rows(stocked, A), rows(stocked, B)) == (0, 2)


def test_a_purge_that_a_rename_overtakes_deletes_no_file(stocked: Lake) -> None:
    with (
        crash_points.hooked(once_at("drop:intended", renamed_and_created_again(stocked, B))),
        suppress(CommitConflict),
    ):
        stocked.services.lifecycle.purge(stocked.caller(ALICE), A)
    assert (rows(stocked, A), rows(stocked, B)) == (0, 2)


def test_a_rename_that_another_overtakes_takes_no_other_table_along(stocked: Lake) -> None:
    overtaken = crash_points.hooked(once_at("rename:intended", renamed_and_created_again(stocked, C)))
    with overtaken, pytest.raises((NoSuchTable, CommitConflict)):
        stocked.services.lifecycle.rename(stocked.caller(ALICE), A, B)
    assert (rows(stocked, A), rows(stocked, C)) == (0, 2)
    with pytest.raises(NoSuchTable):
        stocked.services.loader.load(B)


def test_a_rename_that_a_commit_overtakes_is_judged_again(stocked: Lake) -> None:
    """By the columns that the table has now: one of them is denied to the user."""

    def append() -> None:
        stocked.catalog(ALICE).load_table("db.a").append(OWN_ROWS)

    with crash_points.hooked(once_at("rename:intended", append)):
        stocked.services.lifecycle.rename(stocked.caller(ALICE), A, B)
    assert rows(stocked, B) == 4

    def add_column() -> None:
        with stocked.catalog(ALICE).load_table("db.b").update_schema() as change:
            change.add_column("secret", StringType())

    items = [{"users": [ALICE], "accesses": [{"type": "select", "isAllowed": True}]}]
    secret = {"database": ["db"], "table": ["*"], "column": ["secret"]}
    stocked.set_policies([*standard_policies(), policy("secret", secret, {}, denyPolicyItems=items)])
    with crash_points.hooked(once_at("rename:intended", add_column)), pytest.raises(NotAuthorized):
        stocked.services.lifecycle.rename(stocked.caller(ALICE), B, A)
    record = stocked.services.loader.load(B).record
    assert (record.name, record.pending_name) == (B, None)


def test_a_rename_ends_where_the_table_was_dropped_and_came_back(stocked: Lake) -> None:
    """It was permitted before that; who has the table now can be somebody else."""
    services, caller = stocked.services, stocked.caller(ALICE)
    location = services.loader.load(A).metadata_location

    def come_back() -> None:
        services.lifecycle.drop(caller, A)
        services.registration.register(caller, A, location)

    with crash_points.hooked(once_at("rename:intended", come_back)), pytest.raises(CommitConflict):
        services.lifecycle.rename(caller, A, B)
    assert rows(stocked, A) == 2


def test_a_dropped_table_comes_back_under_one_name(stocked: Lake) -> None:
    location = stocked.services.loader.load(A).metadata_location
    stocked.services.lifecycle.drop(stocked.caller(ALICE), A)

    def as_c() -> None:
        stocked.services.registration.register(stocked.caller(ALICE), C, location)

    with crash_points.hooked(once_at("revive:intended", as_c)), pytest.raises(LakewardenError):
        stocked.services.registration.register(stocked.caller(ALICE), B, location)
    assert rows(stocked, C) == 2
    with pytest.raises(NoSuchTable):
        stocked.services.loader.load(B)


def test_a_dropped_table_does_not_come_back_without_its_last_commits(stocked: Lake) -> None:
    """Between the steps, another one registers the table, commits to it and drops it again."""
    services, caller = stocked.services, stocked.caller(ALICE)
    catalog = stocked.catalog(ALICE)
    before = catalog.load_table("db.a").metadata_location
    services.lifecycle.drop(caller, A)
    last: list[str] = []

    def overtake() -> None:
        with suppress(TableExists):
            services.registration.register(caller, A, before)
        catalog.load_table("db.a").append(OWN_ROWS)
        last.append(catalog.load_table("db.a").metadata_location)
        services.lifecycle.drop(caller, A)

    with crash_points.hooked(once_at("revive:intended", overtake)), pytest.raises(CommitConflict):
        services.registration.register(caller, A, before)
    assert services.loader.settle(A) is None
    with pytest.raises(NoSuchTable, match="does not exist"):
        services.loader.load(A)
    services.registration.register(caller, A, last[0])
    assert rows(stocked, A) == 4


def test_a_write_on_a_dropped_table_is_not_published_in_its_namesake(stocked: Lake) -> None:
    session = stocked.services.writes.begin(stocked.caller(ALICE), A)
    where = session.table.record.location.canonical
    stocked.services.lifecycle.drop(stocked.caller(ALICE), A)
    stocked.catalog(ALICE).create_table("db.a", OWN_ROWS.schema, location=where)
    with pytest.raises(RequestInvalid):
        stocked.services.writes.commit(stocked.caller(ALICE), session.id, FileCommit("append", ()))
    assert rows(stocked, A) == 0


Step = Callable[[Lake, str], object]


def rename_to(target: TableName) -> Step:
    """Rename the table, whatever its name is."""

    def do(lake: Lake, _: str) -> None:
        services = lake.services
        (name,) = [each for each in (A, B, C) if services.loader.settle(each)]
        services.lifecycle.rename(lake.caller(ALICE), name, target)

    return do


def drop(lake: Lake, _: str) -> None:
    (name,) = [each for each in (A, B, C) if lake.services.loader.settle(each)]
    lake.services.lifecycle.drop(lake.caller(ALICE), name)


def register_as(name: TableName) -> Step:
    return lambda lake, last: lake.services.registration.register(lake.caller(ALICE), name, last)


STEPS: dict[str, Step] = {
    "rename to b": rename_to(B),
    "rename to c": rename_to(C),
    "drop": drop,
    "register as a": register_as(A),
    "register as c": register_as(C),
}


#: What comes between, in this order.
OVERTAKING = (
    ("drop", "register as a"),
    ("drop", "register as c"),
    ("register as a", "drop"),
    ("register as c", "rename to b"),
    ("rename to b", "drop"),
    ("rename to c", "rename to b"),
    ("register as c", "drop", "register as a"),
    ("drop", "register as a", "drop"),
)


@pytest.mark.nightly
@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize("overtaken", ["rename to b", "drop", "register as a"])
@pytest.mark.parametrize("others", OVERTAKING, ids=", ".join)
def test_pointers_and_names_stay_together(on_sqlite: Shared, overtaken: str, others: tuple[str, ...]) -> None:
    """Other changes of its name come to their end between each two steps of the first one."""
    lake, services = on_sqlite.lake, on_sqlite.lake.services
    if services.pointers.namespace_properties(A.namespace) is None:
        lake.catalog(ALICE).create_namespace("db")
    for step in itertools.count():
        last = lake.catalog(ALICE).create_table("db.a", OWN_ROWS.schema).metadata_location
        if overtaken == "register as a":
            drop(lake, last)
        left = [partial(_attempt, lake, last, each) for each in others]
        with crash_points.hooked(_at_step(step, overtaken, left)):
            _attempt(lake, last, overtaken)
        found = [each for each in (A, B, C) if services.loader.settle(each)]
        assert found == [each for each in (A, B, C) if services.pointers.load(each)], step
        for each in found:
            assert services.loader.load_sealed(each).metadata_location == last
        if not found:
            services.registration.register(lake.caller(ALICE), A, last)
        drop(lake, last)
        if left:
            break
    assert step > 1


def _at_step(number: int, overtaken: str, left: list[Callable[[], None]]) -> Callable[[str], None]:
    """A hook that does what is left at one of the points that an operation reaches."""
    prefix = {"rename": "rename:", "drop": "drop:", "register": "revive:"}[overtaken.partition(" ")[0]]
    reached = itertools.count()

    def hook(point: str) -> None:
        if left and point.startswith(prefix) and next(reached) == number:
            doing = list(left)
            left.clear()
            for act in doing:
                act()

    return hook


def _attempt(lake: Lake, last: str, name: str) -> None:
    """Take a step; it can be refused, or not be possible, where another one came first."""
    with suppress(LakewardenError, ValueError):
        STEPS[name](lake, last)
