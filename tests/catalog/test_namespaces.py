"""Namespaces on each database: properties, nesting, what may be stored, what must be empty."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Connection, insert

from catalog.base.errors import NamespaceExists, NamespaceNotEmpty, NoSuchNamespace
from catalog.base.identifiers import TableName
from catalog.db.engine import write
from catalog.db.schema import iceberg_tables
from catalog.state import name_lists
from catalog.state.name_lists import Names
from catalog.tables.namespaces import Namespaces
from catalog.tables.visible_names import visible_names
from policy.errors import LocationInvalid, NotAuthorized, PropertyInvalid, RequestInvalid
from tests.support.lake import ALICE, BOB, Lake, open_lake, policy, standard_policies
from tests.support.postgres import PostgresServer
from tests.support.tables import SCHEMA, fresh


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def lake(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    root: Path = tmp_path_factory.mktemp("lake")
    options = {}
    if request.param == "postgresql":
        server: PostgresServer | str = request.getfixturevalue("postgres_server")
        if isinstance(server, str):
            pytest.skip(server)
        options["DATABASE__URL"] = server.create_database()
    with open_lake(root, **options) as lake:
        lake.catalog().create_namespace("bobs")
        yield lake


@pytest.fixture
def namespaces(lake: Lake) -> Namespaces:
    return lake.services.namespaces


@pytest.fixture
def name() -> tuple[str, ...]:
    return (fresh(stem="n").name,)


def test_a_namespace_is_what_was_made_and_changed(
    lake: Lake, namespaces: Namespaces, name: tuple[str, ...]
) -> None:
    alice = lake.caller(ALICE)
    assert not namespaces.exists(alice, name)
    namespaces.create(alice, name, {"a": "1", "exists": "true", "b": ""})
    assert namespaces.exists(alice, name)
    assert namespaces.load(alice, name)["a"] == "1"
    assert namespaces.update(alice, name, ["b", "no", "b"], {"c": "3"}) == (["c"], ["b"], ["no"])
    assert {"a": "1", "c": "3"}.items() <= namespaces.load(alice, name).items()
    with pytest.raises(NamespaceExists):
        namespaces.create(alice, name, {"a": "other"})
    namespaces.drop(alice, name)
    assert not namespaces.exists(alice, name)


def test_a_namespace_from_which_every_property_was_removed_exists(
    lake: Lake, namespaces: Namespaces, name: tuple[str, ...]
) -> None:
    alice = lake.caller(ALICE)
    namespaces.create(alice, name, {"a": "1"})
    namespaces.update(alice, name, ["a"], {})
    assert namespaces.load(alice, name) == {}


def test_nested_namespaces_are_listed_level_by_level(
    lake: Lake, namespaces: Namespaces, name: tuple[str, ...]
) -> None:
    alice = lake.caller(ALICE)
    namespaces.create(alice, (*name, "a", "b"), {})
    namespaces.create(alice, (*name, "c"), {})
    assert namespaces.children(alice, name) == [(*name, "a"), (*name, "c")]
    assert namespaces.children(alice, (*name, "a")) == [(*name, "a", "b")]
    assert name in namespaces.children(alice, ())
    with pytest.raises(NamespaceNotEmpty):
        namespaces.drop(alice, name)
    with pytest.raises(NoSuchNamespace):
        namespaces.children(alice, (*name, "absent"))


def test_a_namespace_with_a_table_is_not_dropped_and_an_emptied_one_is(
    lake: Lake, namespaces: Namespaces, name: tuple[str, ...]
) -> None:
    alice = lake.caller(ALICE)
    namespaces.create(alice, name, {})
    lake.catalog().create_table((*name, "t"), SCHEMA)
    with pytest.raises(NamespaceNotEmpty):
        namespaces.drop(alice, name)
    lake.catalog().drop_table((*name, "t"))
    namespaces.drop(alice, name)
    with pytest.raises(NoSuchNamespace):
        namespaces.tables(alice, name)


@pytest.mark.nightly
def test_owners_are_shown_what_they_own(lake: Lake, namespaces: Namespaces, name: tuple[str, ...]) -> None:
    """A right of owners counts in lists as it does on the table."""
    here = {"database": [name[0]], "table": ["*"], "column": ["*"]}
    creating = policy("creating", here, {"dave": ["create"]})
    owning = policy("owning", here, {"{OWNER}": ["select"]})
    other = policy("other", here | {"table": ["other"]}, {"dave": ["select"]})
    namespaces.create(lake.caller(ALICE), name, {})
    lake.catalog().create_table((*name, "of_alice"), SCHEMA)
    lake.set_policies([*standard_policies(), creating])
    try:
        lake.catalog("dave").create_table((*name, "of_dave"), SCHEMA)
        lake.set_policies([*standard_policies(), owning, other])
        shown = namespaces.tables(lake.caller("dave"), name)
    finally:
        lake.set_policies(standard_policies())
    assert [each.name for each in shown] == ["of_dave"]


@pytest.mark.nightly
@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize(
    ("tables", "seen"),
    [
        ({"values": ["ORDERS", "stock"]}, ["Orders", "stock"]),
        ({"values": ["st*", "other"]}, ["staff", "stock"]),
        ({"values": ["*S"]}, ["Orders"]),
        ({"values": ["stock"], "isExcludes": True}, ["Orders", "staff", "web"]),
        ({"values": ["absent"]}, []),
    ],
)
def test_lists_have_what_policies_name_in_any_letter_case(
    lake: Lake, namespaces: Namespaces, name: tuple[str, ...], tables: dict[str, object], seen: list[str]
) -> None:
    below, owner = (*name, "Below"), lake.caller(ALICE)
    namespaces.create(owner, name, {})
    namespaces.create(owner, below, {})
    namespaces.create(owner, (*name, "hidden"), {})
    for table in ("Orders", "staff", "stock", "web"):
        lake.catalog().create_table((*below, table), SCHEMA)
    here = policy("here", {"database": [name[0]], "column": ["*"], "table": ["none"]}, {"erin": ["select"]})
    there = policy("there", {"database": [f"{name[0]}.bel*"], "column": ["*"]}, {"erin": ["select"]})
    there["resources"]["table"] = tables
    lake.set_policies([*standard_policies(), here, there])
    try:
        erin = lake.caller("erin")
        assert [each.name for each in namespaces.tables(erin, below)] == seen
        assert namespaces.children(erin, name) == [below]
    finally:
        lake.set_policies(standard_policies())


@pytest.mark.nightly
def test_a_list_is_decided_by_the_policies_of_its_beginning(
    lake: Lake, namespaces: Namespaces, name: tuple[str, ...]
) -> None:
    """Policies that change while the names are read show neither more nor less."""
    namespaces.create(lake.caller(ALICE), name, {})
    for table in ("a", "b"):
        lake.catalog().create_table((*name, table), SCHEMA)
    here = {"database": [name[0]], "table": ["*"], "column": ["*"]}
    lake.set_policies([*standard_policies(), policy("here", here, {"erin": ["select"]})])

    def changing(connection: Connection, catalog: str, wanted: Names) -> list[tuple[TableName, str]]:
        lake.set_policies(standard_policies())
        return name_lists.tables(connection, catalog, wanted)

    def listed() -> list[TableName]:
        context = namespaces._context
        return visible_names(context, lake.caller("erin"), "table.exists", name, changing, None).entries

    try:
        assert listed() == [TableName(name, "a"), TableName(name, "b")]
        assert listed() == []
    finally:
        lake.set_policies(standard_policies())


def test_what_is_not_governed_is_not_listed(
    lake: Lake, namespaces: Namespaces, name: tuple[str, ...]
) -> None:
    alice = lake.caller(ALICE)
    namespaces.create(alice, name, {})
    key = {"catalog_name": lake.settings.catalog.name, "table_namespace": name[0]}
    with write(lake.services.engine) as connection:
        for table, kind in (("foreign", "TABLE"), ("view", "VIEW"), ("old", None)):
            row = {"table_name": table, "iceberg_type": kind, "metadata_location": "file:///m.json"}
            connection.execute(insert(iceberg_tables).values(**key, **row))
    assert namespaces.tables(alice, name) == []
    with pytest.raises(NamespaceNotEmpty):
        namespaces.drop(alice, name)


@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize(
    "properties",
    [
        {"": "x"},
        {"k" * 256: "x"},
        {"k": "x" * 1001},
        {"lakewarden.unsealed": "maybe"},
        {"Lakewarden.Unsealed": "forbid"},
        {" lakewarden.unsealed": "forbid"},
    ],
    ids=lambda value: str(value)[:30],
)
def test_properties_that_cannot_hold_are_refused(
    lake: Lake, namespaces: Namespaces, name: tuple[str, ...], properties: dict[str, str]
) -> None:
    alice = lake.caller(ALICE)
    with pytest.raises(PropertyInvalid):
        namespaces.create(alice, name, properties)
    assert not namespaces.exists(alice, name)
    with pytest.raises(PropertyInvalid):
        namespaces.update(alice, ("bobs",), [], properties)
    assert namespaces.load(alice, ("bobs",)) == {}


def test_a_namespaces_location_is_authorized_like_any_path(lake: Lake, namespaces: Namespaces) -> None:
    bob = lake.caller(BOB)
    with pytest.raises(NotAuthorized):
        namespaces.update(bob, ("bobs",), [], {"location": "s3://victim/x"})
    with pytest.raises(LocationInvalid):
        namespaces.update(bob, ("bobs",), [], {"location": "../x"})
    assert namespaces.load(bob, ("bobs",)) == {}


def test_a_property_is_not_set_and_removed_at_once(lake: Lake, namespaces: Namespaces) -> None:
    with pytest.raises(RequestInvalid):
        namespaces.update(lake.caller(ALICE), ("bobs",), ["a"], {"a": "1"})


def test_what_does_not_exist_is_said_to_those_who_may_know(lake: Lake, namespaces: Namespaces) -> None:
    alice = lake.caller(ALICE)
    for ask in (namespaces.load, namespaces.tables, namespaces.drop, namespaces.children):
        with pytest.raises(NoSuchNamespace):
            ask(alice, ("absent",))
    with pytest.raises(NoSuchNamespace):
        namespaces.update(alice, ("absent",), [], {"a": "1"})
