"""Access reports name views, and the ways to a table that go through one."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final

import pytest

from catalog.authorization.definers import CATALOG_NAME
from catalog.base.identifiers import TableName
from catalog.reports.access_matrix import matrix_report, user_subject
from catalog.reports.who_can import Asked, who_can_report
from catalog.tables.views import ViewDefinition
from policy.access import Asker
from policy.errors import RequestInvalid
from policy.principal import Principal
from tests.support.lake import ALICE, BOB, CAROL, Lake, policy, standard_policies, tables
from tests.support.tables import SCHEMA

NOW: Final = datetime(2030, 1, 1, tzinfo=UTC)
OF_DEFINER: Final = {"security": "definer"}


@pytest.fixture(scope="module")
def door(lake: Lake) -> Iterator[Lake]:
    """A table that Carol reads, with a definer view and another view of hers. Bob selects from the first."""
    lake.catalog().create_table("db.t", SCHEMA)
    for user in (ALICE, CAROL):
        lake.services.tokens.issue(Principal(user), "user", None)
    views = policy("views", tables("db") | {"table": ["door", "plain"]}, {CAROL: ["all"]})
    reader = policy("reader", tables("db") | {"table": ["door"]}, {BOB: ["select"]})
    column = policy("column", tables("db") | {"table": ["plain"], "column": ["id"]}, {BOB: ["select"]})
    lake.set_policies([*standard_policies(), views, reader, column])
    for name, properties in (("door", OF_DEFINER), ("plain", {})):
        named, made_in = TableName(("db",), name), {CATALOG_NAME: "lake"}
        new = ViewDefinition(named, SCHEMA, "SELECT * FROM t", None, ("db",), made_in, properties)
        lake.services.views.create(lake.caller(CAROL), new)
    yield lake
    lake.set_policies(standard_policies())


def who_can(lake: Lake, access: str, name: str) -> tuple[set[str], dict[str, Any]]:
    """Who is allowed, and the document."""
    report = who_can_report(
        lake.services, lake.services.policies.current(), Asked(access, name, NOW), show_all=False
    )
    document = dict(report.document)
    return {user for each in document["answers"] for user in each["users"]}, document


def test_a_view_through_which_others_read_a_table_is_named_with_it(door: Lake) -> None:
    """Attack: Bob reads the table by the permissions of Carol, and no row of the report has him."""
    users, document = who_can(door, "read", "db.t")
    assert BOB not in users and {ALICE, CAROL} <= users
    assert document["definer-views"] == {"db.door": CAROL}
    assert who_can(door, "select", "db.door")[0] == {ALICE, BOB, CAROL}


def test_what_a_view_shows_is_refused_and_not_told_as_of_no_table(door: Lake) -> None:
    with pytest.raises(RequestInvalid, match="is a view"):
        who_can(door, "read", "db.plain")
    assert BOB in who_can(door, "select", "db.plain.id")[0]
    assert BOB not in who_can(door, "select", "db.plain")[0]


def test_a_matrix_has_the_views_also_where_columns_alone_are_granted(door: Lake) -> None:
    policies = door.services.policies.current()
    subject = user_subject(door.services, policies, BOB)
    report = matrix_report(door.services, policies, subject, Asker(subject.principal, NOW))
    found = {
        name: each["accesses"]
        for each in report.document["answers"]
        if each["kind"] == "view"
        for name in each["resources"]
    }
    assert found == {"db.door": ("select",), "db.plain": ()}
