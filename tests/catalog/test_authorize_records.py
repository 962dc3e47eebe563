"""What those without rights are told, what is on record, and that no grant goes without a record."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from pyiceberg.table.update import (
    SetPropertiesUpdate,
)

from catalog.authorization.authorizer import Caller, Records
from catalog.base.errors import NoSuchNamespace
from catalog.base.identifiers import TableName
from catalog.planning.request import ScanRequest
from catalog.tables.drafts import NewTable
from catalog.writes.new_files import FileCommit
from policy.errors import (
    LocationNotAllowed,
    NotAuthorized,
    RequestInvalid,
    StateUnavailable,
)
from tests.support.lake import ALICE, BOB, CAROL, Lake, open_lake, policy, standard_policies, tables
from tests.support.tables import ENCRYPTED, SCHEMA, Engine, fresh, make, name_of, named, records, rows

DAVE = "dave"
PATHS = "read.allowed.data.paths"


@pytest.fixture(scope="module", autouse=True)
def kept_namespaces(lake: Lake) -> None:
    """So that no namespace is empty when a user tries to drop it."""
    make(lake, named("kept", "db"))
    make(lake, named("kept", "bobs"))


@pytest.mark.parametrize("user", [BOB, DAVE])
@pytest.mark.parametrize(
    "ask",
    [
        lambda lake, who, name: lake.services.access.load(who, name),
        lambda lake, who, name: lake.services.access.exists(who, name),
        lambda lake, who, name: lake.services.planner.plan(who, name, ScanRequest()),
        lambda lake, who, name: lake.services.committer.commit(who, name, [], []),
        lambda lake, who, name: lake.services.lifecycle.drop(who, name),
        lambda lake, who, name: lake.services.lifecycle.purge(who, name),
        lambda lake, who, name: lake.services.lifecycle.rename(who, name, named("x", "bobs")),
        lambda lake, who, name: lake.services.registration.restore(who, name),
        lambda lake, who, name: lake.services.registration.reseal(who, name),
        lambda lake, who, name: lake.services.registration.adopt(who, name),
        lambda lake, who, name: lake.services.writes.begin(who, name),
        lambda lake, who, name: lake.services.creator.create(who, NewTable(name, SCHEMA)),
    ],
    ids=[
        "load",
        "exists",
        "plan",
        "commit",
        "drop",
        "purge",
        "rename",
        "restore",
        "reseal",
        "adopt",
        "write",
        "create",
    ],
)
def test_whether_a_table_exists_is_not_told_to_those_without_rights(
    lake: Lake, user: str, ask: Callable[[Lake, Caller, TableName], object]
) -> None:
    told = []
    for name in (name_of(make(lake)), fresh()):
        with pytest.raises(NotAuthorized) as refused:
            ask(lake, lake.caller(user), name)
        told.append(str(refused.value).replace(name.name, "NAME"))
    assert told[0] == told[1]


def test_whether_a_namespace_exists_is_not_told_to_those_without_rights(lake: Lake) -> None:
    for ask in (
        lake.services.namespaces.load,
        lake.services.namespaces.exists,
        lake.services.namespaces.tables,
    ):
        with pytest.raises(NotAuthorized):
            ask(lake.caller(DAVE), ("db",))
        with pytest.raises(NotAuthorized):
            ask(lake.caller(DAVE), ("absent",))


def test_lists_hold_what_the_caller_has_a_right_on(lake: Lake) -> None:
    mine, theirs = make(lake, fresh("bobs")), make(lake)
    assert lake.catalog(BOB).list_namespaces() == [("bobs",)]
    assert lake.catalog(CAROL).list_namespaces() == [("db",)]
    assert lake.catalog(DAVE).list_namespaces() == []
    assert mine.name() in lake.catalog(BOB).list_tables("bobs")
    assert theirs.name() in lake.catalog(CAROL).list_tables("db")
    only_one = policy(
        "dave-one", {"database": ["db"], "table": ["kept"], "column": ["id"]}, {DAVE: ["select"]}
    )
    lake.set_policies([*standard_policies(), only_one])
    try:
        assert lake.catalog(DAVE).list_tables("db") == [("db", "kept")]
        assert lake.catalog(DAVE).list_namespaces() == [("db",)]
    finally:
        lake.set_policies(standard_policies())


def test_dropping_protection_needs_its_own_right(lake: Lake) -> None:
    table = make(lake, properties=ENCRYPTED)
    off = [SetPropertiesUpdate(updates={"encryption.mechanism": "plaintext"})]
    grant = policy("dave-alters", tables("db"), {DAVE: ["select", "update", "create", "drop", "alter"]})
    lake.set_policies([*standard_policies(), grant])
    try:
        with pytest.raises(NotAuthorized, match="unprotect"):
            lake.services.committer.commit(lake.caller(DAVE), name_of(table), [], off)
    finally:
        lake.set_policies(standard_policies())
    lake.services.committer.commit(lake.caller(ALICE), name_of(table), [], off)
    assert lake.catalog().load_table(table.name()).properties["encryption.mechanism"] == "plaintext"


def test_a_refusal_by_a_later_rule_is_on_record_with_the_path(lake: Lake) -> None:
    table = make(lake, properties={PATHS: ""})
    caller = lake.caller(ALICE)
    with pytest.raises(LocationNotAllowed):
        lake.services.writes.begin(caller, name_of(table))
    found = records(lake, caller)
    assert [(each.action, each.allowed) for each in found] == [("table.write", True), ("table.write", False)]
    assert found[-1].reasons[0].rule == "allowed-paths"
    assert table.location() in found[-1].reasons[0].detail


@pytest.mark.parametrize(
    "ask",
    [
        lambda lake, who, name: lake.services.access.load(who, name),
        lambda lake, who, name: lake.services.access.exists(who, name),
        lambda lake, who, name: lake.services.planner.plan(who, name, ScanRequest()),
        lambda lake, who, name: lake.services.committer.commit(who, name, [], []),
        lambda lake, who, name: lake.services.writes.begin(who, name),
        lambda lake, who, name: lake.services.lifecycle.rename(who, name, fresh()),
        lambda lake, who, name: lake.services.lifecycle.purge(who, name),
        lambda lake, who, name: lake.services.registration.restore(who, name),
        lambda lake, who, name: lake.services.registration.reseal(who, name),
    ],
    ids=["load", "exists", "plan", "commit", "write", "rename", "purge", "restore", "reseal"],
)
def test_tampering_is_on_record_whoever_meets_it(
    lake: Lake, ask: Callable[[Lake, Caller, TableName], object]
) -> None:
    table = make(lake)
    stored = Path(table.metadata_location.removeprefix("file://"))
    stored.write_bytes(stored.read_bytes() + b"\n")
    caller = lake.caller(ALICE)
    with pytest.raises(Exception, match="does not match its seal"):
        ask(lake, caller, name_of(table))
    assert records(lake, caller)[-1].allowed is False
    assert "MetadataTampered" in records(lake, caller)[-1].reasons[0].detail


def test_a_write_of_somebody_else_is_no_write_of_yours_and_the_try_is_on_record(lake: Lake) -> None:
    engine = Engine.begin(lake, name_of(make(lake, fresh("bobs"))))
    for user, act in itertools.product((BOB, DAVE), ("commit", "abort")):
        caller = lake.caller(user, act)  # an engine each, since equal refusals are counted
        with pytest.raises(RequestInvalid, match="You have no write with this id"):
            if act == "commit":
                lake.services.writes.commit(caller, engine.session.id, FileCommit("append", ()))
            else:
                lake.services.writes.abort(caller, engine.session.id)
        (found,) = records(lake, caller)
        assert (found.allowed, found.reasons[0].rule) == (False, "write-id")
    engine.append(engine.file())


def test_without_a_record_there_is_no_grant(tmp_path: Path) -> None:
    with open_lake(tmp_path) as lake:
        lake.catalog().create_namespace("db")
        table = make(lake)
        lake.services.audit.close()
        catalog = lake.catalog()
        for ask in (
            lambda: catalog.load_table(table.name()),
            lambda: make(lake),
            lambda: table.append(rows(1)),
            lambda: catalog.drop_table(table.name()),
            lambda: catalog.create_namespace("other"),
            lambda: catalog.list_namespaces(),
            lambda: lake.services.planner.plan(lake.caller(ALICE), name_of(table), ScanRequest()),
        ):
            with pytest.raises(StateUnavailable, match="could not be recorded"):
                ask()
        lake.reopen()
        assert lake.catalog().list_tables("db") == [table.name()]
        assert lake.catalog().list_namespaces() == [("db",)]
        assert lake.catalog().load_table(table.name()).current_snapshot() is None


def test_all_records_of_a_request_are_waited_for_whichever_fails() -> None:
    waited, pending = [], Records()

    def wait(name: str, fails: bool) -> None:
        waited.append(name)
        if fails:
            raise StateUnavailable(name)

    for name, fails in (("first", False), ("second", True), ("third", True), ("fourth", False)):
        pending.add(partial(wait, name, fails))
    with pytest.raises(StateUnavailable, match="second"):
        pending.wait()
    assert waited == ["first", "second", "third", "fourth"]


def test_a_policy_taken_away_is_gone_at_once(lake: Lake) -> None:
    table = make(lake)
    lake.catalog(CAROL).load_table(table.name())
    lake.set_policies([each for each in standard_policies() if each["name"] != "carol-reads"])
    try:
        with pytest.raises(NotAuthorized):
            lake.catalog(CAROL).load_table(table.name())
    finally:
        lake.set_policies(standard_policies())


def test_a_grant_to_the_owner_is_for_the_tables_owner(lake: Lake) -> None:
    owners = policy("owners", tables("db"), {"{OWNER}": ["select", "alter", "drop"], DAVE: ["create"]})
    lake.set_policies([*standard_policies(), owners])
    try:
        mine, theirs = fresh(), make(lake)
        lake.catalog(DAVE).create_table(str(mine), SCHEMA)
        assert lake.catalog(DAVE).load_table(str(mine)).name() == ("db", mine.name)
        with pytest.raises(NotAuthorized):
            lake.catalog(DAVE).load_table(theirs.name())
        with pytest.raises(NoSuchNamespace):
            lake.catalog().load_namespace_properties("absent")
        lake.catalog(DAVE).drop_table(str(mine))
    finally:
        lake.set_policies(standard_policies())
