"""Who may do what, operation by operation, and the record of each answer."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Iterator

import pytest

from catalog.authorization.table_access import TableAccess
from catalog.commits.committer import Committer
from catalog.maintenance.delete_rewrites import DeleteRewriter
from catalog.maintenance.old_epochs import OldEpochs
from catalog.maintenance.rewrites import Rewriter
from catalog.planning.plan import Planner
from catalog.planning.standard import StandardPlanner
from catalog.tables.alter import Alterer
from catalog.tables.creation import Creator
from catalog.tables.lifecycle import Lifecycle
from catalog.tables.namespaces import Namespaces
from catalog.tables.registration import Registration
from catalog.tables.unregistration import Unregistration
from catalog.writes.steps import Writes
from policy.errors import NotAuthorized
from tests.catalog.operations import TABLE, USERS, Row
from tests.support.lake import Lake
from tests.support.tables import fresh, make, named, records
from tests.support.vectors import each_row

INTERFACE = (
    TableAccess,
    Committer,
    Creator,
    Lifecycle,
    Namespaces,
    Planner,
    StandardPlanner,
    Registration,
    Unregistration,
    Writes,
    Alterer,
    Rewriter,
    DeleteRewriter,
    OldEpochs,
)
#: What is asked by the service itself, not on behalf of a user.
OF_THE_SERVICE = {
    "Writes.clean_up",
    "Lifecycle.clean_up",
    "Lifecycle.drop_at",
    "Planner.files",
    "StandardPlanner.is_required",
    "StandardPlanner.has_planned",
}


@pytest.fixture(scope="module", autouse=True)
def kept_namespaces(lake: Lake) -> None:
    """So that no namespace is empty when a user tries to drop it."""
    make(lake, named("kept", "db"))
    make(lake, named("kept", "bobs"))


def public_methods() -> Iterator[str]:
    for each in INTERFACE:
        for name, member in vars(each).items():
            if not name.startswith("_") and inspect.isfunction(member):
                yield f"{each.__name__}.{name}"


def test_every_operation_has_a_row() -> None:
    rows_of = {row.operation for row in TABLE}
    assert set(public_methods()) == rows_of | OF_THE_SERVICE
    assert not rows_of & OF_THE_SERVICE


@pytest.mark.parametrize(
    "row", TABLE, ids=[f"{row.operation}{'-' * bool(row.variant)}{row.variant}" for row in TABLE]
)
@each_row("database, user", itertools.product(("db", "bobs"), USERS))
def test_each_operation_is_for_those_with_the_right_and_is_on_record(
    lake: Lake, row: Row, database: str, user: str
) -> None:
    # Equal refusals are counted instead of repeated; each case asks through an engine of its own.
    engine = fresh(stem="spark").name
    caller = lake.caller(user, engine)
    act = row.act(lake, caller, database)
    granted = user in row.granted[database]
    if granted:
        try:
            act()
        except row.ends as end:
            assert not isinstance(end, NotAuthorized)
    else:
        with pytest.raises(NotAuthorized) as refused:
            act()
        assert refused.value.hint
    found = records(lake, caller)
    assert {(each.principal, each.engine) for each in found} == {(user, engine)}
    assert all(each.reasons and each.reasons[0].detail for each in found)
    decided = [each for each in found if each.action == row.action]
    assert decided
    assert decided[-1].allowed is granted or (granted and row.ends)
    assert any(each.allowed for each in found) is granted
    assert any(database in each.resource for each in decided) or row.variant == "top"
