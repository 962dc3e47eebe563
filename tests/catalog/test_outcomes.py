"""What an embedded catalog changes is on record before its effect, and closed after it."""

from __future__ import annotations

import pytest

from catalog.audit.trail import AuditRecord
from catalog.base.errors import NamespaceExists, NoSuchTable
from catalog.service.pyiceberg_catalog import GuardedCatalog
from policy.errors import NotAuthorized
from tests.support.lake import ALICE, BOB, Lake
from tests.support.tables import fresh, make, records


def answers(found: list[AuditRecord]) -> list[tuple[str, str, str]]:
    """What each record says, of what."""
    said = ("begun" if each.begun else "allowed" if each.allowed else "refused" for each in found)
    return [(each.action, each.resource, what) for each, what in zip(found, said, strict=True)]


def catalog(lake: Lake, user: str = ALICE) -> GuardedCatalog:
    """An embedded catalog, whose records are those of one request id."""
    return GuardedCatalog(lake.services, lake.caller(user))


def test_a_change_is_begun_and_closed(lake: Lake) -> None:
    name = str(make(lake, fresh()).name()[-1])
    embedded = catalog(lake)
    embedded.drop_table(f"db.{name}")
    assert answers(records(lake, embedded._caller)) == [
        ("table.drop", f"db.{name}", "begun"),
        ("table.drop", f"db.{name}", "allowed"),
    ]


def test_a_change_that_fails_after_its_grant_allows_nothing(lake: Lake) -> None:
    embedded = catalog(lake)
    with pytest.raises(NamespaceExists):
        embedded.create_namespace("db")
    found = records(lake, embedded._caller)
    assert [what for *_, what in answers(found)] == ["begun", "refused"]
    assert found[1].reasons[0].rule == "NamespaceExists"


def test_a_load_that_fails_allows_nothing(lake: Lake) -> None:
    embedded = catalog(lake)
    with pytest.raises(NoSuchTable):
        embedded.load_table("db.none")
    assert answers(records(lake, embedded._caller)) == [("table.load", "db.none", "refused")]


def test_a_refusal_by_policy_is_one_record(lake: Lake) -> None:
    name, embedded = make(lake).name(), catalog(lake, BOB)
    with pytest.raises(NotAuthorized):
        embedded.drop_table(name)
    assert answers(records(lake, embedded._caller)) == [("table.drop", ".".join(name), "refused")]
